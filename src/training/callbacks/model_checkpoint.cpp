// See model_checkpoint.hpp.
#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks/model_checkpoint.hpp>
#include <lockstep/training/model.hpp>

#include <fmt/format.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {

ModelCheckpoint::ModelCheckpoint(std::string filepath, ModelCheckpointOptions options)
    : filepath_(std::move(filepath)), options_(std::move(options)), monitor_(options_.monitor, options_.mode, 0) {}

void ModelCheckpoint::on_train_begin(Model& model) {
  batches_ = 0;
  monitor_.begin(model);
}

void ModelCheckpoint::on_epoch_begin(Model& /*model*/, int epoch) { epoch_ = epoch; }

void ModelCheckpoint::on_train_batch_end(Model& model, std::int64_t batch, const MetricSums& epoch_so_far) {
  if (options_.save_freq <= 0 || ++batches_ % options_.save_freq != 0) return;
  save(model, model.to_logs(epoch_so_far), batch + 1);
}

void ModelCheckpoint::on_epoch_end(Model& model, int epoch, Logs& logs) {
  epoch_ = epoch;
  if (options_.save_freq <= 0) save(model, logs, 0);
}

std::string ModelCheckpoint::settings() const {
  return fmt::format("filepath={}, monitor={}, save_best_only={}, mode={}, save_freq={}", filepath_, options_.monitor,
                     options_.save_best_only, to_string(options_.mode), options_.save_freq);
}

CallbackState ModelCheckpoint::save_state() const {
  return {{{"epoch", epoch_}, {"batches", static_cast<double>(batches_)}, {"best", monitor_.best()}}, {}, {}};
}

void ModelCheckpoint::restore_state(const CallbackState& state) {
  epoch_ = static_cast<int>(state.number("epoch", epoch_));
  batches_ = static_cast<std::int64_t>(state.number("batches", static_cast<double>(batches_)));
  monitor_.set_best(state.number("best", monitor_.best()));
}

void ModelCheckpoint::save(Model& model, const Logs& logs, std::int64_t batch) {
  if (options_.save_best_only) {
    const std::optional<double> value = monitor_.value(logs);
    if (value && !monitor_.update(*value)) return;  // if the metric is missing, save every time, as Keras does
  }
  Logs values = logs;
  values["epoch"] = epoch_ + 1;
  values["batch"] = static_cast<double>(batch);
  model.save_async(format_path(filepath_, values));
}

std::string format_path(const std::string& pattern, const Logs& values) {
  std::string path;
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '{') {
      path += pattern[at++];
      continue;
    }
    const std::size_t end = pattern.find('}', at);
    if (end == std::string::npos) throw UsageError("'" + pattern + "' has a { without a }");
    const std::string field = pattern.substr(at + 1, end - at - 1);
    const std::size_t colon = field.find(':');
    const std::string key = field.substr(0, colon);
    std::string format = colon == std::string::npos ? "" : field.substr(colon + 1);
    const auto value = values.find(key);
    if (value == values.end()) {
      std::string names;
      for (const auto& [name, unused] : values) names += (names.empty() ? "" : ", ") + name;
      throw UsageError("'" + pattern + "' names {" + key + "}, which is not available here; use one of: " + names);
    }
    const bool whole = key == "epoch" || key == "batch";
    const bool has_type = !format.empty() && std::string_view("dfeg").find(format.back()) != std::string_view::npos;
    if (!has_type) format += whole ? 'd' : 'g';
    const bool plain = format.size() <= 9 && format.find_first_not_of("0123456789.") == format.size() - 1;
    try {
      if (!plain || (format.back() == 'd') != whole) throw fmt::format_error(format);
      const auto python_format = fmt::runtime("{:" + format + "}");  // Python's syntax for numbers is fmt's
      path += whole ? fmt::format(python_format, static_cast<std::int64_t>(value->second))
                    : fmt::format(python_format, value->second);
    } catch (const fmt::format_error&) {
      throw UsageError("'" + pattern + "' has an unsupported format in {" + field + "}; write {epoch:02d} or " +
                       "{val_loss:.2f}");
    }
    at = end + 1;
  }
  return path;
}

}  // namespace lockstep
