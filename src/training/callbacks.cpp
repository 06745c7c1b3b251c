// Keras' callbacks; their rules are those of keras/src/callbacks.
#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks.hpp>
#include <lockstep/training/model.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "core/log.hpp"

namespace lockstep {

namespace {

std::string to_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

bool is_upward(const std::string& metric, MonitorMode mode) {
  if (mode != MonitorMode::automatic) return mode == MonitorMode::max;
  if (metric.find("acc") != std::string::npos) return true;
  if (metric.find("loss") != std::string::npos) return false;
  throw UsageError("whether '" + metric +
                   "' should rise or fall cannot be told from its name; set the callback's mode");
}

}  // namespace

Monitor::Monitor(std::string metric, MonitorMode mode, double min_delta)
    : metric_(std::move(metric)), upward_(is_upward(metric_, mode)), min_delta_(std::abs(min_delta)) {
  reset();
}

void Monitor::reset() noexcept {
  best_ = upward_ ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

std::optional<double> Monitor::value(const Logs& logs) {
  if (const auto found = logs.find(metric_); found != logs.end()) return found->second;
  if (!warned_) {
    std::string names;
    for (const auto& [name, value] : logs) names += (names.empty() ? "" : ", ") + name;
    log_warning("a callback watches '" + metric_ + "', which this training does not report; there are: " + names);
    warned_ = true;
  }
  return {};
}

bool Monitor::improves(double value, double reference) const noexcept {
  return upward_ ? value > reference + min_delta_ : value < reference - min_delta_;
}

bool Monitor::update(double value) noexcept {
  if (!improves(value, best_)) return false;
  best_ = value;
  return true;
}

EarlyStopping::EarlyStopping(EarlyStoppingOptions options)
    : options_(std::move(options)), monitor_(options_.monitor, options_.mode, options_.min_delta) {}

void EarlyStopping::on_train_begin(Model& /*model*/) {
  wait_ = 0;
  best_weights_.clear();
  monitor_.reset();
}

void EarlyStopping::on_epoch_end(Model& model, int epoch, Logs& logs) {
  const std::optional<double> value = monitor_.value(logs);
  if (!value || epoch < options_.start_from_epoch) return;
  if (options_.restore_best_weights && best_weights_.empty()) best_weights_ = model.weights();
  ++wait_;
  if (monitor_.update(*value)) {
    best_epoch_ = epoch;
    if (options_.restore_best_weights) best_weights_ = model.weights();
    if (!options_.baseline || monitor_.improves(*value, *options_.baseline)) wait_ = 0;
    return;
  }
  if (wait_ < options_.patience || epoch == 0) return;
  model.stop_training();
  model.print("Epoch " + std::to_string(epoch + 1) + ": early stopping");
  if (!options_.restore_best_weights) return;
  model.print("Restoring model weights from the end of the best epoch: " + std::to_string(best_epoch_ + 1) + ".");
  model.set_weights(best_weights_);
}

CallbackState EarlyStopping::save_state() const {
  return {{{"wait", wait_}, {"best", monitor_.best()}, {"best_epoch", best_epoch_}}, best_weights_};
}

void EarlyStopping::restore_state(Model& /*model*/, const CallbackState& state) {
  wait_ = static_cast<int>(state.number("wait", wait_));
  monitor_.set_best(state.number("best", monitor_.best()));
  best_epoch_ = static_cast<int>(state.number("best_epoch", best_epoch_));
  best_weights_ = state.weights;
}

ReduceLROnPlateau::ReduceLROnPlateau(ReduceLROnPlateauOptions options)
    : options_(std::move(options)), monitor_(options_.monitor, options_.mode, options_.min_delta) {
  if (options_.factor <= 0 || options_.factor >= 1) {
    throw UsageError("ReduceLROnPlateau's factor is " + to_text(options_.factor) + " but must lie between 0 and 1");
  }
}

void ReduceLROnPlateau::on_train_begin(Model& /*model*/) {
  wait_ = 0;
  cooldown_left_ = 0;
  monitor_.reset();
}

void ReduceLROnPlateau::on_epoch_end(Model& model, int epoch, Logs& logs) {
  const double rate = model.learning_rate();
  logs["learning_rate"] = rate;
  const std::optional<double> value = monitor_.value(logs);
  if (!value) return;
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    wait_ = 0;
  }
  if (monitor_.update(*value)) {
    wait_ = 0;
    return;
  }
  if (cooldown_left_ > 0 || ++wait_ < options_.patience || rate <= options_.min_lr) return;
  const double reduced = std::max(rate * options_.factor, options_.min_lr);
  model.set_learning_rate(reduced);
  model.print("Epoch " + std::to_string(epoch + 1) + ": ReduceLROnPlateau reducing learning rate to " +
              to_text(reduced) + ".");
  cooldown_left_ = options_.cooldown;
  wait_ = 0;
}

CallbackState ReduceLROnPlateau::save_state() const {
  return {{{"wait", wait_}, {"best", monitor_.best()}, {"cooldown_left", cooldown_left_}}, {}};
}

void ReduceLROnPlateau::restore_state(Model& /*model*/, const CallbackState& state) {
  wait_ = static_cast<int>(state.number("wait", wait_));
  monitor_.set_best(state.number("best", monitor_.best()));
  cooldown_left_ = static_cast<int>(state.number("cooldown_left", cooldown_left_));
}

void LearningRateScheduler::on_epoch_begin(Model& model, int epoch) {
  const double rate = schedule_(epoch, model.learning_rate());
  if (!std::isfinite(rate) || rate < 0) {
    throw UsageError("the schedule of LearningRateScheduler gave " + to_text(rate) + " for epoch " +
                     std::to_string(epoch) + "; a learning rate is a finite number of at least 0");
  }
  model.set_learning_rate(rate);
}

void LearningRateScheduler::on_epoch_end(Model& model, int /*epoch*/, Logs& logs) {
  logs["learning_rate"] = model.learning_rate();
}

BackupAndRestore::BackupAndRestore(std::filesystem::path backup_dir, BackupOptions options)
    : directory_(std::move(backup_dir)), options_(options) {
  if (options_.save_freq < BackupOptions::never || options_.keep < 1) {
    throw UsageError(
        "BackupAndRestore needs a save_freq of BackupOptions::every_epoch, never or a number of steps, and keep of at "
        "least 1");
  }
}

ModelCheckpoint::ModelCheckpoint(std::string filepath, ModelCheckpointOptions options)
    : filepath_(std::move(filepath)), options_(std::move(options)), monitor_(options_.monitor, options_.mode, 0) {}

void ModelCheckpoint::on_train_begin(Model& /*model*/) {
  batches_ = 0;
  monitor_.reset();
}

void ModelCheckpoint::on_epoch_begin(Model& /*model*/, int epoch) { epoch_ = epoch; }

void ModelCheckpoint::on_train_batch_end(Model& model, std::int64_t batch, const StepMetrics& epoch_so_far) {
  if (options_.save_freq <= 0 || ++batches_ % options_.save_freq != 0) return;
  save(model, {{"loss", epoch_so_far.loss()}, {"accuracy", epoch_so_far.accuracy()}}, batch + 1);
}

void ModelCheckpoint::on_epoch_end(Model& model, int epoch, Logs& logs) {
  epoch_ = epoch;
  if (options_.save_freq <= 0) save(model, logs, 0);
}

CallbackState ModelCheckpoint::save_state() const {
  return {{{"epoch", epoch_}, {"batches", static_cast<double>(batches_)}, {"best", monitor_.best()}}, {}};
}

void ModelCheckpoint::restore_state(Model& /*model*/, const CallbackState& state) {
  epoch_ = static_cast<int>(state.number("epoch", epoch_));
  batches_ = static_cast<std::int64_t>(state.number("batches", static_cast<double>(batches_)));
  monitor_.set_best(state.number("best", monitor_.best()));
}

void ModelCheckpoint::save(Model& model, const Logs& logs, std::int64_t batch) {
  if (options_.save_best_only) {
    const std::optional<double> value = monitor_.value(logs);
    if (value && !monitor_.update(*value)) return;  // as in Keras, without the metric every model is saved
  }
  Logs values = logs;
  values["epoch"] = epoch_ + 1;
  values["batch"] = static_cast<double>(batch);
  model.save_later(format_path(filepath_, values));
}

void TerminateOnNaN::on_train_batch_end(Model& model, std::int64_t batch, const StepMetrics& epoch_so_far) {
  if (std::isfinite(epoch_so_far.loss_sum)) return;
  model.print("Batch " + std::to_string(batch) + ": Invalid loss, terminating training");
  model.stop_training();
}

CSVLogger::CSVLogger(std::filesystem::path filename, CSVLoggerOptions options)
    : filename_(std::move(filename)), options_(options) {}

void CSVLogger::on_train_begin(Model& model) {
  keys_.clear();
  begun_ = options_.append;
  if (!model.is_chief()) return;
  // Only looked at: what an earlier run wrote may still be needed to go on.
  if (!std::ofstream(filename_, std::ios::app)) {
    throw IoError(filename_.string() + " cannot be written; name a file in a directory that exists and is writable");
  }
}

void CSVLogger::on_epoch_end(Model& model, int epoch, Logs& logs) {
  if (!model.is_chief()) return;
  std::error_code ignored;
  const bool wants_header = keys_.empty() && !(begun_ && std::filesystem::file_size(filename_, ignored) > 0);
  if (keys_.empty()) {
    for (const auto& [name, value] : logs) keys_.push_back(name);
  }
  std::ofstream file(filename_, std::ios::binary | (begun_ ? std::ios::app : std::ios::trunc));
  begun_ = true;
  if (wants_header) {
    file << "epoch";
    for (const std::string& key : keys_) file << options_.separator << key;
    file << "\r\n";
  }
  file << epoch;
  for (const std::string& key : keys_) {
    const auto found = logs.find(key);
    file << options_.separator << (found == logs.end() ? "NA" : to_text(found->second));
  }
  file << "\r\n";
  if (!file.flush()) throw IoError(filename_.string() + " cannot be written; is the disk full?");
}

CallbackState CSVLogger::save_state() const {
  std::error_code none;
  const std::uintmax_t bytes = begun_ ? std::filesystem::file_size(filename_, none) : 0;
  return {{{"begun", begun_ ? 1 : 0}, {"bytes", none ? 0 : static_cast<double>(bytes)}}, {}};
}

/// Lines of epochs that the backup knows nothing of are written again.
void CSVLogger::restore_state(Model& model, const CallbackState& state) {
  begun_ = state.number("begun", 0) != 0;
  if (!begun_ || !model.is_chief()) return;
  const auto bytes = static_cast<std::uintmax_t>(state.number("bytes", 0));
  std::error_code error;
  if (std::filesystem::file_size(filename_, error) > bytes && !error) {
    std::filesystem::resize_file(filename_, bytes, error);
  }
  if (error) throw IoError(filename_.string() + " cannot be cut to the epochs of the backup: " + error.message());
}

std::string format_path(const std::string& pattern, const Logs& values) {
  std::string path;
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '{') {
      path += pattern[at++];
      continue;
    }
    const std::size_t end = pattern.find('}', at);
    if (end == std::string::npos) throw UsageError("'" + pattern + "' has a { without its }");
    const std::string field = pattern.substr(at + 1, end - at - 1);
    const std::size_t colon = field.find(':');
    const std::string key = field.substr(0, colon);
    std::string format = colon == std::string::npos ? "" : field.substr(colon + 1);
    const auto value = values.find(key);
    if (value == values.end()) {
      std::string names;
      for (const auto& [name, unused] : values) names += (names.empty() ? "" : ", ") + name;
      throw UsageError("'" + pattern + "' names {" + key + "}, which is not known here; there are: " + names);
    }
    const bool whole = key == "epoch" || key == "batch";
    char type = whole ? 'd' : 'g';
    if (!format.empty() && std::string_view("dfeg").find(format.back()) != std::string_view::npos) {
      type = format.back();
      format.pop_back();
    }
    const bool plain = format.size() <= 8 && format.find_first_not_of("0123456789.") == std::string::npos;
    if (!plain || (type == 'd') != whole) {
      throw UsageError("'" + pattern + "' formats {" + field + "} in a way that is not known; write {epoch:02d} or " +
                       "{val_loss:.2f}");
    }
    char text[400];
    const std::string print = "%" + format + (whole ? "lld" : std::string(1, type));
    // The format was checked above, character by character.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (whole) {
      std::snprintf(text, sizeof text, print.c_str(), static_cast<long long>(value->second));
    } else {
      std::snprintf(text, sizeof text, print.c_str(), value->second);
    }
#pragma GCC diagnostic pop
    path += text;
    at = end + 1;
  }
  return path;
}

}  // namespace lockstep
