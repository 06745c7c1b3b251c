// A learning rate: a number, or one of the schedules of keras.optimizers.schedules, with Keras' names, defaults and
// formulas. s is how many steps were made before the one in question: 0 at the first.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// Stands for what Keras has no default for: check() refuses it.
inline constexpr double not_given = std::numeric_limits<double>::quiet_NaN();

/// How many steps; Keras takes fractions as well as whole numbers.
struct Steps {
  // NOLINTBEGIN(google-explicit-constructor): {.decay_steps = 10 * steps_per_epoch}
  constexpr Steps(double count_) noexcept : count(count_) {}
  template <std::integral Whole>
  constexpr Steps(Whole count_) noexcept : count(static_cast<double>(count_)) {}
  // NOLINTEND(google-explicit-constructor)
  double count;
  friend bool operator==(const Steps&, const Steps&) = default;
};

struct ExponentialDecayOptions {
  double initial_learning_rate = not_given;
  Steps decay_steps = not_given;
  double decay_rate = not_given;
  bool staircase = false;  ///< whole multiples of decay_steps only
  friend bool operator==(const ExponentialDecayOptions&, const ExponentialDecayOptions&) = default;
};

/// initial decay_rate^(s / decay_steps).
struct ExponentialDecay : ExponentialDecayOptions {
  explicit ExponentialDecay(ExponentialDecayOptions options) : ExponentialDecayOptions(options) {}
  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
};

struct PiecewiseConstantDecayOptions {
  std::vector<Steps> boundaries = {};  ///< rising
  std::vector<double> values = {};     ///< one more
  friend bool operator==(const PiecewiseConstantDecayOptions&, const PiecewiseConstantDecayOptions&) = default;
};

/// values[i] of the first i with s <= boundaries[i], else the last value.
struct PiecewiseConstantDecay : PiecewiseConstantDecayOptions {
  explicit PiecewiseConstantDecay(PiecewiseConstantDecayOptions options)
      : PiecewiseConstantDecayOptions(std::move(options)) {}
  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
};

struct PolynomialDecayOptions {
  double initial_learning_rate = not_given;
  Steps decay_steps = not_given;
  double end_learning_rate = 0.0001;
  double power = 1.0;
  bool cycle = false;  ///< instead of staying at the end, D becomes the next multiple of decay_steps
  friend bool operator==(const PolynomialDecayOptions&, const PolynomialDecayOptions&) = default;
};

/// (initial - end) (1 - min(s, D) / D)^power + end, where D is decay_steps.
struct PolynomialDecay : PolynomialDecayOptions {
  explicit PolynomialDecay(PolynomialDecayOptions options) : PolynomialDecayOptions(options) {}
  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
};

struct InverseTimeDecayOptions {
  double initial_learning_rate = not_given;
  Steps decay_steps = not_given;
  double decay_rate = not_given;
  bool staircase = false;  ///< whole multiples of decay_steps only
  friend bool operator==(const InverseTimeDecayOptions&, const InverseTimeDecayOptions&) = default;
};

/// initial / (1 + decay_rate s / decay_steps).
struct InverseTimeDecay : InverseTimeDecayOptions {
  explicit InverseTimeDecay(InverseTimeDecayOptions options) : InverseTimeDecayOptions(options) {}
  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
};

struct CosineDecayOptions {
  double initial_learning_rate = not_given;
  Steps decay_steps = not_given;
  double alpha = 0.0;                        ///< what remains at the end, as a fraction
  std::optional<double> warmup_target = {};  ///< none: no warm-up
  Steps warmup_steps = 0;
  friend bool operator==(const CosineDecayOptions&, const CosineDecayOptions&) = default;
};

/// from ((1 - alpha) (1 + cos(pi min(s, D) / D)) / 2 + alpha), where D is decay_steps and `from` is initial. With a
/// warm-up the rate first rises from initial to warmup_target in a line, and is `from` that target, s counted from
/// then.
struct CosineDecay : CosineDecayOptions {
  explicit CosineDecay(CosineDecayOptions options) : CosineDecayOptions(options) {}
  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
};

class LearningRate {
 public:
  using Kind =
      std::variant<double, ExponentialDecay, PiecewiseConstantDecay, PolynomialDecay, InverseTimeDecay, CosineDecay>;

  // NOLINTBEGIN(google-explicit-constructor): {.learning_rate = 0.1} and {.learning_rate = CosineDecay(...)}
  LearningRate(double constant) : kind_(constant) {}
  LearningRate(ExponentialDecay schedule) : kind_(schedule) {}
  LearningRate(PiecewiseConstantDecay schedule) : kind_(std::move(schedule)) {}
  LearningRate(PolynomialDecay schedule) : kind_(schedule) {}
  LearningRate(InverseTimeDecay schedule) : kind_(schedule) {}
  LearningRate(CosineDecay schedule) : kind_(schedule) {}
  // NOLINTEND(google-explicit-constructor)

  /// The rate of the step after `iteration` others. A schedule's options must have passed check().
  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;

  [[nodiscard]] bool is_constant() const noexcept { return std::holds_alternative<double>(kind_); }
  [[nodiscard]] const Kind& kind() const noexcept { return kind_; }

  friend bool operator==(const LearningRate&, const LearningRate&) = default;

 private:
  Kind kind_;
};

/// "CosineDecay", ...: the name Keras writes into files; "constant" of a number.
[[nodiscard]] std::string_view name_of(const LearningRate& rate) noexcept;

}  // namespace lockstep
