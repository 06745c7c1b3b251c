// Ranks of a host that notice when the process of another one ends.
#include "collective/host_liveness.hpp"

#include "support/catch.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

/// Rank 1, in a process of its own: it leaves in peace or is killed when told to.
class Peer {
 public:
  explicit Peer(const std::string& name) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    REQUIRE(pipe(stop_) == 0);
    process_ = fork();
    if (process_ == 0) {
      char byte = 0;
      {
        const HostLiveness liveness(name, 1, {0});
        if (write(ready[1], &byte, 1) != 1 || read(stop_[0], &byte, 1) != 1) _exit(1);
      }
      if (write(ready[1], &byte, 1) != 1) _exit(1);
      pause();
    }
    ready_ = ready[0];
    await();
  }
  ~Peer() {
    kill();
    for (const int descriptor : {stop_[0], stop_[1], ready_}) close(descriptor);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void leave() {
    REQUIRE(write(stop_[1], "", 1) == 1);
    await();
  }
  void kill() const {
    ::kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

 private:
  void await() const {
    char byte = 0;
    REQUIRE(read(ready_, &byte, 1) == 1);
  }

  pid_t process_ = -1;
  int stop_[2] = {-1, -1};
  int ready_ = -1;
};

}  // namespace

TEST_CASE("a rank that is killed is lost, one that has left is not") {
  for (const bool leaves : {false, true}) {
    const std::string name = fmt::format("/lockstep_liveness_test_{}_{}", getpid(), leaves);
    {
      const HostLiveness liveness(name, 0, {1});
      Peer peer(name);
      CHECK_FALSE(liveness.find_lost_rank());
      if (leaves) peer.leave();
      CHECK_FALSE(liveness.find_lost_rank());
      peer.kill();
      CHECK(liveness.find_lost_rank() == (leaves ? std::nullopt : std::optional(1)));
    }
    shm_unlink(name.c_str());
  }
}
