// See describe_kernels.hpp.
#include "parallel/describe_kernels.hpp"

#include "core/format_number.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstdint>
#include <string_view>

namespace lockstep {

namespace {

/// "nhwc", or "nchw -> nChw16c" where it changes; empty for vectors.
std::string layouts_of(const Plan& plan, const Operation& operation) {
  const auto layout_of = [&](int tensor) -> std::string {
    if (tensor < 0) return {};
    const TensorSpec& spec = plan.graph.tensors[static_cast<std::size_t>(tensor)];
    return spec.height * spec.width == 1 ? std::string() : std::string(to_string(spec.layout));
  };
  const std::string input = layout_of(operation.input);
  const std::string output = layout_of(operation.output);
  if (input.empty() || output.empty() || input == output) return input.empty() ? output : input;
  return input + " -> " + output;
}

std::string type_of(const Plan& plan, const Operation& operation) {
  const int tensor = operation.input >= 0 ? operation.input : operation.output;
  return tensor < 0 ? std::string() : std::string(to_string(plan.graph.tensors[static_cast<std::size_t>(tensor)].type));
}

/// "jit:avx512_core_amx_bf16" twice is named once.
std::string without_repetition(const std::string& implementation) {
  const auto comma = implementation.find(", ");
  const bool repeats =
      comma != std::string::npos && implementation.substr(0, comma) == implementation.substr(comma + 2);
  return repeats ? implementation.substr(0, comma) : implementation;
}

}  // namespace

std::string describe_kernels(const Plan& plan, const std::vector<MeasuredOperation>& operations,
                             std::size_t num_examples) {
  std::size_t width = 8;
  for (const MeasuredOperation& measured : operations) {
    width = std::max(width, plan.graph.layers[static_cast<std::size_t>(measured.operation.layer)].name.size() + 1);
  }
  const auto line = [width](std::string_view operation, std::string_view layer, std::string_view type,
                            std::string_view layout, std::string_view batch, std::string_view ms,
                            std::string_view kernel) {
    return fmt::format("{:<29}{:<{}}{:<9}{:<18}{:>5} {:>7}  {}\n", operation, layer, width, type, layout, batch, ms,
                       kernel);
  };
  std::string text = line("operation", "layer", "type", "layout", "batch", "ms", "kernel");
  double seconds = 0;
  for (const MeasuredOperation& measured : operations) {
    const Operation& operation = measured.operation;
    const std::size_t batch = (num_examples + operation.microbatch.count - 1) / operation.microbatch.count;
    text += line(to_string(operation.kind), plan.graph.layers[static_cast<std::size_t>(operation.layer)].name,
                 type_of(plan, operation), layouts_of(plan, operation), std::to_string(batch),
                 fmt::format("{:.3f}", 1000 * measured.seconds), without_repetition(measured.implementation));
    seconds += measured.seconds;
  }
  return text + fmt::format(
                    "{}: {:.2f} ms of kernels a step, without optimizer and communication; `batch` is how many "
                    "examples a call takes\n",
                    count_of(static_cast<std::int64_t>(num_examples), "example"), 1000 * seconds);
}

}  // namespace lockstep
