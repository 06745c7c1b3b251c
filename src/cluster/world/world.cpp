// See world.hpp. Only this file communicates on MPI_COMM_WORLD itself. Communicators use duplicates, so their messages
// cannot interfere with the all-reduce of error digests in end_with_error().
#include "cluster/world/world.hpp"

#include "cluster/config/started_by_launcher.hpp"
#include "cluster/net/host_id.hpp"
#include "cluster/world/launcher_connection.hpp"
#include "cluster/world/member_listeners.hpp"
#include "cluster/world/mpi_support.hpp"
#include "core/clock.hpp"
#include "core/digest.hpp"
#include "core/environment.hpp"
#include "core/fault_point.hpp"
#include "core/log.hpp"
#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr const char* eager_limit = "528384";  // bytes: 512 KiB of gradients and the MPI header
constexpr double agreement_limit_s = 1.0;
constexpr double end_limit_s = 20.0;
constexpr auto agreement_poll_interval = std::chrono::milliseconds(1);
constexpr auto chief_exits_first = std::chrono::milliseconds(500);
constexpr auto launcher_reaction = std::chrono::seconds(3);  // mpirun on a busy machine needs more than one second

using HostName = std::array<char, 96>;

/// host_id() in a fixed-size array; unique if this process cannot share memory.
HostName identify_host(int rank) {
  const std::string identity = host_id();
  const std::string text = identity.empty() ? fmt::format("rank {}", rank) : identity;
  HostName name{};
  text.copy(name.data(), name.size() - 1);
  return name;
}

/// Numbers hosts from 0 in the order of their first occurrence.
template <typename Name>
std::vector<int> number_hosts(const std::vector<Name>& names) {
  std::map<Name, int> numbers;
  std::vector<int> hosts;
  hosts.reserve(names.size());
  for (const Name& name : names) {
    hosts.push_back(numbers.emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

/// A digest of this rank's error and its complement. All ranks fail with the same error if and only if the minimum of
/// both over all ranks equals every rank's own values.
using Digests = std::array<std::uint64_t, 2>;

Digests digests_of(int code, const std::string& message) {
  const std::uint64_t digest = fnv1a(fmt::format("{}{}", code, message));
  return {digest, ~digest};
}

/// Polls with sleeps instead of spinning, because the awaited rank may need the core.
bool is_done_within(double seconds, MPI_Request& request) {
  const double deadline = monotonic_seconds() + seconds;
  int done = 0;
  while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0 && monotonic_seconds() < deadline) {
    std::this_thread::sleep_for(agreement_poll_interval);
  }
  return done != 0;
}

/// True if all ranks arrive within the limit with the same error. Otherwise MPI may still write to `minimum`.
bool all_ranks_fail_alike(const Digests& mine, Digests& minimum) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Iallreduce(mine.data(), minimum.data(), 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD, &request) != MPI_SUCCESS) {
    return false;
  }
  return is_done_within(agreement_limit_s, request) && minimum == mine;
}

std::function<void(int, const std::string&)>& end_handler() {
  static std::function<void(int, const std::string&)> handler;
  return handler;
}

}  // namespace

std::vector<int> parse_simulated_hosts(const std::string& text, int size) {
  const auto numbers = parse_numbers<unsigned>(text);
  if (!numbers || numbers->size() != static_cast<std::size_t>(size)) {
    throw UsageError(fmt::format(
        "{} is '{}'; give one host number for each of the {} ranks, separated by commas (as in 0,0,1), or unset it",
        simulated_hosts_variable, text, size));
  }
  return number_hosts(*numbers);
}

World::World(const Environment& environment) {
  if (mpi_is_up() || started_by_launcher(environment)) {
    if (!mpi_is_up()) {
      int finalized = 0;
      check_mpi(MPI_Finalized(&finalized), "MPI_Finalized");
      if (finalized != 0) throw InternalError("a World was made after MPI_Finalize");
      // Above 64 KiB, Open MPI's TCP transport uses a rendezvous protocol that needs two calls of the receiver, so no
      // data moves while ranks compute. With these limits larger messages are sent eagerly too (11 MB at 10 Gbit/s take
      // 9.6 ms instead of 18).
      for (const char* limit :
           {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit", "OMPI_MCA_btl_tcp_max_send_size"}) {
        if (setenv(limit, eager_limit, 0) != 0) throw InternalError("setenv failed: out of memory");
      }
      fault_point("start");
      int provided = MPI_THREAD_SINGLE;
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
      owns_mpi_ = true;
      filter_remaining_listeners();
      fault_point("mpi_init");
      if (provided < MPI_THREAD_FUNNELED) {
        throw InternalError("this MPI library does not support MPI_THREAD_FUNNELED; install one that supports threads");
      }
      check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    }
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  }
  require_world_of_launcher(environment, size_);
  if (const auto hosts = environment.find(simulated_hosts_variable); hosts != environment.end()) {
    host_of_rank_ = parse_simulated_hosts(hosts->second, size_);
    return;
  }
  const HostName mine = identify_host(rank_);
  std::vector<HostName> names(static_cast<std::size_t>(size_), mine);
  if (size_ > 1) {
    check_mpi(MPI_Allgather(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, names.data(),
                            static_cast<int>(mine.size()), MPI_CHAR, MPI_COMM_WORLD),
              "MPI_Allgather");
  }
  host_of_rank_ = number_hosts(names);
}

World::World(int rank, int size) : rank_(rank), size_(size), host_of_rank_(static_cast<std::size_t>(size)) {
  std::iota(host_of_rank_.begin(), host_of_rank_.end(), 0);
}

World::~World() {
  // MPI_Finalize is collective: during stack unwinding the other ranks would not call it, and end_with_error ends them.
  if (!owns_mpi_ || !mpi_is_up() || std::uncaught_exceptions() > 0) return;
  if (MPI_Finalize() != MPI_SUCCESS) log_warning("MPI_Finalize failed");
}

int World::hosts() const noexcept { return 1 + *std::max_element(host_of_rank_.begin(), host_of_rank_.end()); }

std::string World::mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  const std::string_view whole(text.data(), static_cast<std::size_t>(length));
  return std::string(whole.substr(0, whole.find(',')));  // the rest names the packager
}

void World::set_end_handler(std::function<void(int, const std::string&)> handler) {
  end_handler() = std::move(handler);
}

void World::end_with_error(int code, const std::string& message) {
  std::fflush(nullptr);
  LauncherConnection::report_error(message);
  if (end_handler()) end_handler()(code, message);
  if (!mpi_is_up()) {
    // Ranks cannot agree without MPI. If all fail alike (a wrong option), the chief exits and the launcher ends the
    // others while they sleep here. A rank that fails alone logs its error after the sleep.
    if (launcher_rank(current_environment()) != 0) std::this_thread::sleep_for(launcher_reaction);
    log_error(message);
    std::exit(code);
  }
  int rank = 0;
  (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);  // on failure the rank stays 0: at worst the line appears twice
  const Digests mine = digests_of(code, message);
  Digests minimum{};
  if (all_ranks_fail_alike(mine, minimum)) {
    if (rank == 0) log_error(message);
    (void)MPI_Finalize();  // the process exits with `code` in any case
    // The launchers blame the rank that exits first. What fails on all ranks failed on the chief, e.g. its disk.
    if (rank != 0) std::this_thread::sleep_for(chief_exits_first);
    std::exit(code);
  }
  log_error(message);
  (void)MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

void World::end_together(int code) {
  std::fflush(nullptr);
  if (end_handler()) end_handler()(code, "");
  if (mpi_is_up()) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS || !is_done_within(end_limit_s, request)) {
      std::_Exit(code);
    }
    (void)MPI_Finalize();  // the process exits with `code` in any case
  }
  std::exit(code);
}

}  // namespace lockstep
