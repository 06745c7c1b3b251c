// See trainer_environment.hpp.
#include "cluster/trainer_environment.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "core/cores.hpp"

namespace lockstep {

namespace {

bool can_write(const std::string& directory) {
  return !directory.empty() && access(directory.c_str(), W_OK | X_OK) == 0;
}

/// The address of an entry in binary, as inet_pton makes it; "" for other families.
std::string bytes_of(const sockaddr* address) {
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, address, sizeof four);
    return {reinterpret_cast<const char*>(&four.sin_addr), sizeof four.sin_addr};
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, address, sizeof six);
    return {reinterpret_cast<const char*>(&six.sin6_addr), sizeof six.sin6_addr};
  }
  return {};
}

pid_t fork_to(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  return child;
}

int wait_for_end(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void close_both(const std::array<int, 2>& ends) {
  for (const int end : ends) (void)close(end);
}

}  // namespace

TrainerPlace TrainerPlace::here() {
  const long machine = sysconf(_SC_NPROCESSORS_ONLN);
  return {granted_cores(), static_cast<double>(std::max(1L, machine)), can_read_memory_of_siblings()};
}

bool can_read_memory_of_siblings() {
  // As Open MPI's ranks do it: one lets everybody look (PR_SET_PTRACER), its sibling tries. This word is at the same
  // place in both.
  std::uint64_t word = 0x1234567890ABCDEFU;
  std::array<int, 2> looked_at{};
  std::array<int, 2> may_look{};
  if (pipe(looked_at.data()) != 0) return false;
  if (pipe(may_look.data()) != 0) {
    close_both(looked_at);
    return false;
  }
  const pid_t model = fork_to([&] {
    (void)close(looked_at[1]);  // its end of file ends this process
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    char byte = 0;
    (void)!write(may_look[1], &byte, 1);
    (void)!read(looked_at[0], &byte, 1);
    return 0;
  });
  bool seen = false;
  if (model > 0) {
    const pid_t viewer = fork_to([&] {
      char byte = 0;
      (void)close(may_look[1]);
      if (read(may_look[0], &byte, 1) != 1) return 1;
      std::uint64_t copy = 0;
      const iovec here{&copy, sizeof copy};
      const iovec there{&word, sizeof word};
      const ssize_t bytes = process_vm_readv(model, &here, 1, &there, 1, 0);
      return bytes == static_cast<ssize_t>(sizeof copy) && copy == word ? 0 : 1;
    });
    (void)close(may_look[1]);
    may_look[1] = -1;
    seen = viewer > 0 && wait_for_end(viewer) == 0;
  }
  close_both(looked_at);
  (void)close(may_look[0]);
  if (may_look[1] >= 0) (void)close(may_look[1]);
  if (model > 0) (void)wait_for_end(model);
  return seen;
}

std::string interface_of(const std::string& address) {
  std::array<char, sizeof(in6_addr)> binary{};
  std::string wanted;
  if (inet_pton(AF_INET, address.c_str(), binary.data()) == 1) {
    wanted.assign(binary.data(), sizeof(in_addr));
  } else if (inet_pton(AF_INET6, address.c_str(), binary.data()) == 1) {
    wanted.assign(binary.data(), sizeof(in6_addr));
  } else {
    return {};
  }
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, &freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (bytes_of(entry->ifa_addr) == wanted) return entry->ifa_name;
  }
  return {};
}

Environment trainer_environment(const PmixJob& job, const TrainerPlace& place, const Environment& own) {
  Environment added;
  const auto set_parameter = [&](const std::string& name, const std::string& value) {
    if (!own.contains(name)) added[name] = value;
  };

  // Open MPI 4.1 takes itself for a process of its own unless it knows a resource manager that started it. This
  // variable (of IBM's JSM) is the one that asks for nothing but PMIx; any value does. Open MPI 5 needs none.
  added["JSM_JSRUN_PORT"] = "0";

  // PMIx's stores in shared memory fail in tight containers and have nothing to fall back to.
  added["PMIX_MCA_gds"] = "hash";

  // Ranks that wait spin. Where they may outnumber the cores, those that are waited for need the cores: an 11 MB
  // all-reduce of three ranks on two cores takes 195 ms without, 43 ms with this.
  const auto here = static_cast<double>(
      std::ranges::count(job.node_of_rank, job.node_of_rank[static_cast<std::size_t>(job.served.front())]));
  const bool crowded = here > place.cores || static_cast<double>(job.ranks_on_machine) > place.machine_cores;
  if (crowded) set_parameter("OMPI_MCA_mpi_yield_when_idle", "1");

  // Each of several containers takes all the machine's cores for its own, unless it is limited. Threads that wait spin,
  // too: with two on each of two cores steps took 3 s instead of 0.1 s.
  if (static_cast<double>(job.ranks_on_machine) > here) {
    const double share = std::min(place.cores / here, place.machine_cores / static_cast<double>(job.ranks_on_machine));
    set_parameter("OMP_NUM_THREADS", std::to_string(std::max(1, static_cast<int>(share))));
  }

  // Open MPI copies long messages between ranks of a host by process_vm_readv and does not go another way when a
  // container forbids that. The first name is version 4.1's, the second 5's.
  if (!place.single_copy) {
    set_parameter("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    set_parameter("OMPI_MCA_smsc", "^cma");
  }

  // Files that are memory shared between ranks go where the launcher deletes them: a killed rank cannot. The transport
  // is vader in version 4.1 and sm in 5, the others are windows.
  if (!job.memory_directory.empty()) {
    for (const char* name : {"btl_vader", "btl_sm", "osc_sm", "osc_rdma"}) {
      set_parameter(std::string("OMPI_MCA_") + name + "_backing_directory", job.memory_directory);
    }
  }

  // Of several networks only the one on which the peers know this host; none where they are all here, where Open MPI 5
  // would complain of interfaces it cannot pair. An interface's name says it for both versions of IP.
  const bool one_host = std::ranges::all_of(job.node_of_rank, [](int node) { return node == 0; });
  const std::string interface = interface_of(one_host ? "127.0.0.1" : job.tcp_address);
  if (!interface.empty()) set_parameter("OMPI_MCA_btl_tcp_if_include", interface);

  // For clusters whose network policies name ports.
  if (job.first_tcp_port > 0) {
    for (const char* version : {"4", "6"}) {
      const std::string parameter = "OMPI_MCA_btl_tcp_port_";
      set_parameter(parameter + "min_v" + version, std::to_string(job.first_tcp_port));
      if (job.tcp_ports > 0) set_parameter(parameter + "range_v" + version, std::to_string(job.tcp_ports));
    }
  }

  // Both libraries look for settings in HOME, which a user without an entry in passwd lacks, and write to TMPDIR.
  if (!can_write(value_of(own, "HOME"))) added["HOME"] = job.session_directory;
  const std::string temporary = value_of(own, "TMPDIR");
  if (!can_write(temporary.empty() ? "/tmp" : temporary)) added["TMPDIR"] = job.session_directory;
  return added;
}

Environment join_environments(const Environment& own, const Environment& added) {
  Environment joined = added;
  for (const auto& [name, value] : own) {
    const bool parameter = name.starts_with("PMIX_MCA_") || name.starts_with("OMPI_MCA_");
    bool foreign = false;
    for (const char* prefix : {"PMIX_", "PMI_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_"}) {
      foreign = foreign || name.starts_with(prefix);
    }
    if (parameter || !foreign) joined.emplace(name, value);
  }
  return joined;
}

}  // namespace lockstep
