// Which ranks of this host still run. Each rank locks a byte of a file in shared memory, and the kernel releases the
// lock when its process ends, however it ends. So a rank that waits for a device learns of a killed peer within a
// moment, although the peer cannot tell it and NVLink, unlike a network, breaks no connection.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/communicator.hpp"
#include "core/file_descriptor.hpp"

namespace lockstep {

class HostLiveness {
 public:
  /// `name` is that of the file, "/any". Each rank of the host has constructed its object before one looks for lost
  /// ranks. Throws IoError.
  HostLiveness(const std::string& name, int rank, std::vector<int> peers);
  /// This rank no longer takes part. The others do not miss it, unless an exception is propagating.
  ~HostLiveness();
  HostLiveness(const HostLiveness&) = delete;
  HostLiveness& operator=(const HostLiveness&) = delete;

  /// Another rank of this host whose process has ended while it took part. One system call for each rank.
  [[nodiscard]] std::optional<int> find_lost_rank() const noexcept;

 private:
  int rank_;
  std::vector<int> peers_;  ///< the other ranks of this host
  FileDescriptor file_;     ///< byte r: locked while rank r runs; `left` once it no longer takes part
};

/// Collective. Watches the ranks of this host; null if there are no others. `host_of_rank`: see World. Throws IoError
/// on all ranks if one cannot use shared memory.
[[nodiscard]] std::unique_ptr<HostLiveness> watch_host(Communicator& control, const std::vector<int>& host_of_rank);

}  // namespace lockstep
