// What launchers say to each other, as values. docs/cluster.md shows who says what when. "Member" is every launcher, by
// its place among the cluster's tasks; "coordinator" is the part of the chief's launcher that all members talk to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cluster/frame.hpp"
#include "cluster/world_map.hpp"
#include "core/environment.hpp"

namespace lockstep {

// Before a peer is a member: see handshake.hpp.

/// Member: who I am, and what I take for the job.
struct Hello {
  static constexpr std::uint16_t kind = 1;
  std::string version;        ///< Lockstep's
  std::string job;            ///< the job's name; empty where it has none
  std::uint64_t cluster = 0;  ///< ClusterSpec::digest()
  bool has_token = false;
  std::string nonce;
  Introduction who;
};

/// Coordinator: then prove that you know the token.
struct Challenge {
  static constexpr std::uint16_t kind = 2;
  std::string nonce;
};

struct Proof {
  static constexpr std::uint16_t kind = 3;
  std::string proof;
};

/// Coordinator: you are in, and this proves that I know the token as well.
struct Welcome {
  static constexpr std::uint16_t kind = 4;
  std::string proof;
};

/// Coordinator: you are not. With code 75 it is worth trying again.
struct Refused {
  static constexpr std::uint16_t kind = 5;
  std::uint64_t code = 0;
  std::string reason;
};

// Between member and coordinator.

/// Both, every second: silence means loss.
struct Heartbeat {
  static constexpr std::uint16_t kind = 10;
};

/// Member: nothing of any generation runs here, let the next one come.
struct Ready {
  static constexpr std::uint16_t kind = 11;
};

/// Coordinator: begin this generation.
struct Begin {
  static constexpr std::uint16_t kind = 12;
  WorldMap map;
};

/// A node's server, and passed on to the member that forks the rank: what its trainer's environment needs for PMIx.
struct RankEnvironment {
  static constexpr std::uint16_t kind = 13;
  std::uint64_t generation = 0;
  std::uint64_t rank = 0;
  Environment variables;
};

/// A node's server: its part of a PMIx fence. Every server counts its fences of a generation from 0.
struct Fence {
  static constexpr std::uint16_t kind = 14;
  std::uint64_t generation = 0;
  std::uint64_t sequence = 0;
  std::string blob;
};

/// Coordinator, to all nodes' servers: everybody's part.
struct FenceDone {
  static constexpr std::uint16_t kind = 15;
  std::uint64_t generation = 0;
  std::uint64_t sequence = 0;
  std::vector<std::string> blobs;  ///< in the order of the nodes
};

/// Member: this rank's trainer runs.
struct Started {
  static constexpr std::uint16_t kind = 16;
  std::uint64_t generation = 0;
  std::uint64_t rank = 0;
};

enum class Activity : std::uint8_t {
  busy,      ///< with what has no steps and takes its time: loading, compiling, evaluating, saving
  training,  ///< steps follow each other
  waiting,   ///< for another rank, inside a step
};

/// Member: how far this rank's trainer is, and how long it has been silent. About twice a second.
struct Progress {
  static constexpr std::uint16_t kind = 17;
  std::uint64_t generation = 0;
  std::uint64_t rank = 0;
  Activity activity = Activity::busy;
  std::uint64_t step = 0;  ///< steps of the whole training that are done; a restored one goes on counting
  std::uint64_t epoch = 0;
  double loss = 0;
  double images_per_second = 0;
  double allreduce_seconds = 0;  ///< spent so far in summing gradients, waits included
  double wait_seconds = 0;       ///< of these, waiting for others and in MPI
  double longest_silence = 0;    ///< of its trainer while all was well, within steps; 0: not known yet
  double silence = 0;            ///< of its trainer, until now
};

/// Member: this rank's trainer has ended.
struct ChildEnded {
  static constexpr std::uint16_t kind = 18;
  std::uint64_t generation = 0;
  std::uint64_t rank = 0;
  std::uint64_t code = 0;    ///< its exit code, if it
  std::uint64_t signal = 0;  ///< was not killed by this
};

/// Member: what this generation needs failed here, and it was no trainer.
struct Failed {
  static constexpr std::uint16_t kind = 19;
  std::uint64_t generation = 0;
  std::string reason;
};

/// Coordinator: end your trainers, then say Ready.
struct GenerationEnds {
  static constexpr std::uint16_t kind = 20;
  std::uint64_t generation = 0;
  std::uint64_t member = 0;  ///< the one at fault
  std::string reason;        ///< a whole sentence with worker and rank
};

/// Member: I was told to go (and will be back); all may save first.
struct Leaving {
  static constexpr std::uint16_t kind = 21;
  std::string reason;
};

/// Coordinator: the job is over, end with this code.
struct Verdict {
  static constexpr std::uint16_t kind = 22;
  std::uint64_t code = 0;
  std::string reason;  ///< empty for success
};

/// Member: I heard the verdict, nothing runs here any more, and I end now.
struct Farewell {
  static constexpr std::uint16_t kind = 23;
};

/// Coordinator: a line for people.
struct Notice {
  static constexpr std::uint16_t kind = 24;
  std::string text;
};

/// Coordinator, to the member of rank 0, where a generation does without somebody who is back: all shall leave at their
/// next backup, so that the next generation has everybody.
struct LetIn {
  static constexpr std::uint16_t kind = 25;
  std::uint64_t generation = 0;
};

/// Member: the generation that ran when the chief was lost had come to its end here, with 0, and so it had everywhere.
struct Done {
  static constexpr std::uint16_t kind = 26;
};

using Message = std::variant<Hello, Challenge, Proof, Welcome, Refused, Heartbeat, Ready, Begin, RankEnvironment, Fence,
                             FenceDone, Started, Progress, ChildEnded, Failed, GenerationEnds, Leaving, Verdict,
                             Farewell, Notice, LetIn, Done>;

[[nodiscard]] Frame to_frame(const Message& message);

/// Throws DataError for a kind that does not exist, and for a body that is not exactly one of its kind.
[[nodiscard]] Message to_message(const Frame& frame);

/// "GenerationEnds": for what a person reads of a peer that makes no sense.
[[nodiscard]] const char* name_of(const Message& message);

/// A peer's text as it may go to a terminal: one line of at most 2,000 characters that moves no cursor.
[[nodiscard]] std::string printable(std::string_view text);

// How long a frame may be.
constexpr std::size_t longest_from_stranger = 4096;
constexpr std::size_t longest_from_member = std::size_t{4} << 20;         // an environment, a fence's part
constexpr std::size_t longest_from_coordinator = std::size_t{256} << 20;  // all parts of a fence

}  // namespace lockstep
