// One pass of an optimizer as plain loops that the compiler vectorizes: the cost of an update's memory traffic.
#include "core/aligned_buffer.hpp"
#include "core/bfloat16.hpp"
#include "core/random.hpp"
#include "core/vector_width.hpp"
#include "micro/bare.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::bench {

namespace {

struct UpdateBuffers {
  UpdateBuffers(const Optimizer& optimizer, std::size_t elements, int sources, bool low_precision)
      : slots(static_cast<std::size_t>(num_slots(optimizer))) {
    const auto make = [&] {
      AlignedBuffer buffer(elements * sizeof(float));
      fill_like_weights(buffer.as<float>());
      return buffer;
    };
    weights = make();
    for (int i = 0; i < sources; ++i) gradients.push_back(make());
    for (AlignedBuffer& slot : slots) {
      slot = make();
      for (float& value : slot.as<float>()) value = std::abs(value);
    }
    if (low_precision) low = AlignedBuffer(elements * sizeof(BFloat16));
  }

  AlignedBuffer weights;
  AlignedBuffer low;
  std::vector<AlignedBuffer> gradients;
  std::vector<AlignedBuffer> slots;
};

/// Calls step(i, gradient) for each element, then copies the weights to bfloat16 if `low` is not null.
template <typename Step>
void pass(const float* w, const float* g, const float* h, std::uint16_t* low, std::size_t count, const Step& step) {
  run_vectorized([=] {
    if (h != nullptr) {
      for (std::size_t i = 0; i < count; ++i) step(i, g[i] + h[i]);
    } else {
      for (std::size_t i = 0; i < count; ++i) step(i, g[i]);
    }
    if (low == nullptr) return;
    for (std::size_t i = 0; i < count; ++i) low[i] = BFloat16(w[i]).bits;
  });
}

void sgd_pass(float* __restrict w, const float* g, const float* h, std::uint16_t* low, std::size_t count) {
  pass(w, g, h, low, count, [w](std::size_t i, float gradient) { w[i] -= 0.001F * gradient; });
}

void momentum_pass(float* __restrict w, float* __restrict m, const float* g, const float* h, std::uint16_t* low,
                   std::size_t count) {
  pass(w, g, h, low, count, [w, m](std::size_t i, float gradient) {
    m[i] = 0.9F * m[i] - 0.01F * gradient;
    w[i] += m[i];
  });
}

void adam_pass(float* __restrict w, float* __restrict m, float* __restrict v, const float* g, const float* h,
               std::uint16_t* low, std::size_t count) {
  pass(w, g, h, low, count, [w, m, v](std::size_t i, float gradient) {
    m[i] += (gradient - m[i]) * 0.1F;
    v[i] += (gradient * gradient - v[i]) * 0.001F;
    w[i] -= 0.001F * m[i] / (std::sqrt(v[i]) + 1e-7F);
  });
}

void update_pass(const UpdateBuffers& buffers) {
  constexpr std::size_t block = 4096;  // elements; still in the first-level cache when the low-precision copy is made
  const std::size_t elements = buffers.weights.size() / sizeof(float);
  const auto at = [](const AlignedBuffer& buffer, std::size_t i) { return buffer.as<float>().data() + i; };
  for (std::size_t i = 0; i < elements; i += block) {
    const std::size_t count = std::min(block, elements - i);
    const float* second = buffers.gradients.size() > 1 ? at(buffers.gradients[1], i) : nullptr;
    std::uint16_t* low = buffers.low.size() > 0 ? buffers.low.as<std::uint16_t>().data() + i : nullptr;
    if (buffers.slots.size() == 2) {
      adam_pass(at(buffers.weights, i), at(buffers.slots[0], i), at(buffers.slots[1], i), at(buffers.gradients[0], i),
                second, low, count);
    } else if (buffers.slots.size() == 1) {
      momentum_pass(at(buffers.weights, i), at(buffers.slots[0], i), at(buffers.gradients[0], i), second, low, count);
    } else {
      sgd_pass(at(buffers.weights, i), at(buffers.gradients[0], i), second, low, count);
    }
  }
}

}  // namespace

void fill_like_weights(std::span<float> values) {
  RandomStream random(1, RandomPurpose::test, 7);
  for (float& value : values) value = random.uniform() - 0.5F;
}

BareKernel bare_update(const Optimizer& optimizer, std::size_t elements, int sources, bool low_precision) {
  auto buffers = std::make_shared<UpdateBuffers>(optimizer, elements, sources, low_precision);
  return {"pass", "loop", "loop", [buffers] { update_pass(*buffers); }};
}

}  // namespace lockstep::bench
