// See runtime.hpp.
#include "training/runtime.hpp"

#include "backend/make_backend.hpp"
#include "core/cores.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

namespace lockstep {

namespace {

Transport transport_of(Communication communication) {
  switch (communication) {
    case Communication::shared: return Transport::shared;
    case Communication::mpi: return Transport::mpi;
    case Communication::nccl: return Transport::nccl;
    case Communication::automatic: break;
  }
  return Transport::automatic;
}

/// OMP_NUM_THREADS where it is set, else this rank's share of the cores.
int threads_of(const World& world) {
  const std::string asked = value_of(current_environment(), "OMP_NUM_THREADS");
  if (const int threads = std::atoi(asked.c_str()); threads > 0) return threads;
  const std::vector<int>& hosts = world.host_of_rank();
  const auto neighbours = std::max<std::ptrdiff_t>(1, std::count(hosts.begin(), hosts.end(), hosts[world.rank()]));
  return std::max(1, static_cast<int>(available_cores()) / static_cast<int>(neighbours));
}

int place_on_host(const World& world) {
  const std::vector<int>& hosts = world.host_of_rank();
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + world.rank(), hosts[world.rank()]));
}

/// Null where `--device cuda` was not asked for and there is none.
std::unique_ptr<Backend> make_cuda(const Options& options, const World& world) {
  if (options.device == Device::cpu) return nullptr;
  std::string why_not;
  auto backend = make_cuda_backend({place_on_host(world), options.deterministic, options.allow_tf32}, why_not);
  if (backend) return backend;
  if (options.device == Device::cuda) throw UsageError("--device cuda: " + why_not + "; use --device cpu or auto");
  if (has_cuda_backend() && world.is_chief()) log_info("Computing on the CPU: " + why_not + ".");
  return nullptr;
}

std::unique_ptr<Backend> make_backend(const Options& options, const World& world) {
  auto backend = make_cuda(options, world);
  if (!backend) {
    backend = make_cpu_backend(threads_of(world));
    if (options.allow_tf32 && world.is_chief()) {
      log_warning("--allow-tf32 changes nothing here: it is for GPUs, and this run computes on the CPU.");
    }
  }
  if (options.precision == Precision::mixed_bfloat16) backend->require_bfloat16();
  return backend;
}

}  // namespace

std::pair<std::string, std::string> around_difference(const std::string& a, const std::string& b) {
  constexpr std::size_t before = 40;
  constexpr std::size_t shown = 100;
  const auto place = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const auto cut = [place](const std::string& text) {
    if (text.size() <= shown) return text;
    const std::size_t begin = place > before ? place - before : 0;
    const std::size_t end = std::min(text.size(), begin + shown);
    return (begin > 0 ? "... " : "") + text.substr(begin, end - begin) + (end < text.size() ? " ..." : "");
  };
  return {cut(a), cut(b)};
}

Runtime::Runtime(const Options& options) : options_(options) {
  const bool nccl = options_.communication == Communication::nccl;
  const Transport transport = nccl ? Transport::automatic : transport_of(options_.communication);
  control_ = make_communicator(world_, transport, nullptr, tell_waiting());
  const auto workers = static_cast<std::size_t>(world_.size());
  if (options_.replicas > 0 && replicas() < workers) {
    throw UsageError("--replicas " + std::to_string(options_.replicas) + " is less than the " +
                     std::to_string(workers) + " workers, and each needs one; leave it out, or start fewer workers");
  }
  backend_ = make_backend(options_, world_);
  if (nccl && backend_->queue() == nullptr) {
    throw UsageError("--communication nccl sums on GPUs, and this run computes on the CPU; use auto, shared or mpi");
  }
  if (has_cuda_backend()) agree("the device", backend_->queue() == nullptr ? "cpu" : "cuda");
  tell_busy();
}

Runtime::~Runtime() {
  if (std::uncaught_exceptions() > 0) return;
  tell_busy();
  try {
    writer_.wait();
  } catch (const std::exception& error) {
    log_error(error.what());
    return;
  }
  backups_.shall_go = world_.is_chief();
}

Runtime::FinishedBackups::~FinishedBackups() {
  if (!shall_go) return;
  for (const BackupDirectory& directory : directories) directory.clear();
}

void Runtime::write_later(Communicator& gathering, std::function<void()> job) {
  finish_gathering();
  gathering_ = &gathering;
  gathering_job_ = std::move(job);
  move_on_writing();
}

void Runtime::move_on_writing() {
  if (gathering_ == nullptr || !gathering_->is_gathered()) return;
  gathering_ = nullptr;
  const auto job = std::exchange(gathering_job_, {});
  if (!job) return;
  writer_.start([this, job] {
    try {
      job();
      warned_of_writing_ = false;
    } catch (const IoError& error) {
      if (options_.on_checkpoint_failure == CheckpointFailure::stop) throw;
      if (!warned_of_writing_) log_warning(std::string(error.what()) + " Training goes on without this checkpoint.");
      warned_of_writing_ = true;
    }
  });
}

void Runtime::finish_gathering() {
  if (gathering_ == nullptr) return;
  tell_busy();
  gathering_->finish_gather();
  move_on_writing();
}

void Runtime::drop_gathering() noexcept {
  if (gathering_ == nullptr) return;
  std::exchange(gathering_, nullptr)->drop_gather();
  gathering_job_ = {};
}

void Runtime::finish_writing() {
  finish_gathering();
  if (writer_.busy()) tell_busy();
  writer_.wait();
}

void Runtime::leave(const std::string& what) {
  tell_busy();
  finish_writing();
  if (world_.is_chief()) log_info(what);
  World::end_together(static_cast<int>(ExitCode::temporary));
}

void Runtime::check_writing() {
  if (!writer_.busy()) writer_.wait();
}

std::function<void(bool)> Runtime::tell_waiting() {
  return [this](bool still) { launcher_.progress().waiting(still); };
}

std::unique_ptr<Communicator> Runtime::new_communicator() {
  const bool rounds = options_.gradient_compression == GradientCompression::bfloat16;
  return make_communicator(world_, transport_of(options_.communication), backend_->queue(), tell_waiting(),
                           rounds ? Compression::bfloat16 : Compression::none);
}

std::size_t Runtime::replicas() const noexcept {
  return static_cast<std::size_t>(options_.replicas > 0 ? options_.replicas : world_.size());
}

void Runtime::agree(const std::string& what, const std::string& value) {
  const std::vector<std::string> values = control_->all_gather(value);
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    if (values[rank] == values[0]) continue;
    const auto [mine, theirs] = around_difference(values[0], values[rank]);
    throw UsageError("the workers disagree about " + what + ": worker 0 has " + mine + ", worker " +
                     std::to_string(rank) + " has " + theirs + "; start all of them with the same");
  }
}

}  // namespace lockstep
