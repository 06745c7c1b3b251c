// See write_making_room.hpp.
#include "session/write_making_room.hpp"

#include "core/file_system.hpp"
#include "core/format_number.hpp"
#include "core/log.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>

namespace lockstep {

namespace {

bool are_on_one_device(const std::filesystem::path& a, const std::filesystem::path& b) {
  struct stat status_a {};
  struct stat status_b {};
  return stat(a.c_str(), &status_a) == 0 && stat(b.c_str(), &status_b) == 0 && status_a.st_dev == status_b.st_dev;
}

}  // namespace

void write_making_room(const std::filesystem::path& file, std::span<const BackupDirectory> backups,
                       const std::function<void()>& write) {
  try {
    write();
    return;
  } catch (const NoSpaceError& /*error*/) {
    std::size_t removed = 0;
    for (const BackupDirectory& directory : backups) {
      if (are_on_one_device(directory.path(), directory_of(file))) removed += directory.remove_older();
    }
    if (removed == 0) throw;
    log_warning(fmt::format(
        "no space is left for {}; removed {} of this job, kept the newest, and will try once more; free some space",
        file.string(), count_of(removed, "older backup")));
  }
  write();
}

}  // namespace lockstep
