// See inspect_text.hpp.
#include "cli/inspect_text.hpp"

#include "core/environment.hpp"
#include "core/format_number.hpp"
#include "report/terminal.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep {
namespace {

std::string format_number(double value) { return fmt::format("{:.4g}", value); }

using Row = std::array<std::string, 8>;

std::string format_table(const std::vector<NamedTensor>& tensors, const char* title) {
  std::vector<Row> rows{{title, "Shape", "Mean", "Std", "Min", "Max", "NaN", "Inf"}};
  for (const NamedTensor& tensor : tensors) {
    const TensorStatistics found = compute_statistics(tensor);
    rows.push_back({tensor.name, tensor.shape.to_string(), format_number(found.mean),
                    format_number(found.standard_deviation), format_number(found.min), format_number(found.max),
                    with_commas(found.nans), with_commas(found.infinities)});
  }
  std::array<std::size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths.at(column) = std::max(widths.at(column), row.at(column).size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths.at(column) - row.at(column).size(), ' ');
      const bool left = column < 2;  // text is left-aligned, numbers are right-aligned
      text += (column > 0 ? "  " : "") + (left ? row.at(column) + padding : padding + row.at(column));
    }
    text += '\n';
  }
  return text;
}

std::string describe_steps(std::int64_t iteration) {
  return with_commas(iteration) + (iteration == 1 ? " step" : " steps");
}

/// The learning rate of the next step.
std::string print_rate(const CompileState& training) {
  const LearningRate& rate = learning_rate_of(training.optimizer);
  const std::string now = format_number(rate.at(static_cast<std::uint64_t>(training.iteration)));
  return rate.is_constant() ? now : fmt::format("{} ({})", now, keras_name(rate));
}

/// "mean_squared_error", or "kind: mean_squared_error, place: huber * 0.5" of several outputs.
std::string describe_losses(const CompileState& training) {
  if (training.outputs.empty()) return std::string(keras_name(training.loss));
  std::string text;
  for (const OutputOptions& output : training.outputs) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", output.output, keras_name(output.loss));
    if (output.loss_weight != 1) text += fmt::format(" * {:g}", output.loss_weight);
  }
  return text;
}

std::string describe_training(const CompileState& training) {
  const CompileRefusals& refused = training.refusals;
  std::string text = "Optimizer: ";
  text += refused.optimizer.empty() ? fmt::format("{}, learning rate {}, {}", keras_name(training.optimizer),
                                                  print_rate(training), describe_steps(training.iteration))
                                    : "not supported: " + refused.optimizer;
  text += "\nLoss: ";
  text += refused.loss.empty() ? describe_losses(training) : "not supported: " + refused.loss;
  if (!refused.metrics.empty()) return text + "\nMetrics: not supported: " + refused.metrics + "\n";
  for (const std::string& name : names_of_metrics(training, false)) text += ", metric: " + name;
  for (const std::string& name : names_of_metrics(training, true)) text += ", weighted metric: " + name;
  return text + "\n";
}

/// "a backup before epoch 3; epoch 2 had accuracy 0.9731, loss 0.1204"
std::string describe_backup(const TrainingState& state) {
  std::string text = "a backup ";
  if (state.stop_training) {
    text += "at the end of training";
  } else {
    text += state.step == 0 ? "before" : fmt::format("after step {} of", with_commas(state.step));
    text += fmt::format(" epoch {}", state.epoch + 1);
  }
  if (state.history.epochs.empty()) return text;
  const EpochRecord& last = state.history.epochs.back();
  std::string had = fmt::format("; epoch {} had ", last.epoch + 1);
  for (const auto& [name, value] : last.logs) {
    text += fmt::format("{}{} {:.4g}", had, name, value);
    had = ", ";
  }
  return text;
}

}  // namespace

std::string describe_file(const InspectedFile& file) {
  std::string text = file.path.string() + " (" + format_bytes(static_cast<double>(file.bytes)) + ")\n";
  if (file.model) {
    text += file.model->architecture.summary(summary_width(current_environment()));
    if (!text.ends_with('\n')) text += '\n';
    text += file.model->compile_state ? describe_training(*file.model->compile_state) : "Not compiled\n";
    if (file.backup) text += "This is " + describe_backup(*file.backup) + "\n";
  } else {
    text += "Weights only: the file does not describe their model\n";
    if (file.stored.iteration) text += "Optimizer: " + describe_steps(*file.stored.iteration) + "\n";
  }
  text += '\n' + format_table(weights_of(file), "Weight");
  if (!optimizer_state_of(file).empty()) text += '\n' + format_table(optimizer_state_of(file), "Optimizer state");
  return text;
}

std::string summarize_file(const InspectedFile& file) {
  std::int64_t count = 0;
  for (const NamedTensor& tensor : weights_of(file)) count += std::ssize(tensor.values);
  if (!file.model) {
    const std::string text = fmt::format("weights only, {} values", with_commas(count));
    return file.stored.iteration ? text + ", " + describe_steps(*file.stored.iteration) : text;
  }
  std::string text = fmt::format("{}, {} parameters", file.model->architecture.name(), with_commas(count));
  if (!file.model->compile_state) return text + ", not compiled";
  const CompileState& training = *file.model->compile_state;
  if (!training.refusals.optimizer.empty()) return text + ", an optimizer that Lockstep does not have";
  text += fmt::format(", {}, {}", keras_name(training.optimizer), describe_steps(training.iteration));
  return file.backup ? text + "; " + describe_backup(*file.backup) : text;
}

}  // namespace lockstep
