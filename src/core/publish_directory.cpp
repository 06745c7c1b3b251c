// See publish_directory.hpp.
#include "core/publish_directory.hpp"

#include "core/file_descriptor.hpp"
#include "core/file_system.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

/// Returns 0 or errno.
int sync_file(const fs::path& file) {
  const FileDescriptor descriptor(file, O_RDONLY);
  return descriptor.valid() && fsync(descriptor.number()) == 0 ? 0 : errno;
}

}  // namespace

void publish_directory(const fs::path& directory, const fs::path& target) {
  const auto require = [&target](int problem) {
    if (problem != 0) throw_io_error("cannot write " + target.string(), problem);
  };
  std::error_code error;
  fs::recursive_directory_iterator entry(directory, error);
  for (const fs::recursive_directory_iterator end{}; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_directory(unknown)) {
      require(sync_directory(entry->path()));
    } else if (entry->is_regular_file(unknown)) {
      require(sync_file(entry->path()));
    }
  }
  require(error.value());
  require(sync_directory(directory));
  require(rename(directory.c_str(), target.c_str()) == 0 ? 0 : errno);
  require(sync_directory(directory_of(target)));
}

}  // namespace lockstep
