// CategoryEncoding and Discretization: the bin of a number, or the index that a number is, as such or as vectors of
// zeros and ones.
#include "backend/cpu/kernel.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

template <typename T>
class EncodeKernel final : public Kernel {
 public:
  explicit EncodeKernel(const KernelScope& scope)
      : name_(scope.layer().name),
        elements_(scope.input().elements()),
        y_elements_(scope.output().elements()),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        x_(scope.value<float>(scope.operation.input)),
        y_(scope.value<T>(scope.operation.output)) {
    if (const auto* bins = std::get_if<Discretization>(&scope.layer().layer)) {
      mode_ = bins->output_mode;
      boundaries_.assign(bins->bin_boundaries.begin(), bins->bin_boundaries.end());
      depth_ = static_cast<std::int64_t>(boundaries_.size()) + 1;
    } else {
      const auto& encoding = std::get<CategoryEncoding>(scope.layer().layer);
      mode_ = encoding.output_mode;
      depth_ = encoding.num_tokens;
    }
  }

  void run(const StepContext& /*context*/) override {
    for (std::int64_t example = 0; example < num_examples_; ++example) {
      T* const y = y_ + example * y_elements_;
      if (mode_ != OutputMode::integer) std::fill_n(y, y_elements_, 0.0F);
      for (std::int64_t i = 0; i < elements_; ++i) {
        const std::int64_t index = index_of(x_[example * elements_ + i]);
        switch (mode_) {
          case OutputMode::integer: y[i] = static_cast<float>(index); break;
          case OutputMode::one_hot: y[i * depth_ + index] = 1.0F; break;
          case OutputMode::multi_hot: y[index] = 1.0F; break;
          case OutputMode::count: y[index] = static_cast<float>(y[index]) + 1.0F; break;
        }
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t index_of(float value) const {
    if (!boundaries_.empty()) return std::ranges::upper_bound(boundaries_, value) - boundaries_.begin();
    const bool is_index = value >= 0 && value < static_cast<float>(depth_) &&
                          static_cast<float>(static_cast<std::int64_t>(value)) == value;
    if (is_index) return static_cast<std::int64_t>(value);
    throw DataError(
        fmt::format("layer '{}' (CategoryEncoding) reads the index {}, but its indices are whole numbers from 0 to {}; "
                    "check the inputs, or enlarge num_tokens",
                    name_, value, depth_ - 1));
  }

  std::string name_;
  OutputMode mode_ = OutputMode::integer;
  std::vector<float> boundaries_;  ///< of a Discretization
  std::int64_t depth_ = 0;         ///< categories
  std::int64_t elements_;          ///< of an example's input
  std::int64_t y_elements_;
  std::int64_t num_examples_;
  const float* x_;
  T* y_;
};

}  // namespace

std::unique_ptr<Kernel> make_encode(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<EncodeKernel<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
