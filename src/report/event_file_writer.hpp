// Writes a TensorBoard event file of scalars, each with its tag, step and time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/clock.hpp"

namespace lockstep {

/// A new event file in a run's directory; TensorBoard shows all event files of a directory as one run. Writes are
/// buffered until `flush`. The destructor flushes too, but cannot report errors. All errors are IoError and name the
/// file. Not thread-safe.
class EventFileWriter {
 public:
  /// Creates the directory if needed. `clock` returns seconds since 1970, for the file's name.
  explicit EventFileWriter(const std::filesystem::path& directory, const Clock& clock = wall_clock_seconds);

  /// Opens an earlier file of this run to write after its first `bytes` bytes; the rest is discarded. Null if the file
  /// is shorter, or not there.
  [[nodiscard]] static std::unique_ptr<EventFileWriter> continue_file(const std::filesystem::path& path,
                                                                      std::uintmax_t bytes);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Appends one point of the curve `tag`. `wall_time` is in seconds since 1970. The file stores the value as float32.
  void add_scalar(std::string_view tag, double value, std::int64_t step, double wall_time);

  /// Returns the size of the file in bytes.
  std::uintmax_t flush();

  /// Removes the file. Call nothing after it.
  void remove() noexcept;

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { static_cast<void>(std::fclose(file)); }
  };

  EventFileWriter(std::filesystem::path path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  void write(const std::string& record);

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace lockstep
