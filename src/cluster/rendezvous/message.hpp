// The messages between launchers, as values; docs/appendix/rendezvous.md shows their order. Every launcher is a
// "member", numbered by its index among the cluster's tasks. The "coordinator" is the part of the chief's launcher that
// members talk to.
#pragma once

#include <lockstep/core/gradient_counts.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cluster/net/frame.hpp"
#include "cluster/rendezvous/placement.hpp"
#include "core/environment.hpp"

namespace lockstep {

// Handshake, before a peer is a member: see handshake.hpp.

/// Member to coordinator: identifies the peer and the job it wants to join.
struct Hello {
  static constexpr std::uint16_t kind = 1;
  static constexpr const char* name = "Hello";
  std::string version;        ///< LOCKSTEP_VERSION
  std::string job;            ///< --job-name, or empty
  std::uint64_t cluster = 0;  ///< ClusterSpec::digest()
  bool has_token = false;
  std::string nonce;
  PeerInfo who;
};

/// Coordinator: asks the peer to prove that it knows the job token.
struct Challenge {
  static constexpr std::uint16_t kind = 2;
  static constexpr const char* name = "Challenge";
  std::string nonce;
};

/// Member: answers the challenge.
struct Proof {
  static constexpr std::uint16_t kind = 3;
  static constexpr const char* name = "Proof";
  std::string proof;
};

/// Coordinator: accepts the peer, and proves that it knows the token too.
struct Welcome {
  static constexpr std::uint16_t kind = 4;
  static constexpr const char* name = "Welcome";
  std::string proof;
};

/// Coordinator: rejects the peer. With code 75 (temporary) the peer may try again.
struct Refused {
  static constexpr std::uint16_t kind = 5;
  static constexpr const char* name = "Refused";
  std::uint64_t code = 0;
  std::string reason;
};

// Between member and coordinator.

/// Both directions, every heartbeat_interval; silence means that the peer is lost.
struct Heartbeat {
  static constexpr std::uint16_t kind = 10;
  static constexpr const char* name = "Heartbeat";
};

/// Member: no process of a generation runs here; the next generation may begin.
struct Ready {
  static constexpr std::uint16_t kind = 11;
  static constexpr const char* name = "Ready";
};

/// Coordinator: starts a generation.
struct GenerationBegins {
  static constexpr std::uint16_t kind = 12;
  static constexpr const char* name = "GenerationBegins";
  Placement placement;
};

/// From the member that runs a node's PMIx server, forwarded to the member that forks the rank: the PMIx variables of
/// the rank's environment.
struct RankEnvironment {
  static constexpr std::uint16_t kind = 13;
  static constexpr const char* name = "RankEnvironment";
  std::uint64_t generation = 0;
  std::uint64_t rank = 0;
  Environment variables;
};

/// From the member that runs a node's PMIx server: the node's contribution to a PMIx fence. Each node numbers the
/// fences of a generation from 0.
struct Fence {
  static constexpr std::uint16_t kind = 14;
  static constexpr const char* name = "Fence";
  std::uint64_t generation = 0;
  std::uint64_t sequence = 0;
  std::string blob;
};

/// Coordinator, to the members that run PMIx servers: the contributions of all nodes.
struct FenceDone {
  static constexpr std::uint16_t kind = 15;
  static constexpr const char* name = "FenceDone";
  std::uint64_t generation = 0;
  std::uint64_t sequence = 0;
  std::vector<std::string> blobs;  ///< by node
};

/// Member: the trainer of this rank has started.
struct TrainerStarted {
  static constexpr std::uint16_t kind = 16;
  static constexpr const char* name = "TrainerStarted";
  std::uint64_t generation = 0;
  std::uint64_t rank = 0;
};

enum class Activity : std::uint8_t {
  busy,      ///< outside of steps: loading, compiling, evaluating, saving
  training,  ///< computing steps
  waiting,   ///< waiting for another rank within a step
  starting,  ///< joining the MPI world
};

/// What became of the backups of a rank's training.
struct BackupStatus {
  std::uint64_t step = 0;     ///< of the newest one; 0: none
  std::uint64_t time = 0;     ///< when it was written, in seconds since 1970
  std::uint64_t skipped = 0;  ///< due while another one was being written
  std::uint64_t failed = 0;   ///< could not be written
};

/// Member, about twice per heartbeat interval: the progress of a rank's trainer, and how long the trainer has been
/// silent.
struct Progress {
  static constexpr std::uint16_t kind = 17;
  static constexpr const char* name = "Progress";
  std::uint64_t generation = 0;
  std::uint64_t rank = 0;
  Activity activity = Activity::busy;
  std::uint64_t step = 0;  ///< completed optimizer steps of the job, across restarts
  std::uint64_t epoch = 0;
  double loss = 0;
  double examples_per_second = 0;
  double allreduce_seconds = 0;   ///< in communication, with waits, since the training step was compiled
  double wait_seconds = 0;        ///< of these, spent waiting for other ranks and in MPI
  double max_silent_seconds = 0;  ///< longest silence within the recent healthy steps; 0: not known yet
  double silent_seconds = 0;      ///< since the trainer's last report
  BackupStatus backups = {};      ///< on the rank that writes them
  GradientCounts gradients = {};  ///< of a worker of parameter servers
};

/// Member: the trainer of this rank has ended.
struct TrainerExited {
  static constexpr std::uint16_t kind = 18;
  static constexpr const char* name = "TrainerExited";
  std::uint64_t generation = 0;
  std::uint64_t rank = 0;
  std::uint64_t code = 0;          ///< exit code; 0 if a signal killed it
  std::uint64_t signal = 0;        ///< the signal that killed it, or 0
  std::string out_of_memory = {};  ///< the kernel's report, if it killed the trainer for memory
  std::string error = {};          ///< the trainer's last message, if it ended with one
  bool is_wrapper = false;         ///< a script, which ran the trainer as a process of its own
  bool is_final = false;           ///< the next trainer would end in the same way
};

/// Member: something other than a trainer's end failed, so the generation cannot continue. Trainer, to its launcher:
/// why it ends.
struct Failed {
  static constexpr std::uint16_t kind = 19;
  static constexpr const char* name = "Failed";
  std::uint64_t generation = 0;
  std::string reason;
};

/// Coordinator: the member must end its trainers and then send Ready.
struct GenerationEnds {
  static constexpr std::uint16_t kind = 20;
  static constexpr const char* name = "GenerationEnds";
  std::uint64_t generation = 0;
  std::uint64_t member = 0;  ///< the member at fault
  std::string reason;        ///< a sentence that names worker and rank
};

/// Member: this launcher was told to leave (SIGTERM) and may come back; all ranks save first.
struct Leaving {
  static constexpr std::uint16_t kind = 21;
  static constexpr const char* name = "Leaving";
  std::string reason;
};

/// Coordinator: the job is over; members exit with this code.
struct JobResult {
  static constexpr std::uint16_t kind = 22;
  static constexpr const char* name = "JobResult";
  std::uint64_t code = 0;
  std::string reason;  ///< empty for success
};

/// Member: it received the job result, runs no more processes, and exits now.
struct Goodbye {
  static constexpr std::uint16_t kind = 23;
  static constexpr const char* name = "Goodbye";
};

/// Coordinator: a line for the log.
struct Notice {
  static constexpr std::uint16_t kind = 24;
  static constexpr const char* name = "Notice";
  std::string text;
};

/// Coordinator, to the member of rank 0: a missing member is back, so all ranks end after their next backup and the
/// next generation includes it.
struct Admit {
  static constexpr std::uint16_t kind = 25;
  static constexpr const char* name = "Admit";
  std::uint64_t generation = 0;
};

/// Coordinator: the start takes long, so all trainers print where they are.
struct PrintStacks {
  static constexpr std::uint16_t kind = 27;
  static constexpr const char* name = "PrintStacks";
  std::uint64_t generation = 0;
};

/// Member: training was complete when the chief was lost (a rank here had exited with 0), or before this member began.
/// Trainer, to its launcher: it exits with 0.
struct TrainingDone {
  static constexpr std::uint16_t kind = 26;
  static constexpr const char* name = "TrainingDone";
  bool is_record = false;  ///< the record in the member's model directory says so
};

/// A launcher to which others connect, to prove the link between their hosts.
struct ProbeTarget {
  std::uint64_t member = 0;
  std::string address;     ///< IP address of its host; empty if unknown
  std::uint64_t port = 0;  ///< 0: no other launcher needs to connect to it

  /// Two launchers with one address are on one host. Hosts of which one was reached by IPv4 and one by IPv6 may have
  /// further addresses.
  [[nodiscard]] bool must_reach(const ProbeTarget& to) const {
    const auto is_ipv6 = [](const std::string& text) { return text.find(':') != std::string::npos; };
    return member != to.member && address != to.address && !to.address.empty() && to.port != 0 &&
           (address.empty() || is_ipv6(address) == is_ipv6(to.address));
  }
};

/// Coordinator, to all members when a generation could begin: each connects to the others.
struct ProbePeers {
  static constexpr std::uint16_t kind = 28;
  static constexpr const char* name = "ProbePeers";
  std::uint64_t round = 0;
  std::vector<ProbeTarget> targets;  ///< all members, the receiver too
};

struct UnreachablePeer {
  std::uint64_t member = 0;
  std::string why;
};

/// Member: the launchers that it could not connect to.
struct PeersProbed {
  static constexpr std::uint16_t kind = 29;
  static constexpr const char* name = "PeersProbed";
  std::uint64_t round = 0;
  std::vector<UnreachablePeer> unreachable;
};

/// Trainer, to its launcher: the other tasks did not come in time, and would not come to a restarted trainer either.
struct TasksNeverCame {
  static constexpr std::uint16_t kind = 30;
  static constexpr const char* name = "TasksNeverCame";
};

using Message =
    std::variant<Hello, Challenge, Proof, Welcome, Refused, Heartbeat, Ready, GenerationBegins, RankEnvironment, Fence,
                 FenceDone, TrainerStarted, Progress, TrainerExited, Failed, GenerationEnds, Leaving, JobResult,
                 Goodbye, Notice, Admit, TrainingDone, PrintStacks, ProbePeers, PeersProbed, TasksNeverCame>;

[[nodiscard]] Frame to_frame(const Message& message);

/// Throws DataError for an unknown kind or a malformed body.
[[nodiscard]] Message to_message(const Frame& frame);

/// A trainer's last message is cut to this.
inline constexpr std::size_t max_error_bytes = 1000;

/// What a trainer sends its launcher over their socket pair: Progress or Failed.
[[nodiscard]] std::string to_datagram(const Message& message);
/// Throws as to_message.
[[nodiscard]] Message from_datagram(std::string_view bytes);

/// The name of the message, for errors about a peer: "GenerationEnds".
[[nodiscard]] const char* message_name(const Message& message);

// Limits for the body of a frame.
constexpr std::size_t max_unauthenticated_message_bytes = 4096;
constexpr std::size_t max_member_message_bytes = std::size_t{4} << 20;         // an environment, or one blob of a fence
constexpr std::size_t max_coordinator_message_bytes = std::size_t{256} << 20;  // all blobs of a fence

}  // namespace lockstep
