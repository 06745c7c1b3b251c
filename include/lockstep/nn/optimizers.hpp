// Optimizers, with Keras' names, defaults and formulas (t counts steps from 1, g is the gradient).
//
// All of them can clip the gradient of the global batch before they step, by one of three options: clipnorm scales the
// gradient of each variable down to at most this norm, global_clipnorm those of all variables together, clipvalue
// brings each element into [-clipvalue, clipvalue]. 0 is for none, Keras' None.
#pragma once

#include <lockstep/nn/learning_rate.hpp>

#include <string_view>
#include <utility>
#include <variant>

namespace lockstep {

struct SGDOptions {
  LearningRate learning_rate = 0.01;
  double momentum = 0.0;
  bool nesterov = false;
  double clipnorm = 0;
  double clipvalue = 0;
  double global_clipnorm = 0;
};

/// momentum 0: w -= lr g. Else v = momentum v - lr g; w += v, or with Nesterov w += momentum v - lr g (the new v).
struct SGD : SGDOptions {
  explicit SGD(SGDOptions options = {}) : SGDOptions(std::move(options)) {}
};

struct AdamOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  double clipnorm = 0;
  double clipvalue = 0;
  double global_clipnorm = 0;
};

/// m += (g - m)(1 - beta_1); v += (g^2 - v)(1 - beta_2); w -= lr sqrt(1 - beta_2^t) / (1 - beta_1^t) m / (sqrt(v) +
/// eps).
struct Adam : AdamOptions {
  explicit Adam(AdamOptions options = {}) : AdamOptions(std::move(options)) {}
};

struct AdamWOptions {
  LearningRate learning_rate = 0.001;
  double weight_decay = 0.004;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  double clipnorm = 0;
  double clipvalue = 0;
  double global_clipnorm = 0;
};

/// w -= lr weight_decay w, then Adam's step.
struct AdamW : AdamWOptions {
  explicit AdamW(AdamWOptions options = {}) : AdamWOptions(std::move(options)) {}
};

struct RMSpropOptions {
  LearningRate learning_rate = 0.001;
  double rho = 0.9;
  double momentum = 0.0;
  double epsilon = 1e-7;
  bool centered = false;
  double clipnorm = 0;
  double clipvalue = 0;
  double global_clipnorm = 0;
};

/// v = rho v + (1 - rho) g^2; d = v + eps; centered: a = rho a + (1 - rho) g, d -= a^2; i = lr g / sqrt(d);
/// momentum: p = momentum p + i, w -= p; else w -= i.
struct RMSprop : RMSpropOptions {
  explicit RMSprop(RMSpropOptions options = {}) : RMSpropOptions(std::move(options)) {}
};

using Optimizer = std::variant<SGD, Adam, AdamW, RMSprop>;

/// "SGD", "Adam", ...: the name Keras writes into files.
[[nodiscard]] std::string_view name_of(const Optimizer& optimizer) noexcept;

/// A number or a schedule; its at(iteration) is the rate of a step.
[[nodiscard]] const LearningRate& learning_rate_of(const Optimizer& optimizer) noexcept;

/// Changes a constant rate, as callbacks do. Throws UsageError where the optimizer follows a schedule.
void set_learning_rate(Optimizer& optimizer, double learning_rate);

/// Puts another rate in the place of a constant or a schedule.
void replace_learning_rate(Optimizer& optimizer, const LearningRate& learning_rate);

/// Floats of state kept for each weight: 0 for plain SGD, 1 with momentum, 2 for Adam, 1 to 3 for RMSprop.
[[nodiscard]] int slots_of(const Optimizer& optimizer) noexcept;

enum class ClippingKind { none, clipnorm, clipvalue, global_clipnorm };

/// How an optimizer clips gradients: its option and that option's number.
struct Clipping {
  ClippingKind kind = ClippingKind::none;
  double bound = 0;

  /// Whether a step must know norms before it can begin to update weights.
  [[nodiscard]] bool needs_norms() const noexcept {
    return kind == ClippingKind::clipnorm || kind == ClippingKind::global_clipnorm;
  }
};

[[nodiscard]] Clipping clipping_of(const Optimizer& optimizer) noexcept;

/// "clipnorm", "clipvalue", "global_clipnorm"; empty for none.
[[nodiscard]] std::string_view name_of(ClippingKind kind) noexcept;

/// Throws UsageError naming the first option out of its range.
void check(const Optimizer& optimizer);

}  // namespace lockstep
