// Shared by the tests of communicators: assignments of ranks to hosts, buckets, and a minimal optimizer.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective/communicator.hpp"
#include "core/digest.hpp"
#include "core/random.hpp"

namespace lockstep::testing {

/// All assignments of ranks to hosts. Hosts are numbered by their first ranks.
inline std::vector<std::vector<int>> all_host_assignments(int ranks) {
  std::vector<std::vector<int>> assignments{{}};
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& assignment : assignments) {
      const int hosts = assignment.empty() ? 0 : 1 + *std::ranges::max_element(assignment);
      for (int host = 0; host <= hosts; ++host) {
        longer.push_back(assignment);
        longer.back().push_back(host);
      }
    }
    assignments = longer;
  }
  return assignments;
}

inline std::string text_of(const std::vector<int>& hosts) {
  std::string text;
  for (const int host : hosts) text += std::to_string(host) + ' ';
  return text;
}

/// Buckets of the given sizes in random order, separated by gaps that belong to no bucket.
struct Layout {
  std::vector<Range> buckets;
  std::size_t elements = 0;

  explicit Layout(RandomStream& random) {
    std::vector<std::size_t> sizes{0, 1, 15, 16, 17, 1000, 100003, 270001};
    for (std::size_t i = sizes.size(); i > 1; --i) {
      std::swap(sizes[i - 1], sizes[random.below(static_cast<std::uint32_t>(i))]);
    }
    for (const std::size_t size : sizes) {
      elements += random.below(40);
      buckets.push_back({elements, elements + size});
      elements += size;
    }
    elements += random.below(40);
  }
};

/// A minimal optimizer: ranks compute `gradient(i)`; owners add the sum to the weights and count the updates.
struct Trainer {
  Communicator& communicator;
  const Layout& layout;
  ArenaMemory arenas;
  float* weights;
  float* updates;

  Trainer(Communicator& with, const Layout& of)
      : communicator(with),
        layout(of),
        arenas(with.allocate(of.elements, 2 * of.elements * sizeof(float), of.buckets)),
        weights(reinterpret_cast<float*>(arenas.mirrored.data())),
        updates(weights + of.elements) {}

  void update(std::size_t bucket) {
    const ReducedShard shard = communicator.wait_reduced(bucket);
    for (std::size_t i = shard.begin; i < shard.end; ++i) {
      float sum = 0;
      for (const float* source : shard.sources) sum += source[i];
      weights[i] += sum;
      updates[i] += 1;
    }
    communicator.mark_updated(bucket);
  }

  /// Waits for each bucket `lag` buckets after it was marked ready.
  template <typename Gradient>
  void step(std::size_t lag, Gradient gradient) {
    const std::size_t count = layout.buckets.size();
    for (std::size_t b = 0; b < count; ++b) {
      for (std::size_t i = layout.buckets[b].begin; i < layout.buckets[b].end; ++i) arenas.gradients[i] = gradient(i);
      communicator.mark_ready(b);
      if (b >= lag) update(b - lag);
    }
    for (std::size_t b = count - lag; b < count; ++b) update(b);
    for (std::size_t b = 0; b < count; ++b) communicator.wait_updated(b);
  }
};

inline std::uint64_t digest_of(std::span<const float> values) {
  std::uint64_t digest = fnv1a_basis;
  for (const float value : values) digest = fnv1a(digest, std::bit_cast<std::uint32_t>(value));
  return digest;
}

inline bool equal_on_all_ranks(Communicator& communicator, const std::string& text) {
  const std::vector<std::string> texts = communicator.all_gather(text);
  return texts.size() == static_cast<std::size_t>(communicator.size()) &&
         std::ranges::all_of(texts, [&](const std::string& other) { return other == text; });
}

}  // namespace lockstep::testing
