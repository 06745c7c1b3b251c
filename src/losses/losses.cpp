// See losses.hpp.
#include <lockstep/losses/losses.hpp>

#include "core/fields.hpp"
#include "losses/loss_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace lockstep {

std::string_view keras_name(const Loss& loss) noexcept {
  return std::visit([]<typename T>(const T& /*loss*/) { return LossTraits<T>::function_name; }, loss);
}

void check(const Loss& loss) {
  const NumberRangeCheck range_check("the loss " + std::string(keras_name(loss)) + "'s ");
  std::visit([&]<typename T>(const T& options) { LossTraits<T>::fields(range_check, options); }, loss);
}

bool takes_classes(const Loss& loss) noexcept {
  return std::visit([]<typename T>(const T& /*loss*/) { return LossTraits<T>::takes_classes; }, loss);
}

Reduction reduction_of(const Loss& loss) noexcept {
  return std::visit([](const auto& options) { return options.reduction; }, loss);
}

std::string_view keras_name(Reduction reduction) noexcept {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::mean_with_sample_weight: return "mean_with_sample_weight";
    case Reduction::sum_over_batch_size: break;
  }
  return "sum_over_batch_size";
}

TargetRange target_range(const Loss& loss) {
  return std::visit([]<typename T>(const T& /*loss*/) { return LossTraits<T>::targets; }, loss);
}

void check_probabilities(const Loss& loss, std::span<const float> targets, std::string_view source) {
  constexpr float rounding = 1e-6F;
  const auto is_probability = [](float target) { return target >= -rounding && target <= 1 + rounding; };
  const auto wrong = std::ranges::find_if_not(targets, is_probability);
  if (wrong == targets.end()) return;
  const bool counts_from_1 = std::ranges::all_of(targets, [](float target) { return target == 1 || target == 2; });
  const bool are_signs = std::ranges::all_of(targets, [](float target) { return target == 1 || target == -1; });
  throw DataError(fmt::format("the loss {} needs targets from 0 to 1, but {} holds {:g}; {}", keras_name(loss), source,
                              *wrong,
                              counts_from_1 ? "subtract 1 from the labels, which count from 1"
                              : are_signs   ? "give (label + 1) / 2, or take the loss Hinge"
                                            : "correct the targets, or take a loss for several classes"));
}

/// Keras converts a batch of zeros and ones to signs and leaves other batches as they are, so a mixture of -1, 0 and 1
/// would mean something different in each batch.
void check_targets(const Loss& loss, std::span<const float> targets, std::string_view source) {
  if (target_range(loss) == TargetRange::zero_to_one) check_probabilities(loss, targets, source);
  if (target_range(loss) != TargetRange::signs) return;
  const auto all_are = [&](float no) {
    return std::ranges::all_of(targets, [no](float target) { return target == no || target == 1; });
  };
  if (all_are(0) || all_are(-1)) return;
  throw DataError(fmt::format(
      "the loss {} needs targets that are all 0 or 1, or all -1 or 1, but {} holds others; of class indices "
      "make them with numpy.where(y == c, 1, -1)",
      keras_name(loss), source));
}

std::optional<ActivationFunction> logits_activation_of(const Loss& loss) noexcept {
  return std::visit(
      []<typename T>(const T& options) -> std::optional<ActivationFunction> {
        if constexpr (requires { options.clips_probabilities; }) {
          if (!options.clips_probabilities) return LossTraits<T>::probabilities_of;
        }
        return std::nullopt;
      },
      loss);
}

std::optional<Crossentropy> crossentropy_of(const Loss& loss) noexcept {
  return std::visit(
      []<typename T>(const T& options) -> std::optional<Crossentropy> {
        if constexpr (requires { options.clips_probabilities; }) {
          return Crossentropy{LossTraits<T>::probabilities_of, options.from_logits, options.clips_probabilities,
                              LossTraits<T>::takes_classes};
        } else {
          return std::nullopt;
        }
      },
      loss);
}

Loss from_logits(Loss loss) {
  std::visit(
      []<typename T>(T& options) {
        if constexpr (requires { options.from_logits; }) options.from_logits = true;
      },
      loss);
  return loss;
}

bool takes_one_hot(const Loss& loss) noexcept {
  return std::visit([]<typename T>(const T& /*loss*/) { return LossTraits<T>::takes_one_hot; }, loss);
}

bool is_per_vector(const Loss& loss) noexcept {
  return std::visit([]<typename T>(const T& /*loss*/) { return LossTraits<T>::is_per_vector; }, loss);
}

}  // namespace lockstep
