// Asynchronous parameter servers that lose a worker in the middle of a step: all tasks are threads of this process.
#include "cluster/net/resolve.hpp"
#include "cluster/net/socket.hpp"
#include "collective/parameter_server/server_communicator.hpp"
#include "collective/parameter_server/worker_communicator.hpp"
#include "support/catch.hpp"

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

constexpr std::size_t workers = 2;
constexpr std::size_t servers = 2;
const UpdatePolicy asynchronous{.gradients = 1, .is_asynchronous = true};

ClusterSpec cluster_on_free_ports() {
  ClusterSpec spec;
  for (std::size_t i = 0; i < workers; ++i)
    spec.tasks.push_back({TaskType::worker, static_cast<int>(i), {"127.0.0.1", free_port()}});
  for (std::size_t i = 0; i < servers; ++i)
    spec.servers.push_back({TaskType::ps, static_cast<int>(i), {"127.0.0.1", free_port()}});
  return spec;
}

/// Two buckets of one element, each on a server of its own.
template <typename Communicator>
struct Participant {
  Participant(ClusterSpec spec, std::size_t index) {
    if (index < workers) {
      spec.rank = index;
    } else {
      spec.server = index - workers;
    }
    group = std::make_unique<TaskGroup>(
        std::make_shared<TaskLinks>(spec, TaskLinkOptions{.token = JobToken("a token"), .rendezvous_timeout = 20}),
        WaitPolicy{.timeout = 20}, true);
    communicator = std::make_unique<Communicator>(*group, asynchronous);
    communicator->use_servers({{{0, {0, 1}, 0}, {1, {1, 2}, 1}}, {0}, {}});
    static_cast<void>(communicator->allocate(2, 2 * sizeof(float), {{0, 1}, {1, 2}}));
    group->begin_service();
  }
  ~Participant() { communicator.reset(); }
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  std::unique_ptr<TaskGroup> group;
  std::unique_ptr<Communicator> communicator;
};

struct Job {
  ClusterSpec spec = cluster_on_free_ports();
  std::atomic<bool> is_over = false;
  std::latch serving{servers};          ///< before that, a loss is an error
  std::barrier<> meeting{servers + 1};  ///< before any of them disconnects
};

/// Serves until the job is over, and returns how many updates it has made.
int serve(Job& job, std::size_t index) {
  Participant<ServerCommunicator> task(job.spec, index);
  ServerCommunicator& server = *task.communicator;
  job.serving.count_down();
  int steps = 0;
  while (true) {
    task.group->wait_idle([&] { return job.is_over || server.has_step(); }, [] {});
    if (job.is_over) break;
    static_cast<void>(server.take_step());
    static_cast<void>(server.wait_reduced(0));
    server.mark_updated(0);
    server.end_step();
    ++steps;
  }
  job.meeting.arrive_and_wait();
  return steps;
}

}  // namespace

TEST_CASE("a gradient of a lost worker that came in part makes one update on each server", "[parameter_servers]") {
  const std::size_t sent = GENERATE(0U, 1U);  // the bucket whose server uses the lost worker's gradient
  Job job;
  std::promise<void> lost;
  std::vector<std::future<int>> serving;
  for (std::size_t server = 0; server < servers; ++server)
    serving.push_back(std::async(std::launch::async, serve, std::ref(job), workers + server));

  const auto second = std::async(std::launch::async, [&] {
    Participant<WorkerCommunicator> task(job.spec, 1);
    WorkerCommunicator& worker = *task.communicator;
    worker.begin_round({0, 1}, 0, 0);
    const std::optional<Ticket> ticket = worker.next_ticket({});
    if (ticket) worker.begin_step({ticket->iteration, {}});
    worker.mark_ready(sent);
    worker.wait_updated(sent);
    job.serving.wait();
  });
  auto first = std::async(std::launch::async, [&] {
    Participant<WorkerCommunicator> task(job.spec, 0);
    WorkerCommunicator& worker = *task.communicator;
    worker.begin_round({0, 1}, 0, 0);
    lost.get_future().wait();
    const std::array<double, 1> counted{1};
    int tickets = 0;
    while (const std::optional<Ticket> ticket = worker.next_ticket(counted)) {
      worker.begin_step({ticket->iteration, {}});
      for (const std::size_t bucket : {0U, 1U}) worker.mark_ready(bucket);
      ++tickets;
    }
    job.is_over = true;
    job.meeting.arrive_and_wait();
    return tickets;
  });
  second.wait();
  lost.set_value();
  CHECK(first.get() == 2);
  for (std::future<int>& each : serving) CHECK(each.get() == 2);
}

TEST_CASE("a worker that was lost at the very end learns that the job is over") {
  const bool may_return = GENERATE(true, false);
  CAPTURE(may_return);
  ClusterSpec spec = cluster_on_free_ports();
  const auto join = [&spec, may_return](std::size_t index) {
    ClusterSpec own = spec;
    if (index < workers) {
      own.rank = index;
    } else {
      own.server = index - workers;
    }
    const auto links =
        std::make_shared<TaskLinks>(own, TaskLinkOptions{.token = JobToken("a token"), .rendezvous_timeout = 20});
    return std::pair(links, std::make_unique<TaskGroup>(links, WaitPolicy{.timeout = 20}, may_return));
  };
  std::vector<std::future<void>> serving;
  for (std::size_t server = 0; server < servers; ++server) {
    serving.push_back(std::async(std::launch::async, [&, server] {
      const auto [links, group] = join(workers + server);
      group->begin_service();
      group->wait_idle([&group = group] { return group->is_over(); }, [] {});
      group->see_workers_off();
    }));
  }
  auto first = std::async(std::launch::async, [&] {
    const auto [links, group] = join(0);
    group->begin_service();
    group->finish();
    group->say_goodbye();
  });
  {
    const auto [links, group] = join(1);
    group->begin_service();
    static_cast<void>(group->exchange(TaskGroup::Subgroup::end, "", "the end of the job"));
  }  // it is lost before it says goodbye
  const auto [links, group] = join(1);
  CHECK(group->has_come_too_late());
  for (const std::future<void>& each : serving)
    CHECK(each.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  links->say_goodbye({});
  first.get();
  for (std::future<void>& each : serving) each.get();
}
