// The coordinator's handling of connections and messages: duplicate processes, invalid messages, late ones.
#include "cluster/rendezvous/coordinator.hpp"

#include "simulated_job.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

bool was_hung_up(Coordinator& coordinator, std::size_t member) {
  for (const CoordinatorAction& action : coordinator.take_actions()) {
    const auto* disconnect = std::get_if<Disconnect>(&action);
    if (disconnect != nullptr && disconnect->member == member) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a second process of a task is rejected while the first is alive and replaces a silent one") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  CHECK(coordinator.join(peer_info(0), 0).empty());
  CHECK(coordinator.join(peer_info(1, 7), 0).empty());
  const std::string objection = coordinator.join(peer_info(1, 8), 1);
  CHECK(objection.find("worker 1 is already connected from host node (10.0.0.1)") == 0);
  CHECK_FALSE(was_hung_up(coordinator, 1));
  CHECK(coordinator.join(peer_info(1, 7), 1)
            .empty());  // the same process reconnects; its old connection broke without notice
  coordinator.receive(1, Heartbeat{}, 2);
  CHECK_FALSE(coordinator.join(peer_info(1, 8), 3.5).empty());
  CHECK(coordinator.join(peer_info(1, 8), 4.5).empty());
  CHECK_FALSE(was_hung_up(coordinator, 1));  // the new connection stays open
}

TEST_CASE("messages to a process do not reach its successor") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) {
    REQUIRE(coordinator.join(peer_info(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  REQUIRE(coordinator.is_running());  // GenerationBegins is in the queue
  CHECK(coordinator.join(peer_info(1, 1), 0).empty());
  coordinator.receive(1, Goodbye{}, 0);  // invalid at this point
  CHECK(coordinator.join(peer_info(1, 2), 0).empty());
  for (const CoordinatorAction& action : coordinator.take_actions()) {
    const auto* send = std::get_if<Send>(&action);
    REQUIRE(send != nullptr);
    CHECK(std::count(send->to.begin(), send->to.end(), 1U) == 0);
  }
}

TEST_CASE("a member that sends invalid messages is disconnected without harm to others") {
  const std::vector<Message> nonsense{Hello{},
                                      GenerationBegins{},
                                      JobResult{},
                                      Notice{"x"},
                                      GenerationEnds{},
                                      FenceDone{},
                                      Goodbye{},
                                      Ready{},
                                      Fence{1, 5, "out of order"},
                                      Fence{2, 0, "of the future"},
                                      TrainerStarted{1, 0},
                                      TrainerStarted{1, 99},
                                      TrainerStarted{9, 1},
                                      TrainerExited{1, 0, 0, 0},
                                      TrainerExited{1, 1000, 65, 0},
                                      TrainerExited{7, 1, 65, 0},
                                      RankEnvironment{1, 0, {}},
                                      RankEnvironment{1, 12345, {}},
                                      Progress{1, 0, Activity::training, 1, 1, 0, 0},
                                      PeersProbed{1, {}}};
  for (const Message& message : nonsense) {
    CAPTURE(message_name(message));
    Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
    for (const std::uint64_t member : {0U, 1U}) {
      REQUIRE(coordinator.join(peer_info(member), 0).empty());
      coordinator.receive(member, Ready{}, 0);
    }
    REQUIRE(coordinator.is_running());
    (void)coordinator.take_actions();
    coordinator.receive(1, message, 1);
    CHECK(was_hung_up(coordinator, 1));
    CHECK_FALSE(coordinator.is_running());
    CHECK_FALSE(coordinator.exit_code());
    CHECK(coordinator.missing_members() == std::vector<std::size_t>{1});
  }
}

TEST_CASE("late messages of an ended generation are ignored") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) {
    REQUIRE(coordinator.join(peer_info(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  coordinator.receive(0, Fence{1, 0, "half"}, 1);
  coordinator.receive(0, TrainerExited{1, 0, 0, 9}, 1);
  CHECK_FALSE(coordinator.is_running());
  (void)coordinator.take_actions();
  for (const Message& late :
       std::vector<Message>{Fence{1, 0, "other half"}, TrainerStarted{1, 1}, Progress{1, 1}, TrainerExited{1, 1, 0, 15},
                            Failed{1, "gone"}, RankEnvironment{1, 1, {}}}) {
    coordinator.receive(1, late, 1);
  }
  CHECK(messages_to(coordinator, 1).empty());
  for (const std::uint64_t member : {0U, 1U}) coordinator.receive(member, Ready{}, 2);
  CHECK(coordinator.generation() == 2);
  CHECK(messages_to(coordinator, 1).size() == 1);
  for (const std::uint64_t member : {0U, 1U}) coordinator.receive(member, Fence{2, 0, "new"}, 3);
  const std::vector<Message> said = messages_to(coordinator, 1);
  REQUIRE(said.size() == 1);
  CHECK(std::get<FenceDone>(said[0]).blobs == std::vector<std::string>{"new", "new"});
}
