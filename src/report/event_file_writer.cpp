// See event_file_writer.hpp. event_record.hpp defines the bytes.
#include "report/event_file_writer.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "report/event_record.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw IoError(fmt::format("cannot write events for TensorBoard to {}: {}; {}", path.string(),
                            std::generic_category().message(error),
                            full ? "free some space" : "choose a writable directory"));
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

/// TensorFlow's name for an event file, up to the number that distinguishes the files of one process.
std::string name_stem(double now) {
  return fmt::format("events.out.tfevents.{:010}.{}.{}.", static_cast<long long>(now), host_name(), getpid());
}

}  // namespace

EventFileWriter::EventFileWriter(const fs::path& directory, const Clock& clock) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail(directory, error.value());
  const double now = clock();
  const std::string stem = name_stem(now);
  for (int number = 0; !file_; ++number) {
    path_ = directory / fmt::format("{}{}.v2", stem, number);
    file_.reset(std::fopen(path_.c_str(), "wbxe"));  // "x": never overwrites another file
    if (!file_ && errno != EEXIST) fail(path_, errno);
  }
  write(version_record(now));
  flush();  // creating an empty file succeeds on a full disk; this reports it before training starts
}

void EventFileWriter::add_scalar(std::string_view tag, double value, std::int64_t step, double wall_time) {
  write(scalar_record(tag, value, step, wall_time));
}

std::unique_ptr<EventFileWriter> EventFileWriter::continue_file(const fs::path& path, std::uintmax_t bytes) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) < bytes || error) return nullptr;
  fs::resize_file(path, bytes, error);
  if (error) fail(path, error.value());
  std::FILE* const file = std::fopen(path.c_str(), "abe");
  if (file == nullptr) fail(path, errno);
  return std::unique_ptr<EventFileWriter>(new EventFileWriter(path, file));
}

std::uintmax_t EventFileWriter::flush() {
  if (std::fflush(file_.get()) != 0) fail(path_, errno);
  const long size = std::ftell(file_.get());
  if (size < 0) fail(path_, errno);
  return static_cast<std::uintmax_t>(size);
}

void EventFileWriter::remove() noexcept {
  file_.reset();
  std::error_code stays;
  fs::remove(path_, stays);
}

void EventFileWriter::write(const std::string& record) {
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size()) fail(path_, errno);
}

}  // namespace lockstep
