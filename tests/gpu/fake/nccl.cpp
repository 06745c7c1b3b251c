// NCCL between processes of one host, through a file in shared memory that the unique id names. Communicators are
// non-blocking: calls return ncclInProgress, and their work is enqueued only when the caller polls and gets ncclSuccess
// (NCCL user guide, "Non-blocking communicators"). A rank that dies loses its lock on the file; its peers then report
// ncclRemoteError, unless NCCL is "silent", as it is over NVLink. Sums are in rank order.
#include "device.hpp"

#include "include/nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace {

using fake_gpu::Device;
using fake_gpu::Outcome;

constexpr int max_ranks = 16;
constexpr std::size_t chunk = std::size_t{1} << 18U;  // floats that a rank exchanges at a time
constexpr int polls = 3;                              // during which a call stays in progress

struct RankSlot {
  std::array<char, 80> gpu;            ///< which GPU of which host
  std::atomic<std::uint64_t> written;  ///< chunks that the rank has written to its buffer
  std::atomic<std::uint64_t> summed;   ///< chunks that the rank has summed
  std::atomic<int> state;              ///< 0: not joined, 1: joined, 2: finalized
  char rest[32];
};

struct Shared {
  std::array<RankSlot, max_ranks> slots;
};

std::size_t bytes_for(int ranks) { return sizeof(Shared) + static_cast<std::size_t>(ranks) * chunk * sizeof(float); }

std::string& last_error() {
  static std::string text;
  return text;
}

}  // namespace

struct ncclComm {
  int rank = 0;
  int ranks = 0;
  std::string name;
  int file = -1;
  Shared* shared = nullptr;
  ncclResult_t error = ncclSuccess;
  bool joined = false;
  bool aborted = false;
  bool finalizes = false;
  int polls_left = polls;
  std::uint64_t chunks = 0;                               ///< summed so far
  std::uint64_t pending = 0;                              ///< sums on streams
  std::shared_ptr<bool> held = std::make_shared<bool>();  ///< shared with every sum and every graph that contains one
  std::function<void()> postponed;                        ///< enqueued when the call is no longer in progress

  [[nodiscard]] float* buffer_of(int owner) const {
    return reinterpret_cast<float*>(shared + 1) + static_cast<std::size_t>(owner) * chunk;
  }
  template <typename Member>
  [[nodiscard]] bool all(Member member, std::uint64_t minimum) const {
    for (int r = 0; r < ranks; ++r) {
      if ((shared->slots[static_cast<std::size_t>(r)].*member).load() < minimum) return false;
    }
    return true;
  }
};

namespace {

struct flock region(short type, int rank) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

/// Sets an error if a rank has died.
void check_peers(ncclComm& ring) {
  static const bool silent = fake_gpu::variable("LOCKSTEP_FAKE_GPU_NCCL", "works") == "silent";
  if (ring.error != ncclSuccess || silent) return;
  for (int r = 0; r < ring.ranks; ++r) {
    if (r == ring.rank || ring.shared->slots[static_cast<std::size_t>(r)].state.load() != 1) continue;
    struct flock lock = region(F_WRLCK, r);
    if (fcntl(ring.file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK &&
        ring.shared->slots[static_cast<std::size_t>(r)].state.load() == 1) {
      ring.error = ncclRemoteError;
      last_error() = "rank " + std::to_string(r) + " has exited";
    }
  }
}

/// The sum of one bucket, chunk by chunk, as the other ranks provide theirs.
class Sum {
 public:
  Sum(ncclComm* ring, const float* from, float* to, std::size_t count)
      : ring_(ring), from_(from), to_(to), count_(count) {}

  Outcome step() {
    if (ring_->aborted) return Outcome::done;  // ncclCommAbort ends the kernel; the result is undefined
    const std::size_t size = std::min(chunk, count_ - begin_);
    RankSlot& own = ring_->shared->slots[static_cast<std::size_t>(ring_->rank)];
    if (!written_) {
      if (!ring_->all(&RankSlot::summed, ring_->chunks)) return Outcome::stuck;
      std::copy_n(from_ + begin_, size, ring_->buffer_of(ring_->rank));
      own.written.store(ring_->chunks + 1);
      written_ = true;
      return Outcome::moved;
    }
    if (!ring_->all(&RankSlot::written, ring_->chunks + 1)) return Outcome::stuck;
    for (std::size_t i = 0; i < size; ++i) {
      float sum = 0;
      for (int r = 0; r < ring_->ranks; ++r) sum += ring_->buffer_of(r)[i];
      to_[begin_ + i] = sum;
    }
    own.summed.store(++ring_->chunks);
    written_ = false;
    begin_ += size;
    if (begin_ < count_) return Outcome::moved;
    return Outcome::done;
  }

 private:
  ncclComm* ring_;
  const float* from_;
  float* to_;
  std::size_t count_;
  std::size_t begin_ = 0;
  bool written_ = false;
};

/// True once all ranks have joined. Sets an error if two ranks share a GPU.
bool join(ncclComm& ring) {
  for (int r = 0; r < ring.ranks; ++r) {
    if (ring.shared->slots[static_cast<std::size_t>(r)].state.load() == 0) return false;
  }
  for (int r = 0; r < ring.ranks; ++r) {
    const bool same = ring.shared->slots[static_cast<std::size_t>(r)].gpu ==
                      ring.shared->slots[static_cast<std::size_t>(ring.rank)].gpu;
    if (r == ring.rank || !same) continue;
    ring.error = ncclInvalidUsage;
    last_error() = "Duplicate GPU detected";
  }
  if (ring.rank == 0) (void)shm_unlink(ring.name.c_str());
  return true;
}

void destroy(ncclComm* ring) {
  if (ring->shared != nullptr) munmap(ring->shared, bytes_for(ring->ranks));
  if (ring->file >= 0) close(ring->file);
  delete ring;
}

/// Waits until no captured graph holds kernels of the communicator, as NCCL does even for non-blocking communicators.
void wait_for_captured_graphs(ncclComm_t ring) {
  for (bool held = true; held;) {
    {
      const fake_gpu::Locked locked;
      held = ring->held.use_count() > 1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int number = 0;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "/lockstep_fake_nccl_%d_%d", static_cast<int>(getpid()), number++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (ranks < 1 || ranks > max_ranks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  if (config->blocking != 0) return ncclInvalidUsage;  // blocking communicators are not faked
  if (fake_gpu::variable("LOCKSTEP_FAKE_GPU_NCCL", "works") == "broken") return ncclSystemError;
  auto ring = std::make_unique<ncclComm>();
  ring->rank = rank;
  ring->ranks = ranks;
  ring->name = id.internal;
  ring->file = shm_open(id.internal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (ring->file < 0 || ftruncate(ring->file, static_cast<off_t>(bytes_for(ranks))) != 0) return ncclSystemError;
  void* const memory = mmap(nullptr, bytes_for(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, ring->file, 0);
  if (memory == MAP_FAILED) return ncclSystemError;
  ring->shared = static_cast<Shared*>(memory);
  struct flock lock = region(F_WRLCK, rank);
  if (fcntl(ring->file, F_SETLK, &lock) != 0) return ncclSystemError;
  int device = 0;
  (void)cudaGetDevice(&device);
  RankSlot& place = ring->shared->slots[static_cast<std::size_t>(rank)];
  std::snprintf(place.gpu.data(), place.gpu.size(), "%s %d", fake_gpu::variable("NCCL_HOSTID", "").c_str(), device);
  place.state.store(1);
  *made = ring.release();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t ring, ncclResult_t* error) {
  const fake_gpu::Locked locked;
  *error = ncclInProgress;
  if (!ring->joined) {
    ring->joined = join(*ring);
    if (ring->joined && ring->error == ncclSuccess) ring->polls_left = polls;
  }
  check_peers(*ring);
  if (ring->error != ncclSuccess) {
    *error = ring->error;
    return ncclSuccess;
  }
  if (!ring->joined || --ring->polls_left > 0) return ncclSuccess;
  if (ring->postponed) std::exchange(ring->postponed, nullptr)();
  if (ring->finalizes) {
    Device::get().advance(16);
    if (ring->pending > 0) return ncclSuccess;
    ring->shared->slots[static_cast<std::size_t>(ring->rank)].state.store(2);
  }
  *error = ring->error;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t ring, cudaStream_t stream) {
  const fake_gpu::Locked locked;
  if (type != ncclFloat32 || operation != ncclSum || count == 0) return ncclInvalidArgument;
  const std::size_t bytes = count * sizeof(float);
  if (!Device::get().memory().holds(from, bytes) || !Device::get().memory().holds(to, bytes)) {
    return ncclInvalidArgument;
  }
  if (ring->error != ncclSuccess) return ring->error;
  if (!ring->joined || ring->postponed || ring->finalizes) return ncclInvalidUsage;  // the previous call is in progress
  ring->polls_left = polls;
  ring->postponed = [=] {
    const cudaError_t status = Device::get().enqueue(stream, [=, held = ring->held]() -> fake_gpu::Work {
      ++ring->pending;
      auto sum = std::make_shared<Sum>(ring, static_cast<const float*>(from), static_cast<float*>(to), count);
      return [ring, sum] {
        const Outcome outcome = sum->step();
        if (outcome == Outcome::done) --ring->pending;
        return outcome;
      };
    });
    if (status != cudaSuccess) ring->error = ncclUnhandledCudaError;
  };
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t ring) {
  const fake_gpu::Locked locked;
  ring->finalizes = true;
  ring->polls_left = polls;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t ring) {
  wait_for_captured_graphs(ring);
  const fake_gpu::Locked locked;
  if (!ring->finalizes || ring->pending > 0) return ncclInvalidUsage;
  destroy(ring);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t ring) {
  {
    const fake_gpu::Locked locked;
    ring->aborted = true;
    ring->postponed = nullptr;
    Device::get().run_until([ring] { return ring->pending == 0; }, "ncclCommAbort");
  }
  wait_for_captured_graphs(ring);
  const fake_gpu::Locked locked;
  if (!ring->joined && ring->rank == 0) (void)shm_unlink(ring->name.c_str());
  destroy(ring);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInvalidUsage: return "invalid usage";
    case ncclSystemError: return "unhandled system error";
    default: return "an error of the fake NCCL";
  }
}

const char* ncclGetLastError(ncclComm_t /*ring*/) { return last_error().c_str(); }
