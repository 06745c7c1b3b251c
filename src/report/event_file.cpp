// See event_file.hpp; what the bytes are is event_record's business.
#include "report/event_file.hpp"

#include <lockstep/core/error.hpp>

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
  throw IoError("Cannot write events for TensorBoard to " + path.string() + ": " +
                std::generic_category().message(error) + "; " +
                (full ? "free some space or choose another directory." : "choose a directory that can be written to."));
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

/// What TensorFlow calls such a file, up to the number that keeps a process's files apart.
std::string name_stem(double now) {
  std::array<char, 24> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%010lld", static_cast<long long>(now));
  return std::string("events.out.tfevents.") + seconds.data() + "." + host_name() + "." + std::to_string(getpid()) +
         ".";
}

}  // namespace

EventFile::EventFile(const fs::path& directory, const Clock& clock) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail(directory, error.value());
  const double now = clock();
  const std::string stem = name_stem(now);
  for (int number = 0; !file_; ++number) {
    path_ = directory / (stem + std::to_string(number) + ".v2");
    file_.reset(std::fopen(path_.c_str(), "wbxe"));  // never over another file
    if (!file_ && errno != EEXIST) fail(path_, errno);
  }
  write(version_record(now));
  flush();  // a full disk takes empty files still: better to hear of it now
}

void EventFile::add_scalar(std::string_view tag, double value, std::int64_t step, double wall_time) {
  write(scalar_record(tag, value, step, wall_time));
}

void EventFile::flush() {
  if (std::fflush(file_.get()) != 0) fail(path_, errno);
}

void EventFile::write(const std::string& record) {
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size()) fail(path_, errno);
}

}  // namespace lockstep
