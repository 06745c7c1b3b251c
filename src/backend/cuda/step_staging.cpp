// See step_staging.hpp.
#include "backend/cuda/step_staging.hpp"

#include "backend/loss_scale.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <variant>

namespace lockstep::cuda {

StepStaging::StepStaging(DeviceStreams& device_streams, std::size_t capacity, std::size_t input_elements,
                         std::size_t target_elements, std::size_t metric_elements, Reduction reduction)
    : device_streams_(device_streams),
      capacity_(capacity),
      input_elements_(input_elements),
      target_elements_(target_elements),
      reduction_(reduction),
      slot_bytes_((sizeof(StepArguments) + capacity * (sizeof(std::uint32_t) + sizeof(float)) + 63) / 64 * 64),
      pinned_(slots * slot_bytes_),
      arguments_(slot_bytes_),
      metrics_(slots * metric_elements * sizeof(float)),
      event_(make_event()) {
  for (std::size_t slot = 0; slot < slots; ++slot) copied_.push_back(make_event());
}

void StepStaging::upload(const StepContext& context, const UpdateRuleBytes& update_rule,
                         const SharedUpdate& shared_update, std::size_t metrics_slot) {
  const std::size_t count = context.examples.size();
  if (count > capacity_) {
    throw InternalError(fmt::format("a local batch of {} examples exceeds the capacity of {}", count, capacity_));
  }
  const std::size_t slot = uploads_++ % slots;
  device_streams_.wait_for(copied_[slot].get());
  auto* arguments = reinterpret_cast<StepArguments*>(pinned_.data() + slot * slot_bytes_);
  auto* examples = reinterpret_cast<std::uint32_t*>(arguments + 1);
  auto* weights = reinterpret_cast<float*>(examples + count);
  const auto* device_examples = reinterpret_cast<const std::uint32_t*>(arguments_.as<StepArguments>() + 1);
  const bool is_weighted = !context.sample_weights.empty();
  const LossScale scale = loss_scale(reduction_, context);
  *arguments = {.examples = device_examples,
                .seed = context.seed,
                .step = context.step,
                .batch_offset = static_cast<std::uint32_t>(context.batch_offset),
                .metrics_slot = static_cast<std::uint32_t>(metrics_slot),
                .sample_weights = is_weighted ? reinterpret_cast<const float*>(device_examples + count) : nullptr,
                .gradient_scale = static_cast<float>(scale.gradient),
                .loss_scale = static_cast<float>(scale.loss),
                .replica_weight = 1.0F / static_cast<float>(std::max<std::size_t>(context.total_replicas, 1)),
                .request = context.request,
                .update_rule = update_rule,
                .shared_update = shared_update};
  const Source inputs = inputs_of(context.data);
  const Source targets = targets_of(context.data);
  if (ResidentCopy* const copy = find_resident(context.data)) {
    arguments->inputs = resident(inputs, context.data.examples, copy->inputs);
    arguments->targets = resident(targets, context.data.examples, copy->targets);
    std::copy(context.examples.begin(), context.examples.end(), examples);
  } else {
    arguments->inputs = stage(inputs, context.examples, staged_inputs_);
    arguments->targets = stage(targets, context.examples, staged_targets_);
    std::iota(examples, examples + count, 0U);
  }
  std::ranges::copy(context.sample_weights, weights);
  check(cudaMemcpyAsync(arguments_.data(), arguments,
                        sizeof(StepArguments) + count * sizeof(std::uint32_t) + context.sample_weights.size_bytes(),
                        cudaMemcpyHostToDevice, device_streams_.compute()),
        "cudaMemcpyAsync");
  check(cudaEventRecord(copied_[slot].get(), device_streams_.compute()), "cudaEventRecord");
}

StepStaging::Source StepStaging::inputs_of(const DataView& data) const {
  return std::visit(
      [this](const auto* values) {
        return Source{values, input_elements_ * sizeof *values};
      },
      data.input(0));
}

StepStaging::Source StepStaging::targets_of(const DataView& data) const {
  return std::visit(
      [this](const auto* values) {
        const bool are_classes = std::is_same_v<decltype(values), const std::int32_t*>;
        return Source{values, (are_classes ? 1 : target_elements_) * sizeof *values};
      },
      data.target(0));
}

StepStaging::ResidentCopy* StepStaging::find_resident(const DataView& data) {
  if (data.dataset_id == 0) return nullptr;
  const auto [copy, is_new] = resident_.try_emplace(data.dataset_id);
  if (is_new) {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const std::size_t bytes = data.examples * (inputs_of(data).bytes + targets_of(data).bytes);
    copy->second.fits = bytes <= free / 10 * 9;  // the rest is for kernels of further batch sizes
    if (!copy->second.fits) {
      constexpr unsigned mebibyte = 20;
      log_warning(
          fmt::format("the data set has {} MiB, but {} of the GPU's {} MiB are free: it is copied batch by batch",
                      bytes >> mebibyte, free >> mebibyte, total >> mebibyte));
    }
  }
  return copy->second.fits ? &copy->second : nullptr;
}

const void* StepStaging::resident(const Source& source, std::size_t examples, DeviceBuffer& copy) {
  if (source.data == nullptr) return nullptr;
  if (copy.size() == 0) {
    copy = DeviceBuffer(examples * source.bytes);
    copy_now(copy.data(), source.data, copy.size());
  }
  return copy.data();
}

void StepStaging::release_data() {
  device_streams_.synchronize();
  resident_.clear();
}

const void* StepStaging::stage(const Source& source, std::span<const std::uint32_t> examples, DeviceBuffer& staged) {
  const std::size_t bytes = source.bytes;
  if (source.data == nullptr || examples.empty()) return nullptr;
  gathered_.resize(examples.size() * bytes);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    std::memcpy(gathered_.data() + i * bytes, static_cast<const std::byte*>(source.data) + examples[i] * bytes, bytes);
  }
  device_streams_.synchronize();  // steps in flight may read the staged examples of earlier steps
  if (staged.size() < capacity_ * bytes) staged = DeviceBuffer(capacity_ * bytes);
  copy_now(staged.data(), gathered_.data(), gathered_.size());
  return staged.data();
}

void StepStaging::copy_now(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, device_streams_.compute()), "cudaMemcpyAsync");
  check(cudaEventRecord(event_.get(), device_streams_.compute()), "cudaEventRecord");
  device_streams_.wait_for(event_.get());
}

}  // namespace lockstep::cuda
