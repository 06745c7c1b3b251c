// One launcher's part: what it makes of what the coordinator says, and of what happens around it.
#include "cluster/member.hpp"

#include "cluster/frame.hpp"
#include "cluster/message.hpp"
#include "lockstep/core/error.hpp"
#include "support/catch.hpp"

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

/// Two members on one host, a rank each; the first serves.
WorldMap two_ranks(std::uint64_t generation = 1) {
  return {generation, "space", {{"node", 0}}, {{0, 0, 0}, {1, 0, 1}}};
}

/// Member 0 of two, with a generation.
struct Joined {
  Member member{0, "worker 0 (a:1)", {}, 0};

  Joined() {
    member.connected(0);
    CHECK(says<Ready>(member));
    member.receive(Begin{two_ranks()}, 0);
  }
};

}  // namespace

TEST_CASE("a member that serves a host starts its server, deals out environments and carries fences") {
  Joined joined;
  Member& member = joined.member;
  CHECK(only<StartServer>(member.take_actions()).size() == 1);
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

TEST_CASE("a member that does not serve starts its trainer when the environment comes") {
  Member member(1, "worker 0 (a:1)", {}, 0);
  member.connected(0);
  member.receive(Begin{two_ranks()}, 0);
  CHECK(member.take_actions().empty());
  member.receive(RankEnvironment{1, 1, {{"A", "2"}}}, 0);
  const std::vector<StartTrainer> started = only<StartTrainer>(member.take_actions());
  REQUIRE(started.size() == 1);
  CHECK(started[0].rank == 1);
}

TEST_CASE("the end of a generation answers open fences, ends trainers, and only then says Ready") {
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
  member.child_ended(0, 0, 15);
  CHECK(says<ChildEnded>(member));
  member.receive(GenerationEnds{1, 1, "again"}, 1);
  CHECK(only<EndGeneration>(member.take_actions()).empty());
  member.all_ended();
  CHECK(says<Ready>(member));
  member.receive(Begin{two_ranks(2)}, 2);
  CHECK(only<StartServer>(member.take_actions()).size() == 1);
  CHECK(member.fence("numbers begin anew") == 0);
}

TEST_CASE("a member without its chief ends its generation and is ready when both are done") {
  Joined joined;
  Member& member = joined.member;
  member.disconnected("the connection broke", 5);
  CHECK(only<EndGeneration>(member.take_actions()).size() == 1);
  member.connected(6);
  CHECK_FALSE(says<Ready>(member));
  member.all_ended();
  CHECK(says<Ready>(member));
}

TEST_CASE("that all work is done is not lost with the chief") {
  const bool is_ours = GENERATE(true, false);
  CAPTURE(is_ours);
  Joined joined;
  Member& member = joined.member;
  member.child_ended(0, 0, 0, is_ours);
  member.disconnected("the connection broke", 1);
  member.all_ended();
  static_cast<void>(member.take_messages());
  member.connected(2);
  const std::vector<Message> said = member.take_messages();
  REQUIRE_FALSE(said.empty());
  CHECK(std::holds_alternative<Done>(said.front()) == is_ours);
  CHECK(std::holds_alternative<Ready>(said.front()) != is_ours);

  // A generation that fails has not done it, whatever one rank thinks.
  member.receive(Begin{two_ranks(2)}, 3);
  member.child_ended(0, 0, 0, true);
  member.receive(GenerationEnds{2, 1, "worker 1 failed"}, 3);
  member.all_ended();
  CHECK(says<Ready>(member));
}

TEST_CASE("what no restart mends is not lost with the chief") {
  Joined joined;
  Member& member = joined.member;
  member.disconnected("the connection broke", 5);
  (void)member.take_actions();
  member.child_ended(0, 65, 0);
  member.all_ended();
  const std::vector<Exit> exits = only<Exit>(member.take_actions());
  REQUIRE(exits.size() == 1);
  CHECK(exits[0].code == 65);
}

TEST_CASE("silence is noticed, but not one's own") {
  Joined joined;
  Member& member = joined.member;
  for (double now = 0.5; now <= 3.9; now += 0.5) member.tick(now);
  CHECK_FALSE(member.take_hang_up());
  CHECK(says<Heartbeat>(member));
  (void)member.take_actions();
  member.tick(4.2);
  CHECK(member.take_hang_up());
  CHECK_FALSE(member.take_hang_up());
  CHECK_FALSE(member.is_connected());
  CHECK(only<EndGeneration>(member.take_actions()).size() == 1);

  Joined stopped;
  stopped.member.tick(1);
  stopped.member.tick(61);  // this process was stopped for a minute
  CHECK_FALSE(stopped.member.take_hang_up());
}

TEST_CASE("a verdict is obeyed, and confirmed, when nothing runs any more") {
  Joined joined;
  Member& member = joined.member;
  const bool is_chief_there = GENERATE(true, false);
  (void)member.take_actions();
  member.receive(Verdict{65, "worker 1 (rank 1): NaN"}, 1);
  CHECK_FALSE(says<Farewell>(member));
  std::vector<LauncherAction> actions = member.take_actions();
  CHECK(only<EndGeneration>(actions).size() == 1);
  CHECK(only<Exit>(actions).empty());
  if (!is_chief_there) member.disconnected("the chief has gone", 2);
  CHECK(only<Log>(member.take_actions()).empty());
  member.all_ended();
  CHECK(says<Farewell>(member) == is_chief_there);
  actions = member.take_actions();
  REQUIRE(only<Exit>(actions).size() == 1);
  CHECK(only<Exit>(actions)[0].code == 65);
  CHECK(only<Exit>(actions)[0].message == "worker 1 (rank 1): NaN");
  member.tick(1000);
  member.connected(1001);
  CHECK(member.take_messages().empty());
  CHECK(member.take_actions().empty());
}

TEST_CASE("a process that is refused ends with the reason") {
  Member member(1, "worker 0 (a:1)", {}, 0);
  member.refused(64, "it has another job token");
  const std::vector<Exit> exits = only<Exit>(member.take_actions());
  REQUIRE(exits.size() == 1);
  CHECK(exits[0].code == 64);
  CHECK(exits[0].message == "the chief, worker 0 (a:1), refuses this process: it has another job token");
}

TEST_CASE("a coordinator that makes no sense is hung up on") {
  const std::vector<Message> nonsense{Ready{},
                                      Hello{},
                                      Fence{},
                                      Begin{two_ranks()},
                                      FenceDone{1, 7, {"a"}},
                                      FenceDone{1, 0, {"a", "b"}},
                                      RankEnvironment{1, 1, {}},
                                      RankEnvironment{1, 99, {}}};
  for (const Message& message : nonsense) {
    CAPTURE(name_of(message));
    Joined joined;
    (void)joined.member.fence("mine");
    joined.member.receive(message, 1);
    CHECK(joined.member.take_hang_up());
    CHECK(only<EndGeneration>(joined.member.take_actions()).size() == 1);
  }
  for (const WorldMap& map :
       {WorldMap{}, WorldMap{1, "x", {}, {{1, 0, 0}}}, WorldMap{1, "x", {{"n", 0}}, {{0, 0, 0}}}}) {
    Member member(1, "worker 0 (a:1)", {}, 0);
    member.connected(0);
    member.receive(Begin{map}, 0);
    CHECK(member.take_hang_up());
    CHECK(only<StartServer>(member.take_actions()).empty());
  }
}

TEST_CASE("messages survive their frames, and nothing else is a message") {
  Progress progress{3, 4, Activity::waiting, 5, 6, std::numeric_limits<double>::quiet_NaN(), -0.5};
  const std::vector<Message> messages{
      Hello{"1.2", "job", 7, true, std::string("\0\1", 2), {1, 2, "host", "name", "10.0.0.1", 3}},
      Challenge{"n"},
      Proof{"p"},
      Welcome{"w"},
      Refused{64, "no"},
      Heartbeat{},
      Ready{},
      Begin{two_ranks(9)},
      RankEnvironment{1, 2, {{"A", "b"}, {"C", ""}}},
      Fence{1, 2, std::string(300, '\0')},
      FenceDone{1, 2, {"", "x", ""}},
      Started{1, 2},
      progress,
      ChildEnded{1, 2, 3, 4},
      Failed{1, "why"},
      GenerationEnds{1, 2, "why"},
      Leaving{"why"},
      Verdict{75, "why"},
      Farewell{},
      Notice{"text"},
      LetIn{3},
      Done{}};
  CHECK(messages.size() == std::variant_size_v<Message>);
  for (const Message& message : messages) {
    CAPTURE(name_of(message));
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
  CHECK(read.who == Introduction{1, 2, "host", "name", "10.0.0.1", 3});
  CHECK(std::get<Begin>(to_message(to_frame(messages[7]))).map == two_ranks(9));
  const auto loss = std::get<Progress>(to_message(to_frame(progress)));
  CHECK(std::isnan(loss.loss));
  CHECK(loss.activity == Activity::waiting);
  CHECK_THROWS_AS(to_message({999, ""}), DataError);
  Frame wrong = to_frame(progress);
  wrong.body[16] = 3;  // no such activity
  CHECK_THROWS_AS(to_message(wrong), DataError);
  BodyWriter twice;
  twice.number(1).number(2).number(2).text("A").text("1").text("A").text("2");
  CHECK_THROWS_AS(to_message({RankEnvironment::kind, twice.take()}), DataError);
  CHECK(printable("a\nb\x1B\xC2\x9B" + std::string(5000, 'c')).size() == 2003);
  CHECK(printable("a\nb\x7F") == "a b?");
}
