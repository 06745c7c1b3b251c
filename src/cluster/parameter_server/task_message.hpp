// The messages between the tasks of a parameter-server job, after task_links.hpp's own. Their lengths are checked by
// whoever knows what they should be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/net/connection.hpp"
#include "cluster/net/frame.hpp"

namespace lockstep {

/// What a ModelMessage carries, beside its numbers.
enum class ModelMessageKind : std::uint16_t {
  step = 60,  ///< worker to server: a step begins, with this ticket (`shard`); a learning rate as a double, or nothing
  gradient = 61,  ///< worker to server: the gradient of a shard
  weights = 62,   ///< server to worker: the updated weights of a shard, and their copies in 16 bits
  state = 63,     ///< first worker to server: the weights and slots of a shard, which replace the server's
  fetch = 64,     ///< worker to server: asks for the slots of all its shards
  slots = 65,     ///< server to worker: the slots of a shard
  // Where a step is not one of all workers: see ticket_queue.hpp.
  late_weights = 66,  ///< server to worker: as `weights`, for a gradient that was dropped: too late, or known already
  pull = 67,          ///< worker to server: asks for the weights of all its shards, of this iteration or a later one
  open_round = 68,    ///< first worker to server 0: the range of steps, as two numbers
  close_round = 69,   ///< worker to server 0: the round ends with the steps that have begun
  want_ticket =
      70,       ///< worker to server 0: it has finished its last ticket; what it has counted in this round, or nothing
  ticket = 71,  ///< server 0 to worker: a step (`shard`) and a slice (`iteration`), and what its predecessor counted
  round_end = 72,  ///< server 0 to worker: there are no more tickets; the step (`shard`) at which the next round begins
};

/// About the variables and gradients of one model. Models are numbered in the order in which all tasks compile them.
struct ModelMessage {
  ModelMessageKind kind = ModelMessageKind::step;
  std::uint64_t model = 0;
  std::uint64_t iteration = 0;  ///< of the step, from 1
  std::uint64_t shard = 0;      ///< index in ServerLayout::shards
  std::string body;             ///< the encoded message, of which data() is the end
  bool is_placed = false;       ///< the data lie where a Placer chose, and not in `body`
  [[nodiscard]] std::span<const std::byte> data() const noexcept;

  static constexpr std::size_t beginning_bytes = 3 * sizeof(std::uint64_t);  ///< of the body, before the data
};

[[nodiscard]] bool is_model_message(const Frame& frame) noexcept;
/// Throws DataError for a malformed body.
[[nodiscard]] ModelMessage to_model_message(Frame&& frame);
/// The data are `parts`, one after the other.
[[nodiscard]] Frame to_frame(ModelMessageKind kind, std::uint64_t model, std::uint64_t iteration, std::uint64_t shard,
                             std::span<const std::span<const std::byte>> parts);

/// The same up to the data, which the caller sends after it.
[[nodiscard]] SharedBytes encode_beginning(ModelMessageKind kind, std::uint64_t model, std::uint64_t iteration,
                                           std::uint64_t shard, std::size_t data_bytes);

/// A task's part of a collective, to server 0. Each group of tasks numbers its collectives.
struct Contribution {
  static constexpr std::uint16_t kind = 50;
  std::uint64_t group = 0;
  std::uint64_t number = 0;
  std::string bytes;
};

/// Server 0 to each task of the group: all parts, in the order of the tasks.
struct Contributions {
  static constexpr std::uint16_t kind = 51;
  std::uint64_t group = 0;
  std::uint64_t number = 0;
  std::vector<std::string> parts;
};

/// Server to the first worker: it was asked to stop, as StopRequest says.
struct StopTask {
  static constexpr std::uint16_t kind = 52;
  std::uint64_t request = 0;
};

/// Server 0 to the successor of a lost worker: it has sent the parts of all collectives up to now.
struct EndOfReplay {
  static constexpr std::uint16_t kind = 54;
};

/// Server 0 to the other servers: the workers have finished.
struct JobIsOver {
  static constexpr std::uint16_t kind = 53;
};

[[nodiscard]] Frame to_frame(const Contribution& message);
[[nodiscard]] Frame to_frame(const Contributions& message);
[[nodiscard]] Frame to_frame(const StopTask& message);
/// These throw DataError for a malformed body.
[[nodiscard]] Contribution to_contribution(const Frame& frame);
[[nodiscard]] Contributions to_contributions(const Frame& frame);
[[nodiscard]] StopTask to_stop_task(const Frame& frame);

}  // namespace lockstep
