// Regression losses: names and rules.
#pragma once

#include "core/fields.hpp"
#include "losses/loss_traits.hpp"

#include <lockstep/losses/regression.hpp>

#include <cmath>

namespace lockstep {

struct SquaredErrorTerm {
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float value(float p, float y) {
    const float difference = p - y;
    return difference * difference;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float derivative(float p, float y) { return 2.0F * (p - y); }
};

struct AbsoluteErrorTerm {
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float value(float p, float y) { return std::abs(y - p); }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float derivative(float p, float y) {
    return p > y ? 1.0F : p < y ? -1.0F : p - y;  // NaN stays NaN
  }
};

struct PercentageErrorTerm {
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float value(float p, float y) {
    return 100.0F * (std::abs(y - p) / divisor(y));
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float derivative(float p, float y) {
    return 100.0F * (AbsoluteErrorTerm::derivative(p, y) / divisor(y));
  }

 private:
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float divisor(float y) {
    return std::abs(y) < loss_epsilon ? loss_epsilon : std::abs(y);
  }
};

struct SquaredLogarithmicErrorTerm {
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float value(float p, float y) {
    const float difference = logarithm(p) - logarithm(y);
    return difference * difference;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float derivative(float p, float y) {
    return p < loss_epsilon ? 0.0F : 2.0F * (logarithm(p) - logarithm(y)) / (p + 1.0F);
  }

 private:
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float logarithm(float x) {
    return std::log((x < loss_epsilon ? loss_epsilon : x) + 1.0F);
  }
};

struct HuberTerm {
  float delta;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float value(float p, float y) const {
    const float error = std::abs(p - y);
    return error <= delta ? 0.5F * error * error : delta * error - 0.5F * delta * delta;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float derivative(float p, float y) const {
    const float error = p - y;
    return error > delta ? delta : error < -delta ? -delta : error;
  }
};

struct LogCoshTerm {
  /// |e| + log(1 + exp(-2 |e|)) - log(2), which does not overflow.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float value(float p, float y) {
    constexpr float log_2 = 0.69314718F;
    const float error = std::abs(p - y);
    return error + std::log1p(std::exp(-2.0F * error)) - log_2;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float derivative(float p, float y) { return std::tanh(p - y); }
};

/// `sign` times the cosine of the angle between output and target. A vector of zeros has no direction.
struct CosineRule {
  float sign;

  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(const float* output, Index count, const Target& target,
                                                      const Gradient& gradient) const {
    float dot = 0;
    float of_outputs = 0;
    float of_targets = 0;
    for (Index k = 0; k < count; ++k) {
      const float y = target(k);
      dot += y * output[k];
      of_outputs += output[k] * output[k];
      of_targets += y * y;
    }
    const float norms = length(of_outputs) * length(of_targets);
    const float cosine = dot / norms;
    if (gradient.is_wanted()) {
      const float along = of_outputs < min_squares ? 0.0F : cosine / of_outputs;
      for (Index k = 0; k < count; ++k) gradient(k, sign * (target(k) / norms - output[k] * along));
    }
    return sign * cosine;
  }

 private:
  static constexpr float min_squares = loss_epsilon * loss_epsilon;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float length(float squares) {
    return std::sqrt(squares < min_squares ? min_squares : squares);
  }
};

template <>
struct LossTraits<MeanSquaredError> : MeanLossTraits<SquaredErrorTerm> {
  static constexpr std::string_view class_name = "MeanSquaredError";
  static constexpr std::string_view function_name = "mean_squared_error";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr std::array<std::string_view, 2> aliases{"mse", "MSE"};
};

template <>
struct LossTraits<MeanAbsoluteError> : MeanLossTraits<AbsoluteErrorTerm> {
  static constexpr std::string_view class_name = "MeanAbsoluteError";
  static constexpr std::string_view function_name = "mean_absolute_error";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr std::array<std::string_view, 2> aliases{"mae", "MAE"};
};

template <>
struct LossTraits<MeanAbsolutePercentageError> : MeanLossTraits<PercentageErrorTerm> {
  static constexpr std::string_view class_name = "MeanAbsolutePercentageError";
  static constexpr std::string_view function_name = "mean_absolute_percentage_error";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr std::array<std::string_view, 2> aliases{"mape", "MAPE"};
};

template <>
struct LossTraits<MeanSquaredLogarithmicError> : MeanLossTraits<SquaredLogarithmicErrorTerm> {
  static constexpr std::string_view class_name = "MeanSquaredLogarithmicError";
  static constexpr std::string_view function_name = "mean_squared_logarithmic_error";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr std::array<std::string_view, 2> aliases{"msle", "MSLE"};
};

template <>
struct LossTraits<Huber> : DenseLossTraits {
  static constexpr std::string_view class_name = "Huber";
  static constexpr std::string_view function_name = "huber";
  static constexpr TargetRange targets = TargetRange::any;

  static void fields(auto& visit, auto& loss) { visit.optional("delta", loss.delta, positive); }

  static MeanOverOutputs<HuberTerm> rule(const Huber& loss) { return {{static_cast<float>(loss.delta)}}; }
};

template <>
struct LossTraits<LogCosh> : MeanLossTraits<LogCoshTerm> {
  static constexpr std::string_view class_name = "LogCosh";
  static constexpr std::string_view function_name = "log_cosh";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr std::array<std::string_view, 1> aliases{"logcosh"};
};

template <>
struct LossTraits<CosineSimilarity> : DenseLossTraits {
  static constexpr std::string_view class_name = "CosineSimilarity";
  static constexpr std::string_view function_name = "cosine_similarity";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr bool is_per_vector = true;

  static void fields(auto& visit, auto& /*loss*/) { visit.expected("axis", -1); }

  static CosineRule rule(const CosineSimilarity& /*loss*/) { return {.sign = -1.0F}; }
};

}  // namespace lockstep
