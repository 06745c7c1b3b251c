// See forked_task.hpp.
#include "cluster/net/forked_task.hpp"

#include "core/killed_process.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace lockstep {

namespace {

constexpr double max_wait_s = 1;  // well below --heartbeat-timeout: meanwhile the launcher answers nobody
constexpr std::size_t max_answer_bytes = std::size_t{16} << 20;

/// Closes the inherited descriptors: a peer would not see end of file while the child still holds a copy.
void close_all_but(int kept) {
  if (kept > 3) (void)close_range(3, static_cast<unsigned>(kept) - 1, 0);
  (void)close_range(static_cast<unsigned>(kept) + 1, ~0U, 0);
}

[[noreturn]] void run_and_end(const std::function<std::string()>& work, int answer_to) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  close_all_but(answer_to);
  int status = 1;
  try {
    const std::string answer = work();
    std::size_t written = 0;
    while (written < answer.size()) {
      const ssize_t count = write(answer_to, answer.data() + written, answer.size() - written);
      if (count < 0 && errno != EINTR) break;
      if (count > 0) written += static_cast<std::size_t>(count);
    }
    status = 0;
  } catch (const std::exception&) {  // an empty answer reports the failure
  }
  _exit(status);
}

}  // namespace

ForkedTask::ForkedTask(const std::function<std::string()>& work, Deadline deadline) : deadline_(deadline) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw InternalError("pipe2 failed: " + std::generic_category().message(errno));
  }
  pipe_ = Socket(ends[0]);
  const Socket write_end(ends[1]);
  if (fcntl(pipe_.descriptor(), F_SETFL, O_NONBLOCK) != 0) throw InternalError("fcntl failed on a pipe");
  process_ = fork();
  if (process_ < 0) throw InternalError("fork failed: " + std::generic_category().message(errno));
  if (process_ == 0) run_and_end(work, write_end.descriptor());
}

ForkedTask::ForkedTask(ForkedTask&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      pipe_(std::move(other.pipe_)),
      deadline_(other.deadline_),
      answer_(std::move(other.answer_)) {}

ForkedTask& ForkedTask::operator=(ForkedTask&& other) noexcept {
  if (this != &other) {
    cancel();
    process_ = std::exchange(other.process_, -1);
    pipe_ = std::move(other.pipe_);
    deadline_ = other.deadline_;
    answer_ = std::move(other.answer_);
  }
  return *this;
}

std::optional<std::string> ForkedTask::take_result() {
  if (!is_running()) return {};
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t count = read(pipe_.descriptor(), buffer.data(), buffer.size());
    if (count > 0 && answer_.size() < max_answer_bytes) {
      answer_.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!deadline_.passed()) return {};
      cancel();
      return "";
    } else {
      std::string answer = std::move(answer_);
      cancel();
      return answer;
    }
  }
}

void ForkedTask::cancel() noexcept {
  if (!is_running()) return;
  (void)kill(process_, SIGKILL);
  (void)reap_killed(process_, max_wait_s, "a name lookup or probe of addresses");
  process_ = -1;
  pipe_.close();
  answer_.clear();
}

}  // namespace lockstep
