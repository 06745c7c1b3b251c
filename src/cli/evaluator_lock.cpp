// See evaluator_lock.hpp.
#include "cli/evaluator_lock.hpp"

#include "core/file_system.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <cerrno>

namespace lockstep {

FileDescriptor lock_for_evaluator(const std::filesystem::path& directory, const std::string& writes_to,
                                  const std::string& option) {
  const std::filesystem::path path = directory / ".evaluator.lock";
  FileDescriptor lock(path, O_RDWR | O_CREAT | O_NOFOLLOW);
  if (!lock.valid()) throw_io_error("cannot create " + path.string(), errno);
  constexpr double silence_s = 1;
  constexpr double patience_s = 10;  // the evaluator that this one replaces may be ending
  int problem = try_lock(lock, silence_s);
  if (problem == EWOULDBLOCK) {
    log_info(fmt::format("another evaluator {} {}; waiting {:g} s for it to end", writes_to, directory.string(),
                         patience_s));
    problem = try_lock(lock, patience_s);
  }
  if (problem == EWOULDBLOCK) {
    throw PeerError(fmt::format("another evaluator {} {}; wait for it to end, or give another {}", writes_to,
                                directory.string(), option));
  }
  return lock;
}

}  // namespace lockstep
