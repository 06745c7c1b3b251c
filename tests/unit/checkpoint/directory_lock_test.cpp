// Ownership of directories: what a second job, a later generation and a successor meet.
#include "checkpoint/directory_lock.hpp"

#include "checkpoint/atomic_file.hpp"
#include "core/file_descriptor.hpp"

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
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
      const fs::path& directory, const DirectoryOwner& owner, const std::function<int()>& work = [] { return 0; }) {
    std::array<int, 2> ready{};
    std::array<int, 2> go_on{};
    REQUIRE(pipe(ready.data()) == 0);
    REQUIRE(pipe(go_on.data()) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(go_on[1]);
      int code = 1;
      try {
        const DirectoryLock lock(directory, owner);
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
  CHECK(!fs::exists(scratch / ".lockstep.lock"));  // no later launcher knows this job's name
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
  const DirectoryLock lock(scratch.path(), later, 0.1);
  CHECK(holder.end() == static_cast<int>(ExitCode::temporary));
  CHECK(!fs::exists(file));
  CHECK_NOTHROW(save(file));
}

TEST_CASE("a generation of another launcher is no earlier one, whatever its number") {
  const ScratchDirectory scratch;
  const Holder holder(scratch.path(), first);
  DirectoryOwner other = first;
  other.launch = "another";
  other.generation = 9;
  CHECK_THROWS_AS(DirectoryLock(scratch.path(), other, 0.1), PeerError);
}

TEST_CASE("an earlier or equal generation does not take a directory over") {
  const ScratchDirectory scratch;
  const Holder holder(scratch.path(), first);
  DirectoryOwner other = first;
  other.generation = GENERATE(1, 2);
  CHECK_THROWS_AS(DirectoryLock(scratch.path(), other, 0.1), PeerError);
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
  CHECK(!begun_in(9));
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
  Holder owner(scratch.path(), first);
  owner.kill();
  CHECK(owner.end() == -1);
  const FileDescriptor other(scratch / ".lockstep.lock", O_RDONLY);
  REQUIRE(flock(other.number(), LOCK_EX | LOCK_NB) == 0);
  const DirectoryLock lock(scratch.path(), second);
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

TEST_CASE("a process may lock a directory twice, and a damaged description is no obstacle") {
  const ScratchDirectory scratch;
  for (const char* text : {"", "{", "[1]", R"({"job": 3, "generation": -1})"}) {
    std::ofstream(scratch / ".lockstep.lock") << text;
    const DirectoryLock lock(scratch.path(), first);
    const DirectoryLock again(scratch.path(), first);
    CHECK(!again.has_begun());
  }
}
