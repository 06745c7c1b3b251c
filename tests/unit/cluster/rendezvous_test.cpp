// The rendezvous on the loopback interface: launchers that find each other, and all the strangers that come by.
#include "cluster/rendezvous.hpp"

#include "cluster/errand.hpp"
#include "cluster/resolve.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "lockstep/core/error.hpp"
#include "support/catch.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;

namespace {

std::uint16_t free_port() { return port_of(listen_on(0)); }

Endpoint loopback(std::uint16_t port) {
  return resolve(Address{"127.0.0.1", port}, Deadline::after(1)).endpoints.at(0);
}

ClusterSpec cluster(std::size_t workers, std::uint16_t chief_port, const std::string& host = "127.0.0.1") {
  ClusterSpec spec;
  for (std::size_t i = 0; i < workers; ++i) {
    const auto port = i == 0 ? chief_port : static_cast<std::uint16_t>(20'000 + i);
    spec.tasks.push_back({TaskType::worker, static_cast<int>(i), {host, port}});
  }
  return spec;
}

/// Short patience, so that tests are quick.
RendezvousOptions quick() {
  RendezvousOptions options;
  options.limits.heartbeat = 0.1;
  options.limits.silence = 1.5;
  options.limits.report = 1;
  options.limits.rendezvous_timeout = 60;
  options.limits.stranger = 1;
  options.limits.connect_retry = 0.2;
  options.limits.farewell = 1;
  return options;
}

/// A launcher that pretends to fork.
struct Launcher {
  Rendezvous rendezvous;
  std::size_t trainers = 0;
  std::size_t fences = 0;
  std::uint64_t step = 0;
  bool ends_generations = true;
  std::optional<Exit> exit;
  std::vector<std::string> log;

  Launcher(ClusterSpec spec, std::size_t rank, const RendezvousOptions& options)
      : rendezvous((spec.rank = rank, spec), 1, options) {}

  void perform() {
    Member& member = rendezvous.member();
    for (LauncherAction& action : rendezvous.take_actions()) {
      if (const auto* server = std::get_if<StartServer>(&action)) {
        (void)member.fence("blob");
        for (const std::uint64_t rank : member.map().ranks_of_node(server->node)) {
          member.environment(rank, {{"PMIX_RANK", std::to_string(rank)}});
        }
      } else if (const auto* start = std::get_if<StartTrainer>(&action)) {
        ++trainers;
        member.started(start->rank);
      } else if (const auto* fence = std::get_if<AnswerFence>(&action)) {
        if (!fence->is_lost) ++fences;
      } else if (std::holds_alternative<EndGeneration>(action)) {
        trainers = 0;
        if (ends_generations) member.all_ended();
      } else if (const auto* end = std::get_if<Exit>(&action)) {
        exit = *end;
      } else if (const auto* line = std::get_if<Log>(&action)) {
        log.push_back(line->text);
      }
    }
  }

  bool logged(const std::string& text) const {
    return std::any_of(log.begin(), log.end(), [&](const auto& it) { return it.find(text) != std::string::npos; });
  }

  void end_training() {
    const std::vector<std::uint64_t> ranks = rendezvous.member().map().ranks_of_member(number());
    trainers = 0;
    for (const std::uint64_t rank : ranks) rendezvous.member().child_ended(rank, 0, 0);
  }

  std::size_t index = 0;
  std::size_t number() const { return index; }
};

/// Launchers of one process, in one loop.
class Party {
 public:
  Party(ClusterSpec spec, RendezvousOptions options) : options(std::move(options)), spec_(std::move(spec)) {
    launchers.resize(spec_.tasks.size());
  }

  RendezvousOptions options;
  std::vector<std::unique_ptr<Launcher>> launchers;
  double longest_round = 0;

  Launcher& start(std::size_t rank) {
    if (options.host.find("each") == 0) options.host = "each on its own " + std::to_string(rank);
    launchers[rank] = std::make_unique<Launcher>(spec_, rank, options);
    launchers[rank]->index = rank;
    return *launchers[rank];
  }

  void start_all() {
    for (std::size_t rank = 0; rank < launchers.size(); ++rank) start(rank);
  }

  Launcher& at(std::size_t rank) { return *launchers.at(rank); }

  void round() {
    std::vector<pollfd> polled;
    int timeout = 250;
    for (const auto& launcher : launchers) {
      if (!launcher || launcher->exit) continue;
      launcher->rendezvous.collect(polled);
      timeout = std::min(timeout, launcher->rendezvous.timeout_ms());
    }
    (void)poll(polled.data(), polled.size(), timeout);
    const double began = monotonic_seconds();
    for (const auto& launcher : launchers) {
      if (!launcher || launcher->exit) continue;
      launcher->rendezvous.handle(polled);
      launcher->perform();
    }
    longest_round = std::max(longest_round, monotonic_seconds() - began);
  }

  template <typename Condition>
  bool run_until(Condition condition, double seconds) {
    const Deadline deadline = Deadline::after(seconds);
    while (!condition()) {
      if (deadline.passed()) return false;
      round();
    }
    return true;
  }

  void run(double seconds) {
    (void)run_until([]() { return false; }, seconds);
  }

  bool all_train() const {
    return std::all_of(launchers.begin(), launchers.end(), [](const auto& it) { return !it || it->trainers == 1; });
  }

  bool all_exited() const {
    return std::all_of(launchers.begin(), launchers.end(), [](const auto& it) { return !it || it->exit; });
  }

 private:
  ClusterSpec spec_;
};

void send_text(const Socket& socket, const std::string& text) {
  (void)send_all(socket, std::as_bytes(std::span(text)), Deadline::after(1));
}

Socket connect_stranger(std::uint16_t port) {
  Connecting connecting = connect_to(loopback(port), Deadline::after(5));
  REQUIRE(connecting.error == 0);
  return std::move(connecting.socket);
}

/// What comes until the other side hangs up; the party goes on meanwhile.
std::optional<std::string> read_until_end(Party& party, const Socket& socket, double seconds) {
  std::string text;
  const Deadline deadline = Deadline::after(seconds);
  while (!deadline.passed()) {
    party.round();
    std::array<std::byte, 4096> buffer{};
    const Transfer transfer = receive_some(socket, buffer);
    text.append(reinterpret_cast<const char*>(buffer.data()), transfer.bytes);
    if (transfer.end == TransferEnd::closed) return text;
  }
  return {};
}

double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * 4096 / 1e6;
}

void allow_many_files() {
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 16384);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/// Runs `work` in a process of its own, ends it with this object.
class Child {
 public:
  explicit Child(const std::function<void()>& work) : process_(fork()) {
    REQUIRE(process_ >= 0);
    if (process_ == 0) {
      try {
        work();
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
  }
  ~Child() {
    if (process_ > 0) {
      (void)kill(process_, SIGKILL);
      (void)waitpid(process_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// True once it has ended, with success or not.
  std::optional<bool> ended() {
    int status = 0;
    if (process_ <= 0 || waitpid(process_, &status, WNOHANG) != process_) return {};
    process_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t process_;
};

}  // namespace

TEST_CASE("launchers find each other in any order, train, and end") {
  for (const std::string token : {"", "a long and secret token"}) {
    RendezvousOptions options = quick();
    options.token = JobToken(token);
    options.host = "each on its own";
    Party party(cluster(3, free_port(), token.empty() ? "localhost" : "127.0.0.1"), options);
    party.start(2);
    party.run(1.3);
    CHECK(party.at(2).logged("for the chief, worker 0 (" + std::string(token.empty() ? "localhost" : "127.0.0.1")));
    CHECK(party.at(2).logged("it refuses the connection"));
    party.start(0);
    party.start(1);
    REQUIRE(party.run_until([&]() { return party.all_train() && party.at(2).fences == 1; }, 10));
    CHECK(party.at(0).logged("there is no job token") == token.empty());
    CHECK(party.at(2).rendezvous.own_address().find_first_not_of(":0123456789.") == std::string::npos);
    for (const auto& launcher : party.launchers) {
      CHECK(launcher->rendezvous.member().map().nodes.size() == 3);
      launcher->end_training();
    }
    REQUIRE(party.run_until([&]() { return party.all_exited(); }, 5));
    for (const auto& launcher : party.launchers) CHECK(launcher->exit->code == 0);
  }
}

TEST_CASE("those missing are named with what is wrong with them") {
  ClusterSpec spec = cluster(4, free_port());
  spec.tasks[1].address = {"does-not-exist.invalid", 5000};
  spec.tasks[2].address.port = free_port();
  const Socket other_program = listen_on(0);
  spec.tasks[3].address.port = port_of(other_program);
  Party party(spec, quick());
  Launcher& chief = party.start(0);
  const auto knows = [&]() {
    return (chief.logged("worker 1 (its name does not resolve)") ||
            chief.logged("worker 1 (the name service does not")) &&
           chief.logged("worker 2 (its host refuses the connection: no launcher runs there yet)") &&
           chief.logged("worker 3 (its host answers on that port, but it has not joined)");
  };
  CHECK(party.run_until(knows, 15));
}

TEST_CASE("a launcher that ends is lost at once, one that hangs when it is silent, and both may come back") {
  Party party(cluster(3, free_port()), quick());
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  double began = monotonic_seconds();
  party.launchers[1].reset();
  REQUIRE(party.run_until([&]() { return party.at(2).logged("worker 1 (rank 1): lost: "); }, 5));
  CHECK(monotonic_seconds() - began < 1);
  party.start(1);
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 5));
  CHECK(party.at(0).rendezvous.member().map().generation == 2);

  began = monotonic_seconds();
  std::unique_ptr<Launcher> hangs = std::move(party.launchers[2]);  // nobody calls its loop
  REQUIRE(party.run_until([&]() { return party.at(1).logged("worker 2 (rank 2): lost: no sign of life"); }, 5));
  CHECK(monotonic_seconds() - began < 2.5);
  party.launchers[2] = std::move(hangs);
  REQUIRE(
      party.run_until([&]() { return party.at(2).rendezvous.member().map().generation == 3 && party.all_train(); }, 5));
  CHECK(party.at(2).logged("lost the chief"));
}

TEST_CASE("when the chief's launcher dies the others wait, and go on with its successor") {
  Party party(cluster(3, free_port()), quick());
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  const std::string nspace = party.at(1).rendezvous.member().map().nspace;
  party.launchers[0].reset();
  REQUIRE(party.run_until([&]() { return party.at(1).trainers == 0 && party.at(2).trainers == 0; }, 5));
  CHECK(party.at(1).logged("lost the chief, worker 0"));
  party.run(1.2);
  CHECK(party.at(2).logged("it refuses the connection"));
  party.start(0);
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 5));
  CHECK(party.at(1).rendezvous.member().map().nspace != nspace);
}

TEST_CASE("a fatal error ends all launchers with its code") {
  Party party(cluster(3, free_port()), quick());
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  party.at(2).rendezvous.member().child_ended(2, 65, 0);
  REQUIRE(party.run_until([&]() { return party.all_exited(); }, 3));
  for (const auto& launcher : party.launchers) {
    CHECK(launcher->exit->code == 65);
    CHECK(launcher->exit->message.find("worker 2 (rank 2)") == 0);
  }
}

TEST_CASE("the chief stays until all have heard that the job is over") {
  RendezvousOptions options = quick();
  options.limits.farewell = 20;
  options.limits.silence = 20;
  Party party(cluster(2, free_port()), options);
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  party.at(1).end_training();
  party.run(0.2);
  party.at(0).end_training();
  std::unique_ptr<Launcher> slow = std::move(party.launchers[1]);  // does not listen for a while
  party.run(0.5);
  CHECK_FALSE(party.at(0).exit);
  party.launchers[1] = std::move(slow);
  REQUIRE(party.run_until([&]() { return party.all_exited(); }, 5));
  CHECK(party.at(1).exit->code == 0);
}

TEST_CASE("the chief stays for a worker that was killed before it could end, and tells its successor") {
  RendezvousOptions options = quick();
  options.limits.farewell = 20;
  Party party(cluster(2, free_port()), options);
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  party.at(1).ends_generations = false;
  party.at(0).end_training();
  party.at(1).end_training();
  party.run(0.3);  // all have heard
  CHECK_FALSE(party.at(0).exit);
  party.launchers[1].reset();
  party.run(0.3);
  CHECK_FALSE(party.at(0).exit);
  party.start(1);
  REQUIRE(party.run_until([&]() { return party.all_exited(); }, 5));
  CHECK(party.at(0).exit->code == 0);
  CHECK(party.at(1).exit->code == 0);
}

TEST_CASE("a worker gets in though all places of strangers are taken") {
  const std::uint16_t port = free_port();
  RendezvousOptions options = quick();
  options.limits.stranger = 60;
  Party party(cluster(2, port), options);
  party.start(0);
  std::vector<Socket> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(connect_stranger(port));
    if (i % 20 == 0) party.round();
  }
  party.start(1);
  CHECK(party.run_until([&]() { return party.all_train(); }, 5));
}

TEST_CASE("who does not belong to the job is refused by name, and the job forms without it") {
  const std::uint16_t port = free_port();
  RendezvousOptions options = quick();
  options.token = JobToken("the right token");
  options.job = "mnist-7";
  Party party(cluster(2, port), options);
  Launcher& chief = party.start(0);
  const auto refuse = [&](const ClusterSpec& spec, const RendezvousOptions& its, const std::string& why) {
    CAPTURE(why);
    party.launchers[1] = std::make_unique<Launcher>(spec, 1, its);
    REQUIRE(party.run_until([&]() { return party.at(1).exit.has_value(); }, 5));
    CHECK(party.at(1).exit->code == 64);
    CHECK(party.at(1).exit->message.find(why) != std::string::npos);
    CHECK(chief.trainers == 0);
    CHECK(chief.logged("refused 127.0.0.1:"));
  };
  RendezvousOptions its = options;
  its.token = JobToken("another token");
  refuse(cluster(2, port), its, "worker 1 of host");
  CHECK(chief.logged("has another job token than the chief"));
  its.token = {};
  refuse(cluster(2, port), its, "has no job token and the chief has one");
  its = options;
  its.version = "9.9";
  refuse(cluster(2, port), its, "is Lockstep '9.9', the chief is '" LOCKSTEP_VERSION "'");
  its = options;
  its.job = "mnist-6";
  refuse(cluster(2, port), its, "belongs to job 'mnist-6', this is job 'mnist-7'");
  refuse(cluster(3, port), options, "has another list of tasks in its TF_CONFIG");

  party.start(1);
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 5));
}

TEST_CASE("a chief that does not know the token is not believed") {
  const std::uint16_t port = free_port();
  RendezvousOptions options = quick();
  options.token = JobToken("the right token");
  Party party(cluster(2, port), options);
  const Socket listener = listen_on(port);
  party.start(1);
  std::optional<Accepted> peer;
  REQUIRE(party.run_until([&]() { return (peer = accept_one(listener)).has_value(); }, 5));
  Connection connection(std::move(peer->socket), longest_from_stranger);
  const auto next = [&]() {
    std::vector<Frame> frames;
    REQUIRE(party.run_until([&]() { return !(frames = connection.receive()).empty(); }, 5));
    return to_message(frames.at(0));
  };
  const Message hello = next();
  CHECK(std::get<Hello>(hello).who.member == 1);
  CHECK(encode(to_frame(hello)).find("right token") == std::string::npos);
  connection.send(share(to_frame(Challenge{std::string(32, 'x')})));
  const auto proof = std::get<Proof>(next());
  CHECK(proof.proof.size() == 32);
  connection.send(share(to_frame(Welcome{proof.proof})));  // what it sent proves nothing
  REQUIRE(party.run_until([&]() { return party.at(1).exit.has_value(); }, 5));
  CHECK(party.at(1).exit->code == 64);
  CHECK(party.at(1).exit->message.find("does not know the job token") != std::string::npos);
}

TEST_CASE("a second process of a task is refused by name, and goes") {
  RendezvousOptions options = quick();
  options.limits.silence = 0.5;
  options.limits.heartbeat = 0.05;
  const ClusterSpec spec = cluster(2, free_port());
  Party party(spec, options);
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 5));
  party.launchers.push_back(std::make_unique<Launcher>(spec, 1, options));
  REQUIRE(party.run_until([&]() { return party.at(2).exit.has_value(); }, 10));
  CHECK(party.at(2).exit->code == 64);
  CHECK(party.at(2).exit->message.find("worker 1 is already here, from host ") != std::string::npos);
  CHECK(party.at(0).rendezvous.member().map().generation == 1);
  CHECK(party.at(1).trainers == 1);
}

TEST_CASE("strangers are hung up on, and a Lockstep of another language is told why") {
  const std::uint16_t port = free_port();
  Party party(cluster(2, port), quick());
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));

  Socket http = connect_stranger(port);
  send_text(http, "GET / HTTP/1.1\r\nHost: worker-0\r\n\r\n");
  CHECK(read_until_end(party, http, 0.9) == "");

  Socket silent = connect_stranger(port);
  Socket half = connect_stranger(port);
  send_text(half, "LSTP");
  CHECK(read_until_end(party, silent, 2) == "");  // after the second that strangers have
  CHECK(read_until_end(party, half, 1) == "");

  Socket newer = connect_stranger(port);
  std::string frame = encode({1, "whatever"});
  frame[4] = 9;
  send_text(newer, frame);
  const std::optional<std::string> answer = read_until_end(party, newer, 1);
  REQUIRE(answer);
  FrameReader reader(longest_from_stranger);
  reader.add(std::as_bytes(std::span(*answer)));
  const auto refused = std::get<Refused>(to_message(reader.next().value()));
  CHECK(refused.reason.find("it speaks version 9 of Lockstep's language, this is version 1") != std::string::npos);

  Socket large = connect_stranger(port);  // promises four gigabytes
  send_text(large, std::string("LSTP\1\0\1\0\xFF\xFF\xFF\xFF", 12));
  CHECK(read_until_end(party, large, 0.9) == "");

  Socket impatient = connect_stranger(port);  // says what only members say
  send_text(impatient, encode(to_frame(Verdict{0, ""})));
  CHECK(read_until_end(party, impatient, 0.9) == "");

  Socket liar = connect_stranger(port);  // of a task that is not there
  Hello hello;
  hello.version = LOCKSTEP_VERSION;
  hello.cluster = cluster(2, port).digest().value();
  hello.nonce = std::string(32, 'n');
  hello.who.member = 1'000'000;
  send_text(liar, encode(to_frame(hello)));
  CHECK(read_until_end(party, liar, 2).value_or("").find("there are only 2") != std::string::npos);

  CHECK(party.run_until([&]() { return party.at(0).logged(" at the port of the rendezvous"); }, 11));
  CHECK(party.all_train());
  CHECK(party.at(0).rendezvous.member().map().generation == 1);
}

namespace {

/// In a process of its own: connections that mean nothing, or mischief, as fast as they go.
void pester(std::uint16_t port, std::size_t count, std::size_t slow_ones, double seconds) {
  allow_many_files();
  const Endpoint chief = loopback(port);
  RandomStream random(7, RandomPurpose::test, 99);
  std::vector<Socket> slow;
  std::vector<Socket> held;
  const double began = monotonic_seconds();
  double next_byte = began;
  for (std::size_t i = 0; i < count || monotonic_seconds() - began < seconds; ++i) {
    while (slow.size() < slow_ones) slow.push_back(begin_connect(chief).socket);
    if (monotonic_seconds() >= next_byte) {
      next_byte += 1;
      for (Socket& socket : slow) {
        const std::array<std::byte, 1> byte{std::byte{'L'}};
        if (finish_connect(socket) != 0) socket = begin_connect(chief).socket;
        try {
          if (send_some(socket, byte).end == TransferEnd::closed) socket = begin_connect(chief).socket;
        } catch (const InternalError&) {  // not connected yet
        }
      }
    }
    if (i < count) {
      Connecting connecting = connect_to(chief, Deadline::after(1));
      std::string text;
      switch (i % 5) {
        case 0: text = "GET / HTTP/1.1\r\n\r\n"; break;
        case 1:
          for (std::uint32_t size = random.below(2000); size > 0; --size) text += static_cast<char>(random.next());
          break;
        case 2: text = "LSTP" + std::string(1, '\1'); break;
        case 3: text = encode(to_frame(Heartbeat{})); break;
        default: break;  // a port scanner
      }
      if (connecting.error == 0) send_text(connecting.socket, text);
      if (i % 3 == 0) held.push_back(std::move(connecting.socket));
      if (held.size() > 200) held.erase(held.begin(), held.begin() + 100);
    }
    const double ahead = static_cast<double>(i) * seconds / static_cast<double>(count) - (monotonic_seconds() - began);
    if (ahead > 0) (void)poll(nullptr, 0, static_cast<int>(std::min(ahead, 0.2) * 1000) + 1);
  }
}

void check_pestered(std::size_t count, std::size_t slow_ones, double seconds) {
  allow_many_files();
  const std::uint16_t port = free_port();
  RendezvousOptions options = quick();
  options.limits.silence = 4;
  options.limits.stranger = 5;
  options.token = JobToken("secret");
  Party party(cluster(4, port), options);
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  const double memory = resident_megabytes();
  double most_memory = memory;
  Child pest([&]() { pester(port, count, slow_ones, seconds); });
  const double began = monotonic_seconds();
  const auto is_half_over = [&]() {
    most_memory = std::max(most_memory, resident_megabytes());
    return monotonic_seconds() - began > seconds / 2;
  };
  CHECK(party.run_until(is_half_over, seconds));
  CHECK(party.at(0).rendezvous.member().map().generation == 1);
  CHECK(party.all_train());
  // A worker's pod dies and is back in the middle of it.
  party.launchers[3].reset();
  REQUIRE(party.run_until([&]() { return party.at(1).trainers == 0 || party.at(1).logged("lost:"); }, 5));
  const double back = monotonic_seconds();
  party.start(3);
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  const double rejoined = monotonic_seconds() - back;
  std::optional<bool> ended;
  REQUIRE(party.run_until(
      [&]() {
        most_memory = std::max(most_memory, resident_megabytes());
        return (ended = pest.ended()).has_value();
      },
      2 * seconds + 30));
  CHECK(ended == true);
  CHECK(party.all_train());
  CHECK(party.at(0).rendezvous.member().map().generation == 2);
  CHECK(party.longest_round < 1);
  CHECK(most_memory - memory < 20);
  std::cout << count << " junk connections and " << slow_ones << " slow ones in " << seconds
            << " s: a worker came back in " << rejoined << " s, the longest round took " << party.longest_round * 1000
            << " ms, " << most_memory - memory << " MB more\n";
}

/// The chief of `workers` launchers here, the others in a process of their own.
void check_thousand(std::size_t workers) {
  allow_many_files();
  const std::uint16_t port = free_port();
  RendezvousOptions options;
  options.token = JobToken("secret");
  options.host = "each on its own";
  const double memory = resident_megabytes();
  Child others([&]() {
    Party party(cluster(workers, port), options);
    for (std::size_t rank = 1; rank < workers; ++rank) party.start(rank);
    if (!party.run_until([&]() { return party.all_train() && party.at(workers - 1).fences == 1; }, 60)) _exit(1);
    for (std::size_t rank = 1; rank < workers; ++rank) party.at(rank).end_training();
    if (!party.run_until([&]() { return party.all_exited(); }, 60)) _exit(2);
  });
  Party party(cluster(workers, port), options);
  const double began = monotonic_seconds();
  Launcher& chief = party.start(0);
  double most = 0;  // (the system's own count knows what other tests of this process took)
  const auto watch_memory = [&](bool value) {
    most = std::max(most, resident_megabytes() - memory);
    return value;
  };
  REQUIRE(party.run_until([&]() { return watch_memory(chief.trainers == 1); }, 60));
  const double formed = monotonic_seconds() - began;
  REQUIRE(party.run_until([&]() { return watch_memory(chief.fences == 1); }, 60));
  const double fenced = monotonic_seconds() - began;
  chief.end_training();
  REQUIRE(party.run_until([&]() { return watch_memory(chief.exit.has_value()); }, 60));
  CHECK(chief.exit->code == 0);
  std::optional<bool> ended;
  REQUIRE(party.run_until([&]() { return (ended = others.ended()).has_value(); }, 60));
  CHECK(ended == true);
  std::cout << workers << " launchers over TCP: world after " << formed << " s, first fence after " << fenced
            << " s, job over after " << monotonic_seconds() - began << " s; at most " << most
            << " MB more for the chief\n";
  CHECK(formed < 5);
  CHECK(most < 150);
}

}  // namespace

TEST_CASE("junk, slow and half-open connections harm nobody") { check_pestered(1000, 300, 6); }

TEST_CASE("10,000 junk connections and 1,000 slow ones harm nobody", "[.][stress]") {
  check_pestered(10'000, 1000, 60);
}

TEST_CASE("two hundred launchers meet over TCP") { check_thousand(200); }

TEST_CASE("a thousand launchers meet over TCP", "[.][stress]") { check_thousand(1000); }

TEST_CASE("errands bring an answer, or none in time") {
  Errand quick_one([]() { return std::string(100'000, 'x'); }, Deadline::after(10));
  CHECK(quick_one.runs());
  std::optional<std::string> answer;
  while (!answer) {
    pollfd entry{quick_one.descriptor(), POLLIN, 0};
    (void)poll(&entry, 1, 1000);
    answer = quick_one.take();
  }
  CHECK(answer->size() == 100'000);
  CHECK_FALSE(quick_one.runs());
  CHECK_FALSE(quick_one.take());
  Errand fails([]() -> std::string { throw DataError("no"); }, Deadline::after(10));
  while (!(answer = fails.take())) (void)poll(nullptr, 0, 5);
  CHECK(answer->empty());
  Errand late([]() { return sleep(60), std::string("late"); }, Deadline::after(0.1));
  while (!(answer = late.take())) (void)poll(nullptr, 0, 5);
  CHECK(answer->empty());
  const double began = monotonic_seconds();
  {
    Errand forgotten([]() { return sleep(60), std::string(); }, Deadline::never());
  }
  CHECK(monotonic_seconds() - began < 5);
}

TEST_CASE("tokens come from the environment or a file, and prove only themselves") {
  CHECK_FALSE(JobToken::of({}, "").exists());
  const JobToken token = JobToken::of({{"LOCKSTEP_JOB_TOKEN", "abc"}}, "");
  REQUIRE(token.exists());
  // As `printf hello | openssl dgst -sha256 -hmac abc` says.
  const std::string proof = token.prove("hello");
  CHECK(proof ==
        "\xf3\x16\x6a\x3a\x40\x45\x99\xd2\x04\x6e\xd2\xaa\xe4\x79\xb3\x7d"
        "\x54\xb5\x1d\x2e\x85\x25\x9c\x9e\x31\x40\x42\x75\x3b\xe7\xd8\x13");
  CHECK(token.checks(proof, "hello"));
  CHECK_FALSE(token.checks(proof, "hellO"));
  CHECK_FALSE(token.checks(proof.substr(0, 31), "hello"));
  CHECK_FALSE(token.checks("", "hello"));
  CHECK_FALSE(JobToken("abd").checks(proof, "hello"));
  CHECK(unpredictable_bytes(32) != unpredictable_bytes(32));
  std::array<char, 32> path{"/tmp/lockstep_token_XXXXXX"};
  const Socket file(mkstemp(path.data()));
  const std::string name = path.data();
  CHECK_THROWS_AS(JobToken::of({}, name), UsageError);
  std::ofstream(name) << "abc\r\nsecond line\n";
  CHECK(JobToken::of({{"LOCKSTEP_JOB_TOKEN", "other"}}, name).checks(proof, "hello"));
  (void)unlink(name.c_str());
  CHECK_THROWS_AS(JobToken::of({}, name), UsageError);
}
