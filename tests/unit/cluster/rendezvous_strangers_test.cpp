// Who comes to the rendezvous and does not belong there: the wrong job's launchers, scanners, slow and silent peers, by
// the thousand.
#include "cluster/rendezvous.hpp"

#include "cluster/resolve.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "launcher_party.hpp"
#include "lockstep/core/error.hpp"
#include "support/catch.hpp"

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

}  // namespace

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
  PretendedLauncher& chief = party.start(0);
  const auto refuse = [&](const ClusterSpec& spec, const RendezvousOptions& its, const std::string& why) {
    CAPTURE(why);
    party.launchers[1] = std::make_unique<PretendedLauncher>(spec, 1, its);
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
  party.launchers.push_back(std::make_unique<PretendedLauncher>(spec, 1, options));
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
  ForkedWork pest([&]() { pester(port, count, slow_ones, seconds); });
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

}  // namespace

TEST_CASE("junk, slow and half-open connections harm nobody") { check_pestered(1000, 300, 6); }

TEST_CASE("10,000 junk connections and 1,000 slow ones harm nobody", "[.][stress]") {
  check_pestered(10'000, 1000, 60);
}
