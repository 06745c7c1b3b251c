// NCCL between processes of one host, through a file in shared memory that the unique id names. The communicator is a
// non-blocking one: calls answer "in progress", and what they enqueue is there once the caller has heard of success, no
// sooner (NCCL user guide, "Non-blocking communicators"). A rank that dies loses its lock on the file: its peers then
// report ncclRemoteError. Sums are made in the order of ranks.
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

using played::Device;
using played::Outcome;

constexpr int most_ranks = 16;
constexpr std::size_t piece = std::size_t{1} << 18U;  // floats that a rank shows at a time
constexpr int polls = 3;                              // for which a call is in progress

struct Place {
  std::array<char, 80> gpu;          ///< which GPU of which host
  std::atomic<std::uint64_t> shown;  ///< pieces that lie in the rank's part
  std::atomic<std::uint64_t> taken;  ///< pieces that it has summed
  std::atomic<int> state;            ///< 0, 1 joined, 2 finalized
  char rest[32];
};

struct Shared {
  std::array<Place, most_ranks> places;
};

std::size_t bytes_for(int ranks) { return sizeof(Shared) + static_cast<std::size_t>(ranks) * piece * sizeof(float); }

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
  std::uint64_t pieces = 0;                               ///< summed so far
  std::uint64_t pending = 0;                              ///< sums on streams
  std::shared_ptr<bool> held = std::make_shared<bool>();  ///< by every sum, and by every recording of one
  std::function<void()> postponed;                        ///< enqueued when the call is no longer in progress

  [[nodiscard]] float* part(int of) const {
    return reinterpret_cast<float*>(shared + 1) + static_cast<std::size_t>(of) * piece;
  }
  template <typename Member>
  [[nodiscard]] bool all(Member member, std::uint64_t least) const {
    for (int r = 0; r < ranks; ++r) {
      if ((shared->places[static_cast<std::size_t>(r)].*member).load() < least) return false;
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

/// Looks for ranks that are gone.
void look_around(ncclComm& ring) {
  if (ring.error != ncclSuccess) return;
  for (int r = 0; r < ring.ranks; ++r) {
    if (r == ring.rank || ring.shared->places[static_cast<std::size_t>(r)].state.load() != 1) continue;
    struct flock lock = region(F_WRLCK, r);
    if (fcntl(ring.file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK &&
        ring.shared->places[static_cast<std::size_t>(r)].state.load() == 1) {
      ring.error = ncclRemoteError;
      last_error() = "rank " + std::to_string(r) + " is gone";
    }
  }
}

/// The sum of one bucket, piece by piece, as far as the others have come.
class Sum {
 public:
  Sum(ncclComm* ring, const float* from, float* to, std::size_t count)
      : ring_(ring), from_(from), to_(to), count_(count) {}

  Outcome step() {
    if (ring_->aborted) return Outcome::done;  // the kernel leaves the device, its result is nobody's
    const std::size_t size = std::min(piece, count_ - begin_);
    Place& own = ring_->shared->places[static_cast<std::size_t>(ring_->rank)];
    if (!shown_) {
      if (!ring_->all(&Place::taken, ring_->pieces)) return Outcome::stuck;
      std::copy_n(from_ + begin_, size, ring_->part(ring_->rank));
      own.shown.store(ring_->pieces + 1);
      shown_ = true;
      return Outcome::moved;
    }
    if (!ring_->all(&Place::shown, ring_->pieces + 1)) return Outcome::stuck;
    for (std::size_t i = 0; i < size; ++i) {
      float sum = 0;
      for (int r = 0; r < ring_->ranks; ++r) sum += ring_->part(r)[i];
      to_[begin_ + i] = sum;
    }
    own.taken.store(++ring_->pieces);
    shown_ = false;
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
  bool shown_ = false;
};

/// True once all ranks have come; an error where two of them share a GPU.
bool join(ncclComm& ring) {
  for (int r = 0; r < ring.ranks; ++r) {
    if (ring.shared->places[static_cast<std::size_t>(r)].state.load() == 0) return false;
  }
  for (int r = 0; r < ring.ranks; ++r) {
    const bool same = ring.shared->places[static_cast<std::size_t>(r)].gpu ==
                      ring.shared->places[static_cast<std::size_t>(ring.rank)].gpu;
    if (r == ring.rank || !same) continue;
    ring.error = ncclInvalidUsage;
    last_error() = "Duplicate GPU detected";
  }
  if (ring.rank == 0) (void)shm_unlink(ring.name.c_str());
  return true;
}

void leave(ncclComm* ring) {
  if (ring->shared != nullptr) munmap(ring->shared, bytes_for(ring->ranks));
  if (ring->file >= 0) close(ring->file);
  delete ring;
}

/// As NCCL does, whether calls block or not: until no recording holds kernels of the communicator.
void wait_for_recordings(ncclComm_t ring) {
  for (bool held = true; held;) {
    {
      const played::Locked locked;
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
  std::snprintf(id->internal, sizeof id->internal, "/lockstep_played_nccl_%d_%d", static_cast<int>(getpid()), number++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (ranks < 1 || ranks > most_ranks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  if (config->blocking != 0) return ncclInvalidUsage;  // blocking ones are not played
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
  Place& place = ring->shared->places[static_cast<std::size_t>(rank)];
  std::snprintf(place.gpu.data(), place.gpu.size(), "%s %d", played::variable("NCCL_HOSTID", "").c_str(), device);
  place.state.store(1);
  *made = ring.release();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t ring, ncclResult_t* error) {
  const played::Locked locked;
  *error = ncclInProgress;
  if (!ring->joined) {
    ring->joined = join(*ring);
    if (ring->joined && ring->error == ncclSuccess) ring->polls_left = polls;
  }
  look_around(*ring);
  if (ring->error != ncclSuccess) {
    *error = ring->error;
    return ncclSuccess;
  }
  if (!ring->joined || --ring->polls_left > 0) return ncclSuccess;
  if (ring->postponed) std::exchange(ring->postponed, nullptr)();
  if (ring->finalizes) {
    Device::get().advance(16);
    if (ring->pending > 0) return ncclSuccess;
    ring->shared->places[static_cast<std::size_t>(ring->rank)].state.store(2);
  }
  *error = ring->error;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t ring, cudaStream_t stream) {
  const played::Locked locked;
  if (type != ncclFloat32 || operation != ncclSum || count == 0) return ncclInvalidArgument;
  const std::size_t bytes = count * sizeof(float);
  if (!Device::get().memory().holds(from, bytes) || !Device::get().memory().holds(to, bytes)) {
    return ncclInvalidArgument;
  }
  if (ring->error != ncclSuccess) return ring->error;
  if (!ring->joined || ring->postponed || ring->finalizes) return ncclInvalidUsage;  // the last call is in progress
  ring->polls_left = polls;
  ring->postponed = [=] {
    const cudaError_t status = Device::get().enqueue(stream, [=, held = ring->held]() -> played::Work {
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
  const played::Locked locked;
  ring->finalizes = true;
  ring->polls_left = polls;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t ring) {
  wait_for_recordings(ring);
  const played::Locked locked;
  if (!ring->finalizes || ring->pending > 0) return ncclInvalidUsage;
  leave(ring);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t ring) {
  {
    const played::Locked locked;
    ring->aborted = true;
    ring->postponed = nullptr;
    Device::get().run_until([ring] { return ring->pending == 0; }, "ncclCommAbort");
  }
  wait_for_recordings(ring);
  const played::Locked locked;
  if (!ring->joined && ring->rank == 0) (void)shm_unlink(ring->name.c_str());
  leave(ring);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInvalidUsage: return "invalid usage";
    case ncclSystemError: return "unhandled system error";
    default: return "an error of the played NCCL";
  }
}

const char* ncclGetLastError(ncclComm_t /*ring*/) { return last_error().c_str(); }
