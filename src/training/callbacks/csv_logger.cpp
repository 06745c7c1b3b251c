// See csv_logger.hpp.
#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks/csv_logger.hpp>
#include <lockstep/training/model.hpp>

#include <fmt/core.h>
#include <cstdint>
#include <fstream>
#include <system_error>
#include <utility>

namespace lockstep {

CSVLogger::CSVLogger(std::filesystem::path filename, CSVLoggerOptions options)
    : filename_(std::move(filename)), options_(options) {}

void CSVLogger::on_train_begin(Model& model) {
  keys_.clear();
  begun_ = options_.append;
  is_chief_ = model.is_chief();
  if (!is_chief_) return;
  // Open for appending, not truncating: a run that is resumed still needs the lines of the earlier run.
  if (!std::ofstream(filename_, std::ios::app)) {
    throw IoError(filename_.string() + " cannot be written; name a file in a directory that exists and is writable");
  }
}

void CSVLogger::on_epoch_end(Model& /*model*/, int epoch, Logs& logs) {
  if (!is_chief_) return;
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
    file << options_.separator << (found == logs.end() ? "NA" : fmt::format("{:.10g}", found->second));
  }
  file << "\r\n";
  if (!file.flush()) throw IoError(filename_.string() + " cannot be written; is the disk full?");
}

std::string CSVLogger::settings() const {
  return fmt::format("filename={}, separator='{}', append={}", filename_.string(), options_.separator, options_.append);
}

CallbackState CSVLogger::save_state() const {
  std::error_code none;
  const std::uintmax_t bytes = begun_ ? std::filesystem::file_size(filename_, none) : 0;
  return {{{"begun", begun_ ? 1 : 0}, {"bytes", none ? 0 : static_cast<double>(bytes)}}, {}, {}};
}

/// Removes the lines of epochs after the backup: the resumed run writes them again.
void CSVLogger::restore_state(const CallbackState& state) {
  begun_ = state.number("begun", 0) != 0;
  if (!begun_ || !is_chief_) return;
  const auto bytes = static_cast<std::uintmax_t>(state.number("bytes", 0));
  std::error_code error;
  if (std::filesystem::file_size(filename_, error) > bytes && !error) {
    std::filesystem::resize_file(filename_, bytes, error);
  }
  if (error) throw IoError(filename_.string() + " cannot be truncated to the epochs of the backup: " + error.message());
}

}  // namespace lockstep
