// What goes to the device before a step and comes back after it: the step's arguments with its example numbers, the
// data set they number, and metric sums. Slots in pinned memory let the host run ahead of the device by a few steps.
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/step_arguments.hpp"
#include "core/cuda/device_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace lockstep::cuda {

class StepFeed {
 public:
  static constexpr std::size_t slots = 32;

  /// `input_elements` and `target_elements` are those of one example.
  StepFeed(DeviceQueue& queue, std::size_t capacity, std::size_t input_elements, std::size_t target_elements);

  /// Where kernels find the arguments of the step they belong to.
  [[nodiscard]] const StepArguments* arguments() const noexcept { return arguments_.as<StepArguments>(); }

  /// Enqueues the arguments of a step on the compute stream. `metrics_slot` is in [0, slots).
  void upload(const StepContext& context, const OptimizerScalars& optimizer, std::size_t metrics_slot);

  /// Metric sums as the device left them in their slots, metric_places each.
  [[nodiscard]] float* metrics() const noexcept { return metrics_.as<float>(); }

 private:
  /// The device's address of a data set whose examples have so many bytes each.
  [[nodiscard]] const void* resident(const void* data, std::size_t examples, std::size_t bytes);
  /// The same of just the step's examples, put there in their order.
  [[nodiscard]] const void* stage(const void* data, std::span<const std::uint32_t> examples, std::size_t bytes,
                                  DeviceBuffer& staged);
  void copy_now(void* to, const void* from, std::size_t bytes);

  DeviceQueue& queue_;
  std::size_t capacity_;
  std::size_t input_elements_;
  std::size_t target_elements_;
  std::size_t slot_bytes_;
  PinnedBuffer pinned_;        ///< the arguments, slot by slot
  DeviceBuffer arguments_;     ///< of the step that the compute stream is at, then its examples
  std::vector<Event> copied_;  ///< when a slot may be filled anew
  std::size_t uploads_ = 0;
  PinnedBuffer metrics_;
  std::map<const void*, DeviceBuffer> resident_;
  DeviceBuffer staged_inputs_, staged_targets_;
  std::vector<std::byte> gathered_;
  Event event_;
};

}  // namespace lockstep::cuda
