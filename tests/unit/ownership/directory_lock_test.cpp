// Ownership of directories: what a second job, a later generation and a successor meet.
#include "ownership/directory_lock.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/backup/backup_directory.hpp"
#include "cluster/net/kept_files.hpp"
#include "core/file_descriptor.hpp"
#include "core/file_system.hpp"
#include "core/process_identity.hpp"
#include "ownership/finished_job.hpp"
#include "ownership/owned_directories.hpp"

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::testing;

namespace {

const DirectoryOwner first{.job = "job-1", .generation = 2, .program = "keras_mnist", .host = "host-1"};
const DirectoryOwner second{.job = "job-2", .generation = 9, .program = "lockstep train", .host = "host-2"};

/// A process that holds the lock of a directory until it is told to go on; then it runs `work`.
class Holder {
 public:
  Holder(
      const fs::path& directory, const DirectoryOwner& owner, const std::function<int()>& work = [] { return 0; },
      const LockKeeper& keeper = {}) {
    std::array<int, 2> ready{};
    std::array<int, 2> go_on{};
    REQUIRE(pipe(ready.data()) == 0);
    REQUIRE(pipe(go_on.data()) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(go_on[1]);
      int code = 1;
      try {
        const DirectoryLock lock(directory, owner, keeper);
        char byte = 0;
        (void)!write(ready[1], "x", 1);
        (void)!read(go_on[0], &byte, 1);
        code = work();
      } catch (const Error& error) {
        code = static_cast<int>(error.code());
      }
      _exit(code);
    }
    close(ready[1]);
    close(go_on[0]);
    char byte = 0;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    go_on_ = go_on[1];
  }
  ~Holder() {
    if (pid_ > 0) static_cast<void>(end());
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  void kill() const { ::kill(pid_, SIGKILL); }

  /// Lets it go on, and returns its exit status.
  [[nodiscard]] int end() {
    close(go_on_);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int go_on_ = -1;
};

void save(const fs::path& file) { write_file_atomically(file, std::as_bytes(std::span("content", 7))); }

}  // namespace

TEST_CASE("a second job is refused and told whose the directory is") {
  const ScratchDirectory scratch;
  Holder holder(scratch / "new/model", first);
  const auto refusal = [&](std::uint64_t generation) {
    DirectoryOwner owner = second;
    owner.generation = generation;
    return [&scratch, owner] { const DirectoryLock lock(scratch / "new/model", owner); };
  };
  const std::vector<std::string> words{(scratch / "new/model").string(), "job job-1", "keras_mnist on host-1",
                                       "generation 2", "choose another"};
  require_words(message_of<PeerError>(refusal(0)), words);
  for (const std::uint64_t generation : {1, 5}) require_words(message_of<UsageError>(refusal(generation)), words);
  require_words(message_of<PeerError>([&] { save(scratch / "new/model/model.h5"); }), {"job job-1", "writes nothing"});
  CHECK(std::distance(fs::directory_iterator(scratch / "new/model"), {}) == 1);  // the lock alone
  CHECK(holder.end() == 0);
  const DirectoryLock lock(scratch / "new/model", second);
  CHECK_NOTHROW(save(scratch / "new/model/model.h5"));
}

TEST_CASE("a killed owner locks nobody out") {
  const ScratchDirectory scratch;
  Holder holder(scratch.path(), first);
  holder.kill();
  CHECK(holder.end() == -1);
  CHECK_NOTHROW(save(scratch / "model.h5"));  // as a program does that owns nothing
  DirectoryLock lock(scratch.path(), second);
  lock.release_finished(true);
  CHECK(fs::exists(scratch / ".lockstep.lock"));
  lock.release_finished(false);
  CHECK(!fs::exists(scratch / ".lockstep.lock"));
}

TEST_CASE("a later generation takes the directory over, and the earlier one publishes nothing more") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "model.h5";
  Holder holder(scratch.path(), first, [&] {
    save(file);
    return 0;
  });
  DirectoryOwner later = first;
  later.generation = 3;
  const DirectoryLock lock(scratch.path(), later, {}, 0.1);
  CHECK(holder.end() == static_cast<int>(ExitCode::temporary));
  CHECK(!fs::exists(file));
  CHECK_NOTHROW(save(file));
}

TEST_CASE("a launcher keeps the directory between two generations of its workers") {
  const ScratchDirectory scratch;
  const fs::path lock_file = scratch / ".lockstep.lock";
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) == 0);
  const bool launcher_lives = GENERATE(true, false);
  const bool removes_lock = GENERATE(false, true);
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  const std::string launcher = launcher_lives ? process_identity() : process_identity(dead);
  waitpid(dead, nullptr, 0);
  DirectoryOwner owner = first;
  owner.has_begun = true;
  const auto keep = [&ends](const FileDescriptor& lock) { REQUIRE(send_file(ends[1], lock)); };
  Holder holder(scratch.path(), owner, [] { return 0; }, {.process = launcher, .kept = {}, .keep = keep});
  holder.kill();
  CHECK(holder.end() == -1);
  std::array<char, 8> bytes{};
  LockKeeper keeper{.process = launcher, .kept = {}, .keep = {}};
  keeper.kept.push_back(receive_message(ends[0], bytes).file);
  REQUIRE(is_path_of(lock_file, keeper.kept.front()));
  if (!launcher_lives) {
    CHECK_NOTHROW(DirectoryLock(scratch.path(), second));  // a child of the killed job still holds the lock
    return;
  }
  CHECK_THROWS_AS(DirectoryLock(scratch.path(), second), UsageError);
  CHECK_THROWS_AS(save(scratch / "model.h5"), PeerError);
  owner.generation = 3;
  if (removes_lock) {
    fs::remove(lock_file);
    CHECK(DirectoryLock(scratch.path(), owner, keeper).has_begun());
    for (const int end : ends) close(end);
    return;
  }
  const fs::path moved = scratch.path().string() + "-moved";
  fs::rename(scratch.path(), moved);
  CHECK_THROWS_AS(DirectoryLock(scratch.path(), owner, keeper), UsageError);
  CHECK(!fs::exists(lock_file));
  fs::remove_all(scratch.path());
  fs::rename(moved, scratch.path());
  int kept_again = 0;
  keeper.keep = [&](const FileDescriptor& lock) {
    CHECK(!is_path_of(lock_file, lock));  // before another process can see it, so that it is never unlocked
    ++kept_again;
  };
  const auto begin = std::chrono::steady_clock::now();
  const DirectoryLock next(scratch.path(), owner, keeper, 3600);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::minutes(1));  // it waits for nobody
  CHECK(kept_again == 1);
  CHECK(!is_path_of(lock_file, keeper.kept.front()));
  CHECK_NOTHROW(next.require_held());
  CHECK_NOTHROW(save(scratch / "model.h5"));
  CHECK(next.has_begun());
  CHECK(std::distance(fs::directory_iterator(scratch.path()), {}) == 2);  // no temporary file is left
  for (const int end : ends) close(end);
}

TEST_CASE("a process that has lost its directory is told how, and by whom") {
  const ScratchDirectory scratch;
  const fs::path directory = scratch / "model";
  DirectoryOwner owner = second;
  owner.generation = GENERATE(0, 3);
  const bool is_launched = owner.generation > 0;
  const DirectoryLock lock(directory, owner);
  CHECK_NOTHROW(lock.require_held());
  const auto lost_for_good = [&] {
    const auto check = [&lock] { lock.require_held(); };
    return is_launched ? message_of<UsageError>(check) : message_of<PeerError>(check);
  };
  SECTION("the lock was removed") {
    fs::remove(directory / ".lockstep.lock");
    require_words(message_of<PeerError>([&] { lock.require_held(); }), {".lockstep.lock was removed", "start again"});
  }
  SECTION("the directory was moved") {
    fs::rename(directory, scratch / "moved");
    require_words(lost_for_good(), {directory.string(), "moved"});
    fs::create_directory(directory);
    require_words(lost_for_good(), {directory.string(), "is not the directory that this job took"});
  }
  SECTION("another job took it") {
    fs::remove(directory / ".lockstep.lock");
    const Holder holder(directory, first);
    require_words(lost_for_good(), {"job job-1 (keras_mnist on host-1", "writes nothing more"});
  }
  SECTION("a later generation took it") {
    fs::remove(directory / ".lockstep.lock");
    owner.generation = 9;
    const Holder holder(directory, owner);
    require_words(message_of<PeerError>([&] { lock.require_held(); }), {"job job-2", "generation 9"});
  }
  if (geteuid() != 0) return;
  SECTION("nobody can tell") {
    fs::rename(directory, scratch / "moved");
    fs::create_symlink(directory, directory);
    CHECK_THROWS_AS(lock.require_held(), IoError);
  }
}

TEST_CASE("a job writes in its directories and below only while they are its own") {
  const ScratchDirectory scratch;
  fs::create_directories(scratch / "runs/1");
  fs::create_directories(scratch / "runs/2");
  fs::create_directory_symlink(scratch / "runs/1", scratch / "model");
  OwnedDirectories owned({});
  DirectoryLock& lock = owned.lock(scratch / "model", second);
  CHECK(&owned.lock(scratch / "model/", second) == &lock);
  CHECK(&owned.lock(scratch / "runs/1", second) == &lock);
  const auto write = [&](const fs::path& file) {
    write_file_atomically(file, std::as_bytes(std::span("content", 7)), owned.guard());
  };
  const fs::path below = scratch / "model/checkpoints/model.h5";
  for (const fs::path& file : {scratch / "model/model.h5", below, scratch / "elsewhere/model.h5"})
    CHECK_NOTHROW(write(file));
  const BackupDirectory backups(scratch / "model", owned.guard());
  for (const char* backup : {"fit-1-step-0000000001.h5", "fit-1-step-0000000002.h5"}) {
    for (const char* run : {"runs/1", "runs/2"}) write_bytes(scratch / run / backup, std::string("a backup"));
  }
  fs::remove(scratch / "model");
  fs::create_directory_symlink(scratch / "runs/2", scratch / "model");
  CHECK_NOTHROW(write(scratch / "elsewhere/model.h5"));
  CHECK_THROWS_AS(write(scratch / "model/model.h5"), UsageError);
  CHECK_THROWS_AS(write(below), UsageError);
  CHECK(!fs::exists(scratch / "runs/2/model.h5"));
  CHECK(!backups.clear());
  CHECK(backups.list().size() == 2);
  CHECK(backups.remove_older() == 0);
}

TEST_CASE("a generation of another launcher is no earlier one, whatever its number") {
  const ScratchDirectory scratch;
  const Holder holder(scratch.path(), first);
  DirectoryOwner other = first;
  other.launch = "another";
  other.generation = 9;
  CHECK_THROWS_AS(DirectoryLock(scratch.path(), other, {}, 0.1), PeerError);
}

TEST_CASE("an earlier or equal generation does not take a directory over") {
  const ScratchDirectory scratch;
  const Holder holder(scratch.path(), first);
  DirectoryOwner other = first;
  other.generation = GENERATE(1, 2);
  CHECK_THROWS_AS(DirectoryLock(scratch.path(), other, {}, 0.1), PeerError);
}

TEST_CASE("that a job has begun is known to its later generations, and to no other job") {
  const ScratchDirectory scratch;
  DirectoryOwner owner = first;
  const auto begun_in = [&](std::uint64_t generation) {
    owner.generation = generation;
    return DirectoryLock(scratch.path(), owner).has_begun();
  };
  CHECK(!begun_in(1));
  CHECK(!begun_in(2));  // the first died before it began
  DirectoryLock(scratch.path(), owner).record_begin();
  CHECK(begun_in(3));
  CHECK(begun_in(4));  // the third kept the record
  owner.outlives_launchers = true;
  CHECK(begun_in(1));  // of a new launcher
  owner.command = "train --seed 2";
  CHECK(begun_in(1));  // the record has no command
  owner.command = "train --seed 3";
  CHECK(!begun_in(1));  // so that --resume never starts another command anew
  owner.contents.settings = "data 1";
  CHECK(!begun_in(1));
  DirectoryLock(scratch.path(), owner).record_begin();
  CHECK(begun_in(1));
  owner.contents.settings = "data 2";
  CHECK(!begun_in(1));
  owner.outlives_launchers = false;
  owner = second;
  CHECK(!begun_in(9));
  owner = first;
  CHECK(begun_in(9));  // the second job has written nothing
  DirectoryLock(scratch.path(), second).record_begin();
  CHECK(!begun_in(10));
}

TEST_CASE("a finished job's record stays for its later launchers, and another job replaces it") {
  const ScratchDirectory scratch;
  DirectoryOwner owner = first;
  owner.outlives_launchers = true;
  owner.command = "train";
  owner.contents = {.settings = "data 1", .origin = "weights 1"};
  const bool overwrites_origin = GENERATE(false, true);
  CHECK(!has_finished(scratch.path(), owner));
  {
    DirectoryLock lock(scratch.path(), owner);
    CHECK(!has_finished(scratch.path(), owner));
    if (overwrites_origin) lock.record_overwriting_origin();
    write_bytes(scratch / "model.h5", std::string("a model"));
    write_bytes(scratch / "history.json", std::string(R"({"file": "model.h5"})"));
    lock.record_finish();
    lock.release_finished(true);
  }
  CHECK(has_finished(scratch.path(), owner));
  CHECK(has_finished(scratch.path(), {.job = first.job, .command = "train"}));  // a launcher knows no contents
  CHECK(!has_finished(scratch.path(), second));
  const auto with = [&owner](const auto& change) {
    DirectoryOwner changed = owner;
    change(changed);
    return changed;
  };
  const auto check_is_other = [&scratch](const DirectoryOwner& job, const std::string& words) {
    require_words(message_of<UsageError>([&] { (void)has_finished(scratch.path(), job); }), {words});
  };
  check_is_other(with([](auto& it) { it.command = "train another"; }), "another command line");
  check_is_other(with([](auto& it) { it.contents.settings = "data 2"; }), "other data");
  const DirectoryOwner reads_overwritten = with([](auto& it) { it.contents.origin = "weights 2"; });
  if (overwrites_origin) {
    CHECK(has_finished(scratch.path(), reads_overwritten));
  } else {
    check_is_other(reads_overwritten, "other initial weights");
  }
  fs::remove(scratch / "history.json");
  CHECK(has_finished(scratch.path(), owner));
  for (const char* other : {"", "a nodel"}) {
    write_bytes(scratch / "model.h5", std::string(other));
    check_is_other(owner, "is not the model that it wrote");
  }
  fs::remove(scratch / "model.h5");
  CHECK(!has_finished(scratch.path(), owner));
  const DirectoryLock other(scratch.path(), second);
  CHECK(other.other_job_has_finished());
  CHECK(!has_finished(scratch.path(), owner));
  CHECK(!has_finished(scratch.path(), second));
}

TEST_CASE("a lock that another process keeps after its owner has died is no job's") {
  const ScratchDirectory scratch;
  DirectoryOwner begun = first;
  begun.has_begun = true;
  Holder owner(scratch.path(), begun);
  owner.kill();
  CHECK(owner.end() == -1);
  const FileDescriptor other(scratch / ".lockstep.lock", O_RDONLY);
  REQUIRE(flock(other.number(), LOCK_EX | LOCK_NB) == 0);
  DirectoryOwner later = first;
  later.generation = 3;
  const bool is_of_same_job = GENERATE(false, true);
  const DirectoryLock lock(scratch.path(), is_of_same_job ? later : second);
  CHECK(lock.has_begun() == is_of_same_job);
  CHECK_NOTHROW(save(scratch / "model.h5"));
  CHECK_NOTHROW(DirectoryLock(scratch.path(), first));  // it is this process' own
}

TEST_CASE("another user's job may follow in a directory that both can write to") {
  if (geteuid() != 0) {
    WARN("skipped: only root can act as two users");
    return;
  }
  const ScratchDirectory scratch;
  fs::permissions(scratch.path(), fs::perms::all);
  const auto own_as = [&scratch](uid_t user, const DirectoryOwner& owner) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 1;
      try {
        if (setuid(user) == 0) {
          DirectoryLock lock(scratch.path(), owner);
          lock.record_finish();
          code = lock.other_job_has_finished() ? 7 : 0;
        }
      } catch (const Error& error) {
        code = static_cast<int>(error.code());
      }
      _exit(code);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  CHECK(own_as(65534, first) == 0);
  CHECK(own_as(65533, second) == 7);  // it has read the other job's record
}

TEST_CASE("a process may lock a directory twice, and an empty description is no obstacle") {
  const ScratchDirectory scratch;
  for (const char* text : {"", " \n", R"({"job": 3, "generation": -1})"}) {
    std::ofstream(scratch / ".lockstep.lock") << text;
    const DirectoryLock lock(scratch.path(), first);
    const DirectoryLock again(scratch.path(), first);
    CHECK(!again.has_begun());
  }
}

TEST_CASE("a damaged description is not taken for that of a new job") {
  const ScratchDirectory scratch;
  for (const std::string text : {"{", "[1]", R"({"job": "job-1", "has_beg)"}) {
    write_bytes(scratch / ".lockstep.lock", text);
    const auto lock = [&] { const DirectoryLock locked(scratch.path(), first); };
    require_words(message_of<DataError>(lock), {".lockstep.lock is damaged", "remove it if no job uses"});
    CHECK_THROWS_AS(has_finished(scratch.path(), first), DataError);
    CHECK(fs::file_size(scratch / ".lockstep.lock") == text.size());
  }
}

TEST_CASE("a description that was emptied while a launcher kept it does not begin the job anew") {
  const ScratchDirectory scratch;
  DirectoryOwner owner = first;
  const DirectoryLock lock(scratch.path(), owner);
  LockKeeper keeper{.process = process_identity(), .kept = {}, .keep = {}};
  keeper.kept.emplace_back(scratch / ".lockstep.lock", O_RDWR);
  owner.generation = 3;
  const auto succeed = [&] { const DirectoryLock next(scratch.path(), owner, keeper); };
  fs::create_directory(scratch / ".lockstep.lock.next");
  require_words(message_of<IoError>(succeed), {".lockstep.lock.next is in the way", "remove it"});
  fs::remove(scratch / ".lockstep.lock.next");
  LockKeeper unrelated{.process = process_identity(), .kept = {}, .keep = [](const FileDescriptor& /*lock*/) {}};
  unrelated.kept.emplace_back("/etc/passwd", O_RDONLY);  // of a script between launcher and trainer
  CHECK_NOTHROW(DirectoryLock(scratch / "other", owner, unrelated));
  fs::resize_file(scratch / ".lockstep.lock", 0);
  require_words(message_of<IoError>(succeed), {".lockstep.lock was emptied", "--resume auto"});
}

TEST_CASE("a copy of a directory by hard links has a description of its own") {
  const ScratchDirectory scratch;
  DirectoryOwner owner = first;
  owner.outlives_launchers = true;
  {
    DirectoryLock lock(scratch / "original", owner);
    lock.record_finish();
    lock.release_finished(true);
  }
  fs::create_directory(scratch / "copy");
  fs::create_hard_link(scratch / "original" / ".lockstep.lock", scratch / "copy" / ".lockstep.lock");
  const DirectoryLock other(scratch / "copy", second);
  CHECK(has_finished(scratch / "original", owner));
  CHECK(!has_finished(scratch / "copy", owner));
}

TEST_CASE("a snapshot of a running job by hard links is a directory of its own") {
  const ScratchDirectory scratch;
  const fs::path original = scratch / "original";
  DirectoryOwner owner = first;
  Holder holder(original, owner, [] { return 0; }, {.process = process_identity(), .kept = {}, .keep = {}});
  fs::create_directory(scratch / "snapshot");
  const fs::path copy = scratch / "snapshot" / ".lockstep.lock";
  fs::create_hard_link(original / ".lockstep.lock", copy);
  {
    const DirectoryLock other(scratch / "snapshot", second);  // though the lock of the one file is held
    CHECK(!is_path_of(original / ".lockstep.lock", FileDescriptor(copy, O_RDONLY)));
  }
  CHECK_THROWS_AS(DirectoryLock(original, second), UsageError);

  fs::remove(copy);
  fs::create_hard_link(original / ".lockstep.lock", copy);
  LockKeeper keeper{.process = process_identity(), .kept = {}, .keep = [](const FileDescriptor& /*lock*/) {}};
  keeper.kept.emplace_back(original / ".lockstep.lock", O_RDWR);
  holder.kill();
  CHECK(holder.end() == -1);
  fs::remove(original / ".lockstep.lock");  // the file itself is still there, by its other name
  owner.generation = 3;
  CHECK_NOTHROW(DirectoryLock(original, owner, keeper));
}

TEST_CASE("a job that is refused leaves the directory to the one whose files are there") {
  const ScratchDirectory scratch;
  DirectoryOwner owner = first;
  owner.outlives_launchers = true;
  const DirectoryOwner third{.job = "job-3", .generation = 1};
  { DirectoryLock(scratch.path(), owner).record_begin(); }
  { const DirectoryLock refused(scratch.path(), second); }
  { const DirectoryLock refused(scratch.path(), third); }
  {
    DirectoryLock again(scratch.path(), owner);
    CHECK(again.has_begun());
    again.record_finish();
    again.release_finished(true);
  }
  {
    DirectoryLock other(scratch.path(), second);
    CHECK(other.other_job_has_finished());
    CHECK(has_finished(scratch.path(), owner));
  }
  {
    DirectoryLock other(scratch.path(), third);
    CHECK(other.other_job_has_finished());
    other.record_begin();
  }
  CHECK(!has_finished(scratch.path(), owner));
  CHECK(!DirectoryLock(scratch.path(), owner).has_begun());
}

TEST_CASE("what a finished job left is told from a copy of it") {
  const ScratchDirectory scratch;
  {
    DirectoryLock lock(scratch / "original", first);
    fs::create_directory(scratch / "copy");
    fs::create_hard_link(scratch / "original" / ".lockstep.lock", scratch / "copy" / ".lockstep.lock");
    lock.record_finish();
  }
  CHECK(!DirectoryLock(scratch / "copy", second).other_job_has_finished());
  CHECK(DirectoryLock(scratch / "original", second).other_job_has_finished());
}

TEST_CASE("a launcher whose trainers do not inherit the lock takes it over") {
  const ScratchDirectory scratch;
  const LockKeeper launcher{.process = process_identity(), .kept = {}, .keep = {}};
  DirectoryOwner owner = first;
  Holder holder(scratch.path(), owner, [] { return 0; }, {.process = process_identity(), .kept = {}, .keep = {}});
  const FileDescriptor kept(scratch / ".lockstep.lock", O_RDWR);
  holder.kill();
  CHECK(holder.end() == -1);
  REQUIRE(try_lock(kept) == 0);
  owner.generation = 3;
  CHECK_NOTHROW(DirectoryLock(scratch.path(), owner, launcher, 3600).require_held());  // patience is for the living
}

TEST_CASE("two running jobs of one name and different commands are told apart") {
  const ScratchDirectory scratch;
  DirectoryOwner owner{.job = "job-1", .outlives_launchers = true, .command = "a", .generation = 2};
  const Holder holder(scratch.path(), owner);
  owner.command = "b";
  const auto lock = [&] { const DirectoryLock locked(scratch.path(), owner); };
  require_words(message_of<UsageError>(lock), {"job job-1", "another command line", "--job-id"});
  owner.command = "a";
  CHECK_THROWS_AS(DirectoryLock(scratch.path(), owner), PeerError);
}

TEST_CASE("a directory is known by its absolute path") {
  CHECK(digest_of_path("model") == digest_of_path(fs::current_path() / "model"));
  CHECK(digest_of_path("model") != digest_of_path("/elsewhere/model"));
}
