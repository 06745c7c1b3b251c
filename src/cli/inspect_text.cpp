// See inspect_text.hpp.
#include "cli/inspect_text.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep {
namespace {

std::string print_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

/// 2,770,634
std::string with_commas(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t place = digits.size(); place > 3; place -= 3) digits.insert(place - 3, 1, ',');
  return digits;
}

using Row = std::array<std::string, 8>;

std::string table_of(const std::vector<SavedTensor>& tensors, const char* title) {
  std::vector<Row> rows{{title, "Shape", "Mean", "Std", "Min", "Max", "NaN", "Inf"}};
  for (const SavedTensor& tensor : tensors) {
    const TensorStatistics found = statistics_of(tensor);
    rows.push_back({tensor.name, tensor.shape.to_string(), print_number(found.mean),
                    print_number(found.standard_deviation), print_number(found.min), print_number(found.max),
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
      const bool left = column < 2;  // words to the left, numbers to the right
      text += (column > 0 ? "  " : "") + (left ? row.at(column) + padding : padding + row.at(column));
    }
    text += '\n';
  }
  return text;
}

std::string steps_made(std::int64_t iteration) {
  return with_commas(static_cast<std::uint64_t>(iteration)) + (iteration == 1 ? " step made" : " steps made");
}

/// The rate of the next step.
std::string print_rate(const SavedTraining& training) {
  const LearningRate& rate = learning_rate_of(training.optimizer);
  const std::string now = print_number(rate.at(static_cast<std::uint64_t>(training.iteration)));
  return rate.is_constant() ? now : now + " (" + std::string(name_of(rate)) + ")";
}

std::string describe_training(const SavedTraining& training) {
  std::string text = "Optimizer: " + std::string(name_of(training.optimizer)) + ", learning rate " +
                     print_rate(training) + ", " + steps_made(training.iteration) + "\n" +
                     "Loss: " + std::string(name_of(training.loss));
  for (const Metric metric : training.metrics) text += ", metric: " + std::string(name_of(metric));
  return text + "\n";
}

/// "a backup: next is epoch 3; epoch 2 had accuracy 0.9731, loss 0.1204"
std::string describe_backup(const TrainingState& state) {
  std::string text = "a backup: ";
  if (state.stopped) {
    text += "training had been stopped";
  } else {
    text += "next is " +
            (state.step > 0 ? "step " + with_commas(static_cast<std::uint64_t>(state.step + 1)) + " of " : "") +
            "epoch " + std::to_string(state.epoch + 1);
  }
  if (state.history.epochs.empty()) return text;
  const EpochRecord& last = state.history.epochs.back();
  std::string had = "; epoch " + std::to_string(last.epoch + 1) + " had ";
  for (const auto& [name, value] : last.logs) {
    text += had + name + " " + print_number(value);
    had = ", ";
  }
  return text;
}

}  // namespace

std::string print_bytes(std::uint64_t bytes) {
  constexpr std::array units{"B", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, units.at(unit));
  return text.data();
}

std::string printable(std::string text) {
  for (char& letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if ((code < 0x20 && letter != '\n') || code == 0x7f) letter = '?';
  }
  return text;
}

std::string describe_file(const InspectedFile& file) {
  std::string text = file.path.string() + " (" + print_bytes(file.bytes) + ")\n";
  if (file.model) {
    text += file.model->architecture.summary();
    if (!text.ends_with('\n')) text += '\n';
    text += file.model->training ? describe_training(*file.model->training) : "Not compiled\n";
    if (file.backup) text += "This is " + describe_backup(*file.backup) + "\n";
  } else {
    text += "Weights only: the file does not tell the model they belong to\n";
    if (file.stored.iteration) text += "Optimizer: " + steps_made(*file.stored.iteration) + "\n";
  }
  text += '\n' + table_of(weights_of(file), "Weight");
  if (!optimizer_state_of(file).empty()) text += '\n' + table_of(optimizer_state_of(file), "Optimizer state");
  return text;
}

std::string describe_briefly(const InspectedFile& file) {
  std::uint64_t count = 0;
  for (const SavedTensor& tensor : weights_of(file)) count += tensor.values.size();
  if (!file.model) {
    const std::string text = "weights only, " + with_commas(count) + " values";
    return file.stored.iteration ? text + ", " + steps_made(*file.stored.iteration) : text;
  }
  std::string text = file.model->architecture.name() + ", " + with_commas(count) + " parameters";
  if (!file.model->training) return text + ", not compiled";
  const SavedTraining& training = *file.model->training;
  text += ", " + std::string(name_of(training.optimizer)) + ", " + steps_made(training.iteration);
  return file.backup ? text + "; " + describe_backup(*file.backup) : text;
}

}  // namespace lockstep
