// The connections of a parameter-server job: who begins when, who is lost, and what junk does.
#include "cluster/parameter_server/task_links.hpp"

#include "cluster/net/resolve.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/parameter_server/task_message.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <poll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

/// A job on free ports of this machine.
class Job {
 public:
  Job(std::size_t workers, std::size_t servers) {
    for (std::size_t i = 0; i < workers; ++i)
      spec_.tasks.push_back({TaskType::worker, static_cast<int>(i), free_address()});
    for (std::size_t i = 0; i < servers; ++i)
      spec_.servers.push_back({TaskType::ps, static_cast<int>(i), free_address()});
  }

  [[nodiscard]] ClusterSpec task(std::size_t index) const {
    ClusterSpec spec = spec_;
    if (index < spec.tasks.size()) {
      spec.rank = index;
    } else {
      spec.server = index - spec.tasks.size();
    }
    return spec;
  }

  [[nodiscard]] std::uint16_t port_of_server(std::size_t server) const { return spec_.servers[server].address.port; }

  /// Starts to connect a task on a thread of its own.
  [[nodiscard]] std::future<std::unique_ptr<TaskLinks>> start(std::size_t index, const std::string& token = "a token",
                                                              double timeout = 20) const {
    return std::async(std::launch::async, [spec = task(index), token, timeout] {
      return std::make_unique<TaskLinks>(
          spec, TaskLinkOptions{.token = JobToken(token), .rendezvous_timeout = timeout, .report_interval = 60});
    });
  }

  [[nodiscard]] std::vector<std::unique_ptr<TaskLinks>> connect() const {
    std::vector<std::future<std::unique_ptr<TaskLinks>>> starting;
    for (std::size_t i = 0; i < spec_.tasks.size() + spec_.servers.size(); ++i) starting.push_back(start(i));
    std::vector<std::unique_ptr<TaskLinks>> links;
    for (auto& each : starting) links.push_back(each.get());
    return links;
  }

 private:
  static Address free_address() { return {"127.0.0.1", free_port()}; }

  ClusterSpec spec_;
};

/// Polls until a frame comes, and returns its sender and body.
std::pair<std::size_t, std::string> receive(TaskLinks& links) {
  std::pair<std::size_t, std::string> received{};
  bool has_come = false;
  for (int i = 0; i < 500 && !has_come; ++i) {
    links.poll(10, [&](std::size_t task, Frame&& frame) {
      received = {task, frame.body};
      has_come = true;
    });
  }
  REQUIRE(has_come);
  return received;
}

std::string message_of_loss(TaskLinks& links) {
  try {
    for (int i = 0; i < 500; ++i) links.poll(10, [](std::size_t, Frame&&) {});
  } catch (const PeerError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("all tasks of a parameter-server job connect, and frames go both ways") {
  const Job job(2, 2);
  const auto links = job.connect();
  CHECK_FALSE(links[1]->is_server());
  CHECK(links[3]->is_server());
  links[1]->send(3, {60, "to server 1"});
  CHECK(receive(*links[3]) == std::pair<std::size_t, std::string>{1, "to server 1"});
  links[3]->send(0, {62, "to worker 0"});
  CHECK(receive(*links[0]) == std::pair<std::size_t, std::string>{3, "to worker 0"});
  links[3]->send(2, {50, "between servers"});
  CHECK(receive(*links[2]) == std::pair<std::size_t, std::string>{3, "between servers"});
}

TEST_CASE("a task that may return is no error when it is lost, and its successor knows what it is") {
  const Job job(2, 1);
  auto links = job.connect();
  constexpr std::size_t server = 2;
  std::vector<std::string> events;
  const std::string since_then(1'000'000, 'x');  // more than a handshake may send
  links[server]->set_returns(
      {.may_return = [](std::size_t task) { return task == 1; },
       .on_lost = [&](std::size_t task, const std::string&) { events.push_back("lost " + std::to_string(task)); },
       .on_returned =
           [&](std::size_t task) {
             events.push_back("returned " + std::to_string(task));
             links[server]->send(task, {60, since_then});
           }});
  links[1].reset();
  for (int i = 0; i < 500 && events.empty(); ++i) links[server]->poll(10, [](std::size_t, Frame&&) {});
  CHECK(events == std::vector<std::string>{"lost 1"});
  links[server]->send(1, {60, "to nobody"});
  links[server]->send(0, {60, "to the other"});
  CHECK(receive(*links[0]).second == "to the other");

  auto successor = job.start(1);
  for (int i = 0; i < 500 && events.size() < 2; ++i) links[server]->poll(10, [](std::size_t, Frame&&) {});
  links[1] = successor.get();
  CHECK(events == std::vector<std::string>{"lost 1", "returned 1"});
  CHECK(links[1]->has_returned());
  CHECK_FALSE(links[0]->has_returned());
  CHECK(receive(*links[1]).second == since_then);
  links[0].reset();
  CHECK(message_of_loss(*links[server]).starts_with("lost worker 0"));
}

TEST_CASE("the data of a model go from memory to memory, whatever comes between") {
  const Job job(2, 1);
  const auto links = job.connect();
  constexpr std::size_t server = 2;
  std::array<std::vector<float>, 2> gradients;
  std::array<std::vector<float>, 2> received;
  for (std::size_t worker = 0; worker < 2; ++worker) {
    gradients[worker].assign(1'000'000, static_cast<float>(worker + 1));
    received[worker].resize(gradients[worker].size());
    const auto bytes = std::as_bytes(std::span(gradients[worker]));
    for (std::uint64_t iteration = 1; iteration <= 2; ++iteration) {
      links[worker]->send(server, to_frame(StopTask{iteration}));
      links[worker]->send(server, encode_beginning(ModelMessageKind::gradient, 0, iteration, 0, bytes.size()), {bytes});
    }
  }
  std::array<std::uint64_t, 2> messages{};
  const auto handler = [&](std::size_t task, Frame&& frame) {
    ++messages[task];
    if (messages[task] % 2 == 1) {
      CHECK(to_stop_task(frame).request == (messages[task] + 1) / 2);
      return;
    }
    const ModelMessage message = to_model_message(std::move(frame));
    CHECK(message.is_placed);
    CHECK(message.iteration == messages[task] / 2);
    CHECK(received[task] == gradients[task]);
    received[task].assign(received[task].size(), 0);
  };
  const auto placer_of = [&](std::size_t task) {
    return Placer{ModelMessage::beginning_bytes, [&, task](std::uint16_t, std::string_view) {
                    return Places{std::as_writable_bytes(std::span(received[task]))};
                  }};
  };
  for (int i = 0; i < 5000 && messages != std::array<std::uint64_t, 2>{4, 4}; ++i) {
    for (std::size_t worker = 0; worker < 2; ++worker) links[worker]->poll(0, [](std::size_t, Frame&&) {});
    links[server]->poll(1, handler, placer_of);
  }
  CHECK(messages == std::array<std::uint64_t, 2>{4, 4});
}

TEST_CASE("a lost task is named, unless it has said goodbye") {
  const Job job(2, 1);
  auto links = job.connect();
  SECTION("a worker") {
    links[1].reset();
    CHECK(message_of_loss(*links[2]).starts_with("lost worker 1 (127.0.0.1:"));
  }
  SECTION("a server") {
    links[2].reset();
    CHECK(message_of_loss(*links[0]).starts_with("lost ps 0 (127.0.0.1:"));
  }
  SECTION("with a goodbye") {
    links[1]->say_goodbye({65, "the loss became NaN"});
    links[1].reset();
    for (int i = 0; i < 500 && !links[2]->goodbye_of(1); ++i) links[2]->poll(10, [](std::size_t, Frame&&) {});
    REQUIRE(links[2]->goodbye_of(1));
    CHECK(links[2]->goodbye_of(1)->code == 65);
    CHECK(links[2]->goodbye_of(1)->message == "the loss became NaN");
    for (int i = 0; i < 500 && links[2]->is_connected(1); ++i) links[2]->poll(10, [](std::size_t, Frame&&) {});
    CHECK_FALSE(links[2]->is_connected(1));
  }
}

TEST_CASE("a task that starts again before the job begins takes its old place") {
  const Job job(2, 1);
  auto server = job.start(2);
  CHECK_THROWS_AS(job.start(1, "a token", 0.5).get(), PeerError);  // it has connected, and does not wait for worker 0
  auto first = job.start(0);
  auto again = job.start(1);
  const auto links = server.get();
  CHECK(first.get() != nullptr);
  CHECK(again.get() != nullptr);
}

TEST_CASE("junk ends no server") {
  const Job job(1, 1);
  auto starting = job.start(1);
  std::vector<Socket> kept;
  const auto send_junk = [&](const std::string& bytes) {
    const Address address{"127.0.0.1", job.port_of_server(0)};
    for (int i = 0; i < 200; ++i) {
      ConnectAttempt attempt = begin_connect(resolve(address, Deadline::after(1)).endpoints.front());
      const bool is_connected =
          wait_for(attempt.socket, POLLOUT, Deadline::after(1)) && finish_connect(attempt.socket) == 0;
      if (is_connected) {
        (void)send_some(attempt.socket, std::as_bytes(std::span(bytes)));
        kept.push_back(std::move(attempt.socket));
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL("the server does not listen");
  };
  const std::vector<std::string> junk{"",
                                      "GET / HTTP/1.1\r\n\r\n",
                                      std::string("LSTP\x01\x00\x3c\x00\xff\xff\xff\xff", 12),
                                      std::string(5000, 'x'),
                                      encode({60, std::string(24, '\0')}),
                                      encode({1, std::string(24, '\xff')})};
  for (const std::string& bytes : junk) send_junk(bytes);
  auto worker = job.start(0);
  const auto links = starting.get();
  const auto other = worker.get();
  for (const std::string& bytes : junk) send_junk(bytes);
  for (int i = 0; i < 20; ++i) links->poll(10, [](std::size_t, Frame&&) { FAIL("junk is no message"); });
  other->send(1, {60, "still there"});
  CHECK(receive(*links) == std::pair<std::size_t, std::string>{0, "still there"});
}

TEST_CASE("a task with another token is refused by name") {
  const Job job(1, 1);
  auto server = job.start(1, "a token", 2);
  try {
    (void)job.start(0, "another", 1).get();
    FAIL("it was not refused");
  } catch (const PeerError& error) {
    CHECK(std::string(error.what()).find("has a different job token than ps 0") != std::string::npos);
  }
  CHECK_THROWS_AS(server.get(), PeerError);
}

TEST_CASE("messages of models keep their data, and malformed ones are refused") {
  const std::array<float, 3> values{1, 2, 3};
  const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(values))};
  Frame frame = to_frame(ModelMessageKind::gradient, 1, 2, 3, parts);
  REQUIRE(is_model_message(frame));
  const ModelMessage message = to_model_message(std::move(frame));
  CHECK(message.model == 1);
  CHECK(message.iteration == 2);
  CHECK(message.shard == 3);
  CHECK(message.data().size() == sizeof values);
  CHECK_THROWS_AS(to_model_message({61, std::string(23, '\0')}), DataError);
  CHECK_THROWS_AS(to_contributions({51, std::string(16, '\0') + std::string(8, '\xff')}), DataError);
  CHECK_THROWS_AS(to_contribution({50, "short"}), DataError);
  CHECK(to_contributions(to_frame(Contributions{1, 2, {"a", ""}})).parts == std::vector<std::string>{"a", ""});
}
