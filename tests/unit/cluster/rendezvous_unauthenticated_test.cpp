// Connections that do not belong to the job: launchers of other jobs, port scanners, and thousands of slow or silent
// peers.
#include "cluster/rendezvous/rendezvous.hpp"

#include "cluster/net/resolve.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "launcher_group.hpp"
#include "support/catch.hpp"
#include "support/sockets.hpp"

#include <lockstep/core/error.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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
using namespace lockstep::testing;

namespace {

Endpoint loopback(std::uint16_t port) {
  return resolve(Address{"127.0.0.1", port}, Deadline::after(1)).endpoints.at(0);
}

void send_text(const Socket& socket, const std::string& text) {
  (void)send_all(socket, std::as_bytes(std::span(text)), Deadline::after(1));
}

Socket connect_unauthenticated(std::uint16_t port) {
  ConnectAttempt connecting = connect_to(loopback(port), Deadline::after(5));
  REQUIRE(connecting.error == 0);
  return std::move(connecting.socket);
}

/// Reads until the other side disconnects, while the group runs. Returns nullopt on a timeout.
std::optional<std::string> read_until_end(LauncherGroup& group, const Socket& socket, double seconds) {
  std::string text;
  const Deadline deadline = Deadline::after(seconds);
  while (!deadline.passed()) {
    group.round();
    std::array<std::byte, 4096> buffer{};
    const Transfer transfer = receive_some(socket, buffer);
    text.append(reinterpret_cast<const char*>(buffer.data()), transfer.bytes);
    if (transfer.end == TransferEnd::closed) return text;
  }
  return {};
}

}  // namespace

TEST_CASE("a worker is admitted although unauthenticated peers hold all connections") {
  const std::uint16_t port = free_port();
  RendezvousOptions options = quick();
  options.timeouts.handshake_timeout = 60;
  LauncherGroup group(cluster(2, port), options);
  group.start(0);
  std::vector<Socket> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(connect_unauthenticated(port));
    if (i % 20 == 0) group.round();
  }
  group.start(1);
  CHECK(group.run_until([&]() { return group.all_train(); }, 5));
}

TEST_CASE("any message instead of a Hello drops its sender alone") {
  const std::uint16_t port = free_port();
  LauncherGroup group(cluster(2, port), quick());
  group.start(0);
  for (std::uint16_t kind = 0; kind < 40; ++kind) {
    CAPTURE(kind);
    const Socket peer = connect_unauthenticated(port);
    send_text(peer, encode({kind, std::string(8, '\0')}));
    CHECK(read_until_end(group, peer, 5).has_value());
  }
  group.start(1);
  CHECK(group.run_until([&]() { return group.all_train(); }, 5));
}

TEST_CASE("a process of another job is kept out with the reason and the job forms without it") {
  const std::uint16_t port = free_port();
  RendezvousOptions options = quick();
  options.token = JobToken("the right token");
  options.job = "mnist-7";
  LauncherGroup group(cluster(2, port), options);
  ForklessLauncher& chief = group.start(0);
  // A refusal is final only for a process without a token: others cannot know who refuses them.
  const auto refuse = [&](const ClusterSpec& spec, RendezvousOptions its, const std::string& why) {
    CAPTURE(why);
    its.timeouts.rendezvous_timeout = 0.5;
    group.launchers[1] = std::make_unique<ForklessLauncher>(spec, 1, its);
    REQUIRE(group.run_until([&]() { return group.at(1).exit.has_value(); }, 5));
    CHECK(group.at(1).exit->code == (its.token.is_set() ? 75 : 64));
    CHECK(group.at(1).exit->message.find(why) != std::string::npos);
    CHECK(chief.trainers == 0);
    CHECK(chief.logged("refused 127.0.0.1:"));
  };
  RendezvousOptions its = options;
  its.token = JobToken("another token");
  refuse(cluster(2, port), its, "worker 1 on host");
  CHECK(chief.logged("has a different job token than the chief"));
  its.token = {};
  refuse(cluster(2, port), its, "has no job token, but the chief has one");
  its = options;
  its.version = "9.9";
  refuse(cluster(2, port), its, "runs Lockstep '9.9', the chief '" LOCKSTEP_VERSION "'");
  its = options;
  its.job = "mnist-6";
  refuse(cluster(2, port), its, "belongs to job 'mnist-6', this is job 'mnist-7'");
  refuse(cluster(3, port), options, "has a different cluster in its TF_CONFIG");

  group.start(1);
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 5));
}

TEST_CASE("a chief without the job token is rejected, and the right one is waited for") {
  const std::uint16_t port = free_port();
  RendezvousOptions options = quick();
  options.token = JobToken("the right token");
  LauncherGroup group(cluster(2, port), options);
  Socket listener = listen_on(port);
  group.start(1);
  std::optional<Accepted> peer;
  REQUIRE(group.run_until([&]() { return (peer = accept_one(listener)).has_value(); }, 5));
  Connection connection(std::move(peer->socket), max_unauthenticated_message_bytes);
  const auto next = [&]() {
    std::vector<Frame> frames;
    REQUIRE(group.run_until([&]() { return !(frames = connection.receive()).empty(); }, 5));
    return to_message(frames.at(0));
  };
  const Message hello = next();
  CHECK(std::get<Hello>(hello).who.member == 1);
  CHECK(encode(to_frame(hello)).find("right token") == std::string::npos);
  connection.send(encode_shared(to_frame(Challenge{std::string(32, 'x')})));
  const auto proof = std::get<Proof>(next());
  CHECK(proof.proof.size() == 32);
  connection.send(
      encode_shared(to_frame(Welcome{proof.proof})));  // the member's own proof does not authenticate the chief
  REQUIRE(group.run_until([&]() { return group.at(1).logged("does not know the job token"); }, 5));
  CHECK(!group.at(1).exit);
  listener.close();
  group.start(0);
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 5));
}

TEST_CASE("a refusal that proves nothing does not end a worker that has a token") {
  const std::uint16_t port = free_port();
  RendezvousOptions options = quick();
  options.token = JobToken("the right token");
  LauncherGroup group(cluster(2, port), options);
  Socket listener = listen_on(port);
  group.start(1);
  std::optional<Accepted> peer;
  REQUIRE(group.run_until([&]() { return (peer = accept_one(listener)).has_value(); }, 5));
  Connection connection(std::move(peer->socket), max_unauthenticated_message_bytes);
  REQUIRE(group.run_until([&]() { return !connection.receive().empty(); }, 5));
  connection.send(encode_shared(ServerHandshake::refuse(64, "this is job 'mnist-8'")));
  REQUIRE(group.run_until([&]() { return group.at(1).logged("this is job 'mnist-8'"); }, 5));
  CHECK(!group.at(1).exit);
  connection = Connection(Socket(), max_unauthenticated_message_bytes);
  listener.close();
  group.start(0);
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 5));
}

TEST_CASE("a second process of a task waits for the first to leave, and then exits") {
  RendezvousOptions options = quick();
  options.timeouts.rendezvous_timeout = 2;
  options.timeouts.heartbeat_timeout = 0.5;
  options.timeouts.heartbeat_interval = 0.05;
  const ClusterSpec spec = cluster(2, free_port());
  LauncherGroup group(spec, options);
  group.start_all();
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 5));
  group.launchers.push_back(std::make_unique<ForklessLauncher>(spec, 1, options));
  REQUIRE(group.run_until([&]() { return group.at(2).exit.has_value(); }, 10));
  CHECK(group.at(2).exit->code == 75);
  CHECK(group.at(2).exit->message.find("worker 1 is already connected from host ") != std::string::npos);
  CHECK(group.at(0).rendezvous.member().placement().generation == 1);
  CHECK(group.at(1).trainers == 1);
}

TEST_CASE("unauthenticated peers are disconnected and another protocol version is told why") {
  const std::uint16_t port = free_port();
  LauncherGroup group(cluster(2, port), quick());
  group.start_all();
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 10));

  Socket http = connect_unauthenticated(port);
  send_text(http, "GET / HTTP/1.1\r\nHost: worker-0\r\n\r\n");
  CHECK(read_until_end(group, http, 0.9) == "");

  Socket silent = connect_unauthenticated(port);
  Socket half = connect_unauthenticated(port);
  send_text(half, "LSTP");
  CHECK(read_until_end(group, silent, 2) == "");  // disconnected after their limit of one second
  CHECK(read_until_end(group, half, 1) == "");

  Socket newer = connect_unauthenticated(port);
  std::string frame = encode({1, "whatever"});
  frame[4] = 9;
  send_text(newer, frame);
  const std::optional<std::string> answer = read_until_end(group, newer, 1);
  REQUIRE(answer);
  FrameReader reader(max_unauthenticated_message_bytes);
  reader.add(std::as_bytes(std::span(*answer)));
  const auto refused = std::get<Refused>(to_message(reader.next().value()));
  CHECK(refused.reason.find("it speaks version 9 of the Lockstep protocol, this is version 1") != std::string::npos);

  Socket large = connect_unauthenticated(port);  // announces a frame of four gigabytes
  send_text(large, std::string("LSTP\1\0\1\0\xFF\xFF\xFF\xFF", 12));
  CHECK(read_until_end(group, large, 0.9) == "");

  Socket impatient = connect_unauthenticated(port);  // sends what only members may send
  send_text(impatient, encode(to_frame(JobResult{0, ""})));
  CHECK(read_until_end(group, impatient, 0.9) == "");

  Socket liar = connect_unauthenticated(port);  // claims a task that does not exist
  Hello hello;
  hello.version = LOCKSTEP_VERSION;
  hello.cluster = cluster(2, port).digest().value();
  hello.nonce = std::string(32, 'n');
  hello.who.member = 1'000'000;
  send_text(liar, encode(to_frame(hello)));
  CHECK(read_until_end(group, liar, 2).value_or("").find("there are only 2") != std::string::npos);

  CHECK(group.run_until([&]() { return group.at(0).logged(" at the rendezvous port"); }, 11));
  CHECK(group.all_train());
  CHECK(group.at(0).rendezvous.member().placement().generation == 1);
}

namespace {

/// Opens junk connections as fast as possible. Runs in a child process.
void send_junk(std::uint16_t port, std::size_t count, std::size_t slow_ones, double seconds) {
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
      ConnectAttempt connecting = connect_to(chief, Deadline::after(1));
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

void check_junk_connections(std::size_t count, std::size_t slow_ones, double seconds) {
  allow_many_files();
  const std::uint16_t port = free_port();
  RendezvousOptions options = quick();
  options.timeouts.heartbeat_timeout = 4;
  options.timeouts.handshake_timeout = 5;
  options.token = JobToken("secret");
  LauncherGroup group(cluster(4, port), options);
  group.start_all();
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 10));
  const double memory = resident_megabytes();
  double max_memory = memory;
  ForkedWork pest([&]() { send_junk(port, count, slow_ones, seconds); });
  const double began = monotonic_seconds();
  const auto is_half_over = [&]() {
    max_memory = std::max(max_memory, resident_megabytes());
    return monotonic_seconds() - began > seconds / 2;
  };
  CHECK(group.run_until(is_half_over, seconds));
  CHECK(group.at(0).rendezvous.member().placement().generation == 1);
  CHECK(group.all_train());
  // Meanwhile a worker's pod dies and returns.
  group.launchers[3].reset();
  REQUIRE(group.run_until([&]() { return group.at(1).trainers == 0 || group.at(1).logged("lost:"); }, 5));
  const double back = monotonic_seconds();
  group.start(3);
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 10));
  const double rejoined = monotonic_seconds() - back;
  std::optional<bool> ended;
  REQUIRE(group.run_until(
      [&]() {
        max_memory = std::max(max_memory, resident_megabytes());
        return (ended = pest.ended()).has_value();
      },
      2 * seconds + 30));
  CHECK(ended == true);
  CHECK(group.all_train());
  CHECK(group.at(0).rendezvous.member().placement().generation == 2);
  CHECK(group.max_round < 5);       // s; nothing blocks
#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer keeps freed memory
  CHECK(max_memory - memory < 20);
#endif
  std::cout << count << " junk connections and " << slow_ones << " slow ones in " << seconds
            << " s: a worker came back in " << rejoined << " s, the longest round took " << group.max_round * 1000
            << " ms, " << max_memory - memory << " MB more\n";
}

}  // namespace

TEST_CASE("junk, slow and half-open connections do no harm") { check_junk_connections(1000, 300, 6); }

TEST_CASE("10,000 junk and 1,000 slow connections do no harm", "[.][stress]") {
  check_junk_connections(10'000, 1000, 60);
}
