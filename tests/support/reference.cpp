// The reference's losses, optimizers and step. See reference.hpp.
#include "support/reference.hpp"

#include "core/dropout_mask.hpp"
#include "layers/layer_registry.hpp"
#include "support/reference_losses.hpp"
#include "support/reference_optimizers.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
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

void zero(std::vector<Values>& all) {
  for (Values& values : all) std::ranges::fill(values, 0.0);
}

}  // namespace

ReferenceModel::ReferenceModel(Architecture model, Loss loss, Optimizer optimizer, std::uint64_t seed)
    : model_(model.flattened()), loss_(loss), optimizer_(optimizer), seed_(seed) {
  keep_ = [](const DropoutElement& element) {
    return DropoutMask(element.seed, element.step, element.layer, static_cast<float>(element.rate))
        .keep(element.place, element.index);
  };
  for (const LayerCall& call : model_.calls()) {
    LayerInfo info = model_.layers()[at(call.layer)];  // with the shapes of this call
    CallShapes shapes{{}, call.output_shape};
    for (const int input : call.inputs) shapes.inputs.push_back(model_.calls()[at(input)].output_shape);
    if (!shapes.inputs.empty()) info.input_shape = shapes.inputs.front();
    info.output_shape = call.output_shape;
    calls_.push_back(make_layer(info, static_cast<std::uint32_t>(call.layer), shapes));
    activity_regularizers_.push_back(activity_regularizer_of(info.layer));
  }
  for (const LayerInfo& info : model_.layers()) {
    first_parameter_.push_back(parameters_.size());
    const auto* const normalization = std::get_if<BatchNormalization>(&info.layer);
    for (const ParameterInfo& parameter : info.parameters) {
      std::vector<float> values;
      initialize(parameter, seed, parameters_.size(), values);
      weights_.emplace_back(values.begin(), values.end());
      gradients_.emplace_back(values.size());
      std::vector<Values>& slots = slots_.emplace_back();
      if (parameter.trainable) {
        for (const double initial : initial_slots(optimizer_)) slots.emplace_back(values.size(), initial);
      }
      const auto calls =
          std::ranges::count(model_.calls(), static_cast<int>(first_parameter_.size()) - 1, &LayerCall::layer);
      momenta_.push_back(normalization != nullptr ? std::pow(normalization->momentum, calls) : 0);
      frozen_.push_back(!is_trainable(info.layer) || parameter.is_constant);
      parameters_.push_back(parameter);
    }
  }
  first_parameter_.push_back(parameters_.size());
  penalized_.resize(calls_.size());
}

/// As Keras, takes the loss of each vector along the last axis, and an example's is their mean. A vector counts as
/// correct when its largest output is the target's class (or largest element); if it has one output, when the target is
/// 1 and the output above 0.5, or the target 0 and the output not.
Values ReferenceModel::judge(std::span<const double> outputs, std::span<const double> targets, std::size_t first,
                             Sums& sums) const {
  const std::size_t classes = at(model_.output_shape().extents().back());
  const std::size_t vectors = at(model_.output_shape().elements()) / classes;
  const std::size_t width = at(target_width()) / vectors;
  const auto share = 1 / static_cast<double>(vectors);
  const bool sparse = std::holds_alternative<SparseCategoricalCrossentropy>(loss_);
  const lockstep::Layer& last = model_.layers()[at(model_.calls()[at(model_.outputs().front())].layer)].layer;
  const ActivationFunction activation = activation_of(last).value_or(ActivationFunction::linear);
  Values gradients;
  for (std::size_t i = 0; i < outputs.size() / classes; ++i) {
    const auto output = outputs.subspan(i * classes, classes);
    const auto target = targets.subspan(i * width, width);
    const LossValue loss_value = loss_of(loss_, output, target, activation);
    const double weight = share * (sample_weights_.empty() ? 1 : sample_weights_[first + i / vectors]);
    sums.loss_sum += weight * loss_value.loss;
    const bool is_class = largest_of(output) == (sparse ? static_cast<std::size_t>(target[0]) : largest_of(target));
    const bool is_binary = static_cast<double>(target[0]) == (output[0] > 0.5 ? 1 : 0);
    sums.correct += (output.size() == 1 ? is_binary : is_class) ? share : 0;
    for (const double derivative : loss_value.gradient) gradients.push_back(weight * derivative);
  }
  return gradients;
}

double ReferenceModel::total_weight() const {
  return std::accumulate(sample_weights_.begin(), sample_weights_.end(), 0.0);
}

double ReferenceModel::penalty() const {
  double sum = 0;
  for (std::size_t p = 0; p < weights_.size(); ++p) {
    if (frozen_[p]) continue;
    const auto& [l1, l2] = std::pair(parameters_[p].regularizer.l1, parameters_[p].regularizer.l2);
    for (const double w : weights_[p]) sum += l1 * std::abs(w) + l2 * w * w;
  }
  return sum;
}

std::vector<Values> ReferenceModel::penalized_gradients() const {
  std::vector<Values> all = gradients_;
  for (std::size_t p = 0; p < all.size(); ++p) {
    if (frozen_[p]) continue;
    const auto& [l1, l2] = std::pair(parameters_[p].regularizer.l1, parameters_[p].regularizer.l2);
    for (std::size_t i = 0; i < all[p].size(); ++i) {
      const double w = weights_[p][i];
      all[p][i] += 2 * l2 * w;
      if (w != 0) all[p][i] += w > 0 ? l1 : -l1;
    }
  }
  return all;
}

std::int64_t ReferenceModel::target_width() const {
  const Shape& output = model_.output_shape();
  const bool sparse = std::holds_alternative<SparseCategoricalCrossentropy>(loss_);
  return sparse ? output.elements() / output.extents().back() : output.elements();
}

std::pair<std::size_t, std::size_t> ReferenceModel::parameters_of(int layer) const {
  const std::size_t first = first_parameter_[at(layer)];
  return {first, first_parameter_[at(layer) + 1] - first};
}

std::size_t ReferenceModel::input_width() const {
  std::size_t width = 0;
  for (const int call : model_.inputs()) width += at(model_.calls()[at(call)].output_shape.elements());
  return width;
}

Values ReferenceModel::input_of(int call, std::span<const double> inputs) const {
  std::size_t begin = 0;  // of this input in an example
  for (const int before : model_.inputs()) {
    if (before == call) break;
    begin += at(model_.calls()[at(before)].output_shape.elements());
  }
  const std::size_t elements = at(model_.calls()[at(call)].output_shape.elements());
  Values values;
  for (std::size_t example = 0; example < inputs.size(); example += input_width()) {
    const auto row = inputs.subspan(example + begin, elements);
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

Values ReferenceModel::forward(const Pass& pass, std::span<const double> inputs) {
  std::vector<Values> tensors(calls_.size());
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    const LayerCall& call = model_.calls()[c];
    const auto [first, count] = parameters_of(call.layer);
    Values values;
    if (call.inputs.empty()) values = input_of(static_cast<int>(c), inputs);
    for (const int input : call.inputs)
      values.insert(values.end(), tensors[at(input)].begin(), tensors[at(input)].end());
    tensors[c] = calls_[c]->forward(pass, std::span<const Values>(weights_).subspan(first, count), values);
    const Regularizer& regularizer = activity_regularizers_[c];
    if (regularizer.is_none()) continue;
    penalized_[c] = tensors[c];
    for (const double y : tensors[c]) activity_penalty_ += regularizer.l1 * std::abs(y) + regularizer.l2 * y * y;
  }
  return tensors[at(model_.outputs().front())];
}

/// Moving averages are updated once by each call: m <- momentum m + (1 - momentum) statistic. With k calls, that is one
/// update with momentum^k and the mean of the statistics weighted by momentum^(number of later calls).
void ReferenceModel::weigh_statistics(const std::vector<Values>& before, int layer, int later_calls) {
  const auto [first, count] = parameters_of(layer);
  const auto calls = std::ranges::count(model_.calls(), layer, &LayerCall::layer);
  for (std::size_t i = 0; i < count && calls > 1; ++i) {
    if (parameters_[first + i].trainable) continue;
    const double momentum = parameters_[first + i].momentum;
    double sum = 0;
    for (int k = 0; k < calls; ++k) sum += std::pow(momentum, k);
    Values& all = gradients_[first + i];
    for (std::size_t j = 0; j < all.size(); ++j) {
      all[j] = before[i][j] + (all[j] - before[i][j]) * std::pow(momentum, later_calls) / sum;
    }
  }
}

/// Adds the derivative of the penalty of a call's output, which is divided by the batch.
void ReferenceModel::add_activity_gradient(std::size_t call, Values& gradient) const {
  const Regularizer& regularizer = activity_regularizers_[call];
  if (regularizer.is_none()) return;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double y = penalized_[call][i];
    double derivative = 2 * regularizer.l2 * y;
    if (y != 0) derivative += y > 0 ? regularizer.l1 : -regularizer.l1;
    gradient[i] += activity_scale_ * derivative;
  }
}

void ReferenceModel::backward(Values gradient) {
  std::vector<Values> tensors(calls_.size());  // the sum of the gradients that the calls of each tensor have returned
  tensors[at(model_.outputs().front())] = std::move(gradient);
  std::vector<int> later_calls(model_.layers().size());
  for (std::size_t c = calls_.size(); c-- > 0;) {
    const LayerCall& call = model_.calls()[c];
    const auto [first, count] = parameters_of(call.layer);
    const std::vector<Values> before(gradients_.begin() + static_cast<std::ptrdiff_t>(first),
                                     gradients_.begin() + static_cast<std::ptrdiff_t>(first + count));
    add_activity_gradient(c, tensors[c]);
    const Values returned = calls_[c]->backward(std::span<const Values>(weights_).subspan(first, count),
                                                std::span(gradients_).subspan(first, count), tensors[c]);
    weigh_statistics(before, call.layer, later_calls[at(call.layer)]++);
    const auto elements_of = [&](int input) { return at(model_.calls()[at(input)].output_shape.elements()); };
    std::size_t elements = 0;  // of one example of all inputs
    for (const int input : call.inputs) elements += elements_of(input);
    std::size_t begin = 0;
    for (const int input : call.inputs) {
      const std::size_t size = returned.size() / elements * elements_of(input);
      Values& sum = tensors[at(input)];
      sum.resize(size);
      for (std::size_t i = 0; i < size; ++i) sum[i] += returned[begin + i];
      begin += size;
    }
  }
}

Values ReferenceModel::predict(std::span<const double> inputs, std::int64_t n) {
  if (inputs.size() != at(n) * input_width()) throw std::invalid_argument("reference: inputs");
  return forward({.examples = n}, inputs);
}

Sums ReferenceModel::evaluate(std::span<const double> inputs, std::span<const double> targets, std::int64_t n) {
  if (targets.size() != at(n * target_width())) throw std::invalid_argument("reference: targets");
  Sums sums;
  activity_penalty_ = 0;
  judge(predict(inputs, n), targets, 0, sums);
  sums.loss_sum *= scale_of(loss_, static_cast<double>(n), total_weight()).loss;
  sums.loss_sum += static_cast<double>(n) * penalty() + activity_penalty_;
  return sums;
}

Sums ReferenceModel::compute_gradients(std::span<const double> inputs, std::span<const double> targets, std::int64_t n,
                                       std::int64_t global_batch, const std::vector<std::int64_t>& replicas) {
  const std::vector<std::int64_t> slices = replicas.empty() ? std::vector<std::int64_t>{n} : replicas;
  const std::size_t input_size = input_width();
  const std::size_t target_size = at(target_width());
  if (n < 1 || std::accumulate(slices.begin(), slices.end(), std::int64_t{0}) != n ||
      inputs.size() != at(n) * input_size || targets.size() != at(n) * target_size) {
    throw std::invalid_argument("reference: replicas, inputs or targets do not match the number of examples");
  }

  zero(gradients_);
  activity_penalty_ = 0;
  activity_scale_ = 1 / static_cast<double>(global_batch);
  Sums sums;
  const ReducedScale scale = scale_of(loss_, static_cast<double>(global_batch), total_weight());
  std::size_t place = 0;
  for (const std::int64_t slice : slices) {
    if (slice == 0) continue;
    const Pass pass{.examples = slice,
                    .training = true,
                    .batch_offset = static_cast<std::uint32_t>(place),
                    .seed = seed_,
                    .step = step_,
                    .keep = &keep_};
    const Values outputs = forward(pass, inputs.subspan(place * input_size, at(slice) * input_size));
    Values gradient = judge(outputs, targets.subspan(place * target_size, at(slice) * target_size), place, sums);
    for (double& d : gradient) d *= scale.gradient;
    backward(std::move(gradient));
    place += at(slice);
  }

  sums.loss_sum *= scale.loss;
  sums.loss_sum += static_cast<double>(n) * penalty() + activity_penalty_;
  const auto busy = static_cast<double>(slices.size()) - static_cast<double>(std::ranges::count(slices, 0));
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (frozen_[p]) std::ranges::fill(gradients_[p], 0.0);
    if (parameters_[p].trainable) continue;
    for (double& statistic : gradients_[p]) statistic /= busy;
  }
  return sums;
}

std::vector<double*> ReferenceModel::slots_at(std::size_t parameter, std::size_t element) {
  std::vector<double*> found;
  for (Values& slot : slots_[parameter]) found.push_back(&slot[element]);
  return found;
}

std::vector<Values> ReferenceModel::clipped_gradients() {
  std::vector<Values> clipped = penalized_gradients();
  for (std::size_t p = 0; p < clipped.size(); ++p) {
    for (std::size_t i = 0; parameters_[p].trainable && i < clipped[p].size(); ++i)
      clipped[p][i] = mean_gradient(optimizer_, clipped[p][i], slots_at(p, i));
  }
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

void ReferenceModel::constrain(std::size_t parameter) {
  const Constraint& constraint = parameters_[parameter].constraint;
  const Shape& shape = parameters_[parameter].shape;
  if (constraint.is_none()) return;
  Values& weights = weights_[parameter];
  std::map<std::vector<std::int64_t>, std::vector<double*>> sets;  // by the index along the other axes
  for (std::size_t i = 0; i < weights.size(); ++i) {
    std::vector<std::int64_t> index(shape.rank());
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t axis = shape.rank(); axis-- > 0; rest /= shape[axis]) index[axis] = rest % shape[axis];
    if (constraint.axis.empty()) std::ranges::fill(index, 0);
    for (const int axis : constraint.axis) index[at(axis < 0 ? axis + static_cast<int>(shape.rank()) : axis)] = 0;
    sets[index].push_back(&weights[i]);
  }
  for (const auto& [index, set] : sets) {
    double norm = 0;
    for (const double* w : set) norm = std::hypot(norm, *w);
    for (double* w : set) {
      switch (constraint.kind) {
        case Constraint::Kind::none: break;
        case Constraint::Kind::non_neg: *w = std::max(*w, 0.0); break;
        case Constraint::Kind::unit_norm: *w /= 1e-7 + norm; break;
        case Constraint::Kind::max_norm: *w *= std::min(norm, constraint.max_value) / (1e-7 + norm); break;
        case Constraint::Kind::min_max_norm: {
          const double bounded = std::clamp(norm, constraint.min_value, constraint.max_value);
          *w *= (constraint.rate * bounded + (1 - constraint.rate) * norm) / (1e-7 + norm);
          break;
        }
      }
    }
  }
}

void ReferenceModel::apply_gradients() {
  ++step_;
  const std::vector<Values> gradients = penalized_gradients();
  const std::vector<Values> clipped = clipped_gradients();
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (frozen_[p]) continue;
    for (std::size_t i = 0; i < weights_[p].size(); ++i) {
      double& w = weights_[p][i];
      const double g = gradients[p][i];
      if (parameters_[p].trainable) {
        update(optimizer_, w, g, clipped[p][i], slots_at(p, i), step_);
      } else {
        w = momenta_[p] * w + (1 - momenta_[p]) * g;
      }
    }
    if (parameters_[p].trainable) constrain(p);
  }
}

Sums ReferenceModel::train_step(std::span<const double> inputs, std::span<const double> targets, std::int64_t n,
                                std::int64_t global_batch, const std::vector<std::int64_t>& replicas) {
  const Sums sums = compute_gradients(inputs, targets, n, global_batch, replicas);
  apply_gradients();
  return sums;
}

}  // namespace lockstep::reference
