// The messages between a launcher and the PMIx server of a generation, over a socket pair:
//
//   launcher -> server   start        the job; sent once, first
//   server -> launcher   ready        the environment variables of each rank served here
//   server -> launcher   fence        all ranks served here reached a fence with this contribution
//   launcher -> server   fence_done   all servers reached the fence; holds their concatenated contributions
//   server -> launcher   abort        a rank called MPI_Abort
//   server -> launcher   failed       the reason, before the server exits
//
// The server exits at end of file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/environment.hpp"

namespace lockstep {

enum class PmixMessage : std::uint16_t { start = 1, ready, fence, fence_done, abort, failed };

/// The longest message; a rank contributes about a hundred bytes to a fence.
constexpr std::size_t max_pmix_message_bytes = std::size_t{64} << 20U;

/// One generation as seen by one server.
struct PmixJob {
  std::string nspace;              ///< the PMIx namespace, unique per generation
  std::vector<int> node_of_rank;   ///< nodes are numbered from 0 in the order of their first ranks
  std::vector<int> served;         ///< the ranks of one node that use this server, ascending
  std::string session_directory;   ///< private directory for files of PMIx and MPI
  std::string memory_directory;    ///< the same in /dev/shm; empty if unavailable
  std::uint64_t ranks_on_machine;  ///< ranks of all containers on this machine; 0 if unknown
  std::string tcp_address;         ///< local address for traffic between hosts; empty for any
  std::uint64_t first_tcp_port;    ///< first port on which MPI listens; 0 for any
  std::uint64_t tcp_ports;         ///< number of ports from there

  friend bool operator==(const PmixJob&, const PmixJob&) = default;
};

/// Environments in the order of PmixJob::served.
struct PmixReady {
  std::vector<Environment> environments;
};

/// `sequence` counts fences from 0; all servers reach them in the same order.
struct PmixFence {
  std::uint64_t sequence = 0;
  std::string blob;
};

struct PmixFenceDone {
  std::uint64_t sequence = 0;
  bool ok = false;
  std::string data;  ///< concatenated blobs of all servers, in the same order everywhere
};

struct PmixAbort {
  int rank = 0;
  int status = 0;
  std::string message;
};

/// Encode and decode frame bodies. Decoding throws DataError for malformed input.
[[nodiscard]] std::string to_body(const PmixJob& job);
[[nodiscard]] std::string to_body(const PmixReady& ready);
[[nodiscard]] std::string to_body(const PmixFence& fence);
[[nodiscard]] std::string to_body(const PmixFenceDone& done);
[[nodiscard]] std::string to_body(const PmixAbort& abort);

[[nodiscard]] PmixJob read_job(std::string_view text);
[[nodiscard]] PmixReady read_ready(std::string_view text);
[[nodiscard]] PmixFence read_fence(std::string_view text);
[[nodiscard]] PmixFenceDone read_fence_done(std::string_view text);
[[nodiscard]] PmixAbort read_abort(std::string_view text);

/// Throws DataError unless the ranks, nodes and namespace satisfy the invariants of PmixJob.
void check_job(const PmixJob& job);

}  // namespace lockstep
