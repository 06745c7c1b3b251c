// See lower.hpp. The graph as a whole: parameters, then the calls of layers (call_lowering.hpp), losses, and the
// backward operations.
#include "graph/lower.hpp"

#include "graph/autodiff.hpp"
#include "graph/call_lowering.hpp"
#include "graph/input_numbers.hpp"
#include "graph/mixed_precision.hpp"
#include "graph/output_options.hpp"
#include "layers/layer_registry.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

class Lowering {
 public:
  Lowering(const Architecture& architecture, const CompileOptions& options, Precision precision,
           std::optional<double> input_scale)
      : architecture_(architecture.flattened()),
        input_scale_(input_scale),
        calls_(architecture_, first_parameters_, graph_) {
    graph_.layers = architecture_.layers();
    for (OutputOptions& output : output_options(options, architecture)) {
      graph_.outputs.push_back({.name = std::move(output.output),
                                .loss = output.loss,
                                .loss_weight = output.loss_weight,
                                .metrics = std::move(output.metrics),
                                .weighted_metrics = std::move(output.weighted_metrics)});
    }
    graph_.mixed_bfloat16 = are_mixed(graph_.layers, precision);
    graph_.is_chain = architecture_.is_chain() &&
                      std::ranges::none_of(graph_.layers, [](const LayerInfo& layer) { return is_penalized(layer); });
    graph_.inputs.resize(architecture_.inputs().size());
  }

  Graph run() {
    check_integers(architecture_);
    add_parameters();
    for (std::size_t call = 0; call < architecture_.calls().size(); ++call) calls_.lower_next();
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const double scale = byte_scale_of(architecture_, i);
      const bool is_scalable = architecture_.input_type(i) == InputType::float32;
      graph_.inputs[i].byte_scale = is_scalable ? input_scale_.value_or(scale) : scale;
    }
    add_metrics_parameter();
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) add_loss(i);
    if (graph_.outputs.size() > 1) refuse_equal_names();
    if (graph_.mixed_bfloat16) choose_types(graph_);
    for (const Fork& fork : calls_.forks()) share_gradient(fork);
    add_backward(graph_, calls_.forks());
    return std::move(graph_);
  }

 private:
  /// All parameters in the order of the layers, which is that of files.
  void add_parameters() {
    for (std::size_t l = 0; l < graph_.layers.size(); ++l) {
      const LayerInfo& layer = graph_.layers[l];
      first_parameters_.push_back(static_cast<int>(graph_.parameters.size()));
      for (const ParameterInfo& parameter : layer.parameters) {
        ParameterSpec spec{.name = layer.name + "/" + parameter.name, .info = parameter};
        if (!is_trainable(layer.layer) || parameter.is_constant) {
          spec.rule = UpdateRule::frozen;
        } else if (!parameter.trainable) {
          spec.rule = UpdateRule::moving_average;
          const int updates = calls_.uses().calls_of(static_cast<int>(l));
          spec.momentum = static_cast<float>(std::pow(parameter.momentum, updates));
        }
        graph_.parameters.push_back(std::move(spec));
      }
    }
  }

  /// The gradient of the first use becomes the sum, so the forked tensor's gradient has the same memory.
  void share_gradient(const Fork& fork) {
    const int owner = graph_.tensors[fork.tensor].gradient_alias;
    graph_.tensors[owner >= 0 ? owner : fork.tensor].gradient_alias = fork.uses.front();
  }

  /// Of what is logged. Keras numbers such names.
  void refuse_equal_names() const {
    std::set<std::string> names{"loss"};
    const auto add = [&names](const std::string& name) {
      if (!names.insert(name).second)
        throw UsageError("two values that are logged have the name " + name + "; give a metric or an output another");
    };
    for (const GraphOutput& output : graph_.outputs) {
      add(output.name + "_loss");
      visit_metrics({output.metrics, output.weighted_metrics}, [&](std::string_view name, const Metric& /*metric*/) {
        add(fmt::format("{}_{}", output.name, name));
      });
    }
  }

  void add_metrics_parameter() {
    std::size_t sums = first_metric_sum;
    for (GraphOutput& output : graph_.outputs) {
      output.first_sum = sums;
      sums += (graph_.outputs.size() > 1 ? 1 : 0) + num_sums({output.metrics, output.weighted_metrics});
    }
    constexpr std::size_t line = 16;  // floats of a cache line
    const std::size_t storage = (sums + line - 1) / line * line;
    ParameterSpec metrics{.name = "metrics",
                          .info = {"metrics", Shape{static_cast<std::int64_t>(storage)}, Initializer::zeros, false},
                          .storage = storage,
                          .rule = UpdateRule::assign};
    graph_.parameters.push_back(std::move(metrics));
  }

  void add_loss(std::size_t index) {
    const int call = architecture_.outputs()[index];
    const int layer = architecture_.calls()[call].layer;
    GraphOutput& model_output = graph_.outputs[index];
    model_output.tensor = calls_.read(call);
    graph_.tensors[model_output.tensor].requires_channels_last = true;  // what predict returns
    check_loss(model_output, architecture_.output_shape(index), graph_.layers[layer]);
    const HiddenLogits& hidden = calls_.hidden_logits()[index];
    int differentiated = model_output.tensor;
    if (hidden.output == differentiated) {
      differentiated = hidden.logits;
      model_output.loss = from_logits(model_output.loss);
    } else if (hidden.output >= 0) {  // a fork of it
      throw UsageError(fmt::format(
          "the output of '{}' has the loss {}, which Keras on TensorFlow computes from the activation's input, and is "
          "read by another layer or penalized (activity_regularizer), which Lockstep cannot do together; give "
          "--clip-probabilities, which computes the loss from the output, or train with lockstep.fit",
          graph_.layers[layer].name, keras_name(model_output.loss)));
    }
    std::vector<Operand> operands{{.tensor = differentiated, .activation = calls_.fused_activation(differentiated)}};
    if (index == 0) operands.insert(operands.end(), calls_.penalties().begin(), calls_.penalties().end());
    graph_.forward.push_back({.kind = OperationKind::loss,
                              .layer = layer,
                              .input = model_output.tensor,
                              .parameter = graph_.metrics_parameter(),
                              .num_parameters = 1,
                              .operands = std::move(operands),
                              .model_output = index});
  }

  /// Throws UsageError unless the loss and the metrics fit what the last layer computes.
  static void check_loss(const GraphOutput& model_output, const Shape& output, const LayerInfo& last) {
    if (reduction_of(model_output.loss) != Reduction::sum_over_batch_size && output.rank() > 1) {
      throw UsageError(fmt::format(
          "the loss {} has the reduction {}, but '{}' gives {}; with outputs of several axes Lockstep trains with "
          "sum_over_batch_size only",
          keras_name(model_output.loss), keras_name(reduction_of(model_output.loss)), last.name,
          output.to_string_with_batch()));
    }
    check({model_output.metrics, model_output.weighted_metrics}, model_output.loss, output.rank());
  }

  Architecture architecture_;  ///< without nested models
  std::optional<double> input_scale_;
  Graph graph_;
  std::vector<int> first_parameters_;  ///< by layer
  CallLowering calls_;
};

}  // namespace

Graph lower(const Architecture& architecture, const CompileOptions& options, Precision precision,
            std::optional<double> input_scale) {
  return Lowering(architecture, options, precision, input_scale).run();
}

Graph lower(const Architecture& architecture, const Loss& loss, Precision precision, std::optional<double> input_scale,
            std::vector<Metric> metrics, std::vector<Metric> weighted_metrics) {
  const CompileOptions options{
      .loss = loss, .metrics = std::move(metrics), .weighted_metrics = std::move(weighted_metrics)};
  return lower(architecture, options, precision, input_scale);
}

}  // namespace lockstep
