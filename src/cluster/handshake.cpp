// See handshake.hpp.
#include "cluster/handshake.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t nonce_bytes = 32;
constexpr int usage = static_cast<int>(ExitCode::usage);

/// Who proves must not be able to pass on the other's proof.
std::string signed_by(const char* side, const std::string& transcript) { return side + (": " + transcript); }

/// Both nonces and all that was said: none of it can be exchanged unnoticed.
std::string transcript_of(const Hello& hello, const std::string& challenge) {
  BodyWriter writer;
  writer.text("Lockstep handshake").number(frame_version).text(challenge).text(to_frame(hello).body);
  return writer.take();
}

template <typename Expected>
const Expected& expect(const Message& message) {
  const auto* it = std::get_if<Expected>(&message);
  if (it == nullptr) throw DataError(std::string("it sent ") + name_of(message) + " while it should introduce itself");
  return *it;
}

std::string quoted(const std::string& text) { return "'" + printable(text.substr(0, 100)) + "'"; }

}  // namespace

Pass Pass::of(const ClusterSpec& spec, std::string job, JobToken token) {
  Pass pass;
  pass.job = std::move(job);
  pass.cluster = spec.digest().value();
  for (const Task& task : spec.tasks) pass.tasks.push_back(task.name());
  pass.token = std::move(token);
  return pass;
}

Doorkeeper::Answer Doorkeeper::receive(const Frame& frame) {
  const Message message = to_message(frame);
  Answer answer;
  if (!hello_) {
    hello_ = expect<Hello>(message);
    answer.refusal = objection(*hello_);
    if (answer.refusal.empty()) {
      const std::string nonce = unpredictable_bytes(nonce_bytes);
      transcript_ = transcript_of(*hello_, nonce);
      answer.frame = to_frame(Challenge{nonce});
      return answer;
    }
  } else if (pass_.token.checks(expect<Proof>(message).proof, signed_by("peer", transcript_))) {
    answer.peer = hello_->who;
    return answer;
  } else {
    answer.refusal = pass_.tasks[hello_->who.member] + " of host " + printable(hello_->who.host_name) +
                     " has another job token than the chief; give all the same LOCKSTEP_JOB_TOKEN";
  }
  answer.frame = refuse(usage, answer.refusal);
  return answer;
}

std::string Doorkeeper::objection(const Hello& hello) const {
  const std::string from = "a launcher of host " + printable(hello.who.host_name.substr(0, 100));
  if (hello.nonce.size() != nonce_bytes) throw DataError("its nonce has the wrong size");
  if (hello.version != pass_.version) {
    return from + " is Lockstep " + quoted(hello.version) + ", the chief is " + quoted(pass_.version) +
           "; run the same version everywhere";
  }
  if (hello.job != pass_.job) {
    return from + " belongs to job " + quoted(hello.job) + ", this is job " + quoted(pass_.job) +
           "; let jobs have different addresses";
  }
  if (hello.cluster != pass_.cluster) {
    return from + " has another list of tasks in its TF_CONFIG than the chief; `lockstep cluster --json` shows the " +
           "digest of either";
  }
  if (hello.who.member >= pass_.tasks.size()) {
    return from + " is a task of rank " + std::to_string(hello.who.member) + ", and there are only " +
           std::to_string(pass_.tasks.size());
  }
  const std::string& task = pass_.tasks[hello.who.member];
  if (hello.who.member == 0) {
    return from + " says that it is " + task +
           ", and so is the chief; give every process a task of its own in TF_CONFIG";
  }
  if (hello.who.ranks == 0 || hello.who.ranks > most_ranks_each) {
    return from + " (" + task + ") wants " + std::to_string(hello.who.ranks) + " ranks; let it have 1 to " +
           std::to_string(most_ranks_each);
  }
  if (hello.has_token != pass_.token.exists()) {
    return from + " (" + task + ") " +
           (hello.has_token ? "has a job token and the chief has none" : "has no job token and the chief has one") +
           "; give all the same LOCKSTEP_JOB_TOKEN";
  }
  return "";
}

Frame Doorkeeper::welcome() const { return to_frame(Welcome{pass_.token.prove(signed_by("chief", transcript_))}); }

Frame Doorkeeper::refuse(int code, const std::string& reason) {
  return to_frame(Refused{static_cast<std::uint64_t>(code), reason});
}

Visitor::Visitor(const Pass& pass, Introduction self) : pass_(pass) {
  hello_ = {pass.version,   pass.job, pass.cluster, pass.token.exists(), unpredictable_bytes(nonce_bytes),
            std::move(self)};
}

Frame Visitor::hello() const { return to_frame(hello_); }

Visitor::Answer Visitor::receive(const Frame& frame) {
  const Message message = to_message(frame);
  Answer answer;
  if (const auto* refused = std::get_if<Refused>(&message)) {
    answer.refused = *refused;
  } else if (transcript_.empty()) {
    const std::string& nonce = expect<Challenge>(message).nonce;
    if (nonce.size() != nonce_bytes) throw DataError("its nonce has the wrong size");
    transcript_ = transcript_of(hello_, nonce);
    answer.frame = to_frame(Proof{pass_.token.prove(signed_by("peer", transcript_))});
  } else if (pass_.token.checks(expect<Welcome>(message).proof, signed_by("chief", transcript_))) {
    answer.is_welcome = true;
  } else {
    answer.refused = Refused{usage, "whoever answers at the chief's address does not know the job token"};
  }
  return answer;
}

}  // namespace lockstep
