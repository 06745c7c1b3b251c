// See hybrid_communicator.hpp.
#include "collective/hybrid_communicator.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "collective/limits.hpp"
#include "core/clock.hpp"
#include "core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t window_slack = std::size_t{1} << 16U;     // what MPI keeps in a window for itself
constexpr std::size_t broadcast_piece = std::size_t{1} << 30U;  // MPI counts with an int
constexpr int first_exchange_tag = 16;                          // those below belong to others

int rank_in_world() {
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

/// mine[i] = sources[0][i] + sources[1][i] + ... for i in [begin, end), of two sources or more. `mine` is one of them,
/// so a small block is summed apart: the compiler then knows that nothing overlaps.
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

std::string in_mebibytes(std::uint64_t bytes) { return std::to_string((bytes + (1U << 20U) - 1) >> 20U) + " MiB"; }

}  // namespace

HybridCommunicator::HybridCommunicator(const std::vector<int>& host_of_rank, std::function<void(bool)> while_waiting,
                                       Compression compression)
    : topology_(Topology::of(host_of_rank, rank_in_world())),
      policy_(WaitPolicy::of(current_environment(), topology_.host_ranks.size())),
      world_(MpiComm::of_world()),
      host_(world_.split(topology_.host)),
      link_(world_.split(topology_.owns_share() ? static_cast<int>(topology_.local) : MPI_UNDEFINED)),
      compression_(compression) {
  policy_.while_waiting = std::move(while_waiting);
}

std::string HybridCommunicator::describe() const {
  if (topology_.hosts == 1) return "shared memory (" + std::to_string(topology_.size) + " ranks)";
  const std::string hosts = std::to_string(topology_.hosts) + " hosts";
  const std::string rounding = compression_ == Compression::bfloat16 ? ", gradients rounded to bfloat16" : "";
  return (topology_.hosts == topology_.size ? "MPI (" + hosts + rounding + ")"
                                            : "shared memory within " + hosts + ", MPI between them" + rounding);
}

ArenaMemory HybridCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                         std::vector<BucketRange> buckets) {
  if (team_) throw InternalError("a communicator was asked for a second set of arenas");
  agree_on_sizes(gradient_elements, mirrored_bytes, buckets);
  check_buckets(buckets, gradient_elements);
  const HostLayout layout(topology_.host_ranks.size(), gradient_elements, mirrored_bytes, buckets.size());
  check_shared_memory(shares_memory() ? layout.total_bytes() + window_slack : 0);
  std::byte* memory = nullptr;
  if (shares_memory()) {
    shared_memory_ = MpiSharedWindow(host_, layout.total_bytes());
    memory = shared_memory_.memory().data();
  } else {
    own_memory_ = AlignedBuffer(layout.total_bytes());
    memory = own_memory_.data();
  }
  std::function<void()> meanwhile;
  if (topology_.hosts > 1) meanwhile = [this] { advance_while_waiting(); };
  team_.emplace(topology_, layout, memory, buckets, policy_, std::move(meanwhile));
  if (topology_.hosts > 1) make_sums(buckets);
  barrier();  // nobody contributes before all have cleared their part
  return team_->arenas();
}

void HybridCommunicator::make_sums(std::span<const BucketRange> buckets) {
  if (!topology_.owns_share()) return;
  for (const BucketRange& bucket : buckets) shares_.push_back(share_of(bucket, topology_.local, topology_.shares));
  sums_.emplace(link_, team_->arenas().gradients, shares_, compression_, exact_);
}

/// Ranks that disagree would read each other's memory wrongly: better to say so on all of them.
void HybridCommunicator::agree_on_sizes(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                        std::span<const BucketRange> buckets) {
  std::ostringstream text;
  text << gradient_elements << " gradients, " << mirrored_bytes << " mirrored bytes, " << buckets.size() << " buckets";
  std::uint64_t digest = 0xCBF29CE484222325U;  // FNV-1a over the borders
  for (const BucketRange& bucket : buckets) {
    for (const std::uint64_t border : {bucket.begin, bucket.end}) digest = (digest ^ border) * 0x100000001B3U;
  }
  text << " (borders " << std::hex << digest << ")";
  const std::vector<std::string> texts = all_gather(text.str());
  const auto other = std::ranges::find_if(texts, [&](const std::string& each) { return each != texts[0]; });
  if (other == texts.end()) return;
  throw InternalError("rank " + std::to_string(other - texts.begin()) + " has " + *other + ", rank 0 has " + texts[0]);
}

/// A window larger than /dev/shm would be granted, and kill us where the first missing page is touched.
void HybridCommunicator::check_shared_memory(std::size_t needed) {
  struct Room {
    std::uint64_t needed, available;
  };
  Room mine{needed, std::numeric_limits<std::uint64_t>::max()};
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) mine.available = std::uint64_t{shm.f_bavail} * shm.f_frsize;
  std::vector<Room> rooms(static_cast<std::size_t>(topology_.size));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, rooms.data(), sizeof mine, MPI_BYTE, world_.get()),
            "MPI_Allgather");
  const auto small = std::ranges::find_if(rooms, [](const Room& room) { return room.needed > room.available; });
  if (small == rooms.end()) return;
  throw IoError("/dev/shm on the host of rank " + std::to_string(small - rooms.begin()) +
                " is too small: " + std::to_string(small->needed) + " bytes (" + in_mebibytes(small->needed) +
                ") are needed and " + std::to_string(small->available) + " (" + in_mebibytes(small->available) +
                ") are free; mount a larger memory-backed /dev/shm, or use --communication mpi");
}

void HybridCommunicator::contribute(std::size_t bucket) {
  team_->contribute(bucket);
  if (!sums_) return;
  to_send_.push_back(bucket);
  advance();
}

void HybridCommunicator::advance() {
  if (sums_) advance_sums();
  // What comes from another host can wait in the kernel until this rank has to wait, too; a neighbour cannot.
  if (gather_ && topology_.hosts == 1) gather_->advance();
}

void HybridCommunicator::advance_while_waiting() {
  if (sums_) advance_sums();
  if (!gather_) return;
  gather_->use_wait();
  gather_->advance();
}

void HybridCommunicator::advance_sums() {
  for (; !to_send_.empty() && team_->is_contributed(to_send_.front()); to_send_.pop_front()) {
    const std::size_t bucket = to_send_.front();
    const BucketRange& mine = shares_[bucket];
    if (shares_memory()) {
      const ReducedShare share = team_->reduce(bucket);
      sum_in_rank_order(team_->arenas().gradients.data(), share.sources, mine.begin, mine.end);
    }
    sums_->start(bucket);
  }
  sums_->advance();
}

bool HybridCommunicator::is_here(std::size_t bucket) const { return !sums_ || sums_->has_arrived(bucket); }

ReducedShare HybridCommunicator::reduce(std::size_t bucket) {
  ReducedShare share = team_->reduce(bucket);
  if (!sums_ || share.begin == share.end) return share;
  wait_for(bucket);
  share.sources = sums_->sources();
  return share;
}

void HybridCommunicator::wait_for(std::size_t bucket) {
  advance();
  if (sums_->has_arrived(bucket)) return;
  Patience patience(policy_);
  while (true) {
    advance_while_waiting();
    if (sums_->has_arrived(bucket)) break;
    if (patience.pass()) patience.speak("some host to send its gradient of bucket " + std::to_string(bucket));
  }
  reducing_ += patience.seconds();
}

void HybridCommunicator::publish(std::size_t bucket) {
  if (sums_) sums_->release(bucket);
  team_->publish(bucket);
}

void HybridCommunicator::prepare_exchanges(const std::vector<Exchange>& exchanges) {
  std::vector<int> first_tags(static_cast<std::size_t>(topology_.size), first_exchange_tag);
  for (const Exchange& exchange : exchanges) exchanges_.emplace_back(world_, topology_.rank, exchange, first_tags);
}

void HybridCommunicator::take(std::size_t exchange) {
  LinkExchange& awaited = exchanges_.at(exchange);
  if (awaited.has_arrived()) return;
  Patience patience(policy_);
  while (!awaited.has_arrived()) {
    advance_while_waiting();
    if (patience.pass()) patience.speak(others() + " to hand over its part of the values between two layers");
  }
  reducing_ += patience.seconds();
}

std::string HybridCommunicator::others() const {
  return topology_.size == 2 ? "rank " + std::to_string(1 - topology_.rank) : "some rank";
}

/// Waits for a collective of the whole world with patience and a limit, which MPI's own waiting lacks.
void HybridCommunicator::finish(MPI_Request request, const char* call, const char* what, const std::string& whom) {
  Patience patience(policy_);
  int done = 0;
  while (true) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
    if (done != 0) break;
    if (patience.pass()) patience.speak(whom + " to come to " + what);
  }
  reducing_ += patience.seconds();
}

void HybridCommunicator::all_reduce_sum(std::span<double> values) {
  const std::size_t count = values.size();
  everybodys_.resize(count * static_cast<std::size_t>(topology_.size));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(values.data(), static_cast<int>(count), MPI_DOUBLE, everybodys_.data(),
                           static_cast<int>(count), MPI_DOUBLE, world_.get(), &request),
            "MPI_Iallgather");
  finish(request, "MPI_Iallgather", "a sum over all ranks", others());
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (std::size_t at = i; at < everybodys_.size(); at += count) sum += everybodys_[at];
    values[i] = sum;
  }
}

void HybridCommunicator::broadcast(std::span<std::byte> bytes, int root) {
  check_root(root, topology_.size);
  for (std::size_t at = 0; at < bytes.size(); at += broadcast_piece) {
    const std::size_t count = std::min(broadcast_piece, bytes.size() - at);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(bytes.data() + at, static_cast<int>(count), MPI_BYTE, root, world_.get(), &request),
              "MPI_Ibcast");
    finish(request, "MPI_Ibcast", "a broadcast",
           root == topology_.rank ? others() : "rank " + std::to_string(root) + " or one that passes it on");
  }
}

void HybridCommunicator::start_gather(std::span<const std::span<std::byte>> parts, int root, PartCame came) {
  check_root(root, topology_.size);
  if (!is_gathered()) throw InternalError("a second gathering of parts was begun before the first had ended");
  gather_.emplace(world_, parts, root, std::move(came));
}

void HybridCommunicator::gather_piece() {
  if (gather_) gather_->begin_step();
}

void HybridCommunicator::finish_gather() {
  if (is_gathered()) return;
  gather_->send_rest();
  Patience patience(policy_);
  while (true) {
    advance_while_waiting();
    if (is_gathered()) break;
    if (patience.pass()) patience.speak(others() + " to come to a gathering of parts");
  }
  reducing_ += patience.seconds();
}

std::vector<std::string> HybridCommunicator::all_gather(const std::string& text) {
  const auto ranks = static_cast<std::size_t>(topology_.size);
  const std::uint64_t own_length = text.size();
  std::vector<std::uint64_t> lengths(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&own_length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, world_.get(), &request),
            "MPI_Iallgather");
  finish(request, "MPI_Iallgather", "a gathering of texts", others());
  std::vector<int> counts(ranks);
  std::vector<int> offsets(ranks);
  std::size_t total = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {  // every rank knows every length, so all refuse alike
    check_gathered(lengths[rank], static_cast<int>(rank));
    counts[rank] = static_cast<int>(lengths[rank]);
    offsets[rank] = static_cast<int>(total);
    total += lengths[rank];
    if (total > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
      throw InternalError("the texts of " + std::to_string(ranks) + " ranks are more than MPI can gather at once");
    }
  }
  std::string all(total, '\0');
  check_mpi(MPI_Iallgatherv(text.data(), counts[static_cast<std::size_t>(topology_.rank)], MPI_CHAR, all.data(),
                            counts.data(), offsets.data(), MPI_CHAR, world_.get(), &request),
            "MPI_Iallgatherv");
  finish(request, "MPI_Iallgatherv", "a gathering of texts", others());
  std::vector<std::string> texts;
  texts.reserve(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[rank]), lengths[rank]));
  }
  return texts;
}

void HybridCommunicator::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(world_.get(), &request), "MPI_Ibarrier");
  finish(request, "MPI_Ibarrier", "a barrier", others());
}

CommunicationTimes HybridCommunicator::take_times() noexcept {
  CommunicationTimes times;
  if (team_) times.waiting = team_->take_waiting();
  times.reducing = std::exchange(reducing_, 0.0);
  return times;
}

}  // namespace lockstep
