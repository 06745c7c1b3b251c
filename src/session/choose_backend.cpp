// See choose_backend.hpp.
#include "session/choose_backend.hpp"

#include "backend/cpu/instruction_set.hpp"
#include "backend/make_backend.hpp"
#include "core/available_cpus.hpp"
#include "core/environment.hpp"
#include "core/format_number.hpp"
#include "core/log.hpp"
#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

namespace {

constexpr int threads_per_cpu = 64;  // beyond, thread stacks and OpenMP's tables do not fit

/// OMP_NUM_THREADS if it is set, else the available CPUs divided by the ranks on this host.
int thread_count(const World& world) {
  const std::string asked = value_of(current_environment(), "OMP_NUM_THREADS");
  if (const int threads = std::atoi(asked.c_str()); threads > 0) {
    const int most = threads_per_cpu * std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    if (threads > most) {
      throw UsageError(fmt::format(
          "OMP_NUM_THREADS is {}, more than the {} that this machine of {} CPUs can use; set one thread per "
          "CPU, or unset it",
          asked, most, most / threads_per_cpu));
    }
    if (const int cpus = static_cast<int>(available_cpu_count()); threads > cpus && world.is_chief()) {
      log_warning(
          fmt::format("OMP_NUM_THREADS is {}, but a worker may use {}; its threads wait for each other, so unset it",
                      threads, count_of(cpus, "CPU")));
    }
    return threads;
  }
  if (world.rank() < 0) return std::max(1, static_cast<int>(available_cpu_count()));  // a parameter server
  const std::vector<int>& hosts = world.host_of_rank();
  const auto local_ranks = std::max<std::ptrdiff_t>(1, std::count(hosts.begin(), hosts.end(), hosts[world.rank()]));
  return std::max(1, static_cast<int>(available_cpu_count()) / static_cast<int>(local_ranks));
}

int local_rank_of(const World& world) {
  const std::vector<int>& hosts = world.host_of_rank();
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + world.rank(), hosts[world.rank()]));
}

/// Null for `--device cpu`, and for `--device auto` without a usable GPU. Throws UsageError if `--device cuda` has
/// none.
std::unique_ptr<Backend> make_cuda(const Options& options, const World& world) {
  if (options.device == Device::cpu) return nullptr;
  std::string why_not;
  auto backend = make_cuda_backend({local_rank_of(world), options.deterministic, options.allow_tf32}, why_not);
  if (backend) return backend;
  if (options.device == Device::cuda) throw UsageError("--device cuda: " + why_not + "; use --device cpu or auto");
  if (has_cuda_backend() && world.is_chief()) log_info("Computing on the CPU: " + why_not + ".");
  return nullptr;
}

/// Kernels and layouts depend on the instruction set, so all workers use the smallest, which this returns. The others
/// would wait for the slowest worker anyway.
InstructionSet agree_on_instruction_set(Communicator& control) {
  const InstructionSet mine = permitted_instruction_set();
  std::vector<InstructionSet> all;
  for (const std::string& theirs : control.all_gather(fmt::format("{}", static_cast<int>(mine)))) {
    const int set = parse_number<int>(theirs).value_or(0);
    all.push_back(static_cast<InstructionSet>(std::clamp(set, 0, static_cast<int>(InstructionSet::amx_bf16))));
  }
  const InstructionSet common = common_instruction_set(all);
  if (common < mine) limit_instruction_set(common);
  const auto differs = [&](InstructionSet set) { return to_string(set) != to_string(common); };
  if (control.rank() == 0 && std::ranges::any_of(all, differs)) {
    const auto slowest = std::ranges::min_element(all);
    const auto fastest = std::ranges::max_element(all);
    log_info(fmt::format("All workers compute with {}, the instructions of worker {}; worker {} has {}.",
                         to_string(common), slowest - all.begin(), fastest - all.begin(), to_string(*fastest)));
  }
  return common;
}

std::optional<Layout> layout_of(const Options& options) {
  if (options.layout.empty()) return std::nullopt;
  const auto layout = layout_from(options.layout);
  if (!layout || *layout == Layout::nchw)
    throw UsageError(fmt::format("--layout is '{}' but must be nhwc, nChw16c or nChw8c", options.layout));
  return layout;
}

}  // namespace

std::unique_ptr<Backend> choose_backend(const Options& options, const World& world, Communicator& control) {
  auto backend = make_cuda(options, world);
  if (backend && options.convolutions == Convolutions::direct && world.is_chief()) {
    log_warning("--convolutions has no effect: it is for CPUs, and this run computes on a GPU");
  }
  if (!backend) {
    const InstructionSet set = agree_on_instruction_set(control);
    backend = make_cpu_backend(thread_count(world), layout_of(options), options.convolutions, set);
    if (options.allow_tf32 && world.is_chief()) {
      log_warning("--allow-tf32 has no effect: it is for GPUs, and this run computes on the CPU");
    }
  }
  return backend;
}

}  // namespace lockstep
