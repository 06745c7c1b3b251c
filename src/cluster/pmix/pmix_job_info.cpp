// See pmix_job_info.hpp.
#include "cluster/pmix/pmix_job_info.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <pmix.h>
#include <pmix_server.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

namespace {

using OwnedText = std::unique_ptr<char, decltype(&std::free)>;

/// Compresses a list into PMIx's regular-expression form.
std::string generate(pmix_status_t (*generator)(const char*, char**), const std::string& text, const char* call) {
  char* form = nullptr;
  check_pmix(generator(text.c_str(), &form), call);
  const OwnedText owner(form, &std::free);
  return form;
}

std::string join(const std::vector<int>& numbers) { return fmt::format("{}", fmt::join(numbers, ",")); }

}  // namespace

void check_pmix(pmix_status_t status, const char* call) {
  if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED) return;
  throw InternalError(fmt::format("{} failed: {}", call, PMIx_Error_string(status)));
}

PmixInfo::~PmixInfo() {
  for (pmix_info_t& entry : entries_) PMIX_INFO_DESTRUCT(&entry);
}

void PmixInfo::load(const char* key, const void* value, pmix_data_type_t type) {
  entries_.emplace_back();
  check_pmix(PMIx_Info_load(&entries_.back(), key, value, type), "PMIx_Info_load");
}

void PmixInfo::add(const char* key, const std::string& value) { load(key, value.c_str(), PMIX_STRING); }
void PmixInfo::add(const char* key, bool value) { load(key, &value, PMIX_BOOL); }
void PmixInfo::add_number(const char* key, std::uint32_t value) { load(key, &value, PMIX_UINT32); }
void PmixInfo::add_small_number(const char* key, std::uint16_t value) { load(key, &value, PMIX_UINT16); }
void PmixInfo::add_rank(const char* key, pmix_rank_t rank) { load(key, &rank, PMIX_PROC_RANK); }

void PmixInfo::add(const char* key, PmixInfo& array) {
  pmix_data_array_t whole{};
  whole.type = PMIX_INFO;
  whole.size = array.size();
  whole.array = array.data();
  load(key, &whole, PMIX_DATA_ARRAY);
}

std::string node_name(int node) { return fmt::format("node{}", node); }

int own_node(const PmixJob& job) { return job.node_of_rank.at(static_cast<std::size_t>(job.served.front())); }

void describe_job(const PmixJob& job, PmixInfo& info) {
  const auto ranks = static_cast<std::uint32_t>(job.node_of_rank.size());
  const int nodes = 1 + *std::ranges::max_element(job.node_of_rank);
  std::vector<std::vector<int>> ranks_of_node(static_cast<std::size_t>(nodes));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    ranks_of_node[static_cast<std::size_t>(job.node_of_rank[rank])].push_back(static_cast<int>(rank));
  }
  std::string node_list;
  std::string rank_lists;
  for (int node = 0; node < nodes; ++node) {
    node_list += (node > 0 ? "," : "") + node_name(node);
    rank_lists += (node > 0 ? ";" : "") + join(ranks_of_node[static_cast<std::size_t>(node)]);
  }
  const std::vector<int>& peers = ranks_of_node[static_cast<std::size_t>(own_node(job))];
  const auto on_node = static_cast<std::uint32_t>(peers.size());

  // The job: one program in one universe.
  info.add_number(PMIX_UNIV_SIZE, ranks);
  info.add_number(PMIX_JOB_SIZE, ranks);
  info.add_number(PMIX_MAX_PROCS, ranks);
  info.add_number(PMIX_JOB_NUM_APPS, 1);
  info.add_number(PMIX_NUM_NODES, static_cast<std::uint32_t>(nodes));
  info.add(PMIX_NODE_MAP, generate(&PMIx_generate_regex, node_list, "PMIx_generate_regex"));
  info.add(PMIX_PROC_MAP, generate(&PMIx_generate_ppn, rank_lists, "PMIx_generate_ppn"));

  // This node. MPI shares memory with the local peers.
  info.add_number(PMIX_NODEID, static_cast<std::uint32_t>(own_node(job)));
  info.add_number(PMIX_LOCAL_SIZE, on_node);
  info.add_number(PMIX_NODE_SIZE, on_node);
  info.add(PMIX_LOCAL_PEERS, join(peers));
  info.add_rank(PMIX_LOCALLDR, static_cast<pmix_rank_t>(peers.front()));

  // Otherwise Open MPI would create directories below /tmp, and killed ranks would leave them behind.
  info.add(PMIX_TMPDIR, job.session_directory);
  info.add(PMIX_NSDIR, job.session_directory);
  info.add(PMIX_TDIR_RMCLEAN, true);

  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const int node = job.node_of_rank[rank];
    const std::vector<int>& neighbours = ranks_of_node[static_cast<std::size_t>(node)];
    const auto local_rank =
        static_cast<std::uint16_t>(std::ranges::find(neighbours, static_cast<int>(rank)) - neighbours.begin());
    PmixInfo own;
    own.add_rank(PMIX_RANK, rank);  // must come first
    own.add_small_number(PMIX_LOCAL_RANK, local_rank);
    own.add_small_number(PMIX_NODE_RANK, local_rank);
    own.add_number(PMIX_APPNUM, 0);
    own.add_rank(PMIX_APP_RANK, rank);
    own.add_rank(PMIX_GLOBAL_RANK, rank);
    own.add(PMIX_HOSTNAME, node_name(node));
    own.add_number(PMIX_NODEID, static_cast<std::uint32_t>(node));
    if (node == own_node(job)) {
      own.add(PMIX_PROCDIR, (std::filesystem::path(job.session_directory) / std::to_string(rank)).string());
    }
    info.add(PMIX_PROC_INFO_ARRAY, own);
  }
}

}  // namespace lockstep
