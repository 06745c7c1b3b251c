// Fuzzes both sides of the handshake with arbitrary frames. No bytes of a peer that lacks the job's token make it a
// member, and none make a member take it for the chief. In a job without a token, a peer that is admitted is one of its
// tasks.
#include "cluster/net/frame.hpp"
#include "cluster/net/interfaces.hpp"
#include "cluster/rendezvous/handshake.hpp"
#include "seeds.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace {

using namespace lockstep;

const Credentials& credentials(bool with_token) {
  static const Credentials open{"0.2", "job", 7, {"worker 0", "worker 1", "worker 2"}, {}};
  static const Credentials secret{"0.2", "job", 7, {"worker 0", "worker 1", "worker 2"}, JobToken("a secret")};
  return with_token ? secret : open;
}

PeerInfo worker() { return {1, 2, "host", "name", "10.0.0.7", 1, {"10.0.0.7"}, 5000}; }

/// Every message of a handshake, of jobs with a token and without, with proofs of their own nonces.
std::vector<std::string> frames() {
  std::vector<std::string> seeds;
  for (const bool with_token : {false, true}) {
    const Credentials& job = credentials(with_token);
    ClientHandshake client(job, worker());
    ServerHandshake server(job);
    const Frame hello = client.hello();
    const Frame challenge = server.receive(hello).frame.value();
    const Frame proof = client.receive(challenge).frame.value();
    if (!server.receive(proof).peer || !client.receive(server.welcome()).is_welcome) std::abort();
    for (const Frame& frame : {hello, challenge, proof, server.welcome(), ServerHandshake::refuse(64, "no")})
      seeds.push_back(encode(frame));
    seeds.push_back(encode(hello) + encode(proof));
    seeds.push_back(encode(challenge) + encode(server.welcome()));
  }
  return seeds;
}

/// What the other side proves to itself, whatever arrives. `Side`: returns whether the handshake is over.
template <typename Side>
void feed(std::span<const std::byte> bytes, const Side& side) {
  FrameReader reader(max_unauthenticated_message_bytes);
  try {
    const std::size_t piece = 1 + bytes.size() % 97;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(bytes.subspan(at, std::min(piece, bytes.size() - at)));
      while (const std::optional<Frame> frame = reader.next()) {
        if (side(*frame)) return;
      }
    }
  } catch (const DataError&) {  // expected for most inputs
  }
}

void feed_server(std::span<const std::byte> bytes) {
  ServerHandshake server(credentials(true));
  feed(bytes, [&](const Frame& frame) {
    const ServerHandshake::Answer answer = server.receive(frame);
    if (answer.peer) std::abort();
    return !answer.refusal.empty();
  });
}

/// The proof of a peer that knows that the job has no token.
Frame prove(const Frame& hello, const Frame& challenge) {
  const std::string nonce = std::get<Challenge>(to_message(challenge)).nonce;
  BodyWriter transcript;
  transcript.text("Lockstep handshake").number(frame_version).text(nonce).text(hello.body);
  return to_frame(Proof{JobToken().sign("peer: " + transcript.take())});
}

void feed_open_server(std::span<const std::byte> bytes) {
  const Credentials& job = credentials(false);
  ServerHandshake server(job);
  feed(bytes, [&](const Frame& hello) {
    const ServerHandshake::Answer answer = server.receive(hello);
    if (!answer.refusal.empty()) return true;
    const PeerInfo peer = server.receive(prove(hello, answer.frame.value())).peer.value();
    if (peer.member == 0 || peer.member >= job.tasks.size() || peer.ranks == 0 || peer.ranks > max_ranks_per_worker ||
        !std::ranges::all_of(peer.addresses, is_ip_address)) {
      std::abort();
    }
    return true;
  });
}

void feed_client(std::span<const std::byte> bytes, bool with_token) {
  ClientHandshake client(credentials(with_token), worker());
  feed(bytes, [&](const Frame& frame) {
    const ClientHandshake::Answer answer = client.receive(frame);
    // Nobody knows the nonce of this handshake, so even without a token no proof in the input is right.
    if (answer.is_welcome) std::abort();
    return answer.refused.has_value();
  });
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  static const std::vector<std::string> seeds = frames();
  return lockstep::testing::mutate_from(seeds, data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  feed_server(bytes);
  feed_open_server(bytes);
  feed_client(bytes, false);
  feed_client(bytes, true);
  return 0;
}
