// Catch2 as Debian 12 (version 2) and Debian 13 (version 3) have it. Tests include this and nothing of Catch2 itself.
#pragma once

#if LOCKSTEP_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
