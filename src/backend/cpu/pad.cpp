// Padding and cropping of images. Both copy the pixels that input and output share; padding also writes zeros.
#include "backend/cpu/example_kernel.hpp"
#include "layers/reshaping.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep {

namespace {

template <typename T>
class PadKernel final : public ExampleKernel<T> {
 public:
  explicit PadKernel(const KernelScope& scope)
      : ExampleKernel<T>(scope),
        margins_(added_margins(scope.layer().layer, this->input().height, this->input().width)) {}

 protected:
  void run_forward(std::int64_t /*example*/, const StepContext& /*context*/, const T* x, T* y) override {
    move(this->input(), x, this->output(), y, margins_.top, margins_.left);
  }
  void run_backward(std::int64_t /*example*/, const StepContext& /*context*/,
                    const typename ExampleKernel<T>::Backward& at) override {
    move(this->output(), at.y_gradient, this->input(), at.x_gradient, -margins_.top, -margins_.left);
  }

 private:
  /// Copies an image so that its pixel (0, 0) becomes (row, column). What has no source becomes zero.
  static void move(const TensorSpec& from, const T* source, const TensorSpec& to, T* target, std::int64_t row,
                   std::int64_t column) {
    const std::int64_t block = from.block();
    const std::int64_t begin = std::clamp<std::int64_t>(column, 0, to.width);
    const std::int64_t end = std::clamp<std::int64_t>(column + from.width, begin, to.width);
    for (std::int64_t plane = 0; plane < from.channels / block; ++plane) {
      const T* const image = source + plane * from.height * from.width * block;
      for (std::int64_t i = 0; i < to.height; ++i, target += to.width * block) {
        const std::int64_t source_row = i - row;
        if (source_row < 0 || source_row >= from.height) {
          std::fill_n(target, to.width * block, T(0.0F));
          continue;
        }
        std::fill_n(target, begin * block, T(0.0F));
        std::copy_n(image + (source_row * from.width + begin - column) * block, (end - begin) * block,
                    target + begin * block);
        std::fill_n(target + end * block, (to.width - end) * block, T(0.0F));
      }
    }
  }

  Margins2D margins_;
};

}  // namespace

std::unique_ptr<Kernel> make_pad(const KernelScope& scope) { return make_for_type<PadKernel>(scope); }

}  // namespace lockstep
