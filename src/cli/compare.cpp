// `lockstep inspect --compare A B`: the differences between two models.
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/keras_weights.hpp"
#include "checkpoint/model_file.hpp"
#include "cli/inspect.hpp"
#include "cli/inspected_file.hpp"
#include "core/printable.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// The differences between two lists of tensors, one sentence each.
std::vector<std::string> compare_tensors(const std::vector<NamedTensor>& left, const std::vector<NamedTensor>& right,
                                         const std::string& what) {
  std::vector<std::string> differences;
  if (left.size() != right.size()) {
    differences.push_back(fmt::format("A has {} {}, B has {}", left.size(), what, right.size()));
  }
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    const NamedTensor& a = left[i];
    const NamedTensor& b = right[i];
    const std::string name = a.name == b.name ? a.name : a.name + " (in B " + b.name + ")";
    if (a.shape != b.shape) {
      differences.push_back(fmt::format("{}: shape {} in A, {} in B", name, a.shape.to_string(), b.shape.to_string()));
      continue;
    }
    std::uint64_t count = 0;
    double max_distance = 0;
    for (std::size_t k = 0; k < a.values.size(); ++k) {
      if (std::bit_cast<std::uint32_t>(a.values[k]) == std::bit_cast<std::uint32_t>(b.values[k])) continue;
      ++count;
      const double distance = std::abs(static_cast<double>(a.values[k]) - static_cast<double>(b.values[k]));
      if (!(distance <= max_distance)) max_distance = distance;  // NaN stays
    }
    if (count == 0) continue;
    differences.push_back(
        fmt::format("{}: {} of {} values differ, by at most {:.4g}", name, count, a.values.size(), max_distance));
  }
  return differences;
}

void append(std::vector<std::string>& list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

/// Optimizer, loss and metrics as JSON. A constant learning rate is rounded to float32, as in the files that Keras
/// writes.
std::string options_of(const CompileOptions& training) {
  CompileOptions options = training;
  const LearningRate& rate = learning_rate_of(training.optimizer);
  if (rate.is_constant()) set_learning_rate(options.optimizer, static_cast<float>(rate.at(0)));
  return training_config_to_json(options);
}

/// Parts that Lockstep refuses have default values in both files.
std::vector<std::string> what_is_not_compared(const CompileRefusals& left, const CompileRefusals& right) {
  std::vector<std::string> list;
  const auto add = [&list](const char* part, const std::string& a, const std::string& b) {
    if (a.empty() && b.empty()) return;
    list.push_back(fmt::format("the {} not compared, because Lockstep does not support {}: {}", part,
                               a.empty()   ? "that of B"
                               : b.empty() ? "that of A"
                                           : "them",
                               a.empty() ? b : a));
  };
  add("optimizers are", left.optimizer, right.optimizer);
  add("losses are", left.loss, right.loss);
  add("metrics are", left.metrics, right.metrics);
  return list;
}

std::vector<std::string> compare_models(const ModelData& left, const ModelData& right) {
  std::vector<std::string> differences;
  if (architecture_to_json(left.architecture) != architecture_to_json(right.architecture)) {
    differences.emplace_back("the models differ in their layers, their options or their names");
  }
  if (left.compile_state.has_value() != right.compile_state.has_value()) {
    differences.emplace_back(left.compile_state ? "A is compiled, B is not" : "B is compiled, A is not");
  }
  if (!left.compile_state || !right.compile_state) return differences;
  if (options_of(*left.compile_state) != options_of(*right.compile_state)) {
    differences.emplace_back("optimizer, loss or metrics differ");
  }
  append(differences, what_is_not_compared(left.compile_state->refusals, right.compile_state->refusals));
  if (left.compile_state->iteration != right.compile_state->iteration) {
    differences.push_back(fmt::format("A was trained for {} steps, B for {}", left.compile_state->iteration,
                                      right.compile_state->iteration));
  }
  if (keras_name(left.compile_state->optimizer) != keras_name(right.compile_state->optimizer)) return differences;
  append(differences,
         compare_tensors(left.compile_state->slots, right.compile_state->slots, "arrays of optimizer state"));
  return differences;
}

/// A file of weights only does not define their order, so this rereads it as weights of the other file's model.
void reread_as_weights_of(const InspectedFile& other, InspectedFile& weights) {
  if (model_format_of(weights.path) != ModelFormat::weights) return;
  weights.stored.weights = load_keras_weights(weights.path, {other.model->architecture, {}, {}}).weights;
}

}  // namespace

ExitCode compare(const std::filesystem::path& left, const std::filesystem::path& right, bool json, std::ostream& out) {
  InspectedFile a = inspect_file(left);
  InspectedFile b = inspect_file(right);
  if (a.model && !b.model) reread_as_weights_of(a, b);
  if (b.model && !a.model) reread_as_weights_of(b, a);

  std::vector<std::string> differences = compare_tensors(weights_of(a), weights_of(b), "weights");
  const bool equal = differences.empty();
  if (a.model && b.model) append(differences, compare_models(*a.model, *b.model));
  if (json) {
    const nlohmann::ordered_json document{
        {"a", left.string()}, {"b", right.string()}, {"weights_equal", equal}, {"differences", differences}};
    out << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  } else {
    std::string text = "A: " + left.string() + "\nB: " + right.string() + "\n";
    for (const std::string& difference : differences) text += "  " + difference + "\n";
    text += equal ? "All weights have the same bits.\n" : "The weights differ.\n";
    out << printable(text);
  }
  return equal ? ExitCode::success : ExitCode::data;
}

}  // namespace lockstep
