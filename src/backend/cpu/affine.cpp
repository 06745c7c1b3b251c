// y = scale x + shift with a layer's constants: one for all channels, or one for each. Those of a Normalization may
// derive from weights, which training does not change.
#include "layers/affine.hpp"
#include "backend/cpu/example_kernel.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

template <typename T>
class AffineKernel final : public ExampleKernel<T> {
 public:
  explicit AffineKernel(const KernelScope& scope) : ExampleKernel<T>(scope) {
    const TensorSpec& tensor = this->output();
    no_shift_.resize(static_cast<std::size_t>(tensor.channels));
    if (scope.operation.num_parameters > 0) {
      mean_ = scope.weights(scope.operation.parameter);
      variance_ = scope.weights(scope.operation.parameter + 1);
      invert_ = std::get<Normalization>(scope.layer().layer).invert;
      return;
    }
    const Affine affine = affine_of(scope.layer().layer);
    for (std::int64_t c = 0; c < tensor.channels; ++c) {
      const auto channel = static_cast<std::size_t>(tensor.first_channel + c);
      scale_.push_back(affine.scale[std::min(channel, affine.scale.size() - 1)]);
      shift_.push_back(affine.shift[std::min(channel, affine.shift.size() - 1)]);
    }
  }

  void run(const StepContext& context) override {
    if (mean_ != nullptr) read_weights();
    ExampleKernel<T>::run(context);
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
  /// In every step, because a file's weights may be loaded at any time.
  void read_weights() {
    scale_.resize(no_shift_.size());
    shift_.resize(no_shift_.size());
    for (std::size_t c = 0; c < scale_.size(); ++c) {
      const auto [scale, shift] = normalization_of(mean_[c], variance_[c], invert_);
      scale_[c] = scale;
      shift_[c] = shift;
    }
  }

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
  const float* mean_ = nullptr;  ///< the weights of a Normalization, by channel; null of any other layer
  const float* variance_ = nullptr;
  bool invert_ = false;
};

}  // namespace

std::unique_ptr<Kernel> make_affine(const KernelScope& scope) { return make_for_type<AffineKernel>(scope); }

}  // namespace lockstep
