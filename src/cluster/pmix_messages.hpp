// What a launcher and the PMIx server of a generation say to each other, over a socket pair:
//
//   launcher -> server   start        the job; once, first
//   server -> launcher   ready        what to put into the environment of each rank served here
//   server -> launcher   fence        all ranks served here have come to a fence and hand this in
//   launcher -> server   fence_done   all servers have, and this is what they handed in, one after the other
//   server -> launcher   abort        a rank wants the world to end (MPI_Abort)
//   server -> launcher   failed       one sentence, before the server ends itself
//
// End of file ends the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/environment.hpp"

namespace lockstep {

enum class PmixMessage : std::uint16_t { start = 1, ready, fence, fence_done, abort, failed };

/// Either side refuses longer messages: a rank hands in about a hundred bytes.
constexpr std::size_t longest_pmix_message = std::size_t{64} << 20U;

/// One generation, as one server sees it.
struct PmixJob {
  std::string nspace;              ///< PMIx's name of the job; another one in every generation
  std::vector<int> node_of_rank;   ///< numbered from 0 in the order of the nodes' first ranks
  std::vector<int> served;         ///< ranks of one node, ascending: those that get their world from this server
  std::string session_directory;   ///< a private one for files of PMIx and MPI
  std::string memory_directory;    ///< the same in /dev/shm; empty where there is none
  std::uint64_t ranks_on_machine;  ///< that share its cores, in whatever containers; 0 where only this node's are known
  std::string tcp_address;         ///< this host's own, on which MPI shall talk to other hosts; empty for all it has
  std::uint64_t first_tcp_port;    ///< where MPI shall listen on TCP; 0 for any port
  std::uint64_t tcp_ports;         ///< how many it may try from there

  friend bool operator==(const PmixJob&, const PmixJob&) = default;
};

/// Environments in the order of PmixJob::served.
struct PmixReady {
  std::vector<Environment> environments;
};

/// Fences are numbered from 0; servers come to them in the same order.
struct PmixFence {
  std::uint64_t number = 0;
  std::string blob;
};

struct PmixFenceDone {
  std::uint64_t number = 0;
  bool ok = false;
  std::string data;  ///< the blobs of all servers, in the same order everywhere
};

struct PmixAbort {
  int rank = 0;
  int status = 0;
  std::string message;
};

/// Frame bodies, and back. Reading throws DataError for what no server or launcher writes.
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

/// Throws DataError unless ranks, nodes and name of the job are what PmixJob says.
void check_job(const PmixJob& job);

}  // namespace lockstep
