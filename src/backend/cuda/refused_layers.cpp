// The layers that GPUs have no kernels for yet: refused by name when a model is compiled.
#include "backend/cuda/kernel.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <memory>
#include <string>
#include <variant>

namespace lockstep::cuda {

void refuse_layer(const KernelScope& scope, const std::string& how) {
  throw UsageError(fmt::format("layer '{}' ({}){} is not supported on GPUs yet; use --device cpu", scope.layer().name,
                               scope.layer().class_name, how));
}

void refuse_regularizers_and_constraints(const Graph& graph) {
  for (const ParameterSpec& parameter : graph.parameters) {
    if (parameter.rule != UpdateRule::optimizer) continue;
    if (parameter.info.regularizer.is_none() && parameter.info.constraint.is_none()) continue;
    throw UsageError(fmt::format("the {} of '{}' is not supported on GPUs yet; use --device cpu",
                                 parameter.info.constraint.is_none() ? "regularizer" : "constraint", parameter.name));
  }
}

void refuse_several_inputs_or_outputs(const Graph& graph) {
  const bool has_inputs = graph.inputs.size() > 1;
  const std::size_t count = has_inputs ? graph.inputs.size() : graph.outputs.size();
  if (count == 1) return;
  throw UsageError(fmt::format("a model of {} {} is not supported on GPUs yet; use --device cpu", count,
                               has_inputs ? "inputs" : "outputs"));
}

std::unique_ptr<Kernel> make_pad(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_upsample(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_transpose(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_concatenate(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_dot(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_augment(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_encode(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_affine(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_prelu(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_layer_scale(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_layer_normalization(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_noise(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_embedding(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_activity_penalty(const KernelScope& scope) {
  const bool is_layer_itself = std::holds_alternative<ActivityRegularization>(scope.layer().layer);
  refuse_layer(scope, is_layer_itself ? "" : " with an activity_regularizer");
}

}  // namespace lockstep::cuda
