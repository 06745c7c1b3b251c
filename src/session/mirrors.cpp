// See mirrors.hpp.
#include "session/mirrors.hpp"

#include "checkpoint/keras/keras_config.hpp"
#include "core/digest.hpp"
#include "core/fault_point.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <set>

namespace lockstep {

namespace {

/// A block stays in the second-level cache between its copy and its digest.
constexpr std::size_t block_elements = std::size_t{64} << 10U;

bool is_mirrored(const ParameterSpec& parameter, bool is_local) {
  return parameter.is_local == is_local && !parameter.is_sharded && parameter.storage > 0;
}

/// A rank's part of the blocks of a mirror: first, first + stride, ...
struct Part {
  std::size_t first = 0;
  std::size_t stride = 1;
};

/// The sum of the digests of a part's blocks. It does not depend on who computes which.
class BlockSum {
 public:
  explicit BlockSum(const Part& part) : part_(part) {}

  /// Adds the blocks of an array. `read(begin, count)` returns the bytes of some of its elements.
  template <typename Read>
  void add(std::size_t elements, const Read& read) {
    for (std::size_t begin = 0; begin < elements; begin += block_elements, ++number_) {
      if (number_ % part_.stride != part_.first) continue;
      const std::span<const std::byte> block = read(begin, std::min(block_elements, elements - begin));
      Digest digest;
      digest.add(&number_, sizeof number_);
      digest.add(block.data(), block.size());
      sum_ += digest.value();
    }
  }

  [[nodiscard]] std::uint64_t value() const noexcept { return sum_; }

 private:
  Part part_;
  std::uint64_t number_ = 0;  ///< of blocks so far
  std::uint64_t sum_ = 0;
};

/// Adds up blocks of the variables. `read(array, begin, count)` returns elements of the arena of weights (`array` 0) or
/// of a slot's.
template <typename Read>
std::uint64_t add_blocks(const Plan& plan, std::size_t slots, bool is_local, const Part& part, const Read& read) {
  BlockSum sum(part);
  const auto variables = static_cast<std::size_t>(plan.graph.metrics_parameter());
  for (std::size_t v = 0; v < variables; ++v) {
    const ParameterSpec& parameter = plan.graph.parameters[v];
    if (!is_mirrored(parameter, is_local)) continue;
    for (std::size_t array = 0; array <= (parameter.info.trainable ? slots : 0); ++array) {
      sum.add(parameter.storage, [&](std::size_t begin, std::size_t count) {
        return std::as_bytes(std::span<const float>(read(array, parameter.offset + begin, count)));
      });
    }
  }
  return sum.value();
}

std::size_t slots_in(const CompiledModel& model) {
  return static_cast<std::size_t>(num_slots(model.options.optimizer));
}

std::uint64_t add_blocks_of(const CompiledModel& model, bool is_local, const Part& part) {
  std::vector<float> buffer(block_elements);
  const Arenas& arenas = is_local ? model.local : model.arenas;
  return add_blocks(
      model.plan(), slots_in(model), is_local, part, [&](std::size_t array, std::size_t begin, std::size_t count) {
        const std::span<const float> from =
            array == 0 ? std::span<const float>(arenas.weights).subspan(begin, count)
                       : std::span<const float>(arenas.slots).subspan((array - 1) * arenas.elements + begin, count);
        const std::span<float> to = std::span(buffer).first(count);
        model.executable().read(from, to);
        return to;
      });
}

/// Adds up blocks of the bfloat16 copies of frozen weights. Each update writes the copies of the other weights anew.
std::uint64_t add_frozen_copies(const CompiledModel& model, bool is_local, const Part& part) {
  const Arenas& arenas = is_local ? model.local : model.arenas;
  if (arenas.low_precision.empty()) return 0;
  std::vector<std::uint16_t> buffer(block_elements);
  BlockSum sum(part);
  for (const ParameterSpec& parameter : model.plan().graph.parameters) {
    if (parameter.rule != UpdateRule::frozen || !is_mirrored(parameter, is_local)) continue;
    sum.add(parameter.storage, [&](std::size_t begin, std::size_t count) {
      const std::span<std::uint16_t> to = std::span(buffer).first(count);
      model.executable().read_bytes(std::as_bytes(arenas.low_precision.subspan(parameter.offset + begin, count)),
                                    std::as_writable_bytes(to));
      return std::as_bytes(to);
    });
  }
  return sum.value();
}

/// Of the numbers that every rank counts or keeps for itself and that its steps depend on.
std::uint64_t digest_of_numbers(const CompiledModel& model) {
  std::uint64_t iteration = model.iteration;
  fault_point("iteration", std::as_writable_bytes(std::span(&iteration, 1)));
  const std::uint64_t seed = model.run_context.options().seed;
  const std::string options = training_config_to_json(model.options);  // callbacks change the learning rate
  Digest digest;
  digest.add(&iteration, sizeof iteration);
  digest.add(&seed, sizeof seed);
  digest.add(options.data(), options.size());
  return digest.value();
}

/// Lets tests corrupt state that no gradient would carry to the weights before the comparison.
void reach_fault_points(const CompiledModel& model) {
  const Arenas& arenas = model.sharding ? model.local : model.arenas;
  fault_point("slots", std::as_writable_bytes(arenas.slots));
  const auto& parameters = model.plan().graph.parameters;
  const auto statistic = std::ranges::find(parameters, UpdateRule::moving_average, &ParameterSpec::rule);
  if (statistic != parameters.end()) {
    fault_point("statistics", std::as_writable_bytes(
                                  model.arenas.of(*statistic).weights.subspan(statistic->offset, statistic->storage)));
  }
  const auto frozen = std::ranges::find(parameters, UpdateRule::frozen, &ParameterSpec::rule);
  if (frozen != parameters.end() && !arenas.low_precision.empty()) {
    fault_point("copies", std::as_writable_bytes(
                              model.arenas.of(*frozen).low_precision.subspan(frozen->offset, frozen->storage)));
  }
}

/// This rank's digests. `with_arenas`: its part of its host's weights and slots, too.
MirrorDigest digest_of(const CompiledModel& model, bool with_arenas) {
  model.synchronize();
  reach_fault_points(model);
  const std::vector<int> mirrors = model.communicator->mirror_of_rank();
  const auto me = mirrors.begin() + model.communicator->rank();
  const Part part{static_cast<std::size_t>(std::count(mirrors.begin(), me, *me)),
                  static_cast<std::size_t>(std::count(mirrors.begin(), mirrors.end(), *me))};
  MirrorDigest digest;
  digest.host = add_frozen_copies(model, false, part);
  if (with_arenas) digest.host += add_blocks_of(model, false, part);
  digest.rank = digest_of_numbers(model);
  if (model.sharding) digest.rank += add_blocks_of(model, true, {}) + add_frozen_copies(model, true, {});
  return digest;
}

std::vector<MirrorDigest> gather(const CompiledModel& model, const MirrorDigest& mine) {
  std::vector<MirrorDigest> digests;
  for (const std::string& text : model.run_context.control().all_gather(to_hex(mine.host) + to_hex(mine.rank))) {
    constexpr std::size_t digits = 16;
    const auto number = [](const std::string& hex) { return std::stoull(hex, nullptr, 16); };
    digests.push_back({number(text.substr(0, digits)), number(text.substr(digits))});
  }
  return digests;
}

/// The members whose value is not the most frequent one. Empty if all values are equal; all members if none is most
/// frequent, since nobody can say then who is right.
std::set<int> find_odd_ones(const std::map<int, std::uint64_t>& values) {
  std::map<std::uint64_t, std::size_t> counts;
  for (const auto& [member, value] : values) ++counts[value];
  if (counts.size() < 2) return {};
  const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::max_element(counts.begin(), counts.end(), by_count);
  const bool is_clear =
      std::count_if(counts.begin(), counts.end(), [&](const auto& entry) { return entry.second == most->second; }) == 1;
  std::set<int> odd;
  for (const auto& [member, value] : values) {
    if (!is_clear || value != most->first) odd.insert(member);
  }
  return odd;
}

std::string list_of(const std::set<int>& ranks) {
  std::string list = ranks.size() == 1 ? "worker " : "workers ";
  std::size_t left = ranks.size();
  for (const int rank : ranks) list += fmt::format("{}{}", rank, --left == 0 ? "" : left == 1 ? " and " : ", ");
  return list;
}

}  // namespace

bool has_mirrors(const CompiledModel& model) {
  const std::vector<int> mirrors = model.communicator->mirror_of_rank();
  const auto differs = [&](int mirror) { return mirror != mirrors.front(); };
  if (std::any_of(mirrors.begin(), mirrors.end(), differs)) return true;
  const auto& parameters = model.plan().graph.parameters;
  return mirrors.size() > 1 && std::any_of(parameters.begin(), parameters.end(),
                                           [](const ParameterSpec& parameter) { return is_mirrored(parameter, true); });
}

std::vector<MirrorDigest> gather_mirror_digests(const CompiledModel& model) {
  const std::vector<int> mirrors = model.communicator->mirror_of_rank();
  const bool is_chiefs = mirrors[static_cast<std::size_t>(model.communicator->rank())] == mirrors.front();
  return gather(model, digest_of(model, model.sharding || !is_chiefs));
}

std::uint64_t digest_of_copy(const Plan& plan, std::size_t slots, std::span<const float> values) {
  return add_blocks(plan, slots, false, {}, [&](std::size_t array, std::size_t begin, std::size_t count) {
    return values.subspan(offset_in_copy(plan, array) + begin, count);
  });
}

void require_equal_mirrors(std::span<const MirrorDigest> digests, std::span<const int> mirror_of_rank,
                           std::uint64_t step) {
  std::map<int, std::uint64_t> by_mirror;
  std::map<int, std::uint64_t> by_rank;
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    by_mirror[mirror_of_rank[rank]] += digests[rank].host;
    by_rank[static_cast<int>(rank)] = digests[rank].rank;
  }
  const std::set<int> odd_mirrors = find_odd_ones(by_mirror);
  std::set<int> odd = find_odd_ones(by_rank);
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    if (odd_mirrors.contains(mirror_of_rank[rank])) odd.insert(static_cast<int>(rank));
  }
  if (odd.empty()) return;
  throw PeerError(fmt::format(
      "after optimizer step {}, {} of {} {} other weights or optimizer state than the rest, though all had the same "
      "gradients: a processor or a memory made an error; nothing was saved, and training goes on from the last backup; "
      "if it happens again on the same machine, stop using that one",
      step, list_of(odd), digests.size(), odd.size() == 1 ? "holds" : "hold"));
}

void compare_mirrors(const CompiledModel& model) {
  if (!has_mirrors(model)) return;
  require_equal_mirrors(gather(model, digest_of(model, true)), model.communicator->mirror_of_rank(), model.iteration);
}

}  // namespace lockstep
