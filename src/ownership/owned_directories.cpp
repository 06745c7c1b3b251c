// See owned_directories.hpp.
#include "ownership/owned_directories.hpp"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

bool are_same(const fs::path& a, const fs::path& b) {
  std::error_code unknown;
  const auto plain = [](const fs::path& path) { return (fs::absolute(path) / "").lexically_normal(); };
  return plain(a) == plain(b) || fs::equivalent(a, b, unknown);
}

bool is_below(const fs::path& file, const fs::path& directory) {
  fs::path parent = fs::absolute(file).parent_path();
  while (!are_same(parent, directory)) {
    if (parent == parent.parent_path()) return false;
    parent = parent.parent_path();
  }
  return true;
}

}  // namespace

DirectoryLock& OwnedDirectories::lock(const fs::path& directory, const DirectoryOwner& owner) {
  const auto found = std::ranges::find_if(
      locks_, [&directory](const DirectoryLock& lock) { return are_same(lock.directory(), directory); });
  if (found != locks_.end()) return *found;
  DirectoryLock lock(directory, owner, keeper_);
  const std::lock_guard guard(mutex_);
  return locks_.emplace_back(std::move(lock));
}

void OwnedDirectories::require_owned(const fs::path& file) const {
  const std::lock_guard guard(mutex_);
  bool is_owned = false;
  for (const DirectoryLock& lock : locks_) {
    if (!is_below(file, lock.directory())) continue;
    lock.require_held();
    is_owned = true;
  }
  if (!is_owned) require_not_owned_by_another(file);
}

}  // namespace lockstep
