// A file of curves that TensorBoard shows: one number after another, each with its curve's name, its step and the time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/clock.hpp"

namespace lockstep {

/// A new file in a run's directory: TensorBoard shows all event files of a directory as one run. What is written is
/// buffered until `flush`; the destructor writes what is left, but cannot tell whether that went well. All errors are
/// IoError and name the file. Not thread-safe.
class EventFile {
 public:
  /// Makes the directory where it is missing. `clock` gives seconds since 1970, for the file's name.
  explicit EventFile(const std::filesystem::path& directory, const Clock& clock = wall_clock_seconds);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// `wall_time` is in seconds since 1970. The file keeps 32 bits of the value.
  void add_scalar(std::string_view tag, double value, std::int64_t step, double wall_time);

  void flush();

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { static_cast<void>(std::fclose(file)); }
  };

  void write(const std::string& record);

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace lockstep
