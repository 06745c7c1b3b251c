// The handshake that makes a peer a member. It proves to both sides that the other knows the job token, has the same
// cluster and runs the same version of Lockstep. It uses no sockets: frames go in, frames come out.
//
//   peer                                         coordinator
//   Hello {peer, job, nonce}            ------>
//                                       <------  Challenge {nonce}                  or Refused {code, reason}
//   Proof {HMAC of both nonces, Hello}  ------>
//                                       <------  Welcome {HMAC of the same}         or Refused
//
// The peer proves first, so an unauthenticated peer never receives an HMAC to attack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/config/cluster_spec.hpp"
#include "cluster/config/job_token.hpp"
#include "cluster/net/frame.hpp"
#include "cluster/rendezvous/message.hpp"
#include "cluster/rendezvous/placement.hpp"

namespace lockstep {

/// What both sides must agree on, and the secret that authenticates them.
struct Credentials {
  std::string version = LOCKSTEP_VERSION;
  std::string job;  ///< --job-name, or empty
  std::uint64_t cluster = 0;
  std::vector<std::string> tasks;  ///< names of the members, the listening one first
  JobToken token;
  std::string listener = "the chief";  ///< what messages call the listening side, and the other
  std::string peer = "the launcher";

  [[nodiscard]] static Credentials of(const ClusterSpec& spec, std::string job, JobToken token);
};

/// The coordinator's side of one handshake.
class ServerHandshake {
 public:
  explicit ServerHandshake(const Credentials& credentials) : credentials_(credentials) {}

  struct Answer {
    std::optional<Frame> frame;    ///< to send
    std::optional<PeerInfo> peer;  ///< authenticated: send welcome() or refuse()
    std::string refusal;           ///< why the peer is refused; close the connection after sending `frame`
  };

  /// Throws DataError for messages that are not part of a handshake; close the connection without an answer.
  [[nodiscard]] Answer receive(const Frame& frame);

  [[nodiscard]] Frame welcome() const;
  [[nodiscard]] static Frame refuse(int code, const std::string& reason);

 private:
  [[nodiscard]] std::string objection(const Hello& hello) const;

  const Credentials& credentials_;
  std::optional<Hello> hello_;
  std::string transcript_;  ///< what the proofs sign
};

/// The peer's side of the handshake.
class ClientHandshake {
 public:
  ClientHandshake(const Credentials& credentials, PeerInfo self);

  [[nodiscard]] Frame hello() const;

  struct Answer {
    std::optional<Frame> frame;  ///< to send
    bool is_welcome = false;
    std::optional<Refused> refused;
  };

  /// Throws DataError for messages that are not part of a handshake.
  [[nodiscard]] Answer receive(const Frame& frame);

 private:
  const Credentials& credentials_;
  Hello hello_;
  std::string transcript_;
};

}  // namespace lockstep
