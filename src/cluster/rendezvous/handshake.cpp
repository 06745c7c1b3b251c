// See handshake.hpp.
#include "cluster/rendezvous/handshake.hpp"

#include "cluster/net/interfaces.hpp"
#include "core/printable.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace lockstep {

namespace {

constexpr std::size_t nonce_bytes = 32;
constexpr int usage = static_cast<int>(ExitCode::usage);

/// The text that one side signs. It names the side, so that a peer cannot replay the other side's proof.
std::string signed_by(const char* side, const std::string& transcript) { return side + (": " + transcript); }

/// Covers both nonces and the whole Hello, so that altering any of them in transit invalidates the proofs.
std::string transcript_of(const Hello& hello, const std::string& challenge) {
  BodyWriter writer;
  writer.text("Lockstep handshake").number(frame_version).text(challenge).text(to_frame(hello).body);
  return writer.take();
}

template <typename Expected>
const Expected& expect(const Message& message) {
  const auto* it = std::get_if<Expected>(&message);
  if (it == nullptr) throw DataError(fmt::format("it sent {} during the handshake", message_name(message)));
  return *it;
}

std::string quoted(const std::string& text) { return "'" + printable_line(text.substr(0, 100)) + "'"; }

}  // namespace

Credentials Credentials::of(const ClusterSpec& spec, std::string job, JobToken token) {
  Credentials credentials;
  credentials.job = std::move(job);
  credentials.cluster = spec.digest().value();
  for (const Task& task : spec.tasks) credentials.tasks.push_back(task.name());
  credentials.token = std::move(token);
  return credentials;
}

ServerHandshake::Answer ServerHandshake::receive(const Frame& frame) {
  const Message message = to_message(frame);
  Answer answer;
  if (!hello_) {
    hello_ = expect<Hello>(message);
    answer.refusal = objection(*hello_);
    if (answer.refusal.empty()) {
      const std::string nonce = random_bytes(nonce_bytes);
      transcript_ = transcript_of(*hello_, nonce);
      answer.frame = to_frame(Challenge{nonce});
      return answer;
    }
  } else if (credentials_.token.verify(expect<Proof>(message).proof, signed_by("peer", transcript_))) {
    answer.peer = hello_->who;
    return answer;
  } else {
    answer.refusal = fmt::format(
        "{} on host {} has a different job token than {}; set the same LOCKSTEP_JOB_TOKEN everywhere",
        credentials_.tasks[hello_->who.member], printable_line(hello_->who.host_name), credentials_.listener);
  }
  answer.frame = refuse(usage, answer.refusal);
  return answer;
}

std::string ServerHandshake::objection(const Hello& hello) const {
  const std::string from = credentials_.peer + " on host " + printable_line(hello.who.host_name.substr(0, 100));
  if (hello.nonce.size() != nonce_bytes) throw DataError("its nonce has the wrong size");
  if (!std::ranges::all_of(hello.who.addresses, is_ip_address)) throw DataError("its addresses are not IP addresses");
  if (hello.version != credentials_.version) {
    return fmt::format("{} runs Lockstep {}, {} {}; run the same version everywhere", from, quoted(hello.version),
                       credentials_.listener, quoted(credentials_.version));
  }
  if (hello.job != credentials_.job) {
    return fmt::format("{} belongs to job {}, this is job {}; give each job its own addresses", from, quoted(hello.job),
                       quoted(credentials_.job));
  }
  if (hello.cluster != credentials_.cluster) {
    return fmt::format(
        "{} has a different cluster in its TF_CONFIG than {}; compare the digests that `lockstep cluster --json` "
        "prints on both",
        from, credentials_.listener);
  }
  if (hello.who.member >= credentials_.tasks.size()) {
    return fmt::format("{} claims to be task {}, but there are only {} tasks; check its TF_CONFIG", from,
                       hello.who.member, credentials_.tasks.size());
  }
  const std::string& task = credentials_.tasks[hello.who.member];
  if (hello.who.member == 0) {
    return fmt::format("{} claims to be {}, which is {}'s task; give every process its own task in TF_CONFIG", from,
                       task, credentials_.listener);
  }
  if (hello.who.ranks == 0 || hello.who.ranks > max_ranks_per_worker) {
    return fmt::format("{} ({}) requests {} ranks; set --ranks-per-worker to 1..{}", from, task, hello.who.ranks,
                       max_ranks_per_worker);
  }
  if (hello.has_token != credentials_.token.is_set()) {
    return fmt::format("{} ({}) {}; set the same LOCKSTEP_JOB_TOKEN everywhere", from, task,
                       hello.has_token ? fmt::format("has a job token, but {} has none", credentials_.listener)
                                       : fmt::format("has no job token, but {} has one", credentials_.listener));
  }
  return "";
}

Frame ServerHandshake::welcome() const {
  return to_frame(Welcome{credentials_.token.sign(signed_by("chief", transcript_))});
}

Frame ServerHandshake::refuse(int code, const std::string& reason) {
  return to_frame(Refused{static_cast<std::uint64_t>(code), reason});
}

ClientHandshake::ClientHandshake(const Credentials& credentials, PeerInfo self) : credentials_(credentials) {
  hello_ = {credentials.version,        credentials.job,           credentials.cluster,
            credentials.token.is_set(), random_bytes(nonce_bytes), std::move(self)};
}

Frame ClientHandshake::hello() const { return to_frame(hello_); }

ClientHandshake::Answer ClientHandshake::receive(const Frame& frame) {
  const Message message = to_message(frame);
  Answer answer;
  if (const auto* refused = std::get_if<Refused>(&message)) {
    answer.refused = *refused;
  } else if (transcript_.empty()) {
    const std::string& nonce = expect<Challenge>(message).nonce;
    if (nonce.size() != nonce_bytes) throw DataError("its nonce has the wrong size");
    transcript_ = transcript_of(hello_, nonce);
    answer.frame = to_frame(Proof{credentials_.token.sign(signed_by("peer", transcript_))});
  } else if (credentials_.token.verify(expect<Welcome>(message).proof, signed_by("chief", transcript_))) {
    answer.is_welcome = true;
  } else {
    answer.refused =
        Refused{usage, "the process at " + credentials_.listener + "'s address does not know the job token"};
  }
  return answer;
}

}  // namespace lockstep
