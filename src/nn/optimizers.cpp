// What can be asked of an optimizer without running it.
#include <lockstep/core/error.hpp>
#include <lockstep/nn/optimizers.hpp>

#include <array>
#include <cmath>
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

/// The ranges in which Keras' formulas are defined; written so that NaN is refused too.
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
    not_negative("learning_rate", sgd.learning_rate);
    momentum(sgd.momentum);
  }
  void operator()(const Adam& adam) const { moments(adam); }
  void operator()(const AdamW& adam) const {
    moments(adam);
    not_negative("weight_decay", adam.weight_decay);
  }
  void operator()(const RMSprop& rmsprop) const {
    not_negative("learning_rate", rmsprop.learning_rate);
    decay("rho", rmsprop.rho);
    momentum(rmsprop.momentum);
    positive("epsilon", rmsprop.epsilon);
  }

 private:
  template <class Options>
  void moments(const Options& options) const {
    not_negative("learning_rate", options.learning_rate);
    decay("beta_1", options.beta_1);
    decay("beta_2", options.beta_2);
    positive("epsilon", options.epsilon);
  }

  const Optimizer& optimizer_;
};

}  // namespace

std::string_view name_of(const Optimizer& optimizer) noexcept { return names[optimizer.index()]; }

double learning_rate_of(const Optimizer& optimizer) noexcept {
  return std::visit([](const auto& options) { return options.learning_rate; }, optimizer);
}

void set_learning_rate(Optimizer& optimizer, double learning_rate) noexcept {
  std::visit([learning_rate](auto& options) { options.learning_rate = learning_rate; }, optimizer);
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

void check(const Optimizer& optimizer) { std::visit(Checker(optimizer), optimizer); }

}  // namespace lockstep
