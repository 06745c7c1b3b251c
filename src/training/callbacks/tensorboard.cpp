// See tensorboard.hpp. Tags and steps are those of keras/src/callbacks/tensorboard.py.
#include "core/clock.hpp"
#include "report/event_file_writer.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks/tensorboard.hpp>
#include <lockstep/training/model.hpp>

#include <fmt/format.h>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lockstep {

namespace {

constexpr std::string_view validation_prefix = "val_";

std::int64_t batches_of(const std::variant<std::string, std::int64_t>& update_freq) {
  const std::string* const word = std::get_if<std::string>(&update_freq);
  if (word != nullptr && *word == "epoch") return 0;
  if (word != nullptr && *word == "batch") return 1;
  const std::int64_t batches = word != nullptr ? 0 : std::get<std::int64_t>(update_freq);
  if (batches >= 1) return batches;
  throw UsageError("TensorBoard's update_freq is " + (word != nullptr ? "'" + *word + "'" : std::to_string(batches)) +
                   " but must be 'epoch', 'batch', or a number of batches that is at least 1");
}

void write(EventFileWriter& file, const std::string& prefix, const Logs& logs, std::int64_t step,
           const std::string& suffix = "") {
  const double now = wall_clock_seconds();
  for (const auto& [name, value] : logs) file.add_scalar(prefix + name + suffix, value, step, now);
}

}  // namespace

TensorBoard::TensorBoard(TensorBoardOptions options)
    : log_dir_(std::move(options.log_dir)), batches_per_update_(batches_of(options.update_freq)) {}
TensorBoard::TensorBoard(TensorBoard&&) noexcept = default;
TensorBoard& TensorBoard::operator=(TensorBoard&&) noexcept = default;
TensorBoard::~TensorBoard() = default;

void TensorBoard::on_train_begin(Model& model) {
  batches_ = 0;
  validation_.reset();
  // Open the file now, so that a directory that is not writable fails before the first epoch.
  train_ = model.is_chief() ? std::make_unique<EventFileWriter>(log_dir_ / "train") : nullptr;
}

void TensorBoard::on_train_batch_end(Model& model, std::int64_t /*batch*/, const MetricSums& epoch_so_far) {
  ++batches_;
  if (!train_ || batches_per_update_ == 0 || batches_ % batches_per_update_ != 0) return;
  write(*train_, "batch_", model.to_logs(epoch_so_far), batches_);
}

void TensorBoard::on_epoch_end(Model& model, int epoch, Logs& logs) {
  if (!train_) return;
  Logs train;
  Logs validation;
  for (const auto& [name, value] : logs) {
    if (name.starts_with(validation_prefix)) {
      validation[name.substr(validation_prefix.size())] = value;
    } else {
      train[name] = value;
    }
  }
  train["learning_rate"] = model.learning_rate();
  write(*train_, "epoch_", train, epoch);
  train_->flush();
  if (validation.empty()) return;
  if (!validation_) validation_ = std::make_unique<EventFileWriter>(log_dir_ / "validation");
  write(*validation_, "evaluation_", validation, model.iterations(), "_vs_iterations");
  write(*validation_, "epoch_", validation, epoch);
  validation_->flush();
}

void TensorBoard::on_train_end(Model& /*model*/) {
  if (train_) train_->flush();  // batches of an epoch that was stopped early
  train_.reset();
  validation_.reset();
}

std::string TensorBoard::settings() const {
  return fmt::format("log_dir={}, update_freq={}", log_dir_.string(),
                     batches_per_update_ == 0 ? "epoch" : std::to_string(batches_per_update_));
}

CallbackState TensorBoard::save_state() const {
  CallbackState state{{{"batches", static_cast<double>(batches_)}}, {}, {}};
  const auto add = [&state](const std::string& name, const std::unique_ptr<EventFileWriter>& file) {
    if (!file) return;
    state.texts[name] = file->path().string();
    state.numbers[name + "_bytes"] = static_cast<double>(file->flush());
  };
  add("train", train_);
  add("validation", validation_);
  return state;
}

/// Continues the files of the backup without the events that followed it: the resumed run writes them again.
void TensorBoard::restore_state(const CallbackState& state) {
  batches_ = static_cast<std::int64_t>(state.number("batches", 0));
  if (!train_) return;
  const auto restore = [&state](const std::string& name, std::unique_ptr<EventFileWriter>& file) {
    const auto path = state.texts.find(name);
    if (path == state.texts.end()) return;
    auto continued =
        EventFileWriter::continue_file(path->second, static_cast<std::uintmax_t>(state.number(name + "_bytes", 0)));
    if (!continued) return;
    if (file) file->remove();
    file = std::move(continued);
  };
  restore("train", train_);
  restore("validation", validation_);
}

}  // namespace lockstep
