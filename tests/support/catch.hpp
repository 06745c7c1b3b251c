// Includes Catch2 of Debian 12 (version 2) or Debian 13 (version 3). Tests include this header instead of Catch2's.
#pragma once

#if LOCKSTEP_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
