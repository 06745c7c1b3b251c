// See warn_of_backends.hpp.
#include "cli/warn_of_backends.hpp"

#include "core/log.hpp"
#include "graph/output_options.hpp"
#include "losses/loss_registry.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

/// Of a loss or a metric by Keras' name, also focal ones.
bool is_crossentropy(std::string_view keras_name) { return keras_name.find("rossentropy") != std::string_view::npos; }

/// How Lockstep computes a loss that is no focal crossentropy; empty if all backends agree.
std::string how_computed(const Crossentropy& loss, ActivationFunction last, bool is_of_logits,
                         const std::string& from_outputs) {
  const bool is_own = last == loss.probabilities_of;
  if (loss.clips_probabilities) return "";
  if (is_of_logits && !is_own) return from_outputs;
  if (is_of_logits && loss.from_logits) {
    return fmt::format(
        "from the {}'s input, as Keras does on TensorFlow; --clip-probabilities computes it from the outputs, as Keras "
        "does on JAX and PyTorch",
        keras_name(last));
  }
  if (!is_own && !loss.from_logits && loss.takes_classes)
    return "as Keras does on TensorFlow; --clip-probabilities computes it as Keras does on JAX and PyTorch";
  return "";
}

}  // namespace

void warn_of_crossentropies(const CompileOptions& options, const Architecture& model, bool clips_probabilities) {
  if (clips_probabilities) return;
  const std::vector<OutputOptions> outputs = output_options(options, model);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const ActivationFunction last = last_activation(model, i);
    const bool is_of_logits = last == ActivationFunction::softmax || last == ActivationFunction::sigmoid;
    const std::string from_outputs = fmt::format(
        "from the outputs, as Keras does on JAX and PyTorch; on TensorFlow Keras computes it from the {}'s input",
        keras_name(last));
    const auto warn = [&](const std::string& what, const std::string& how) {
      if (!how.empty())
        log_warning(fmt::format("the model ends in {}, and {}: Lockstep computes it {}", keras_name(last), what, how));
    };
    const Loss& loss = outputs[i].loss;
    if (const std::optional<Crossentropy> crossentropy = crossentropy_of(loss)) {
      warn(fmt::format("its loss is {}{}", keras_name(loss), crossentropy->from_logits ? " with from_logits=True" : ""),
           how_computed(*crossentropy, last, is_of_logits, from_outputs));
    } else if (is_of_logits && is_crossentropy(keras_name(loss))) {  // a focal one
      warn(fmt::format("its loss is {}", keras_name(loss)), from_outputs);
    }
    for (const std::vector<Metric>* metrics : {&outputs[i].metrics, &outputs[i].weighted_metrics}) {
      for (const Metric& metric : *metrics) {
        if (is_of_logits && is_crossentropy(keras_name(metric)))
          warn(fmt::format("it has the metric {}", keras_name(metric)), from_outputs);
      }
    }
  }
}

void warn_of_target_sums(const CompileOptions& options, const Architecture& model, const Dataset& data,
                         bool clips_probabilities) {
  if (clips_probabilities) return;
  const std::vector<OutputOptions> outputs = output_options(options, model);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::optional<Crossentropy> loss = crossentropy_of(outputs[i].loss);
    const auto* const values = std::get_if<SharedArray<float>>(&data.targets.at(i).values);
    const Shape& shape = data.targets[i].shape;
    if (!loss || loss->takes_classes || loss->probabilities_of != ActivationFunction::softmax || values == nullptr ||
        shape.rank() == 0)
      continue;
    const auto classes = static_cast<std::size_t>(shape.extents().back());
    const std::size_t vectors = elements_of_example(shape) / classes;
    const std::span<const float> all(values->data(), values->size());
    for (std::size_t vector = 0; vector < data.size() * vectors; ++vector) {
      const std::span<const float> one = all.subspan(vector * classes, classes);
      const double sum = std::accumulate(one.begin(), one.end(), 0.0);
      constexpr double tolerance = 1e-3;
      if (std::abs(sum - 1) <= tolerance) continue;
      log_warning(fmt::format(
          "the targets of example {} in {} sum to {:g}: Lockstep uses the gradient of {}, as Keras does on JAX and "
          "PyTorch; on TensorFlow Keras takes the sum for 1",
          vector / vectors, data.label_of(data.targets[i]), sum, keras_name(outputs[i].loss)));
      break;
    }
  }
}

void warn_of_repeated_rows(const Optimizer& optimizer, const Architecture& model) {
  if (!depends_on_repeated_rows(optimizer)) return;
  const Architecture flattened = model.flattened();
  const auto is_trained_embedding = [](const LayerInfo& info) {
    return std::holds_alternative<Embedding>(info.layer) && info.parameters.front().trainable;
  };
  const auto found = std::ranges::find_if(flattened.layers(), is_trained_embedding);
  if (found == flattened.layers().end()) return;
  log_warning(fmt::format(
      "layer '{}' is an Embedding, and the optimizer is {}: of an index that occurs several times in a batch Lockstep "
      "adds up the gradients first, as Keras does on JAX and PyTorch; on TensorFlow Keras clips and squares each",
      found->name, keras_name(optimizer)));
}

}  // namespace lockstep
