// Asynchronous parameter servers that lose a worker in the middle of a step: all tasks are threads of this process.
#include "cluster/net/resolve.hpp"
#include "cluster/net/socket.hpp"
#include "collective/parameter_server/server_communicator.hpp"
#include "collective/parameter_server/worker_communicator.hpp"
#include "support/catch.hpp"

#include <array>
#include <atomic>
#include <barrier>
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
    worker.begin_round({0, 1}, 0);
    const std::optional<Ticket> ticket = worker.next_ticket({});
    if (ticket) worker.begin_step({ticket->iteration, {}});
    worker.mark_ready(sent);
    worker.wait_updated(sent);
    job.serving.wait();
  });
  auto first = std::async(std::launch::async, [&] {
    Participant<WorkerCommunicator> task(job.spec, 0);
    WorkerCommunicator& worker = *task.communicator;
    worker.begin_round({0, 1}, 0);
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
