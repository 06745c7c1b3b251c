// See step_feed.hpp.
#include "backend/cuda/step_feed.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <variant>

namespace lockstep::cuda {

StepFeed::StepFeed(DeviceQueue& queue, std::size_t capacity, std::size_t input_elements, std::size_t target_elements)
    : queue_(queue),
      capacity_(capacity),
      input_elements_(input_elements),
      target_elements_(target_elements),
      slot_bytes_((sizeof(StepArguments) + capacity * sizeof(std::uint32_t) + 63) / 64 * 64),
      pinned_(slots * slot_bytes_),
      arguments_(slot_bytes_),
      metrics_(slots * metric_places * sizeof(float)),
      event_(make_event()) {
  for (std::size_t slot = 0; slot < slots; ++slot) copied_.push_back(make_event());
}

void StepFeed::upload(const StepContext& context, const OptimizerScalars& optimizer, std::size_t metrics_slot) {
  const std::size_t count = context.examples.size();
  if (count > capacity_) {
    throw InternalError("a slice of " + std::to_string(count) + " examples exceeds the " + std::to_string(capacity_) +
                        " that memory was made for");
  }
  const std::size_t slot = uploads_++ % slots;
  queue_.wait_for(copied_[slot].get());
  auto* arguments = reinterpret_cast<StepArguments*>(pinned_.data() + slot * slot_bytes_);
  auto* examples = reinterpret_cast<std::uint32_t*>(arguments + 1);
  *arguments = {.examples = reinterpret_cast<const std::uint32_t*>(arguments_.as<StepArguments>() + 1),
                .seed = context.seed,
                .step = context.step,
                .first_place = static_cast<std::uint32_t>(context.first_place),
                .metrics_slot = static_cast<std::uint32_t>(metrics_slot),
                .gradient_scale = static_cast<float>(context.gradient_scale),
                .replica_share = 1.0F / static_cast<float>(std::max<std::size_t>(context.total_replicas, 1)),
                .request = context.request,
                .optimizer = optimizer};
  const auto place = [&](const auto* data, std::size_t elements, DeviceBuffer& staged) -> const void* {
    if (data == nullptr || count == 0) return nullptr;
    const std::size_t bytes = elements * sizeof *data;
    return context.data.lasting ? resident(data, context.data.examples, bytes)
                                : stage(data, context.examples, bytes, staged);
  };
  std::visit([&](const auto* data) { arguments->inputs = place(data, input_elements_, staged_inputs_); },
             context.data.inputs);
  std::visit(
      [&](const auto* data) {
        const bool classes = std::is_same_v<decltype(data), const std::int32_t*>;
        arguments->targets = place(data, classes ? 1 : target_elements_, staged_targets_);
      },
      context.data.targets);
  if (context.data.lasting) {
    std::copy(context.examples.begin(), context.examples.end(), examples);
  } else {
    std::iota(examples, examples + count, 0U);
  }
  check(cudaMemcpyAsync(arguments_.data(), arguments, sizeof(StepArguments) + count * sizeof(std::uint32_t),
                        cudaMemcpyHostToDevice, queue_.compute()),
        "cudaMemcpyAsync");
  check(cudaEventRecord(copied_[slot].get(), queue_.compute()), "cudaEventRecord");
}

const void* StepFeed::resident(const void* data, std::size_t examples, std::size_t bytes) {
  DeviceBuffer& copy = resident_[data];
  if (copy.size() == examples * bytes) return copy.data();
  queue_.finish();  // steps under way may read the old copy
  copy = DeviceBuffer(examples * bytes);
  copy_now(copy.data(), data, copy.size());
  return copy.data();
}

const void* StepFeed::stage(const void* data, std::span<const std::uint32_t> examples, std::size_t bytes,
                            DeviceBuffer& staged) {
  gathered_.resize(examples.size() * bytes);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    std::memcpy(gathered_.data() + i * bytes, static_cast<const std::byte*>(data) + examples[i] * bytes, bytes);
  }
  queue_.finish();  // steps under way may read what was staged before
  if (staged.size() < capacity_ * bytes) staged = DeviceBuffer(capacity_ * bytes);
  copy_now(staged.data(), gathered_.data(), gathered_.size());
  return staged.data();
}

void StepFeed::copy_now(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, queue_.compute()), "cudaMemcpyAsync");
  check(cudaEventRecord(event_.get(), queue_.compute()), "cudaEventRecord");
  queue_.wait_for(event_.get());
}

}  // namespace lockstep::cuda
