// A graph bound to memory on a device: runs operations, updates weights, and copies parameters in and out.
#pragma once

#include "backend/arenas.hpp"
#include "backend/step_context.hpp"
#include "core/reduced_shard.hpp"
#include "graph/graph.hpp"

#include <lockstep/optimizers/optimizers.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// Runs the graph on local batches of up to the capacity that it was compiled for.
class Executable {
 public:
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  virtual ~Executable() = default;

  /// Enqueues the operation with this index. Allocates only in the first step of a new local batch size.
  virtual void run(std::size_t operation, const StepContext& context) = 0;

  /// Seconds of the last run() or update() on the device; none where the time of the call is that of the work, and
  /// where the device does not measure it.
  [[nodiscard]] virtual std::optional<double> measured_seconds() const { return std::nullopt; }

  /// Updates a shard of the weights. `iteration` counts optimizer steps from 1.
  virtual void update(const ReducedShard& shard, const Optimizer& optimizer, std::uint64_t iteration) = 0;

  /// Adds the squared gradients by which a step updates a shard to `sums`, one sum per parameter. A device that
  /// implements make_clip_scales accumulates them on the device instead.
  virtual void add_squared_gradients(const ReducedShard& shard, const Optimizer& optimizer, std::uint64_t iteration,
                                     std::span<double> sums) = 0;

  /// If the device holds the full gradients, computes the clip scales from the squares added since the last call,
  /// applies them to the updates that follow, and returns true. If it returns false, the caller computes the scales.
  [[nodiscard]] virtual bool make_clip_scales(const Clipping& /*clipping*/) { return false; }

  /// Begins a step: of training, or of an evaluation, which updates nothing and ignores the optimizer. Returns true if
  /// the device replays a captured graph of the whole step. If it returns false, the caller enqueues the operations and
  /// updates and then calls end_step. `capturable`: whether the communicator's work can be captured.
  [[nodiscard]] virtual bool try_replay(const StepContext& /*context*/, const Optimizer& /*optimizer*/,
                                        std::uint64_t /*iteration*/, bool /*capturable*/) {
    return false;
  }
  virtual void end_step() {}

  /// Whether the step that has begun is being captured rather than run: end_capture follows end_step. It is so on all
  /// ranks or on none.
  [[nodiscard]] virtual bool is_capturing() const noexcept { return false; }
  /// Ends the capture. Returns why it failed; empty if it did not.
  [[nodiscard]] virtual std::string end_capture() { return {}; }
  /// Runs the captured step.
  virtual void launch_capture() {}
  /// Forgets the captured step, which the caller enqueues again. No later step is captured.
  virtual void give_up_captures() {}

  /// How many steps may be in flight before their metrics are taken.
  [[nodiscard]] virtual std::size_t max_in_flight() const noexcept { return 1; }

  /// Waits for the oldest training step whose metrics have not been taken, and copies its metrics parameter.
  virtual void take_metrics(std::span<float> metrics) = 0;

  /// The same of a step whose metrics are this rank's, not all-reduced: of an evaluation, or of a training step that
  /// does not reduce them.
  virtual void take_local_metrics(std::span<float> metrics) = 0;

  /// Waits for all enqueued work, then copies a range of an arena to the host.
  virtual void read_bytes(std::span<const std::byte> arena, std::span<std::byte> values) const = 0;
  void read(std::span<const float> arena, std::span<float> values) const {
    read_bytes(std::as_bytes(arena), std::as_writable_bytes(values));
  }

  /// Copies a parameter between Keras' layout and an arena: weights or one slot.
  virtual void read_parameter(std::size_t parameter, std::span<const float> arena, std::span<float> values) const = 0;
  virtual void write_parameter(std::size_t parameter, std::span<const float> values, std::span<float> arena) const = 0;

  /// Converts a parameter that `read` has copied (ParameterSpec::storage floats) to Keras' layout. Touches neither
  /// device nor arenas, so another thread may call it during training.
  virtual void unpack_parameter(std::size_t parameter, std::span<const float> stored,
                                std::span<float> values) const = 0;

  /// Recomputes the low-precision copies of weights. Call it after write_parameter.
  virtual void update_low_precision_copies() = 0;

  /// The model's outputs of the last forward pass: [examples, output elements] in Keras' order, float32.
  [[nodiscard]] virtual std::span<const float> outputs(std::size_t output) = 0;

  /// Gives the memory of tensors back to the system until the next pass, and with it the outputs of the last one.
  virtual void release_tensors() {}

  /// Frees copies of data sets; the next step that needs one makes it again.
  virtual void release_data() {}

  /// The implementation of the operation with this index: "jit:avx512_core". For people and tests.
  [[nodiscard]] virtual std::string implementation(std::size_t operation) = 0;
};

}  // namespace lockstep
