// See world.hpp. MPI_COMM_WORLD itself carries only what is here: communicators work on copies of their own, so that
// the agreement of a failing world never meets a message of theirs.
#include "cluster/world.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "cluster/host_identity.hpp"
#include "cluster/mpi_support.hpp"
#include "core/clock.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr const char* sent_at_once = "528384";  // bytes: a parcel of gradients, and what MPI writes before it
constexpr double agreement_limit_s = 1.0;
constexpr double end_limit_s = 20.0;
constexpr auto agreement_look = std::chrono::milliseconds(1);
constexpr auto launcher_reaction = std::chrono::seconds(3);  // mpirun on a busy machine has taken more than one

using HostName = std::array<char, 96>;

/// Equal on two ranks exactly if they can share memory.
HostName identify_host(int rank) {
  const std::string identity = host_identity();
  const std::string text = identity.empty() ? "rank " + std::to_string(rank) : identity;
  HostName name{};
  text.copy(name.data(), name.size() - 1);
  return name;
}

/// Numbers hosts from 0 in the order in which they come up first.
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

/// What this rank fails with, as a digest and its complement: the world fails alike exactly if the least of either is
/// everybody's own.
using Digests = std::array<std::uint64_t, 2>;

Digests digests_of(int code, const std::string& message) {
  std::uint64_t digest = 0xCBF29CE484222325U;  // FNV-1a
  for (const char c : std::to_string(code) + message) {
    digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  return {digest, ~digest};
}

/// Without a core's attention: whoever is waited for may need it.
bool is_done_within(double seconds, MPI_Request& request) {
  const double deadline = monotonic_seconds() + seconds;
  int done = 0;
  while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0 && monotonic_seconds() < deadline) {
    std::this_thread::sleep_for(agreement_look);
  }
  return done != 0;
}

/// True where all ranks come here within the limit and say the same. Otherwise MPI may write to `least` still.
bool everybody_fails_alike(const Digests& mine, Digests& least) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Iallreduce(mine.data(), least.data(), 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD, &request) != MPI_SUCCESS) {
    return false;
  }
  return is_done_within(agreement_limit_s, request) && least == mine;
}

}  // namespace

bool started_by_launcher(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (environment.contains(name)) return true;
  }
  // srun without an MPI plugin starts independent processes: each of them is a world of its own.
  const std::string plugin = value_of(environment, "SLURM_MPI_TYPE");
  return environment.contains("SLURM_PROCID") && !plugin.empty() && plugin != "none";
}

std::vector<int> parse_test_hosts(const std::string& text, int size) {
  const auto refuse = [&]() {
    throw UsageError("LOCKSTEP_TEST_HOSTS is '" + text + "': give one host number for each of the " +
                     std::to_string(size) + " ranks, separated by commas (as 0,0,1), or unset it");
  };
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0 || *at == '-') refuse();
    numbers.push_back(number);
    if (next == end) break;
    if (*next != ',') refuse();
    at = next + 1;
  }
  if (numbers.size() != static_cast<std::size_t>(size)) refuse();
  return number_hosts(numbers);
}

World::World() {
  const Environment environment = current_environment();
  uses_mpi_ = mpi_is_up() || started_by_launcher(environment);
  if (uses_mpi_) {
    if (!mpi_is_up()) {
      int finalized = 0;
      check_mpi(MPI_Finalized(&finalized), "MPI_Finalized");
      if (finalized != 0) throw InternalError("a second World was made after the first had ended MPI");
      // Over TCP Open MPI sends what is larger than 64 KiB only when asked for it, which takes two of the receiver's
      // calls: while ranks compute, nothing moves. Up to these sizes it sends at once (11 MB at 10 Gbit/s: 18 ms
      // and 9.6).
      for (const char* limit :
           {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit", "OMPI_MCA_btl_tcp_max_send_size"}) {
        if (setenv(limit, sent_at_once, 0) != 0) throw InternalError("no memory for an environment variable");
      }
      int provided = MPI_THREAD_SINGLE;
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
      owns_mpi_ = true;
      if (provided < MPI_THREAD_FUNNELED) {
        throw InternalError("this MPI library cannot live with threads beside it (MPI_THREAD_FUNNELED is refused)");
      }
      check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    }
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  }
  if (environment.contains("LOCKSTEP_TEST_HOSTS")) {
    host_of_rank_ = parse_test_hosts(value_of(environment, "LOCKSTEP_TEST_HOSTS"), size_);
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

World::~World() {
  // While an exception leaves, the peers may be anywhere and would not come to the end: that is left to end_with_error.
  if (!owns_mpi_ || !mpi_is_up() || std::uncaught_exceptions() > 0) return;
  if (MPI_Finalize() != MPI_SUCCESS) log_warning("MPI_Finalize failed");
}

int World::hosts() const noexcept { return 1 + *std::max_element(host_of_rank_.begin(), host_of_rank_.end()); }

std::string World::mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  const std::string_view whole(text.data(), static_cast<std::size_t>(length));
  return std::string(whole.substr(0, whole.find(',')));  // the rest says who packaged it
}

void World::end_with_error(int code, const std::string& message) {
  std::fflush(nullptr);
  if (!mpi_is_up()) {
    // Nobody to agree with. Where all ranks of a launcher fail alike (a wrong option), the chief's exit makes it end
    // the others while they wait here; a rank that fails alone gets its say after it.
    if (launcher_rank(current_environment()) != 0) std::this_thread::sleep_for(launcher_reaction);
    log_error(message);
    std::exit(code);
  }
  int rank = 0;
  (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);  // on failure the rank stays 0: at worst a line is printed twice
  const Digests mine = digests_of(code, message);
  Digests least{};
  if (everybody_fails_alike(mine, least)) {
    if (rank == 0) log_error(message);
    (void)MPI_Finalize();  // whatever it says, the process ends with `code` now
    std::exit(code);
  }
  log_error(message);
  (void)MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

void World::end_together(int code) {
  std::fflush(nullptr);
  if (mpi_is_up()) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS || !is_done_within(end_limit_s, request)) {
      std::_Exit(code);
    }
    (void)MPI_Finalize();  // whatever it says, the process ends with `code` now
  }
  std::exit(code);
}

}  // namespace lockstep
