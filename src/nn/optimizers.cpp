// What can be asked of an optimizer without running it.
#include <lockstep/core/error.hpp>
#include <lockstep/nn/optimizers.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<Optimizer>> names{"SGD", "Adam", "AdamW", "RMSprop"};

[[noreturn]] void refuse(const Optimizer& optimizer, std::string_view option, double value, std::string_view range) {
  std::ostringstream message;
  message << name_of(optimizer) << "'s " << option << " is " << value << ": it must be " << range << '.';
  throw UsageError(message.str());
}

/// The ranges in which a schedule gives learning rates; written so that NaN, what was not given, is refused too.
class ScheduleChecker {
 public:
  ScheduleChecker(const Optimizer& optimizer, const LearningRate& rate) : optimizer_(optimizer), rate_(rate) {}

  void operator()(double constant) const {
    if (!is_rate(constant)) refuse(optimizer_, "learning_rate", constant, "a finite number that is not negative");
  }
  void operator()(const ExponentialDecay& decay) const {
    begins(decay);
    not_negative("decay_rate", decay.decay_rate);
  }
  void operator()(const PiecewiseConstantDecay& decay) const {
    if (decay.boundaries.empty() || decay.values.size() != decay.boundaries.size() + 1) {
      throw UsageError(option_of("values") + " are " + std::to_string(decay.values.size()) + " for " +
                       std::to_string(decay.boundaries.size()) +
                       " boundaries: give at least one boundary, and one value more than boundaries.");
    }
    for (const double value : decay.values) not_negative("values", value);
    double last = -std::numeric_limits<double>::infinity();
    for (const Steps& boundary : decay.boundaries) {
      if (!(boundary.count > last && std::isfinite(boundary.count))) {
        fail("boundaries", boundary.count, "finite and above the one before it");
      }
      last = boundary.count;
    }
  }
  void operator()(const PolynomialDecay& decay) const {
    begins(decay);
    not_negative("end_learning_rate", decay.end_learning_rate);
    not_negative("power", decay.power);
  }
  void operator()(const InverseTimeDecay& decay) const {
    begins(decay);
    not_negative("decay_rate", decay.decay_rate);
  }
  void operator()(const CosineDecay& decay) const {
    begins(decay);
    not_negative("alpha", decay.alpha);
    if (decay.warmup_target) not_negative("warmup_target", *decay.warmup_target);
    not_negative("warmup_steps", decay.warmup_steps.count);
  }

 private:
  static bool is_rate(double value) { return value >= 0 && std::isfinite(value); }

  [[nodiscard]] std::string option_of(std::string_view option) const {
    return std::string(name_of(optimizer_)) + "'s " + std::string(name_of(rate_)) + "." + std::string(option);
  }
  [[noreturn]] void fail(std::string_view option, double value, std::string_view range) const {
    refuse(optimizer_, std::string(name_of(rate_)) + "." + std::string(option), value, range);
  }
  void not_negative(std::string_view option, double value) const {
    if (!is_rate(value)) fail(option, value, "given, finite and not negative");
  }
  template <class Decay>
  void begins(const Decay& decay) const {
    not_negative("initial_learning_rate", decay.initial_learning_rate);
    const double steps = decay.decay_steps.count;
    if (!(steps > 0 && std::isfinite(steps))) fail("decay_steps", steps, "given, finite and above 0");
  }

  const Optimizer& optimizer_;
  const LearningRate& rate_;
};

/// The ranges in which Keras' formulas are defined; NaN is outside of them.
class Checker {
 public:
  explicit Checker(const Optimizer& optimizer) : optimizer_(optimizer) {}

  void not_negative(std::string_view option, double value) const {
    if (!(value >= 0 && std::isfinite(value)))
      refuse(optimizer_, option, value, "a finite number that is not negative");
  }
  void positive(std::string_view option, double value) const {
    if (!(value > 0 && std::isfinite(value))) refuse(optimizer_, option, value, "a finite number above 0");
  }
  void decay(std::string_view option, double value) const {
    if (!(value >= 0 && value < 1)) refuse(optimizer_, option, value, "at least 0 and below 1");
  }
  void momentum(double value) const {
    if (!(value >= 0 && value <= 1)) refuse(optimizer_, "momentum", value, "between 0 and 1");
  }

  void operator()(const SGD& sgd) const {
    check_rate(sgd.learning_rate);
    momentum(sgd.momentum);
    clipping(sgd);
  }
  void operator()(const Adam& adam) const { moments(adam); }
  void operator()(const AdamW& adam) const {
    moments(adam);
    not_negative("weight_decay", adam.weight_decay);
  }
  void operator()(const RMSprop& rmsprop) const {
    check_rate(rmsprop.learning_rate);
    decay("rho", rmsprop.rho);
    momentum(rmsprop.momentum);
    positive("epsilon", rmsprop.epsilon);
    clipping(rmsprop);
  }

 private:
  void check_rate(const LearningRate& rate) const { std::visit(ScheduleChecker(optimizer_, rate), rate.kind()); }

  template <class Options>
  void moments(const Options& options) const {
    check_rate(options.learning_rate);
    decay("beta_1", options.beta_1);
    decay("beta_2", options.beta_2);
    positive("epsilon", options.epsilon);
    clipping(options);
  }

  template <class Options>
  void clipping(const Options& options) const {
    not_negative("clipnorm", options.clipnorm);
    not_negative("clipvalue", options.clipvalue);
    not_negative("global_clipnorm", options.global_clipnorm);
    const auto given = std::array{options.clipnorm, options.clipvalue, options.global_clipnorm};
    if (std::count(given.begin(), given.end(), 0.0) >= 2) return;
    throw UsageError(std::string(name_of(optimizer_)) +
                     " is given more than one of clipnorm, clipvalue and global_clipnorm: choose one of them.");
  }

  const Optimizer& optimizer_;
};

}  // namespace

std::string_view name_of(const Optimizer& optimizer) noexcept { return names[optimizer.index()]; }

const LearningRate& learning_rate_of(const Optimizer& optimizer) noexcept {
  return std::visit([](const auto& options) -> const LearningRate& { return options.learning_rate; }, optimizer);
}

void set_learning_rate(Optimizer& optimizer, double learning_rate) {
  const LearningRate& rate = learning_rate_of(optimizer);
  if (!rate.is_constant()) {
    throw UsageError("The learning rate of " + std::string(name_of(optimizer)) + " follows the schedule " +
                     std::string(name_of(rate)) +
                     " and cannot be set: compile the model with a number if something else is to change it.");
  }
  replace_learning_rate(optimizer, learning_rate);
}

void replace_learning_rate(Optimizer& optimizer, const LearningRate& learning_rate) {
  std::visit([&learning_rate](auto& options) { options.learning_rate = learning_rate; }, optimizer);
}

int slots_of(const Optimizer& optimizer) noexcept {
  return std::visit(
      [](const auto& options) {
        using Kind = std::decay_t<decltype(options)>;
        if constexpr (std::is_same_v<Kind, SGD>) {
          return options.momentum != 0 ? 1 : 0;
        } else if constexpr (std::is_same_v<Kind, RMSprop>) {
          return 1 + (options.momentum != 0 ? 1 : 0) + (options.centered ? 1 : 0);
        } else {
          return 2;
        }
      },
      optimizer);
}

Clipping clipping_of(const Optimizer& optimizer) noexcept {
  return std::visit(
      [](const auto& options) -> Clipping {
        if (options.clipnorm > 0) return {ClippingKind::clipnorm, options.clipnorm};
        if (options.clipvalue > 0) return {ClippingKind::clipvalue, options.clipvalue};
        if (options.global_clipnorm > 0) return {ClippingKind::global_clipnorm, options.global_clipnorm};
        return {};
      },
      optimizer);
}

std::string_view name_of(ClippingKind kind) noexcept {
  switch (kind) {
    case ClippingKind::clipnorm: return "clipnorm";
    case ClippingKind::clipvalue: return "clipvalue";
    case ClippingKind::global_clipnorm: return "global_clipnorm";
    case ClippingKind::none: break;
  }
  return {};
}

void check(const Optimizer& optimizer) { std::visit(Checker(optimizer), optimizer); }

}  // namespace lockstep
