// See trainer_environment.hpp.
#include "cluster/pmix/trainer_environment.hpp"

#include "cluster/net/interfaces.hpp"

#include <sys/prctl.h>
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
#include <functional>
#include <string>
#include <string_view>

#include "core/available_cpus.hpp"

namespace lockstep {

namespace {

bool can_write(const std::string& directory) {
  return !directory.empty() && access(directory.c_str(), W_OK | X_OK) == 0;
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

HostResources HostResources::detect() {
  const long machine = sysconf(_SC_NPROCESSORS_ONLN);
  return {available_cpus(), static_cast<double>(std::max(1L, machine)), can_read_memory_of_siblings()};
}

bool can_read_memory_of_siblings() {
  // Does what Open MPI's ranks do: one child allows access (PR_SET_PTRACER), then its sibling reads a word that has the
  // same address in both.
  std::uint64_t word = 0x1234567890ABCDEFU;
  std::array<int, 2> done_pipe{};
  std::array<int, 2> ready_pipe{};
  if (pipe(done_pipe.data()) != 0) return false;
  if (pipe(ready_pipe.data()) != 0) {
    close_both(done_pipe);
    return false;
  }
  const pid_t target = fork_to([&] {
    (void)close(done_pipe[1]);  // end of file ends this process
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    char byte = 0;
    (void)!::write(ready_pipe[1], &byte, 1);
    (void)!read(done_pipe[0], &byte, 1);
    return 0;
  });
  bool can_read = false;
  if (target > 0) {
    const pid_t reader = fork_to([&] {
      char byte = 0;
      (void)close(ready_pipe[1]);
      if (read(ready_pipe[0], &byte, 1) != 1) return 1;
      std::uint64_t copy = 0;
      const iovec here{&copy, sizeof copy};
      const iovec there{&word, sizeof word};
      const ssize_t bytes = process_vm_readv(target, &here, 1, &there, 1, 0);
      return bytes == static_cast<ssize_t>(sizeof copy) && copy == word ? 0 : 1;
    });
    (void)close(ready_pipe[1]);
    ready_pipe[1] = -1;
    can_read = reader > 0 && wait_for_end(reader) == 0;
  }
  close_both(done_pipe);
  (void)close(ready_pipe[0]);
  if (ready_pipe[1] >= 0) (void)close(ready_pipe[1]);
  if (target > 0) (void)wait_for_end(target);
  return can_read;
}

Environment trainer_environment(const PmixJob& job, const HostResources& host, const Environment& own) {
  Environment added;
  const auto set_parameter = [&](const std::string& name, const std::string& value) {
    if (!own.contains(name)) added[name] = value;
  };

  // Open MPI 4.1 starts as a singleton unless it recognizes a resource manager. This variable (of IBM's JSM) is the one
  // that requires nothing but PMIx; its value is ignored. Open MPI 5 needs none.
  added["JSM_JSRUN_PORT"] = "0";

  // PMIx's shared-memory store fails in containers with a small /dev/shm and has no fallback.
  added["PMIX_MCA_gds"] = "hash";

  // Waiting ranks spin. If ranks may outnumber the cores, they must yield: an 11 MB all-reduce of three ranks on two
  // cores takes 43 ms with this, 195 ms without.
  const auto local_ranks = static_cast<double>(
      std::ranges::count(job.node_of_rank, job.node_of_rank[static_cast<std::size_t>(job.served.front())]));
  const bool is_oversubscribed =
      local_ranks > host.cores || static_cast<double>(job.ranks_on_machine) > host.machine_cores;
  if (is_oversubscribed) set_parameter("OMPI_MCA_mpi_yield_when_idle", "1");

  // Without a CPU limit, each of several containers would use all cores of the machine. Waiting OpenMP threads spin
  // too: with two threads per core a step took 3 s instead of 0.1 s.
  if (static_cast<double>(job.ranks_on_machine) > local_ranks) {
    const double cores =
        std::min(host.cores / local_ranks, host.machine_cores / static_cast<double>(job.ranks_on_machine));
    set_parameter("OMP_NUM_THREADS", std::to_string(std::max(1, static_cast<int>(cores))));
  }

  // Open MPI copies long messages between ranks of a host with process_vm_readv, and fails if the container forbids it.
  // The first parameter is for version 4.1, the second for version 5.
  if (!host.single_copy) {
    set_parameter("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    set_parameter("OMPI_MCA_smsc", "^cma");
  }

  // Backing files of shared memory go where the launcher deletes them, because a killed rank cannot. The transport is
  // vader in version 4.1 and sm in version 5; the osc components are for MPI windows.
  if (!job.memory_directory.empty()) {
    for (const char* name : {"btl_vader", "btl_sm", "osc_sm", "osc_rdma"}) {
      set_parameter(std::string("OMPI_MCA_") + name + "_backing_directory", job.memory_directory);
    }
  }

  // The ranks of a single host need no network, and its listeners accept any process: one byte there stops a
  // rank of Open MPI 4.1 for as long as the connection lasts.
  const bool one_host = std::ranges::all_of(job.node_of_rank, [](int node) { return node == 0; });
  if (one_host) set_parameter("OMPI_MCA_btl", "^tcp,ofi");

  // Of several networks, MPI uses the one on which peers reach this host. The name covers both IPv4 and IPv6.
  const std::string interface = one_host ? "" : interface_with_address(job.tcp_address);
  if (!interface.empty()) set_parameter("OMPI_MCA_btl_tcp_if_include", interface);

  // For clusters whose network policies list ports.
  if (job.first_tcp_port > 0) {
    for (const char* version : {"4", "6"}) {
      const std::string parameter = "OMPI_MCA_btl_tcp_port_";
      set_parameter(parameter + "min_v" + version, std::to_string(job.first_tcp_port));
      if (job.tcp_ports > 0) set_parameter(parameter + "range_v" + version, std::to_string(job.tcp_ports));
    }
  }

  // PMIx and Open MPI read settings from HOME, which a user without a passwd entry lacks, and write to TMPDIR.
  if (!can_write(value_of(own, "HOME"))) added["HOME"] = job.session_directory;
  const std::string temporary = value_of(own, "TMPDIR");
  if (!can_write(temporary.empty() ? "/tmp" : temporary)) added["TMPDIR"] = job.session_directory;
  return added;
}

bool may_be_sent(const std::string& variable) {
  for (const char* prefix : {"PMIX_", "OMPI_MCA_"}) {
    if (variable.starts_with(prefix)) return true;
  }
  constexpr std::array<std::string_view, 4> others{"JSM_JSRUN_PORT", "OMP_NUM_THREADS", "HOME", "TMPDIR"};
  return std::ranges::find(others, variable) != others.end();
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
