// y = scale x + shift with a layer's constants: one for all channels, or one for each.
#include "layers/affine.hpp"
#include "backend/cpu/example_kernel.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

template <typename T>
class AffineKernel final : public ExampleKernel<T> {
 public:
  explicit AffineKernel(const KernelScope& scope) : ExampleKernel<T>(scope) {
    const TensorSpec& tensor = this->output();
    const Affine affine = affine_of(scope.layer().layer);
    for (std::int64_t c = 0; c < tensor.channels; ++c) {
      const auto channel = static_cast<std::size_t>(tensor.first_channel + c);
      scale_.push_back(affine.scale[std::min(channel, affine.scale.size() - 1)]);
      shift_.push_back(affine.shift[std::min(channel, affine.shift.size() - 1)]);
    }
    no_shift_.resize(shift_.size());
  }

 protected:
  void run_forward(std::int64_t /*example*/, const StepContext& /*context*/, const T* x, T* y) override {
    apply(x, shift_, y);
  }
  void run_backward(std::int64_t /*example*/, const StepContext& /*context*/,
                    const typename ExampleKernel<T>::Backward& at) override {
    apply(at.y_gradient, no_shift_, at.x_gradient);
  }

 private:
  void apply(const T* from, const std::vector<float>& shift, T* to) const {
    const TensorSpec& tensor = this->output();
    const std::int64_t block = tensor.block();
    for (std::int64_t first = 0; first < tensor.channels; first += block) {
      for (std::int64_t pixel = 0; pixel < tensor.height * tensor.width; ++pixel, from += block, to += block) {
        for (std::int64_t c = 0; c < block; ++c) {
          to[c] = static_cast<float>(from[c]) * scale_[first + c] + shift[first + c];
        }
      }
    }
  }

  std::vector<float> scale_;  ///< by channel
  std::vector<float> shift_;
  std::vector<float> no_shift_;
};

}  // namespace

std::unique_ptr<Kernel> make_affine(const KernelScope& scope) { return make_for_type<AffineKernel>(scope); }

}  // namespace lockstep
