// The reference's losses, optimizers and step. See reference.hpp.
#include "support/reference.hpp"

#include "core/dropout_mask.hpp"
#include "layers/layer_registry.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::reference {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::size_t largest_of(std::span<const double> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

/// One example's loss and its gradient with respect to the model's output.
struct LossValue {
  double loss = 0;
  Values gradient;
};

/// What the outputs that crossentropy reads are.
enum class Outputs {
  logits,
  softmax,           ///< probabilities that sum to 1, not rounded
  divide_then_clip,  ///< anything else, as Keras' CategoricalCrossentropy makes it probabilities
  clip_then_divide,  ///< the same for SparseCategoricalCrossentropy on TensorFlow
};

/// Crossentropy of a distribution.
LossValue cross_entropy(std::span<const double> output, std::span<const double> target, Outputs outputs) {
  LossValue loss_value{.loss = 0, .gradient = Values(output.size())};
  const double mass = std::accumulate(target.begin(), target.end(), 0.0);
  if (outputs == Outputs::logits) {
    const double largest = *std::max_element(output.begin(), output.end());
    double sum = 0;
    for (const double z : output) sum += std::exp(z - largest);
    for (std::size_t i = 0; i < output.size(); ++i) {
      loss_value.loss += target[i] * (largest + std::log(sum) - output[i]);
      loss_value.gradient[i] = mass * std::exp(output[i] - largest) / sum - target[i];
    }
    return loss_value;
  }
  const auto clip = [&](double p) { return outputs == Outputs::softmax ? p : std::clamp(p, 1e-7, 1 - 1e-7); };
  if (outputs == Outputs::clip_then_divide) {
    double sum = 0;
    for (const double p : output) sum += clip(p);
    for (std::size_t i = 0; i < output.size(); ++i) {
      const double clipped = clip(output[i]);
      loss_value.loss -= target[i] * std::log(clipped / sum);
      loss_value.gradient[i] = clipped == output[i] ? mass / sum - target[i] / clipped : 0;  // none through a clip
    }
    return loss_value;
  }
  const double sum = outputs == Outputs::softmax ? 1 : std::accumulate(output.begin(), output.end(), 0.0);
  double through_sum = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    const double p = output[i] / sum;
    const double clipped = clip(p);
    loss_value.loss -= target[i] * std::log(clipped);
    loss_value.gradient[i] = clipped == p ? -target[i] / clipped / sum : 0;
    through_sum += loss_value.gradient[i] * p;
  }
  if (outputs == Outputs::divide_then_clip) {
    for (double& gradient : loss_value.gradient) gradient -= through_sum;
  }
  return loss_value;
}

struct LossVisitor {
  std::span<const double> output;
  std::span<const double> target;
  bool is_softmax;  ///< the output; crossentropy is then that of its logits, whatever from_logits is

  [[nodiscard]] Outputs outputs(bool from_logits, Outputs otherwise) const {
    return is_softmax ? Outputs::softmax : from_logits ? Outputs::logits : otherwise;
  }

  LossValue operator()(const SparseCategoricalCrossentropy& loss) const {
    Values distribution(output.size());
    distribution.at(static_cast<std::size_t>(target[0])) = 1;
    return cross_entropy(output, distribution, outputs(loss.from_logits, Outputs::clip_then_divide));
  }
  LossValue operator()(const CategoricalCrossentropy& loss) const {
    return cross_entropy(output, target, outputs(loss.from_logits, Outputs::divide_then_clip));
  }
  LossValue operator()(const MeanSquaredError&) const {
    LossValue loss_value{.loss = 0, .gradient = Values(output.size())};
    const auto count = static_cast<double>(output.size());
    for (std::size_t i = 0; i < output.size(); ++i) {
      const double error = output[i] - target[i];
      loss_value.loss += error * error / count;
      loss_value.gradient[i] = 2 * error / count;
    }
    return loss_value;
  }
};

/// One weight's update by Keras' formulas. t counts steps from 1.
struct Update {
  double& w;
  double g;
  std::vector<Values>& slots;
  std::size_t i;
  std::uint64_t t;

  void operator()(const SGD& sgd) const {
    const double rate = sgd.learning_rate.at(t - 1);
    if (sgd.momentum == 0) {
      w -= rate * g;
      return;
    }
    double& v = slots[0][i];
    v = sgd.momentum * v - rate * g;
    w += sgd.nesterov ? sgd.momentum * v - rate * g : v;
  }

  void operator()(const Adam& adam) const {
    adam_step(adam.learning_rate.at(t - 1), adam.beta_1, adam.beta_2, adam.epsilon);
  }

  void operator()(const AdamW& adam) const {
    const double rate = adam.learning_rate.at(t - 1);
    w -= w * adam.weight_decay * rate;
    adam_step(rate, adam.beta_1, adam.beta_2, adam.epsilon);
  }

  void operator()(const RMSprop& rmsprop) const {
    std::size_t next = 0;
    double& v = slots[next++][i];
    v = rmsprop.rho * v + (1 - rmsprop.rho) * g * g;
    double* const p = rmsprop.momentum > 0 ? &slots[next++][i] : nullptr;
    double d = v + rmsprop.epsilon;
    if (rmsprop.centered) {
      double& a = slots[next][i];
      a = rmsprop.rho * a + (1 - rmsprop.rho) * g;
      d -= a * a;
    }
    double increment = rmsprop.learning_rate.at(t - 1) * g / std::sqrt(d);
    if (p != nullptr) increment = *p = rmsprop.momentum * *p + increment;
    w -= increment;
  }

 private:
  void adam_step(double rate, double beta_1, double beta_2, double epsilon) const {
    double& m = slots[0][i];
    double& v = slots[1][i];
    m += (g - m) * (1 - beta_1);
    v += (g * g - v) * (1 - beta_2);
    const auto steps = static_cast<double>(t);
    const double alpha = rate * std::sqrt(1 - std::pow(beta_2, steps)) / (1 - std::pow(beta_1, steps));
    w -= alpha * m / (std::sqrt(v) + epsilon);
  }
};

void zero(std::vector<Values>& all) {
  for (Values& values : all) std::ranges::fill(values, 0.0);
}

}  // namespace

ReferenceModel::ReferenceModel(Architecture model, Loss loss, Optimizer optimizer, std::uint64_t seed)
    : model_(std::move(model)), loss_(loss), optimizer_(optimizer), seed_(seed) {
  keep_ = [](const DropoutElement& element) {
    return DropoutMask(element.seed, element.step, element.layer, static_cast<float>(element.rate))
        .keep(element.place, element.index);
  };
  for (const LayerCall& call : model_.calls()) {
    calls_.push_back(make_layer(model_.layers()[at(call.layer)], static_cast<std::uint32_t>(call.layer)));
  }
  for (const LayerInfo& info : model_.layers()) {
    first_parameter_.push_back(parameters_.size());
    const auto* const normalization = std::get_if<BatchNormalization>(&info.layer);
    for (const ParameterInfo& parameter : info.parameters) {
      std::vector<float> values;
      initialize(parameter, seed, parameters_.size(), values);
      weights_.emplace_back(values.begin(), values.end());
      gradients_.emplace_back(values.size());
      slots_.emplace_back(parameter.trainable ? num_slots(optimizer_) : 0, Values(values.size()));
      momenta_.push_back(normalization != nullptr ? normalization->momentum : 0);
      parameters_.push_back(parameter);
    }
  }
  first_parameter_.push_back(parameters_.size());
}

/// An example counts as correct when its largest output is the target's class (or largest element); if there is one
/// output, when the target is 1 and the output above 0.5, or the target 0 and the output not.
Values ReferenceModel::judge(std::span<const double> outputs, std::span<const double> targets, Sums& sums) const {
  const std::size_t classes = at(model_.output_shape().elements());
  const std::size_t width = at(target_width());
  const bool sparse = std::holds_alternative<SparseCategoricalCrossentropy>(loss_);
  const lockstep::Layer& last = model_.layers()[at(model_.calls()[at(model_.outputs().front())].layer)].layer;
  const bool is_softmax = activation_of(last) == ActivationFunction::softmax;
  Values gradients;
  for (std::size_t i = 0; i < outputs.size() / classes; ++i) {
    const auto output = outputs.subspan(i * classes, classes);
    const auto target = targets.subspan(i * width, width);
    const LossValue loss_value = std::visit(LossVisitor{output, target, is_softmax}, loss_);
    sums.loss_sum += loss_value.loss;
    const bool is_class = largest_of(output) == (sparse ? static_cast<std::size_t>(target[0]) : largest_of(target));
    const bool is_binary = static_cast<double>(target[0]) == (output[0] > 0.5 ? 1 : 0);
    sums.correct += (output.size() == 1 ? is_binary : is_class) ? 1 : 0;
    gradients.insert(gradients.end(), loss_value.gradient.begin(), loss_value.gradient.end());
  }
  return gradients;
}

std::int64_t ReferenceModel::target_width() const {
  return std::holds_alternative<SparseCategoricalCrossentropy>(loss_) ? 1 : model_.output_shape().elements();
}

std::pair<std::size_t, std::size_t> ReferenceModel::parameters_of(int layer) const {
  const std::size_t first = first_parameter_[at(layer)];
  return {first, first_parameter_[at(layer) + 1] - first};
}

Values ReferenceModel::forward(const Pass& pass, std::span<const double> inputs) {
  std::vector<Values> tensors(calls_.size());
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    const LayerCall& call = model_.calls()[c];
    const auto [first, count] = parameters_of(call.layer);
    Values values;
    if (call.inputs.empty()) values.assign(inputs.begin(), inputs.end());
    for (const int input : call.inputs)
      values.insert(values.end(), tensors[at(input)].begin(), tensors[at(input)].end());
    tensors[c] = calls_[c]->forward(pass, std::span<const Values>(weights_).subspan(first, count), values);
  }
  return tensors[at(model_.outputs().front())];
}

void ReferenceModel::backward(Values gradient) {
  std::vector<Values> tensors(calls_.size());  // the sum of the gradients that the calls of each tensor have returned
  tensors[at(model_.outputs().front())] = std::move(gradient);
  for (std::size_t c = calls_.size(); c-- > 0;) {
    const LayerCall& call = model_.calls()[c];
    const auto [first, count] = parameters_of(call.layer);
    const Values returned = calls_[c]->backward(std::span<const Values>(weights_).subspan(first, count),
                                                std::span(gradients_).subspan(first, count), tensors[c]);
    const std::size_t size = call.inputs.empty() ? 0 : returned.size() / call.inputs.size();
    for (std::size_t k = 0; k < call.inputs.size(); ++k) {
      Values& sum = tensors[at(call.inputs[k])];
      sum.resize(size);
      for (std::size_t i = 0; i < size; ++i) sum[i] += returned[k * size + i];
    }
  }
}

Values ReferenceModel::predict(std::span<const double> inputs, std::int64_t n) {
  if (inputs.size() != at(n * model_.input_shape().elements())) throw std::invalid_argument("reference: inputs");
  return forward({.examples = n}, inputs);
}

Sums ReferenceModel::evaluate(std::span<const double> inputs, std::span<const double> targets, std::int64_t n) {
  if (targets.size() != at(n * target_width())) throw std::invalid_argument("reference: targets");
  Sums sums;
  judge(predict(inputs, n), targets, sums);
  return sums;
}

Sums ReferenceModel::compute_gradients(std::span<const double> inputs, std::span<const double> targets, std::int64_t n,
                                       std::int64_t global_batch, const std::vector<std::int64_t>& replicas) {
  const std::vector<std::int64_t> slices = replicas.empty() ? std::vector<std::int64_t>{n} : replicas;
  const std::size_t input_width = at(model_.input_shape().elements());
  const std::size_t target_size = at(target_width());
  if (n < 1 || std::accumulate(slices.begin(), slices.end(), std::int64_t{0}) != n ||
      inputs.size() != at(n) * input_width || targets.size() != at(n) * target_size) {
    throw std::invalid_argument("reference: replicas, inputs or targets do not match the number of examples");
  }

  zero(gradients_);
  Sums sums;
  std::size_t place = 0;
  for (const std::int64_t slice : slices) {
    if (slice == 0) continue;
    const Pass pass{.examples = slice,
                    .training = true,
                    .batch_offset = static_cast<std::uint32_t>(place),
                    .seed = seed_,
                    .step = step_,
                    .keep = &keep_};
    const Values outputs = forward(pass, inputs.subspan(place * input_width, at(slice) * input_width));
    Values gradient = judge(outputs, targets.subspan(place * target_size, at(slice) * target_size), sums);
    for (double& d : gradient) d /= static_cast<double>(global_batch);
    backward(std::move(gradient));
    place += at(slice);
  }

  const auto busy = static_cast<double>(slices.size()) - static_cast<double>(std::ranges::count(slices, 0));
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (parameters_[p].trainable) continue;
    for (double& statistic : gradients_[p]) statistic /= busy;
  }
  return sums;
}

std::vector<Values> ReferenceModel::clipped_gradients() const {
  std::vector<Values> clipped = gradients_;
  const Clipping clipping = clipping_of(optimizer_);
  const auto squares = [&](std::size_t p) {
    return std::inner_product(clipped[p].begin(), clipped[p].end(), clipped[p].begin(), 0.0);
  };
  double all = 0;
  for (std::size_t p = 0; p < clipped.size(); ++p) all += parameters_[p].trainable ? squares(p) : 0;
  for (std::size_t p = 0; p < clipped.size(); ++p) {
    if (!parameters_[p].trainable) continue;
    const double norm = std::sqrt(clipping.kind == ClippingKind::global_clipnorm ? all : squares(p));
    for (double& g : clipped[p]) {
      if (clipping.kind == ClippingKind::clipvalue) g = std::clamp(g, -clipping.bound, clipping.bound);
      if (clipping.needs_norms()) g *= clipping.bound / std::max(norm, clipping.bound);
    }
  }
  return clipped;
}

void ReferenceModel::apply_gradients() {
  ++step_;
  const std::vector<Values> gradients = clipped_gradients();
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    for (std::size_t i = 0; i < weights_[p].size(); ++i) {
      double& w = weights_[p][i];
      const double g = gradients[p][i];
      if (parameters_[p].trainable) {
        std::visit(Update{w, g, slots_[p], i, step_}, optimizer_);
      } else {
        w = momenta_[p] * w + (1 - momenta_[p]) * g;
      }
    }
  }
}

Sums ReferenceModel::train_step(std::span<const double> inputs, std::span<const double> targets, std::int64_t n,
                                std::int64_t global_batch, const std::vector<std::int64_t>& replicas) {
  const Sums sums = compute_gradients(inputs, targets, n, global_batch, replicas);
  apply_gradients();
  return sums;
}

}  // namespace lockstep::reference
