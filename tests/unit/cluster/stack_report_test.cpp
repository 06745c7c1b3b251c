// A process prints where it is when it is asked, and goes on.
#include "cluster/world/stack_report.hpp"

#include "cluster/net/forked_task.hpp"
#include "core/deadline.hpp"
#include "support/catch.hpp"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <optional>
#include <string>

using namespace lockstep;

TEST_CASE("SIGQUIT prints a stack and does not end the process") {
  ForkedTask task(
      []() -> std::string {
        std::array<int, 2> ends{};
        if (pipe(ends.data()) != 0 || dup2(ends[1], STDERR_FILENO) < 0) return "no pipe";
        print_stack_on_request();
        (void)raise(SIGQUIT);
        std::array<char, 65536> text{};
        const ssize_t count = read(ends[0], text.data(), text.size());
        return std::string(text.data(), count > 0 ? static_cast<std::size_t>(count) : 0) + "went on";
      },
      Deadline::after(30));
  std::optional<std::string> said;
  while (!said) said = task.take_result();
  CAPTURE(*said);
  CHECK(said->starts_with("[rank 0] stack of the main thread:\n[rank 0]   "));
  CHECK(said->find("test_cluster+0x") != std::string::npos);
  CHECK(said->ends_with("went on"));
}
