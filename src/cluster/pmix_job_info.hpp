// What MPI asks PMIx about a job, in PMIx's own words. For pmix_server.cpp only.
#pragma once

#include <pmix_common.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/pmix_messages.hpp"

namespace lockstep {

/// Throws InternalError with what PMIx says, naming `call`, unless the call has succeeded or is over already.
void check_pmix(pmix_status_t status, const char* call);

/// Keys with values: copies, freed at the end.
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

/// The name of a node in PMIx's maps. Real names of hosts don't get there: PMIx cuts some of them at their first dot
/// and takes numbers in them for ranges.
[[nodiscard]] std::string node_name(int node);

/// The node of the ranks that are served here.
[[nodiscard]] int own_node(const PmixJob& job);

/// Adds all that is registered for the job.
void describe_job(const PmixJob& job, PmixInfo& info);

}  // namespace lockstep
