// The values that change from step to step, in device memory. A replayed step has the same kernels and pointers as the
// captured one and reads everything else from here. Before each step the host copies a StepArguments to the device.
#pragma once

#include "core/host_device.hpp"
#include "core/stop_request.hpp"
#include "optimizers/shared_update.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lockstep::cuda {

/// A step's update rule (see optimizers/optimizer_registry.hpp) as bytes. Kernels know its type, which is the same in
/// every step.
class UpdateRuleBytes {
 public:
  UpdateRuleBytes() = default;
  template <typename Rule>
  explicit UpdateRuleBytes(const Rule& rule) {
    static_assert(sizeof(Rule) <= max_size && alignof(Rule) <= alignment && std::is_trivially_copyable_v<Rule>);
    std::memcpy(bytes_, &rule, sizeof rule);
  }

  template <typename Rule>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE const Rule& as() const {
    return *reinterpret_cast<const Rule*>(bytes_);
  }

 private:
  static constexpr std::size_t max_size = 64;
  static constexpr std::size_t alignment = 8;
  alignas(alignment) std::byte bytes_[max_size] = {};  // NOLINT(*-avoid-c-arrays): read on the device
};

struct StepArguments {
  const void* inputs = nullptr;   ///< in device memory, indexed by `examples`
  const void* targets = nullptr;  ///< in device memory, indexed by `examples`
  const std::uint32_t* examples = nullptr;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t batch_offset = 0;         ///< index of examples[0] in the global batch
  std::uint32_t metrics_slot = 0;         ///< the slot from which the host reads this step's metric sums
  const float* sample_weights = nullptr;  ///< of the rank's examples; null: all are 1
  float gradient_scale = 0;
  float loss_scale = 0;      ///< see LossScale
  float replica_weight = 0;  ///< 1 / replicas with examples, over all ranks
  StopRequest request = StopRequest::none;
  UpdateRuleBytes update_rule = {};
  SharedUpdate shared_update = {};
};

}  // namespace lockstep::cuda
