// Optimizers with Keras' names, defaults and formulas. In the formulas t counts steps from 1, g is the gradient of the
// global batch, lr the learning rate of the step.
//
// Every optimizer can clip the gradient by one of three fields: `clipnorm` limits the norm of each variable's gradient,
// `global_clipnorm` the norm of all gradients together, `clipvalue` each element to [-clipvalue, clipvalue]. 0 means no
// clipping, as None in Keras.
//
// `weight_decay`, if not 0, first subtracts lr weight_decay w from each weight w. With `gradient_accumulation_steps` n
// (at least 2; 0: none), weights change at every n-th step only, by the mean of the last n gradients, and t counts
// these changes. `use_ema` keeps a moving average of each weight, ema_momentum average + (1 - ema_momentum) w, which
// replaces the weights at the end of fit(), and at every `ema_overwrite_frequency`-th change (0: never).
//
// (Each optimizer repeats these fields and the learning rate, because designated initializers such as
// Adam({.clipnorm = 1}) cannot set members of a base class.)
#pragma once

#include <lockstep/optimizers/adadelta.hpp>
#include <lockstep/optimizers/adagrad.hpp>
#include <lockstep/optimizers/adam.hpp>
#include <lockstep/optimizers/adamax.hpp>
#include <lockstep/optimizers/ftrl.hpp>
#include <lockstep/optimizers/learning_rate.hpp>
#include <lockstep/optimizers/lion.hpp>
#include <lockstep/optimizers/nadam.hpp>
#include <lockstep/optimizers/rmsprop.hpp>
#include <lockstep/optimizers/sgd.hpp>

#include <string_view>
#include <variant>

namespace lockstep {

using OptimizerVariant = std::variant<SGD, Adam, AdamW, RMSprop, Lion, Nadam, Adamax, Adagrad, Adadelta, Ftrl>;

/// One of the optimizers: a std::variant for std::visit and std::get. Its special members are not inline, as Layer's.
struct Optimizer : OptimizerVariant {
  using OptimizerVariant::variant;
  using OptimizerVariant::operator=;
  Optimizer(const Optimizer&);
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(const Optimizer&);
  Optimizer& operator=(Optimizer&&) noexcept;
  ~Optimizer();
};

/// "SGD", "Adam", ...: the class name in Keras' files.
[[nodiscard]] std::string_view keras_name(const Optimizer& optimizer) noexcept;

/// The optimizer's learning rate: a number or a schedule.
[[nodiscard]] const LearningRate& learning_rate_of(const Optimizer& optimizer) noexcept;

/// Sets a constant learning rate, as callbacks do. Throws UsageError if the optimizer follows a schedule.
void set_learning_rate(Optimizer& optimizer, double learning_rate);

/// Replaces the learning rate, whether it is a constant or a schedule.
void replace_learning_rate(Optimizer& optimizer, const LearningRate& learning_rate);

/// Floats of state per trainable weight: 0 for plain SGD, 1 with momentum, 2 for Adam, one more for each of use_ema and
/// gradient_accumulation_steps.
[[nodiscard]] int num_slots(const Optimizer& optimizer);

enum class ClippingKind { none, clipnorm, clipvalue, global_clipnorm };

/// How an optimizer clips gradients: which of the three fields is set, and its value.
struct Clipping {
  ClippingKind kind = ClippingKind::none;
  double bound = 0;

  /// Whether weights can be updated only after a norm of gradients is known.
  [[nodiscard]] bool needs_norms() const noexcept {
    return kind == ClippingKind::clipnorm || kind == ClippingKind::global_clipnorm;
  }
};

[[nodiscard]] Clipping clipping_of(const Optimizer& optimizer) noexcept;

/// "clipnorm", "clipvalue", "global_clipnorm"; empty for none.
[[nodiscard]] std::string_view keras_name(ClippingKind kind) noexcept;

/// Throws UsageError naming the first field whose value is out of range.
void check(const Optimizer& optimizer);

}  // namespace lockstep
