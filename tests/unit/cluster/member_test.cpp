// The member, a launcher's side of the rendezvous: its reactions to the coordinator and to local events.
#include "cluster/rendezvous/member.hpp"

#include "cluster/net/frame.hpp"
#include "cluster/rendezvous/message.hpp"
#include "core/printable.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;

namespace {

template <typename T>
std::vector<T> only(const std::vector<LauncherAction>& actions) {
  std::vector<T> found;
  for (const LauncherAction& action : actions) {
    if (const auto* it = std::get_if<T>(&action)) found.push_back(*it);
  }
  return found;
}

template <typename T>
bool says(Member& member) {
  bool found = false;
  for (const Message& message : member.take_messages()) found |= std::holds_alternative<T>(message);
  return found;
}

/// Two members on one host with one rank each. The first one serves PMIx.
Placement two_ranks(std::uint64_t generation = 1) {
  return {generation, "space", {{"node", 0}}, {{0, 0, 0}, {1, 0, 1}}};
}

/// Member 0 of two, in a running generation.
struct Joined {
  Member member{0, "worker 0 (a:1)", {}, 0};

  Joined() {
    member.connected(0);
    CHECK(says<Ready>(member));
    member.receive(GenerationBegins{two_ranks()}, 0);
  }
};

}  // namespace

TEST_CASE("a serving member starts its PMIx server, distributes environments and relays fences") {
  Joined joined;
  Member& member = joined.member;
  CHECK(only<StartPmixServer>(member.take_actions()).size() == 1);
  member.environment(0, {{"A", "1"}});
  member.environment(1, {{"A", "2"}});
  const std::vector<StartTrainer> started = only<StartTrainer>(member.take_actions());
  REQUIRE(started.size() == 1);
  CHECK(started[0].rank == 0);
  CHECK(started[0].variables.at("A") == "1");
  std::vector<Message> said = member.take_messages();
  REQUIRE(said.size() == 1);
  CHECK(std::get<RankEnvironment>(said[0]).rank == 1);
  CHECK(std::get<RankEnvironment>(said[0]).variables.at("A") == "2");

  CHECK(member.fence("mine") == 0);
  said = member.take_messages();
  REQUIRE(said.size() == 1);
  CHECK(std::get<Fence>(said[0]).blob == "mine");
  CHECK(only<AnswerFence>(member.take_actions()).empty());
  member.receive(FenceDone{1, 0, {"mine"}}, 1);
  const std::vector<AnswerFence> answers = only<AnswerFence>(member.take_actions());
  REQUIRE(answers.size() == 1);
  CHECK_FALSE(answers[0].is_lost);
  CHECK(answers[0].blobs == std::vector<std::string>{"mine"});
}

TEST_CASE("a non-serving member starts its trainer when the environment arrives") {
  Member member(1, "worker 0 (a:1)", {}, 0);
  member.connected(0);
  member.receive(GenerationBegins{two_ranks()}, 0);
  CHECK(member.take_actions().empty());
  member.receive(RankEnvironment{1, 1, {{"A", "2"}}}, 0);
  const std::vector<StartTrainer> started = only<StartTrainer>(member.take_actions());
  REQUIRE(started.size() == 1);
  CHECK(started[0].rank == 1);
}

TEST_CASE("ending a generation fails open fences, stops trainers and then sends Ready") {
  Joined joined;
  Member& member = joined.member;
  (void)member.fence("mine");
  (void)member.take_actions();
  (void)member.take_messages();
  member.receive(GenerationEnds{1, 1, "worker 1 (rank 1): gone\x1B[2J"}, 1);
  std::vector<LauncherAction> actions = member.take_actions();
  CHECK(only<AnswerFence>(actions).at(0).is_lost);
  CHECK(only<EndGeneration>(actions).size() == 1);
  CHECK(only<Log>(actions).at(0).text == "worker 1 (rank 1): gone?[2J");
  CHECK(only<Log>(actions).at(0).is_warning);
  CHECK_FALSE(says<Ready>(member));
  CHECK(member.fence("too late") == 1);
  CHECK(only<AnswerFence>(member.take_actions()).at(0).is_lost);
  member.started(0);
  member.progress({});
  CHECK(member.take_messages().empty());
  member.trainer_exited({.rank = 0, .signal = 15});
  CHECK(says<TrainerExited>(member));
  member.receive(GenerationEnds{1, 1, "again"}, 1);
  CHECK(only<EndGeneration>(member.take_actions()).empty());
  member.all_ended();
  CHECK(says<Ready>(member));
  member.receive(GenerationBegins{two_ranks(2)}, 2);
  CHECK(only<StartPmixServer>(member.take_actions()).size() == 1);
  CHECK(member.fence("numbers begin anew") == 0);
}

TEST_CASE("a member that lost its chief ends its generation before it is ready") {
  Joined joined;
  Member& member = joined.member;
  member.disconnected("the connection broke", 5);
  CHECK(only<EndGeneration>(member.take_actions()).size() == 1);
  member.connected(6);
  CHECK_FALSE(says<Ready>(member));
  member.all_ended();
  CHECK(says<Ready>(member));
}

TEST_CASE("completion survives the loss of the chief") {
  const bool has_reported = GENERATE(true, false);
  CAPTURE(has_reported);
  Joined joined;
  Member& member = joined.member;
  member.trainer_exited({.rank = 0}, has_reported);
  member.disconnected("the connection broke", 1);
  member.all_ended();
  static_cast<void>(member.take_messages());
  member.connected(2);
  const std::vector<Message> said = member.take_messages();
  REQUIRE_FALSE(said.empty());
  CHECK(std::holds_alternative<TrainingDone>(said.front()) == has_reported);
  CHECK(std::holds_alternative<Ready>(said.front()) != has_reported);

  // If the generation fails, the job is not complete, even if one rank exited with 0.
  member.receive(GenerationBegins{two_ranks(2)}, 3);
  member.trainer_exited({.rank = 0}, true);
  member.receive(GenerationEnds{2, 1, "worker 1 failed"}, 3);
  member.all_ended();
  CHECK(says<Ready>(member));
}

TEST_CASE("a member that knows that training is complete ends with 0, whether or not the chief comes back") {
  const bool is_told_to_stop = GENERATE(true, false);
  Joined joined;
  Member& member = joined.member;
  member.trainer_exited({.rank = 0}, true);
  member.disconnected("the connection broke", 1);
  member.all_ended();
  if (is_told_to_stop) {
    member.leave("it received SIGTERM");
  } else {
    member.tick(1.5 + SupervisionTimeouts{}.rendezvous_timeout);
  }
  const std::vector<Exit> exits = only<Exit>(member.take_actions());
  REQUIRE(exits.size() == 1);
  CHECK(exits.front().code == 0);
}

TEST_CASE("a non-retryable error survives the loss of the chief") {
  Joined joined;
  Member& member = joined.member;
  member.disconnected("the connection broke", 5);
  (void)member.take_actions();
  member.trainer_exited({.rank = 0, .code = 65});
  member.all_ended();
  const std::vector<Exit> exits = only<Exit>(member.take_actions());
  REQUIRE(exits.size() == 1);
  CHECK(exits[0].code == 65);
}

TEST_CASE("a silent coordinator is detected, a pause of the member is not blamed on it") {
  Joined joined;
  Member& member = joined.member;
  for (double now = 0.5; now <= 3.9; now += 0.5) member.tick(now);
  CHECK_FALSE(member.take_disconnect_request());
  CHECK(says<Heartbeat>(member));
  (void)member.take_actions();
  member.tick(4.2);
  CHECK(member.take_disconnect_request());
  CHECK_FALSE(member.take_disconnect_request());
  CHECK_FALSE(member.is_connected());
  CHECK(only<EndGeneration>(member.take_actions()).size() == 1);

  Joined stopped;
  stopped.member.tick(1);
  stopped.member.tick(61);  // as if this process was stopped for a minute
  CHECK_FALSE(stopped.member.take_disconnect_request());
}

TEST_CASE("a job result is obeyed and confirmed once nothing runs") {
  Joined joined;
  Member& member = joined.member;
  const bool is_chief_there = GENERATE(true, false);
  (void)member.take_actions();
  member.receive(JobResult{65, "worker 1 (rank 1): NaN"}, 1);
  CHECK_FALSE(says<Goodbye>(member));
  std::vector<LauncherAction> actions = member.take_actions();
  CHECK(only<EndGeneration>(actions).size() == 1);
  CHECK(only<Exit>(actions).empty());
  if (!is_chief_there) member.disconnected("the chief has gone", 2);
  CHECK(only<Log>(member.take_actions()).empty());
  member.all_ended();
  CHECK(says<Goodbye>(member) == is_chief_there);
  actions = member.take_actions();
  REQUIRE(only<Exit>(actions).size() == 1);
  CHECK(only<Exit>(actions)[0].code == 65);
  CHECK(only<Exit>(actions)[0].message == "worker 1 (rank 1): NaN");
  member.tick(1000);
  member.connected(1001);
  CHECK(member.take_messages().empty());
  CHECK(member.take_actions().empty());
}

TEST_CASE("a rejected process exits with the reason") {
  Member member(1, "worker 0 (a:1)", {}, 0);
  member.refused(64, "it has another job token");
  const std::vector<Exit> exits = only<Exit>(member.take_actions());
  REQUIRE(exits.size() == 1);
  CHECK(exits[0].code == 64);
  CHECK(exits[0].message == "the chief, worker 0 (a:1), refuses this process: it has another job token");
}

TEST_CASE("a member connects to members on other hosts and reports to the coordinator that asked") {
  const ProbePeers all{1, {{0, "10.0.0.1", 0}, {1, "10.0.0.2", 5001}, {2, "10.0.0.2", 5002}, {3, "10.0.0.4", 5000}}};
  Member member(1, "worker 0 (a:1)", {}, 0);
  member.connected(0);
  (void)member.take_messages();
  member.receive(all, 0);
  const std::optional<ProbePeers> request = member.take_probe_request();
  REQUIRE(request);
  REQUIRE(request->targets.size() == 1);
  CHECK(request->targets[0].member == 3);
  CHECK_FALSE(member.take_probe_request());
  member.peers_probed({1, {{3, "no answer"}}});
  const std::vector<Message> said = member.take_messages();
  REQUIRE(said.size() == 1);
  CHECK(std::get<PeersProbed>(said[0]).unreachable.size() == 1);

  member.receive(ProbePeers{2, {all.targets.begin(), all.targets.begin() + 3}}, 0);
  CHECK_FALSE(member.take_probe_request());
  CHECK(std::get<PeersProbed>(member.take_messages().at(0)).round == 2);

  member.receive(all, 0);
  member.disconnected("the chief was killed", 1);
  member.connected(2);
  (void)member.take_messages();
  CHECK_FALSE(member.take_probe_request());
  member.peers_probed({1, {}});
  CHECK(member.take_messages().empty());

  member.receive(ProbePeers{1, {all.targets.front()}}, 2);  // without this member
  CHECK(member.take_disconnect_request());
}

TEST_CASE("a coordinator that sends invalid messages is disconnected") {
  const std::vector<Message> nonsense{Ready{},
                                      Hello{},
                                      Fence{},
                                      GenerationBegins{two_ranks()},
                                      FenceDone{1, 7, {"a"}},
                                      FenceDone{1, 0, {"a", "b"}},
                                      ProbePeers{1, {{2, "10.0.0.1", 5000}}},
                                      RankEnvironment{1, 1, {}},
                                      RankEnvironment{1, 99, {}}};
  for (const Message& message : nonsense) {
    REQUIRE_FALSE(std::string(message_name(message)).empty());
    CAPTURE(message_name(message));
    Joined joined;
    (void)joined.member.fence("mine");
    joined.member.receive(message, 1);
    CHECK(joined.member.take_disconnect_request());
    CHECK(only<EndGeneration>(joined.member.take_actions()).size() == 1);
  }
  for (const Placement& map :
       {Placement{}, Placement{1, "x", {}, {{1, 0, 0}}}, Placement{1, "x", {{"n", 0}}, {{0, 0, 0}}}}) {
    Member member(1, "worker 0 (a:1)", {}, 0);
    member.connected(0);
    member.receive(GenerationBegins{map}, 0);
    CHECK(member.take_disconnect_request());
    CHECK(only<StartPmixServer>(member.take_actions()).empty());
  }
}

TEST_CASE("messages round-trip through frames and anything else is rejected") {
  Progress progress{3, 4, Activity::waiting, 5, 6, std::numeric_limits<double>::quiet_NaN(), -0.5};
  const std::vector<Message> messages{Hello{"1.2",
                                            "job",
                                            7,
                                            true,
                                            std::string("\0\1", 2),
                                            {1, 2, "host", "name", "10.0.0.1", 3, {"10.0.0.1", "fd00::7"}, 5000}},
                                      Challenge{"n"},
                                      Proof{"p"},
                                      Welcome{"w"},
                                      Refused{64, "no"},
                                      Heartbeat{},
                                      Ready{},
                                      GenerationBegins{two_ranks(9)},
                                      RankEnvironment{1, 2, {{"A", "b"}, {"C", ""}}},
                                      Fence{1, 2, std::string(300, '\0')},
                                      FenceDone{1, 2, {"", "x", ""}},
                                      TrainerStarted{1, 2},
                                      progress,
                                      TrainerExited{1, 2, 3, 4, "memory", "error", true, true},
                                      Failed{1, "why"},
                                      GenerationEnds{1, 2, "why"},
                                      Leaving{"why"},
                                      JobResult{75, "why"},
                                      Goodbye{},
                                      Notice{"text"},
                                      Admit{3},
                                      TrainingDone{},
                                      PrintStacks{3},
                                      ProbePeers{3, {{0, "", 0}, {1, "10.0.0.1", 5000}}},
                                      PeersProbed{3, {{1, "no answer"}}},
                                      TasksNeverCame{}};
  CHECK(messages.size() == std::variant_size_v<Message>);
  for (const Message& message : messages) {
    CAPTURE(message_name(message));
    const Frame frame = to_frame(message);
    const Message back = to_message(frame);
    CHECK(back.index() == message.index());
    CHECK(to_frame(back).body == frame.body);
    for (std::size_t size = 0; size < frame.body.size(); ++size) {
      CHECK_THROWS_AS(to_message({frame.kind, frame.body.substr(0, size)}), DataError);
    }
    CHECK_THROWS_AS(to_message({frame.kind, frame.body + "x"}), DataError);
  }
  const auto read = std::get<Hello>(to_message(to_frame(messages[0])));
  CHECK(read.has_token);
  CHECK(read.who == PeerInfo{1, 2, "host", "name", "10.0.0.1", 3, {"10.0.0.1", "fd00::7"}, 5000});
  CHECK(std::get<GenerationBegins>(to_message(to_frame(messages[7]))).placement == two_ranks(9));
  const auto loss = std::get<Progress>(to_message(to_frame(progress)));
  CHECK(std::isnan(loss.loss));
  CHECK(loss.activity == Activity::waiting);
  CHECK_THROWS_AS(to_message({999, ""}), DataError);
  Frame wrong = to_frame(progress);
  wrong.body[16] = 4;  // no such activity
  CHECK_THROWS_AS(to_message(wrong), DataError);
  BodyWriter twice;
  twice.number(1).number(2).number(2).text("A").text("1").text("A").text("2");
  CHECK_THROWS_AS(to_message({RankEnvironment::kind, twice.take()}), DataError);
  CHECK(printable_line("a\nb\x1B\xC2\x9B" + std::string(5000, 'c')).size() == 2003);
  CHECK(printable_line("a\nb\x7F") == "a b?");
}
