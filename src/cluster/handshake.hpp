// How a peer becomes a member: four messages, after which both sides know that the other knows the job's token, takes
// the same cluster for the job, and runs the same Lockstep. No sockets: frames go in, frames come out.
//
//   peer                                         coordinator's launcher
//   Hello {who I am, what job, nonce}   ------>
//                                       <------  Challenge {nonce}                  or Refused {code, reason}
//   Proof {HMAC of both nonces, Hello}  ------>
//                                       <------  Welcome {HMAC of the same}         or Refused
//
// The peer proves first, so that strangers get nothing to work on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster_spec.hpp"
#include "cluster/frame.hpp"
#include "cluster/job_token.hpp"
#include "cluster/message.hpp"
#include "cluster/world_map.hpp"

namespace lockstep {

/// What both sides must agree on.
struct Pass {
  std::string version = LOCKSTEP_VERSION;
  std::string job;  ///< a name; empty where it has none
  std::uint64_t cluster = 0;
  std::vector<std::string> tasks;  ///< the members' names
  JobToken token;

  [[nodiscard]] static Pass of(const ClusterSpec& spec, std::string job, JobToken token);
};

/// The coordinator's side, for one peer.
class Doorkeeper {
 public:
  explicit Doorkeeper(const Pass& pass) : pass_(pass) {}

  struct Answer {
    std::optional<Frame> frame;        ///< to send
    std::optional<Introduction> peer;  ///< it has proved what it says: send welcome() once it has a place, or refuse
    std::string refusal;               ///< why it is turned away; hang up after the frame is sent
  };

  /// Throws DataError for what is no handshake: hang up without a word.
  [[nodiscard]] Answer receive(const Frame& frame);

  [[nodiscard]] Frame welcome() const;
  [[nodiscard]] static Frame refuse(int code, const std::string& reason);

 private:
  [[nodiscard]] std::string objection(const Hello& hello) const;

  const Pass& pass_;
  std::optional<Hello> hello_;
  std::string transcript_;  ///< what is proved
};

/// A peer's side.
class Visitor {
 public:
  Visitor(const Pass& pass, Introduction self);

  [[nodiscard]] Frame hello() const;

  struct Answer {
    std::optional<Frame> frame;  ///< to send
    bool is_welcome = false;
    std::optional<Refused> refused;
  };

  /// Throws DataError for what is no handshake.
  [[nodiscard]] Answer receive(const Frame& frame);

 private:
  const Pass& pass_;
  Hello hello_;
  std::string transcript_;
};

}  // namespace lockstep
