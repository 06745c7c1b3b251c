// Copies a step's arguments, example indices and data to the device, and its metric sums back to the host. Slots in
// pinned memory let the host run several steps ahead of the device. A data set that fits is copied once; of another one
// each step's examples are.
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/step_arguments.hpp"
#include "core/cuda/device_streams.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace lockstep::cuda {

class StepStaging {
 public:
  static constexpr std::size_t slots = 32;

  /// `input_elements` and `target_elements` are those of one example, `metric_elements` those of the metrics parameter,
  /// `reduction` the loss's.
  StepStaging(DeviceStreams& device_streams, std::size_t capacity, std::size_t input_elements,
              std::size_t target_elements, std::size_t metric_elements, Reduction reduction);

  /// The arguments of the step that is running, in device memory.
  [[nodiscard]] const StepArguments* arguments() const noexcept { return arguments_.as<StepArguments>(); }

  /// Enqueues the arguments of a step on the compute stream. `metrics_slot` is in [0, slots).
  void upload(const StepContext& context, const UpdateRuleBytes& update_rule, const SharedUpdate& shared_update,
              std::size_t metrics_slot);

  /// The slots that the device writes and the host reads: a copy of the metrics parameter each.
  [[nodiscard]] float* metrics() const noexcept { return metrics_.as<float>(); }

  /// Frees the copies of data sets, after the steps in flight.
  void release_data();

 private:
  /// Inputs or targets on the host.
  struct Source {
    const void* data = nullptr;
    std::size_t bytes = 0;  ///< of an example
  };

  struct ResidentCopy {
    bool fits = false;
    DeviceBuffer inputs;
    DeviceBuffer targets;
  };

  [[nodiscard]] Source inputs_of(const DataView& data) const;
  [[nodiscard]] Source targets_of(const DataView& data) const;
  /// The copy of a data set; null: it has none, because it is too large or may change.
  [[nodiscard]] ResidentCopy* find_resident(const DataView& data);
  /// The device's copy of all examples.
  [[nodiscard]] const void* resident(const Source& source, std::size_t examples, DeviceBuffer& copy);
  /// Copies only the step's examples to the device, in their order.
  [[nodiscard]] const void* stage(const Source& source, std::span<const std::uint32_t> examples, DeviceBuffer& staged);
  void copy_now(void* to, const void* from, std::size_t bytes);

  DeviceStreams& device_streams_;
  std::size_t capacity_;
  std::size_t input_elements_;
  std::size_t target_elements_;
  Reduction reduction_;
  std::size_t slot_bytes_;
  PinnedBuffer pinned_;        ///< `slots` slots of arguments, example indices and sample weights
  DeviceBuffer arguments_;     ///< the same of the running step
  std::vector<Event> copied_;  ///< by slot: recorded when the slot may be overwritten
  std::size_t uploads_ = 0;
  PinnedBuffer metrics_;
  std::map<std::uint64_t, ResidentCopy> resident_;  ///< by Dataset::id
  DeviceBuffer staged_inputs_, staged_targets_;
  std::vector<std::byte> gathered_;
  Event event_;
};

}  // namespace lockstep::cuda
