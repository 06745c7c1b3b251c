// The description of a job that the PMIx server registers and MPI queries. Private to pmix_server.cpp.
#pragma once

#include <pmix_common.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/pmix/pmix_messages.hpp"

namespace lockstep {

/// Throws InternalError, naming `call` and the PMIx error, unless the call succeeded.
void check_pmix(pmix_status_t status, const char* call);

/// An owning array of PMIx key-value pairs.
class PmixInfo {
 public:
  PmixInfo() = default;
  ~PmixInfo();
  PmixInfo(const PmixInfo&) = delete;
  PmixInfo& operator=(const PmixInfo&) = delete;

  void add(const char* key, const std::string& value);
  void add(const char* key, bool value);
  void add_number(const char* key, std::uint32_t value);
  void add_small_number(const char* key, std::uint16_t value);
  void add_rank(const char* key, pmix_rank_t rank);
  void add(const char* key, PmixInfo& array);

  [[nodiscard]] pmix_info_t* data() noexcept { return entries_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  void load(const char* key, const void* value, pmix_data_type_t type);

  std::vector<pmix_info_t> entries_;
};

/// The name of a node in PMIx maps. Host names are unsuitable, because PMIx truncates some at the first dot and parses
/// numbers in them as ranges.
[[nodiscard]] std::string node_name(int node);

/// The node whose ranks this server serves.
[[nodiscard]] int own_node(const PmixJob& job);

/// Adds all keys that the server registers for the job.
void describe_job(const PmixJob& job, PmixInfo& info);

}  // namespace lockstep
