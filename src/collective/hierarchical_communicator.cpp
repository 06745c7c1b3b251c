// See hierarchical_communicator.hpp.
#include "collective/hierarchical_communicator.hpp"

#include "collective/argument_checks.hpp"
#include "core/digest.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t window_slack = std::size_t{1} << 16U;         // MPI's own data in a shared window
constexpr std::size_t max_broadcast_bytes = std::size_t{1} << 30U;  // MPI counts with an int
constexpr int exchange_tag = 2;                                     // 1 is the background gather's
constexpr int first_all_to_all_tag = 16;                            // lower tags belong to other messages

int rank_in_world() {
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

/// mine[i] = sources[0][i] + sources[1][i] + ... for i in [begin, end), with at least two sources. `mine` is one of the
/// sources, so sums go to a local block, which the compiler knows not to overlap with anything.
void sum_in_rank_order(float* mine, std::span<const float* const> sources, std::size_t begin, std::size_t end) {
  std::array<float, 2048> block;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  for (std::size_t at = begin; at < end; at += block.size()) {
    const std::size_t count = std::min(block.size(), end - at);
    for (std::size_t i = 0; i < count; ++i) block[i] = sources[0][at + i] + sources[1][at + i];
    for (const float* source : sources.subspan(2)) {
      for (std::size_t i = 0; i < count; ++i) block[i] += source[at + i];
    }
    std::copy_n(block.data(), count, mine + at);
  }
}

std::string in_mebibytes(std::uint64_t bytes) { return fmt::format("{} MiB", (bytes + (1U << 20U) - 1) >> 20U); }

}  // namespace

HierarchicalCommunicator::HierarchicalCommunicator(const std::vector<int>& host_of_rank,
                                                   const CommunicatorOptions& options)
    : host_of_rank_(host_of_rank),
      topology_(Topology::of(host_of_rank, rank_in_world())),
      policy_(make_wait_policy(options, topology_.host_ranks.size())),
      world_(MpiComm::of_world()),
      host_comm_(world_.split(topology_.host)),
      inter_host_comm_(world_.split(topology_.has_shard() ? static_cast<int>(topology_.local_rank) : MPI_UNDEFINED)),
      wire_format_{.compression = options.compression} {}

std::string HierarchicalCommunicator::describe() const {
  if (topology_.hosts == 1) return fmt::format("shared memory ({} ranks)", topology_.size);
  const char* rounding =
      wire_format_.compression == GradientCompression::bfloat16 ? ", gradients rounded to bfloat16" : "";
  if (topology_.hosts == topology_.size) return fmt::format("MPI ({} hosts{})", topology_.hosts, rounding);
  return fmt::format("shared memory within {} hosts, MPI between them{}", topology_.hosts, rounding);
}

ArenaMemory HierarchicalCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                               std::vector<Range> buckets) {
  if (group_) throw InternalError("Communicator::allocate was called twice");
  check_equal_sizes(gradient_elements, mirrored_bytes, buckets);
  check_buckets(buckets, gradient_elements);
  const SharedMemoryLayout layout(topology_.host_ranks.size(), gradient_elements, mirrored_bytes, buckets.size());
  check_shared_memory(has_shared_memory() ? layout.total_bytes() + window_slack : 0);
  std::byte* memory = nullptr;
  if (has_shared_memory()) {
    shared_memory_ = MpiSharedWindow(host_comm_, layout.total_bytes());
    memory = shared_memory_.memory().data();
  } else {
    local_memory_ = AlignedBuffer(layout.total_bytes());
    memory = local_memory_.data();
  }
  std::function<void()> on_wait;
  if (topology_.hosts > 1) on_wait = [this] { make_progress_while_waiting(); };
  for (const Range& bucket : buckets) shards_.push_back(topology_.own_shard(bucket, is_whole(bucket)));
  group_.emplace(topology_, layout, memory, shards_, policy_, std::move(on_wait));
  if (topology_.hosts > 1 && topology_.has_shard()) {
    inter_host_.emplace(inter_host_comm_, group_->arenas().gradients, shards_, wire_format_);
  }
  barrier();  // no rank may mark a bucket ready before all have cleared their counters
  return group_->arenas();
}

bool HierarchicalCommunicator::is_whole(const Range& bucket) const {
  return std::ranges::any_of(whole_, [&](const Range& range) { return range.overlaps(bucket); });
}

/// Ranks that disagree would misread each other's memory, so every rank throws.
void HierarchicalCommunicator::check_equal_sizes(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                                 std::span<const Range> buckets) {
  std::uint64_t borders = fnv1a_basis;
  for (const Range& bucket : buckets) borders = fnv1a(fnv1a(borders, bucket.begin), bucket.end);
  const std::vector<std::string> texts =
      all_gather(fmt::format("{} gradients, {} mirrored bytes, {} buckets (borders {})", gradient_elements,
                             mirrored_bytes, buckets.size(), to_hex(borders)));
  const auto other = std::ranges::find_if(texts, [&](const std::string& each) { return each != texts[0]; });
  if (other == texts.end()) return;
  throw InternalError(fmt::format("rank {} has {}, rank 0 has {}", other - texts.begin(), *other, texts[0]));
}

/// The system grants a window larger than /dev/shm, and kills the process that touches the first missing page.
void HierarchicalCommunicator::check_shared_memory(std::size_t needed) {
  struct SharedMemorySpace {
    std::uint64_t needed, available;
  };
  SharedMemorySpace mine{needed, std::numeric_limits<std::uint64_t>::max()};
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) mine.available = std::uint64_t{shm.f_bavail} * shm.f_frsize;
  std::vector<SharedMemorySpace> spaces(static_cast<std::size_t>(topology_.size));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, spaces.data(), sizeof mine, MPI_BYTE, world_.get()),
            "MPI_Allgather");
  const auto small =
      std::ranges::find_if(spaces, [](const SharedMemorySpace& space) { return space.needed > space.available; });
  if (small == spaces.end()) return;
  throw IoError(
      fmt::format("/dev/shm on the host of rank {} is too small: {} bytes ({}) are needed and {} ({}) are free; "
                  "mount a larger memory-backed /dev/shm, or use --communication mpi",
                  small - spaces.begin(), small->needed, in_mebibytes(small->needed), small->available,
                  in_mebibytes(small->available)));
}

void HierarchicalCommunicator::mark_ready(std::size_t bucket) {
  group_->mark_ready(bucket);
  if (!inter_host_) return;
  ready_buckets_.push_back(bucket);
  make_progress();
}

void HierarchicalCommunicator::make_progress() {
  if (inter_host_) progress_inter_host_all_reduce();
  // The kernel buffers data from other hosts until this rank waits too. A rank of the same host needs progress now.
  if (gather_ && topology_.hosts == 1) gather_->make_progress();
}

void HierarchicalCommunicator::make_progress_while_waiting() {
  if (inter_host_) progress_inter_host_all_reduce();
  if (!gather_) return;
  gather_->post_due_slice();
  gather_->make_progress();
}

void HierarchicalCommunicator::progress_inter_host_all_reduce() {
  for (; !ready_buckets_.empty() && group_->is_ready(ready_buckets_.front()); ready_buckets_.pop_front()) {
    const std::size_t bucket = ready_buckets_.front();
    const Range& mine = shards_[bucket];
    if (has_shared_memory()) {
      const ReducedShard shard = group_->wait_reduced(bucket);
      sum_in_rank_order(group_->arenas().gradients.data(), shard.sources, mine.begin, mine.end);
    }
    inter_host_->start(bucket);
  }
  inter_host_->make_progress();
}

bool HierarchicalCommunicator::is_reduced(std::size_t bucket) const {
  return !inter_host_ || inter_host_->is_reduced(bucket);
}

ReducedShard HierarchicalCommunicator::wait_reduced(std::size_t bucket) {
  ReducedShard shard = group_->wait_reduced(bucket);
  if (!inter_host_ || shard.begin == shard.end) return shard;
  wait_for_inter_host(bucket);
  shard.sources = inter_host_->sources();
  return shard;
}

void HierarchicalCommunicator::wait_for_inter_host(std::size_t bucket) {
  make_progress();
  if (inter_host_->is_reduced(bucket)) return;
  WaitLoop wait(policy_);
  while (true) {
    make_progress_while_waiting();
    if (inter_host_->is_reduced(bucket)) break;
    if (wait.pause()) wait.report(fmt::format("another host to send its gradient of bucket {}", bucket));
  }
  mpi_wait_ += wait.seconds();
}

void HierarchicalCommunicator::mark_updated(std::size_t bucket) {
  if (inter_host_) inter_host_->release(bucket);
  group_->mark_updated(bucket);
}

void HierarchicalCommunicator::prepare_all_to_alls(const std::vector<AllToAll>& all_to_alls) {
  std::vector<int> next_tags(static_cast<std::size_t>(topology_.size), first_all_to_all_tag);
  for (const AllToAll& buffers : all_to_alls) all_to_alls_.emplace_back(world_, topology_.rank, buffers, next_tags);
}

void HierarchicalCommunicator::finish_all_to_all(std::size_t all_to_all) {
  MpiAllToAll& pending = all_to_alls_.at(all_to_all);
  if (pending.test()) return;
  WaitLoop wait(policy_);
  while (!pending.test()) {
    make_progress_while_waiting();
    if (wait.pause()) wait.report(others() + " to send its block of an all-to-all between two layers");
  }
  mpi_wait_ += wait.seconds();
}

std::string HierarchicalCommunicator::others() const {
  return topology_.size == 2 ? fmt::format("rank {}", 1 - topology_.rank) : "another rank";
}

/// Sends `own` to every other rank, and receives what each sends into its part. MPI's own collectives do not tell which
/// rank is missing.
void HierarchicalCommunicator::exchange(std::span<const std::byte> own, std::span<const std::span<std::byte>> parts,
                                        const char* what) {
  const std::size_t ranks = parts.size();
  const auto me = static_cast<std::size_t>(topology_.rank);
  std::vector<MPI_Request>& requests = exchange_requests_;
  requests.assign(2 * ranks, MPI_REQUEST_NULL);
  for (std::size_t step = 1; step < ranks; ++step) {  // begins with the successor: no rank is every other's first
    const std::size_t to = (me + step) % ranks;
    const std::size_t from = (me + ranks - step) % ranks;
    check_mpi(MPI_Irecv(parts[from].data(), static_cast<int>(parts[from].size()), MPI_BYTE, static_cast<int>(from),
                        exchange_tag, world_.get(), requests.data() + from),
              "MPI_Irecv");
    check_mpi(MPI_Isend(own.data(), static_cast<int>(own.size()), MPI_BYTE, static_cast<int>(to), exchange_tag,
                        world_.get(), requests.data() + ranks + to),
              "MPI_Isend");
  }
  std::ranges::copy(own, parts[me].begin());
  WaitLoop wait(policy_);
  completed_requests_.resize(requests.size());
  while (true) {
    int count = 0;
    check_mpi(MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, completed_requests_.data(),
                           MPI_STATUSES_IGNORE),
              "MPI_Testsome");
    if (std::ranges::count(requests, MPI_REQUEST_NULL) == static_cast<std::ptrdiff_t>(requests.size())) break;
    if (!wait.pause()) continue;
    const auto missing =
        std::ranges::find_if(requests, [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
    const auto rank = static_cast<std::size_t>(missing - requests.begin()) % ranks;
    wait.report(fmt::format("rank {} to join {}", rank, what));
  }
  mpi_wait_ += wait.seconds();
}

/// An exchange of as many bytes from every rank, which lie one after the other in `all`.
void HierarchicalCommunicator::exchange_equal(std::span<const std::byte> own, std::span<std::byte> all,
                                              const char* what) {
  exchange_parts_.resize(static_cast<std::size_t>(topology_.size));
  for (std::size_t rank = 0; rank < exchange_parts_.size(); ++rank)
    exchange_parts_[rank] = all.subspan(rank * own.size(), own.size());
  exchange(own, exchange_parts_, what);
}

/// Waits for a collective of the whole world in a WaitLoop, since MPI's own waits have no timeout.
void HierarchicalCommunicator::wait_for_request(MPI_Request request, const char* call, const char* what,
                                                const std::string& whom) {
  WaitLoop wait(policy_);
  int done = 0;
  while (true) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
    if (done != 0) break;
    if (wait.pause()) wait.report(whom + " to join " + what);
  }
  mpi_wait_ += wait.seconds();
}

void HierarchicalCommunicator::all_reduce_sum(std::span<double> values) {
  const std::size_t count = values.size();
  gathered_values_.resize(count * static_cast<std::size_t>(topology_.size));
  exchange_equal(std::as_bytes(values), std::as_writable_bytes(std::span(gathered_values_)), "an all-reduce");
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (std::size_t at = i; at < gathered_values_.size(); at += count) sum += gathered_values_[at];
    values[i] = sum;
  }
}

void HierarchicalCommunicator::broadcast(std::span<std::byte> bytes, int root) {
  check_root(root, topology_.size);
  for (std::size_t at = 0; at < bytes.size(); at += max_broadcast_bytes) {
    const std::size_t count = std::min(max_broadcast_bytes, bytes.size() - at);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(bytes.data() + at, static_cast<int>(count), MPI_BYTE, root, world_.get(), &request),
              "MPI_Ibcast");
    wait_for_request(request, "MPI_Ibcast", "a broadcast",
                     root == topology_.rank ? others() : fmt::format("rank {} or one that forwards its data", root));
  }
}

void HierarchicalCommunicator::start_gather(std::span<const std::span<std::byte>> shards, int root,
                                            OnGathered on_gathered, std::size_t max_steps) {
  check_root(root, topology_.size);
  if (!is_gathered()) throw InternalError("a gather was started before the previous one was finished");
  gather_.emplace(world_, shards, root, std::move(on_gathered), max_steps);
}

void HierarchicalCommunicator::schedule_gather_slice() {
  if (gather_) gather_->schedule_slice();
}

void HierarchicalCommunicator::finish_gather() {
  if (is_gathered()) return;
  gather_->send_remaining();
  WaitLoop wait(policy_);
  while (true) {
    make_progress_while_waiting();
    if (is_gathered()) break;
    if (wait.pause()) wait.report(others() + " to join a gather");
  }
  mpi_wait_ += wait.seconds();
}

std::vector<std::string> HierarchicalCommunicator::all_gather(const std::string& text) {
  const auto ranks = static_cast<std::size_t>(topology_.size);
  const std::uint64_t own_length = text.size();
  std::vector<std::uint64_t> lengths(ranks);
  exchange_equal(std::as_bytes(std::span(&own_length, 1)), std::as_writable_bytes(std::span(lengths)), "an all-gather");
  std::vector<std::string> texts(ranks);
  std::vector<std::span<std::byte>> parts(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {  // every rank knows every length, so all throw alike
    check_all_gather_size(lengths[rank], static_cast<int>(rank));
    texts[rank].resize(lengths[rank]);
    parts[rank] = std::as_writable_bytes(std::span(texts[rank]));
  }
  exchange(std::as_bytes(std::span(text)), parts, "an all-gather");
  return texts;
}

void HierarchicalCommunicator::barrier() { exchange_equal({}, {}, "a barrier"); }

CommunicationTimes HierarchicalCommunicator::take_times() noexcept {
  CommunicationTimes times;
  if (group_) times.shared_memory_wait = group_->take_wait();
  times.mpi_wait = std::exchange(mpi_wait_, 0.0);
  return times;
}

}  // namespace lockstep
