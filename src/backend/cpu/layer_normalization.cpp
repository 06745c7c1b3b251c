// Normalizations within each example, channels last: over the channels of each pixel (LayerNormalization), over all
// pixels of a group of channels (GroupNormalization), by the root mean square (RMSNormalization), or to length 1
// (UnitNormalization). Statistics are computed in double precision, and again in backward, which is cheaper than
// keeping them.
#include "backend/cpu/example_kernel.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

/// What a layer normalizes.
struct Rule {
  std::int64_t groups = 1;   ///< of channels
  bool over_pixels = false;  ///< all pixels of an example have one mean and deviation
  bool is_centered = true;   ///< subtracts the mean
  bool is_unit = false;      ///< divides by the length
  double epsilon = 0;        ///< with is_unit a lower bound of the length, otherwise added to the variance
  bool has_gamma = false;
  bool has_beta = false;
};

Rule rule_of(const Layer& layer, std::int64_t channels) {
  return std::visit(
      [channels]<typename L>(const L& any) -> Rule {
        if constexpr (std::is_same_v<L, LayerNormalization>) {
          return {.epsilon = any.epsilon, .has_gamma = any.scale, .has_beta = any.center};
        } else if constexpr (std::is_same_v<L, GroupNormalization>) {
          return {.groups = any.groups == -1 ? channels : any.groups,
                  .over_pixels = true,
                  .epsilon = any.epsilon,
                  .has_gamma = any.scale,
                  .has_beta = any.center};
        } else if constexpr (std::is_same_v<L, UnitNormalization>) {
          return {.is_centered = false, .is_unit = true, .epsilon = 1e-12};
        } else if constexpr (std::is_same_v<L, RMSNormalization>) {
          return {.is_centered = false, .epsilon = any.epsilon, .has_gamma = true};
        } else {
          throw InternalError("a normalization was lowered from another layer; please report this");
        }
      },
      layer);
}

template <typename T>
class LayerNormalizationKernel final : public ExampleKernel<T> {
 public:
  explicit LayerNormalizationKernel(const KernelScope& scope)
      : ExampleKernel<T>(scope),
        channels_(scope.output().channels),
        pixels_(scope.output().height * scope.output().width),
        rule_(rule_of(scope.layer().layer, channels_)) {
    const int parameter = scope.operation.parameter;
    if (rule_.has_gamma) gamma_ = scope.weights(parameter);
    if (rule_.has_beta) beta_ = scope.weights(parameter + (rule_.has_gamma ? 1 : 0));
    if (!scope.is_backward()) return;
    if (rule_.has_gamma) gamma_gradient_ = scope.weights_gradient(parameter);
    if (rule_.has_beta) beta_gradient_ = scope.weights_gradient(parameter + (rule_.has_gamma ? 1 : 0));
    of_examples_.resize(static_cast<std::size_t>(this->num_examples() * 2 * channels_));
  }

  void run(const StepContext& context) override {
    ExampleKernel<T>::run(context);
    if (!of_examples_.empty()) add_examples(gamma_gradient_, 0);
    if (!of_examples_.empty()) add_examples(beta_gradient_, channels_);
  }

 protected:
  void run_forward(std::int64_t /*example*/, const StepContext& /*context*/, const T* x, T* y) override {
    for_each_set([&](const Set& set) {
      const Statistics of = statistics_of(set, x);
      for_each_element(set, [&](std::int64_t i, std::int64_t c) {
        const float normalized = (static_cast<float>(x[i]) - of.mean) * of.inverse;
        y[i] = normalized * (gamma_ != nullptr ? gamma_[c] : 1.0F) + (beta_ != nullptr ? beta_[c] : 0.0F);
      });
    });
  }

  void run_backward(std::int64_t example, const StepContext& /*context*/,
                    const typename ExampleKernel<T>::Backward& at) override {
    float* const gamma_sums = of_examples_.data() + example * 2 * channels_;
    float* const beta_sums = gamma_sums + channels_;
    std::fill_n(gamma_sums, 2 * channels_, 0.0F);
    for_each_set([&](const Set& set) {
      const Statistics of = statistics_of(set, at.x);
      double sum = 0;
      double dot = 0;
      for_each_element(set, [&](std::int64_t i, std::int64_t c) {
        const float normalized = (static_cast<float>(at.x[i]) - of.mean) * of.inverse;
        const auto gradient = static_cast<float>(at.y_gradient[i]);
        gamma_sums[c] += gradient * normalized;
        beta_sums[c] += gradient;
        const float scaled = gradient * (gamma_ != nullptr ? gamma_[c] : 1.0F);
        sum += scaled;
        dot += scaled * normalized;
      });
      if (at.x_gradient == nullptr) return;
      const double count = rule_.is_unit ? 1 : static_cast<double>(set.pixels * set.channels);
      const auto mean_sum = static_cast<float>(rule_.is_centered ? sum / count : 0);
      const auto mean_dot = static_cast<float>(of.is_constant ? 0 : dot / count);
      for_each_element(set, [&](std::int64_t i, std::int64_t c) {
        const float normalized = (static_cast<float>(at.x[i]) - of.mean) * of.inverse;
        const float scaled = static_cast<float>(at.y_gradient[i]) * (gamma_ != nullptr ? gamma_[c] : 1.0F);
        at.x_gradient[i] = of.inverse * (scaled - mean_sum - normalized * mean_dot);
      });
    });
  }

 private:
  /// Elements that are normalized together.
  struct Set {
    std::int64_t first_pixel, pixels, first_channel, channels;
  };

  struct Statistics {
    float mean = 0;
    float inverse = 0;         ///< of the deviation or length
    bool is_constant = false;  ///< the inverse does not depend on the values, which are too small
  };

  template <typename Visit>
  void for_each_set(const Visit& visit) const {
    const std::int64_t width = channels_ / rule_.groups;
    const std::int64_t pixels = rule_.over_pixels ? pixels_ : 1;
    for (std::int64_t pixel = 0; pixel < pixels_; pixel += pixels) {
      for (std::int64_t c = 0; c < channels_; c += width) visit(Set{pixel, pixels, c, width});
    }
  }

  /// Calls visit(index of the element, channel).
  template <typename Visit>
  void for_each_element(const Set& set, const Visit& visit) const {
    for (std::int64_t pixel = set.first_pixel; pixel < set.first_pixel + set.pixels; ++pixel) {
      for (std::int64_t c = set.first_channel; c < set.first_channel + set.channels; ++c) {
        visit(pixel * channels_ + c, c);
      }
    }
  }

  [[nodiscard]] Statistics statistics_of(const Set& set, const T* x) const {
    const auto count = static_cast<double>(set.pixels * set.channels);
    double sum = 0;
    double squares = 0;
    if (rule_.is_unit) {
      for_each_element(set, [&](std::int64_t i, std::int64_t /*c*/) { squares += square(static_cast<float>(x[i])); });
      const bool is_small = std::sqrt(squares) < rule_.epsilon;
      return {0, static_cast<float>(1 / (is_small ? rule_.epsilon : std::sqrt(squares))), is_small};
    }
    if (rule_.is_centered) {
      for_each_element(set, [&](std::int64_t i, std::int64_t /*c*/) { sum += static_cast<float>(x[i]); });
    }
    const double mean = sum / count;
    for_each_element(set,
                     [&](std::int64_t i, std::int64_t /*c*/) { squares += square(static_cast<float>(x[i]) - mean); });
    return {static_cast<float>(mean), static_cast<float>(1 / std::sqrt(squares / count + rule_.epsilon))};
  }

  static double square(double value) { return value * value; }

  /// Adds the examples' gradients of one parameter in order.
  void add_examples(float* gradient, std::int64_t first) const {
    if (gradient == nullptr) return;
    std::fill_n(gradient, channels_, 0.0F);
    for (std::int64_t example = 0; example < this->num_examples(); ++example) {
      const float* const of_example = of_examples_.data() + example * 2 * channels_ + first;
      for (std::int64_t c = 0; c < channels_; ++c) gradient[c] += of_example[c];
    }
  }

  std::int64_t channels_;
  std::int64_t pixels_;
  Rule rule_;
  const float* gamma_ = nullptr;
  const float* beta_ = nullptr;
  float* gamma_gradient_ = nullptr;
  float* beta_gradient_ = nullptr;
  std::vector<float> of_examples_;  ///< the gradients of gamma and beta, by example
};

}  // namespace

std::unique_ptr<Kernel> make_layer_normalization(const KernelScope& scope) {
  return make_for_type<LayerNormalizationKernel>(scope);
}

}  // namespace lockstep
