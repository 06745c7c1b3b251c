// Atomic files: the content of the disk after success, failure and SIGKILL, and the error messages.
#include "checkpoint/atomic_file.hpp"

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::testing;

namespace {

void save(const fs::path& target, const std::string& content) {
  write_file_atomically(target, std::as_bytes(std::span(content)));
}

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename().string());
  return names;
}

/// Runs `work` in a child process. Returns true if `work` did; false if the child was killed or threw.
bool in_child(const std::function<bool()>& work) {
  const pid_t pid = fork();
  if (pid == 0) {
    bool good = false;
    try {
      good = work();
    } catch (...) {
    }
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Mounts a tmpfs of a given size, if this user may.
class Tmpfs {
 public:
  Tmpfs(fs::path directory, const std::string& options) : directory_(std::move(directory)) {
    fs::create_directories(directory_);
    mounted_ = mount("none", directory_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) std::cout << "skipped: cannot mount a tmpfs (" << std::strerror(errno) << ")\n";
  }
  ~Tmpfs() {
    if (mounted_) umount2(directory_.c_str(), MNT_DETACH);
  }
  Tmpfs(const Tmpfs&) = delete;
  Tmpfs& operator=(const Tmpfs&) = delete;

  [[nodiscard]] bool mounted() const noexcept { return mounted_; }
  void make_read_only() const { REQUIRE(mount("none", directory_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0); }

 private:
  fs::path directory_;
  bool mounted_ = false;
};

}  // namespace

TEST_CASE("a file is written and replaced without leftovers") {
  const ScratchDirectory scratch;
  const fs::path target = scratch / "model.h5";
  save(target, "first");
  CHECK(text_of(target) == "first");
  save(target, "second, and longer");
  CHECK(text_of(target) == "second, and longer");
  save(target, "");
  CHECK(text_of(target).empty());
  CHECK(names_in(scratch.path()) == std::set<std::string>{"model.h5"});
}

TEST_CASE("a large file is written completely") {
  const ScratchDirectory scratch;
  std::string large(5'000'000, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31 >> 3U);
  save(scratch / "large", large);
  CHECK(text_of(scratch / "large") == large);
}

TEST_CASE("missing directories are created and a bare name means the current directory") {
  const ScratchDirectory scratch;
  save(scratch / "a/b/c/model.h5", "deep");
  CHECK(text_of(scratch / "a/b/c/model.h5") == "deep");
  CHECK(in_child([&] {
    fs::current_path(scratch.path());
    save("bare", "here");
    return text_of(scratch / "bare") == "here";
  }));
}

TEST_CASE("nothing is made where the guard refuses") {
  const ScratchDirectory scratch;
  const WriteGuard guard = [](const fs::path& /*file*/) { throw PeerError("another job's"); };
  CHECK_THROWS_AS(AtomicFile(scratch / "moved/backup/model.h5", guard), PeerError);
  CHECK(!fs::exists(scratch / "moved"));
}

TEST_CASE("the earlier file stays until commit") {
  const ScratchDirectory scratch;
  const fs::path target = scratch / "model.h5";
  save(target, "earlier");
  {
    AtomicFile file(target);
    CHECK(std::regex_match(file.path().filename().string(), std::regex(R"(\.model\.h5\.[0-9a-f]{8}\.tmp)")));
    CHECK(file.path().parent_path() == scratch.path());
    CHECK(fs::file_size(file.path()) == 0);
    file.write(as_bytes("half of the n"));
    CHECK(text_of(target) == "earlier");
  }
  CHECK(text_of(target) == "earlier");
  CHECK(names_in(scratch.path()) == std::set<std::string>{"model.h5"});
  {
    AtomicFile file(target);
    file.write(as_bytes("ne"));
    file.write(as_bytes("w"));
    file.commit();
    CHECK(text_of(target) == "new");
  }
  CHECK(text_of(target) == "new");
}

TEST_CASE("a new file has the permissions of the file that it replaces") {
  const ScratchDirectory scratch;
  const fs::path target = scratch / "model.h5";
  save(target, "earlier");
  fs::permissions(target, fs::perms{0640});
  save(target, "new");
  CHECK(fs::status(target).permissions() == fs::perms{0640});
}

TEST_CASE("commit without its own temporary file throws and keeps the earlier file") {
  const ScratchDirectory scratch;
  const fs::path target = scratch / "model.h5";
  save(target, "earlier");
  const bool replaced = GENERATE(false, true);
  AtomicFile file(target);
  file.write(as_bytes("new"));
  fs::remove(file.path());
  if (replaced) std::ofstream(file.path()) << "half of another writer's";
  require_words(message_of<IoError>([&] { file.commit(); }), {target.string(), "No such file"});
  CHECK(text_of(target) == "earlier");
}

TEST_CASE("SIGKILL leaves the earlier file and a temporary file that the next save removes") {
  const ScratchDirectory scratch;
  const fs::path target = scratch / "model.h5";
  save(target, "earlier");
  CHECK_FALSE(in_child([&] {
    AtomicFile file(target);
    file.write(as_bytes("half"));
    return raise(SIGKILL) == 0;
  }));
  CHECK(text_of(target) == "earlier");
  const std::set<std::string> after_kill = names_in(scratch.path());
  REQUIRE(after_kill.size() == 2);
  CHECK(after_kill.begin()->starts_with(".model.h5."));
  save(target, "later");
  CHECK(names_in(scratch.path()) == std::set<std::string>{"model.h5"});
}

TEST_CASE("only temporary files of this target whose writer is dead are removed") {
  const ScratchDirectory scratch;
  const fs::path target = scratch / "model.h5";
  AtomicFile writer(target);  // lives until the end
  const std::set<std::string> kept{writer.path().filename().string(), ".other.h5.0123abcd.tmp", ".model.h5.0123abcd",
                                   ".model.h5.0123abcx.tmp",          ".model.h5.0123ABCD.tmp", ".model.h5.123abcd.tmp",
                                   ".model.h5.00123abcd.tmp",         ".model.h5..tmp",         "model.h5.0123abcd.tmp",
                                   ".model.h5.backup.0123abcd.tmp"};
  for (const std::string& name : kept) {
    if (name != writer.path().filename()) std::ofstream(scratch / name) << "x";
  }
  std::ofstream(scratch / ".model.h5.0123abcd.tmp") << "of a dead writer";
  save(target, "new");
  std::set<std::string> expected = kept;
  expected.insert("model.h5");
  CHECK(names_in(scratch.path()) == expected);
}

TEST_CASE("a FIFO or link with the name of a temporary file neither blocks nor is followed") {
  const ScratchDirectory scratch;
  REQUIRE(mkfifo((scratch / ".model.h5.0123abcd.tmp").c_str(), 0600) == 0);
  std::ofstream(scratch / "valuable") << "x";
  fs::create_symlink(scratch / "valuable", scratch / ".model.h5.0123abce.tmp");
  save(scratch / "model.h5", "new");
  CHECK(text_of(scratch / "valuable") == "x");
}

TEST_CASE("of two writers of one file each publishes whole files only") {
  const ScratchDirectory scratch;
  const fs::path target = scratch / "model.h5";
  constexpr std::size_t size = 300'000;
  const auto save_often = [&](char content) {
    for (int i = 0; i < 200; ++i) save(target, std::string(size, content));
    return true;
  };
  const pid_t writer = fork();
  if (writer == 0) _exit(in_child([&] { return save_often('a'); }) ? 0 : 1);
  CHECK_NOTHROW(save_often('b'));
  int status = 0;
  int partial_files = 0;
  while (waitpid(writer, &status, WNOHANG) == 0) {
    const std::string content = text_of(target);
    partial_files += content != std::string(size, 'a') && content != std::string(size, 'b') ? 1 : 0;
  }
  CHECK(status == 0);
  CHECK(partial_files == 0);
  CHECK(names_in(scratch.path()) == std::set<std::string>{"model.h5"});
}

TEST_CASE("a directory or file in the way is reported") {
  const ScratchDirectory scratch;
  fs::create_directories(scratch / "folder/sub");
  require_words(message_of<IoError>([&] { save(scratch / "folder", "x"); }),
                {(scratch / "folder").string(), "it is a directory"});
  require_words(message_of<IoError>([&] { save(scratch / "folder/", "x"); }), {"it is a directory"});
  require_words(message_of<IoError>([&] { save("", "x"); }), {"cannot write"});
  std::ofstream(scratch / "file") << "x";
  require_words(message_of<IoError>([&] { save(scratch / "file/model.h5", "x"); }),
                {(scratch / "file").string(), "is a file, not a directory"});
  require_words(message_of<IoError>([&] { save(scratch / std::string(250, 'n'), "x"); }),
                {"File name too long", "choose a shorter name"});
  CHECK(names_in(scratch / "folder") == std::set<std::string>{"sub"});
}

TEST_CASE("an unwritable directory is reported with the user id") {
  const ScratchDirectory scratch;
  fs::create_directory(scratch / "closed");
  save(scratch / "closed/model.h5", "earlier");
  fs::permissions(scratch / "closed", fs::perms{0555});
  fs::permissions(scratch.path(), fs::perms{0755});
  CHECK(in_child([&] {
    if (getuid() == 0 && setuid(65534) != 0) return false;
    const std::string in_file = message_of<IoError>([&] { save(scratch / "closed/model.h5", "new"); });
    const std::string in_directory = message_of<IoError>([&] { save(scratch / "closed/new/model.h5", "new"); });
    const std::string user = "uid " + std::to_string(getuid());
    for (const std::string& message : {in_file, in_directory}) {
      if (message.find("Permission denied") == std::string::npos || message.find(user) == std::string::npos)
        return false;
    }
    return in_file.find((scratch / "closed/model.h5").string()) != std::string::npos &&
           in_directory.find((scratch / "closed/new").string()) != std::string::npos;
  }));
  CHECK(text_of(scratch / "closed/model.h5") == "earlier");
  CHECK(names_in(scratch / "closed") == std::set<std::string>{"model.h5"});
}

TEST_CASE("a full disk keeps the earlier file and reports the bytes needed") {
  const ScratchDirectory scratch;
  const Tmpfs disk(scratch / "disk", "size=64k");
  if (!disk.mounted()) return;
  save(scratch / "disk/model.h5", "earlier");
  const std::string message =
      message_of<IoError>([&] { save(scratch / "disk/model.h5", std::string(1'000'000, 'x')); });
  require_words(message, {(scratch / "disk/model.h5").string(), "No space left on device", "1000000 bytes needed",
                          " free", "free some space"});
  CHECK(text_of(scratch / "disk/model.h5") == "earlier");
  CHECK(names_in(scratch / "disk") == std::set<std::string>{"model.h5"});
  save(scratch / "disk/model.h5", "fits again");
  CHECK(text_of(scratch / "disk/model.h5") == "fits again");
}

TEST_CASE("a disk without free inodes is reported") {
  const ScratchDirectory scratch;
  const Tmpfs disk(scratch / "disk", "nr_inodes=2");
  if (!disk.mounted()) return;
  save(scratch / "disk/model.h5", "earlier");
  require_words(message_of<IoError>([&] { save(scratch / "disk/model.h5", "x"); }),
                {"No space left on device", "free some space"});
  CHECK(text_of(scratch / "disk/model.h5") == "earlier");
}

TEST_CASE("a read-only file system is reported") {
  const ScratchDirectory scratch;
  const Tmpfs disk(scratch / "disk", "size=64k");
  if (!disk.mounted()) return;
  save(scratch / "disk/model.h5", "earlier");
  disk.make_read_only();
  require_words(message_of<IoError>([&] { save(scratch / "disk/model.h5", "x"); }),
                {(scratch / "disk/model.h5").string(), "Read-only file system", "mount it for writing"});
  require_words(message_of<IoError>([&] { save(scratch / "disk/new/model.h5", "x"); }),
                {(scratch / "disk/new").string(), "Read-only file system"});
  CHECK(text_of(scratch / "disk/model.h5") == "earlier");
}
