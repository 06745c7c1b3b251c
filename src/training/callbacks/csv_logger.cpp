// See csv_logger.hpp.
#include "core/digest.hpp"
#include "core/file_descriptor.hpp"
#include "core/file_system.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks/csv_logger.hpp>
#include <lockstep/training/model.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep {

CSVLogger::CSVLogger(std::filesystem::path filename, CSVLoggerOptions options)
    : filename_(std::move(filename)), options_(options) {}

namespace {

/// Training replaces or continues logs, not other files.
void require_log_or_nothing(const std::filesystem::path& path) {
  const std::string head = "epoch";
  std::ifstream file(path, std::ios::binary);
  std::string found(head.size(), ' ');
  if (!file.read(found.data(), static_cast<std::streamsize>(found.size())) && file.gcount() == 0) return;
  if (found == head) return;
  throw UsageError(path.string() + " is not a CSV log of a training run, so it is not replaced; name another file");
}

std::string read_log(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad())
    throw IoError(path.string() + " cannot be read; check its permissions and the disk");
  return text;
}

}  // namespace

void CSVLogger::on_train_begin(Model& model) {
  keys_.clear();
  begun_ = options_.append;
  is_chief_ = model.is_chief();
  if (!is_chief_) return;
  // Not truncated yet: a run that is resumed still needs the lines of the earlier run.
  require_log_or_nothing(filename_);
  lock_ = std::make_shared<FileDescriptor>(filename_, O_WRONLY | O_CREAT);
  if (!lock_->valid()) {
    throw IoError(filename_.string() + " cannot be written; name a file in a directory that exists and is writable");
  }
  constexpr double patience_s = 5;  // an earlier generation of the job may be ending
  if (try_lock(*lock_, patience_s) == EWOULDBLOCK) {
    throw PeerError(filename_.string() +
                    " is being written by another process; wait for it to end, or name another file");
  }
  (void)sync_directory(directory_of(filename_));  // where it cannot be, a resumed run tells of the lost log
  bytes_ = 0;
  digest_ = fnv1a_basis;
  if (begun_) count(read_log(filename_));
}

void CSVLogger::on_train_end(Model& /*model*/) { lock_.reset(); }

void CSVLogger::on_epoch_end(Model& /*model*/, int epoch, Logs& logs) {
  if (!is_chief_) return;
  // At the same path may be another job's log by now.
  if (!is_path_of(filename_, *lock_)) {
    throw PeerError(filename_.string() +
                    " was moved, removed or replaced while this run wrote it; put it back and start again");
  }
  if (keys_.empty()) {
    for (const auto& [name, value] : logs) keys_.push_back(name);
    // Like Keras, reserve the columns of a validation, even if no epoch validates.
    const bool has_validation = std::ranges::any_of(keys_, [](const auto& key) { return key.starts_with("val_"); });
    const std::size_t trained = has_validation ? 0 : keys_.size();
    for (std::size_t i = 0; i < trained; ++i) keys_.push_back("val_" + keys_[i]);
  }
  std::ofstream file(filename_, std::ios::binary | (begun_ ? std::ios::app : std::ios::trunc));
  begun_ = true;
  std::string lines;
  if (bytes_ == 0) {
    lines += "epoch";
    for (const std::string& key : keys_) lines += options_.separator + key;
    lines += "\r\n";
  }
  lines += std::to_string(epoch);
  for (const std::string& key : keys_) {
    const auto found = logs.find(key);
    lines += options_.separator + (found == logs.end() ? "NA" : fmt::format("{:.10g}", found->second));
  }
  lines += "\r\n";
  if (!file.write(lines.data(), static_cast<std::streamsize>(lines.size())).flush()) {
    throw IoError(filename_.string() + " cannot be written; is the disk full?");
  }
  count(lines);
}

void CSVLogger::count(std::string_view text) noexcept {
  bytes_ += text.size();
  for (const char c : text) digest_ = fnv1a(digest_, static_cast<unsigned char>(c));
}

std::string CSVLogger::settings() const {
  return fmt::format("filename={}, separator='{}', append={}", filename_.string(), options_.separator, options_.append);
}

CallbackState CSVLogger::save_state() const {
  // A power cut must not leave a backup of lines that are not there.
  if (lock_ && begun_ && fsync(lock_->number()) != 0 && errno != EINVAL) {
    throw_io_error(filename_.string() + " cannot be written", errno);
  }
  return {{{"begun", begun_ ? 1 : 0}, {"bytes", static_cast<double>(bytes_)}},
          {{"columns", fmt::format("{}", fmt::join(keys_, "\n"))}, {"digest", to_hex(digest_)}},
          {}};
}

/// Removes the lines of epochs after the backup: the resumed run writes them again, into the same columns.
void CSVLogger::restore_state(const CallbackState& state) {
  begun_ = state.number("begun", 0) != 0;
  const auto saved = state.texts.find("columns");
  std::istringstream columns(saved == state.texts.end() ? std::string() : saved->second);
  keys_.clear();
  for (std::string key; std::getline(columns, key);) keys_.push_back(key);
  if (!begun_ || !is_chief_) return;
  const auto bytes = static_cast<std::size_t>(state.number("bytes", 0));
  std::string log = read_log(filename_);
  bytes_ = 0;
  digest_ = fnv1a_basis;
  if (log.empty()) {
    if (bytes > 0) {
      log_warning(filename_.string() + " has lost the lines of the epochs before the backup; it begins anew");
    }
    return;
  }
  const bool is_whole = log.size() >= bytes;
  log.resize(std::min(log.size(), bytes));
  count(log);
  const auto digest = state.texts.find("digest");
  if (!is_whole || digest == state.texts.end() || digest->second != to_hex(digest_)) {
    throw UsageError(filename_.string() +
                     " does not begin with the lines that this training wrote before its backup; another job has "
                     "written it since, or it was changed; move it away, and the log begins anew");
  }
  std::error_code error;
  std::filesystem::resize_file(filename_, bytes, error);
  if (error) throw IoError(filename_.string() + " cannot be truncated to the epochs of the backup: " + error.message());
}

}  // namespace lockstep
