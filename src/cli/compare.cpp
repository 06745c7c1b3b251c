// `lockstep inspect --compare A B`: what differs between two models.
#include "checkpoint/keras_config.hpp"
#include "checkpoint/keras_weights.hpp"
#include "checkpoint/model_file.hpp"
#include "cli/inspect.hpp"
#include "cli/inspect_text.hpp"
#include "cli/inspected_file.hpp"

#include <nlohmann/json.hpp>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// What differs between two lists of tensors, a sentence each.
std::vector<std::string> compare_tensors(const std::vector<SavedTensor>& left, const std::vector<SavedTensor>& right,
                                         const std::string& what) {
  std::vector<std::string> differences;
  if (left.size() != right.size()) {
    differences.push_back("A has " + std::to_string(left.size()) + " " + what + ", B has " +
                          std::to_string(right.size()));
  }
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    const SavedTensor& a = left[i];
    const SavedTensor& b = right[i];
    const std::string name = a.name == b.name ? a.name : a.name + " (in B " + b.name + ")";
    if (a.shape != b.shape) {
      differences.push_back(name + ": shape " + a.shape.to_string() + " in A, " + b.shape.to_string() + " in B");
      continue;
    }
    std::uint64_t count = 0;
    double largest = 0;
    for (std::size_t k = 0; k < a.values.size(); ++k) {
      if (std::bit_cast<std::uint32_t>(a.values[k]) == std::bit_cast<std::uint32_t>(b.values[k])) continue;
      ++count;
      const double distance = std::abs(static_cast<double>(a.values[k]) - static_cast<double>(b.values[k]));
      if (!(distance <= largest)) largest = distance;  // NaN stays
    }
    if (count == 0) continue;
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), "%.4g", largest);
    differences.push_back(name + ": " + std::to_string(count) + " of " + std::to_string(a.values.size()) +
                          " values differ, by at most " + number.data());
  }
  return differences;
}

void append(std::vector<std::string>& list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

/// Optimizer, loss and metrics as text. Keras keeps the learning rate in float32 and so writes it back.
std::string options_of(const SavedTraining& training) {
  SavedTraining options{training.optimizer, training.loss, training.metrics, 0, {}};
  const LearningRate& rate = learning_rate_of(training.optimizer);
  if (rate.is_constant()) set_learning_rate(options.optimizer, static_cast<float>(rate.at(0)));
  return training_to_json(options);
}

std::vector<std::string> compare_models(const SavedModel& left, const SavedModel& right) {
  std::vector<std::string> differences;
  if (sequential_to_json(left.architecture) != sequential_to_json(right.architecture)) {
    differences.emplace_back("the models differ in their layers, their options or their names");
  }
  if (left.training.has_value() != right.training.has_value()) {
    differences.emplace_back(left.training ? "A is compiled, B is not" : "B is compiled, A is not");
  }
  if (!left.training || !right.training) return differences;
  if (options_of(*left.training) != options_of(*right.training)) {
    differences.emplace_back("optimizer, loss or metrics differ");
  }
  if (left.training->iteration != right.training->iteration) {
    differences.push_back("A has made " + std::to_string(left.training->iteration) + " steps, B " +
                          std::to_string(right.training->iteration));
  }
  if (name_of(left.training->optimizer) != name_of(right.training->optimizer)) return differences;
  append(differences, compare_tensors(left.training->slots, right.training->slots, "arrays of optimizer state"));
  return differences;
}

/// Weights alone do not tell their order, so they are read as those of the model they are compared with.
void read_as(const InspectedFile& other, InspectedFile& weights) {
  if (model_format_of(weights.path) != ModelFormat::weights) return;
  weights.stored.weights = load_keras_weights(weights.path, {other.model->architecture, {}, {}}).weights;
}

}  // namespace

ExitCode compare(const std::filesystem::path& left, const std::filesystem::path& right, bool json, std::ostream& out) {
  InspectedFile a = inspect_file(left);
  InspectedFile b = inspect_file(right);
  if (a.model && !b.model) read_as(a, b);
  if (b.model && !a.model) read_as(b, a);

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
