// See reference_optimizers.hpp.
#include "support/reference_optimizers.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <variant>

namespace lockstep::reference {
namespace {

double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

/// One weight's update. `slots` are the optimizer's own; t counts the changes of weights from 1.
struct Update {
  double& w;
  double g;
  std::span<double* const> slots;
  double rate;
  double t;

  void operator()(const SGD& sgd) const {
    if (sgd.momentum == 0) {
      w -= rate * g;
      return;
    }
    double& v = *slots[0];
    v = sgd.momentum * v - rate * g;
    w += sgd.nesterov ? sgd.momentum * v - rate * g : v;
  }

  void operator()(const Adam& adam) const { adam_step(adam); }
  void operator()(const AdamW& adam) const { adam_step(adam); }

  void operator()(const RMSprop& rmsprop) const {
    std::size_t next = 0;
    double& v = *slots[next++];
    v = rmsprop.rho * v + (1 - rmsprop.rho) * g * g;
    double* const p = rmsprop.momentum > 0 ? slots[next++] : nullptr;
    double d = v + rmsprop.epsilon;
    if (rmsprop.centered) {
      double& a = *slots[next];
      a = rmsprop.rho * a + (1 - rmsprop.rho) * g;
      d -= a * a;
    }
    double increment = rate * g / std::sqrt(d);
    if (p != nullptr) increment = *p = rmsprop.momentum * *p + increment;
    w -= increment;
  }

  void operator()(const Lion& lion) const {
    double& m = *slots[0];
    w -= rate * sign(lion.beta_1 * m + (1 - lion.beta_1) * g);
    m = lion.beta_2 * m + (1 - lion.beta_2) * g;
  }

  void operator()(const Nadam& nadam) const {
    const auto u = [&](double i) { return nadam.beta_1 * (1 - 0.5 * std::pow(0.96, i)); };
    double product = 1;
    for (double i = 1; i <= t; ++i) product *= u(i);
    double& m = *slots[0];
    double& v = *slots[1];
    m += (g - m) * (1 - nadam.beta_1);
    v += (g * g - v) * (1 - nadam.beta_2);
    const double m_hat = u(t + 1) * m / (1 - product * u(t + 1)) + (1 - u(t)) * g / (1 - product);
    const double v_hat = v / (1 - std::pow(nadam.beta_2, t));
    w -= rate * m_hat / (std::sqrt(v_hat) + nadam.epsilon);
  }

  void operator()(const Adamax& adamax) const {
    double& m = *slots[0];
    double& u = *slots[1];
    m += (g - m) * (1 - adamax.beta_1);
    u = std::max(adamax.beta_2 * u, std::abs(g));
    w -= rate * m / ((1 - std::pow(adamax.beta_1, t)) * (u + adamax.epsilon));
  }

  void operator()(const Adagrad& adagrad) const {
    *slots[0] += g * g;
    w -= rate * g / std::sqrt(*slots[0] + adagrad.epsilon);
  }

  void operator()(const Adadelta& adadelta) const {
    double& a = *slots[0];
    double& b = *slots[1];
    a = adadelta.rho * a + (1 - adadelta.rho) * g * g;
    const double change = -std::sqrt(b + adadelta.epsilon) / std::sqrt(a + adadelta.epsilon) * g;
    b = adadelta.rho * b + (1 - adadelta.rho) * change * change;
    w += rate * change;
  }

  void operator()(const Ftrl& ftrl) const {
    double& a = *slots[0];
    double& z = *slots[1];
    const double p = -ftrl.learning_rate_power;
    const double after = a + g * g;
    z += g + 2 * ftrl.l2_shrinkage_regularization_strength * w - (std::pow(after, p) - std::pow(a, p)) / rate * w;
    a = after;
    const double l1 = ftrl.l1_regularization_strength;
    const double l2 = ftrl.l2_regularization_strength + ftrl.beta / (2 * rate);
    w = (std::clamp(z, -l1, l1) - z) / (std::pow(a, p) / rate + 2 * l2);
  }

 private:
  void adam_step(const auto& adam) const {
    double& m = *slots[0];
    double& v = *slots[1];
    m += (g - m) * (1 - adam.beta_1);
    v += (g * g - v) * (1 - adam.beta_2);
    const double largest = adam.amsgrad ? *slots[2] = std::max(*slots[2], v) : v;
    const double alpha = rate * std::sqrt(1 - std::pow(adam.beta_2, t)) / (1 - std::pow(adam.beta_1, t));
    w -= alpha * m / (std::sqrt(largest) + adam.epsilon);
  }
};

struct OwnSlots {
  std::vector<double> operator()(const SGD& sgd) const { return zeros(sgd.momentum != 0 ? 1 : 0); }
  std::vector<double> operator()(const Adam& adam) const { return zeros(adam.amsgrad ? 3 : 2); }
  std::vector<double> operator()(const AdamW& adam) const { return zeros(adam.amsgrad ? 3 : 2); }
  std::vector<double> operator()(const RMSprop& rmsprop) const {
    return zeros(1 + (rmsprop.momentum > 0 ? 1 : 0) + (rmsprop.centered ? 1 : 0));
  }
  std::vector<double> operator()(const Lion&) const { return zeros(1); }
  std::vector<double> operator()(const Nadam&) const { return zeros(2); }
  std::vector<double> operator()(const Adamax&) const { return zeros(2); }
  std::vector<double> operator()(const Adagrad& adagrad) const { return {adagrad.initial_accumulator_value}; }
  std::vector<double> operator()(const Adadelta&) const { return zeros(2); }
  std::vector<double> operator()(const Ftrl& ftrl) const { return {ftrl.initial_accumulator_value, 0}; }

 private:
  static std::vector<double> zeros(std::size_t count) { return std::vector<double>(count); }
};

}  // namespace

std::vector<double> initial_slots(const Optimizer& optimizer) {
  std::vector<double> slots = std::visit(OwnSlots(), optimizer);
  std::visit(
      [&](const auto& options) {
        slots.insert(slots.begin(), (options.use_ema ? 1 : 0) + (options.gradient_accumulation_steps > 0 ? 1 : 0), 0.0);
      },
      optimizer);
  return slots;
}

double mean_gradient(const Optimizer& optimizer, double g, std::span<double* const> slots) {
  return std::visit(
      [&](const auto& options) {
        const int steps = options.gradient_accumulation_steps;
        return steps == 0 ? g : (g + *slots[options.use_ema ? 1 : 0]) / steps;
      },
      optimizer);
}

bool changes_weights(const Optimizer& optimizer, std::uint64_t iteration) {
  return std::visit(
      [&](const auto& options) {
        const auto steps = static_cast<std::uint64_t>(options.gradient_accumulation_steps);
        return steps == 0 || iteration % steps == 0;
      },
      optimizer);
}

void update(const Optimizer& optimizer, double& w, double g, double clipped, std::span<double* const> slots,
            std::uint64_t iteration) {
  std::visit(
      [&](const auto& options) {
        std::span<double* const> own = slots;
        double* average = nullptr;
        if (options.use_ema) {
          average = own.front();
          own = own.subspan(1);
        }
        std::uint64_t changes = iteration - 1;
        bool changes_weight = true;
        if (options.gradient_accumulation_steps > 0) {
          const auto steps = static_cast<std::uint64_t>(options.gradient_accumulation_steps);
          changes = (iteration - 1) / steps;
          changes_weight = iteration % steps == 0;
          *own.front() = changes_weight ? 0 : *own.front() + g;
          own = own.subspan(1);
        }
        if (changes_weight) {
          const double rate = options.learning_rate.at(iteration - 1);
          w -= w * options.weight_decay * rate;
          Update{w, clipped, own, rate, static_cast<double>(changes) + 1}(options);
        }
        if (average == nullptr) return;
        const double momentum = changes == 0 ? 0 : options.ema_momentum;
        *average = momentum * *average + (1 - momentum) * w;
        const int frequency = options.ema_overwrite_frequency;
        if (frequency > 0 && (changes + 1) % static_cast<std::uint64_t>(frequency) == 0) w = *average;
      },
      optimizer);
}

}  // namespace lockstep::reference
