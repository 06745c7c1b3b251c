// What zip files, gzip files and their readers know of the deflate format.
#pragma once

#include <cstdint>

namespace lockstep {

/// The largest ratio of decompressed to compressed bytes that deflate can reach. Headers that declare more are wrong.
inline constexpr std::uint64_t max_deflate_ratio = 1032;

}  // namespace lockstep
