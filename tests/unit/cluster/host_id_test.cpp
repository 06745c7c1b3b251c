// host_id: equal for processes that can be ranks of one host, and only for those.
#include "cluster/net/host_id.hpp"

#include "support/catch.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <string>

using namespace lockstep;

namespace {

constexpr int is_equal = 0;
constexpr int differs = 1;
constexpr int not_permitted = 2;

/// Compares the identity of a child, which first leaves these namespaces, with this process'.
int compare_child(int namespaces) {
  const std::string own = host_id();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (unshare(namespaces) != 0) _exit(not_permitted);
    const std::string theirs = host_id();
    _exit(machine_id(theirs) != machine_id(own) ? 3 : theirs == own ? is_equal : differs);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a process in a network of its own is on another host of the same machine") {
  REQUIRE(!host_id().empty());
  CHECK(compare_child(0) == is_equal);
  const int result = compare_child(CLONE_NEWUSER | CLONE_NEWNET);
  if (result == not_permitted) {
    WARN("skipped: namespaces are not permitted here");
  } else {
    CHECK(result == differs);
  }
}
