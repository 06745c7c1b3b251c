// A learning rate: a number, or a schedule of keras.optimizers.schedules with Keras' names, defaults and formulas. In
// the formulas s is the number of previous steps: 0 at the first.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// The default of fields that have no default in Keras; check() rejects it.
inline constexpr double required_value = std::numeric_limits<double>::quiet_NaN();

/// A number of steps; Keras accepts fractions.
struct Steps {
  // NOLINTBEGIN(google-explicit-constructor): {.decay_steps = 10 * steps_per_epoch}
  constexpr Steps(double count_) noexcept : count(count_) {}
  template <std::integral Whole>
  constexpr Steps(Whole count_) noexcept : count(static_cast<double>(count_)) {}
  // NOLINTEND(google-explicit-constructor)
  double count;
  friend bool operator==(const Steps&, const Steps&) = default;
};

/// initial_learning_rate decay_rate^(s / decay_steps).
struct ExponentialDecay {
  double initial_learning_rate = required_value;
  Steps decay_steps = required_value;
  double decay_rate = required_value;
  bool staircase = false;  ///< rounds s / decay_steps down to a whole number

  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
  friend bool operator==(const ExponentialDecay&, const ExponentialDecay&) = default;
};

/// values[i] of the first i with s <= boundaries[i], else the last value.
struct PiecewiseConstantDecay {
  std::vector<Steps> boundaries = {};  ///< ascending
  std::vector<double> values = {};     ///< one more than boundaries

  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
  friend bool operator==(const PiecewiseConstantDecay&, const PiecewiseConstantDecay&) = default;
};

/// (initial - end) (1 - min(s, D) / D)^power + end, where D is decay_steps.
struct PolynomialDecay {
  double initial_learning_rate = required_value;
  Steps decay_steps = required_value;
  double end_learning_rate = 0.0001;
  double power = 1.0;
  bool cycle = false;  ///< instead of staying at the end, D becomes the next multiple of decay_steps

  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
  friend bool operator==(const PolynomialDecay&, const PolynomialDecay&) = default;
};

/// initial_learning_rate / (1 + decay_rate s / decay_steps).
struct InverseTimeDecay {
  double initial_learning_rate = required_value;
  Steps decay_steps = required_value;
  double decay_rate = required_value;
  bool staircase = false;  ///< rounds s / decay_steps down to a whole number

  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
  friend bool operator==(const InverseTimeDecay&, const InverseTimeDecay&) = default;
};

/// from ((1 - alpha) (1 + cos(pi min(s, D) / D)) / 2 + alpha), where D is decay_steps and `from` is the initial rate.
/// With a warm-up the rate first rises linearly from the initial rate to warmup_target; then `from` is warmup_target
/// and s counts from the end of the warm-up.
struct CosineDecay {
  double initial_learning_rate = required_value;
  Steps decay_steps = required_value;
  double alpha = 0.0;                        ///< the fraction that remains at the end
  std::optional<double> warmup_target = {};  ///< none: no warm-up
  Steps warmup_steps = 0;

  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
  friend bool operator==(const CosineDecay&, const CosineDecay&) = default;
};

/// Successive cosine decays. The first takes first_decay_steps; each later one takes t_mul times as many steps as the
/// one before and begins at m_mul times its rate. At the fraction x of a decay, whose m is a power of m_mul, the rate
/// is initial_learning_rate ((1 - alpha) m (1 + cos(pi x)) / 2 + alpha).
struct CosineDecayRestarts {
  double initial_learning_rate = required_value;
  Steps first_decay_steps = required_value;
  double t_mul = 2.0;
  double m_mul = 1.0;
  double alpha = 0.0;  ///< the fraction that remains at the end

  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;
  friend bool operator==(const CosineDecayRestarts&, const CosineDecayRestarts&) = default;
};

namespace detail {

template <typename T, typename Variant>
inline constexpr bool is_alternative = false;

template <typename T, typename... Alternatives>
inline constexpr bool is_alternative<T, std::variant<Alternatives...>> = (std::is_same_v<T, Alternatives> || ...);

}  // namespace detail

class LearningRate {
 public:
  using Kind = std::variant<double, ExponentialDecay, PiecewiseConstantDecay, PolynomialDecay, InverseTimeDecay,
                            CosineDecay, CosineDecayRestarts>;

  // NOLINTBEGIN(google-explicit-constructor): {.learning_rate = 0.1} and {.learning_rate = CosineDecay(...)}
  LearningRate(double constant) : kind_(constant) {}
  template <typename Schedule>
  requires detail::is_alternative<Schedule, Kind> LearningRate(Schedule schedule)
      : kind_(std::in_place_type<Schedule>, std::move(schedule)) {}
  // NOLINTEND(google-explicit-constructor)

  LearningRate(const LearningRate&);
  LearningRate(LearningRate&&) noexcept;
  LearningRate& operator=(const LearningRate&);
  LearningRate& operator=(LearningRate&&) noexcept;
  ~LearningRate();

  /// The learning rate of the step after `iteration` steps. A schedule must have passed check().
  [[nodiscard]] double at(std::uint64_t iteration) const noexcept;

  [[nodiscard]] bool is_constant() const noexcept { return std::holds_alternative<double>(kind_); }
  [[nodiscard]] const Kind& kind() const noexcept { return kind_; }

  friend bool operator==(const LearningRate&, const LearningRate&) = default;

 private:
  Kind kind_;
};

/// "CosineDecay", ...: the class name in Keras' files; "constant" for a number.
[[nodiscard]] std::string_view keras_name(const LearningRate& rate) noexcept;

}  // namespace lockstep
