// The traits of all losses, queried for any loss. lockstep/losses/losses.hpp
// has the list, a variant.
#pragma once

#include "losses/binary_crossentropy.hpp"
#include "losses/crossentropy.hpp"
#include "losses/hinge.hpp"
#include "losses/loss_traits.hpp"
#include "losses/probabilistic.hpp"
#include "losses/regression.hpp"

#include <lockstep/layers/activation.hpp>
#include <lockstep/losses/losses.hpp>

#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace lockstep {

/// Returns visitor.template operator()<takes_classes>(rule), called with the loss's rule.
template <typename Visitor>
decltype(auto) with_loss_rule(const Loss& loss, Visitor&& visitor) {
  return std::visit(
      [&]<typename T>(const T& options) -> decltype(auto) {
        return visitor.template operator()<LossTraits<T>::takes_classes>(LossTraits<T>::rule(options));
      },
      loss);
}

/// Throws UsageError for a field out of its range.
void check(const Loss& loss);

/// Whether targets are class indices, one for each vector of the output; otherwise they have the output's shape.
[[nodiscard]] bool takes_classes(const Loss& loss) noexcept;

[[nodiscard]] Reduction reduction_of(const Loss& loss) noexcept;

/// Throws DataError, which names `source`, unless the loss is defined for these targets.
void check_targets(const Loss& loss, std::span<const float> targets, std::string_view source);

/// The activation that, as a model's last, lets the loss be computed from the logits; none for most losses.
[[nodiscard]] std::optional<ActivationFunction> logits_activation_of(const Loss& loss) noexcept;

/// What a crossentropy that is not focal says of itself.
struct Crossentropy {
  ActivationFunction probabilities_of;  ///< makes its probabilities of logits
  bool from_logits = false;
  bool clips_probabilities = false;
  bool takes_classes = false;
};
[[nodiscard]] std::optional<Crossentropy> crossentropy_of(const Loss& loss) noexcept;

/// The same loss, computed from logits. `logits_activation_of` the loss must not be none.
[[nodiscard]] Loss from_logits(Loss loss);

/// Whether the loss is the mean over the vectors along the output's last axis.
[[nodiscard]] bool is_per_vector(const Loss& loss) noexcept;

/// Whether the targets of the loss are one-hot vectors of classes.
[[nodiscard]] bool takes_one_hot(const Loss& loss) noexcept;

}  // namespace lockstep
