// Comparison of what several ranks hold: each host has a mirror of the weights, of the optimizer's slots and of frozen
// weights' copies in bfloat16, each rank of a tensor-parallel model has the variables that are not sharded, and each
// rank has the iteration, the seed and the optimizer's options. A difference means that a processor or a memory made an
// error; every later step would go on from it.
#pragma once

#include "session/compiled_model.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A rank's digests of what other ranks hold too.
struct MirrorDigest {
  std::uint64_t host = 0;  ///< of this rank's part of its host's mirror; the parts of a host add up
  std::uint64_t rank = 0;  ///< of what each rank has: iteration, seed, options; if tensor parallel, unsharded variables
  friend bool operator==(const MirrorDigest&, const MirrorDigest&) = default;
};

/// Whether anything is held twice; the same on all ranks.
[[nodiscard]] bool has_mirrors(const CompiledModel& model);

/// Collective: the digests of all ranks, between two steps. The chief's host of a data-parallel model leaves weights
/// and slots out, because the chief has copied them: digest_of_copy() can follow on another thread, and is added.
[[nodiscard]] std::vector<MirrorDigest> gather_mirror_digests(const CompiledModel& model);

/// The part of MirrorDigest::host for a mirror's weights and slots, of which `values` is a copy: the arena of weights,
/// then those of the slots.
[[nodiscard]] std::uint64_t digest_of_copy(const Plan& plan, std::size_t slots, std::span<const float> values);

/// Throws PeerError, which names the ranks that differ, unless all mirrors are equal. `mirror_of_rank`: see
/// Communicator.
void require_equal_mirrors(std::span<const MirrorDigest> digests, std::span<const int> mirror_of_rank,
                           std::uint64_t step);

/// Collective: compares at once, whatever it costs.
void compare_mirrors(const CompiledModel& model);

}  // namespace lockstep
