// A communicator with arenas in GPU memory. Buckets are all-reduced and updated on the communication stream while the
// compute stream continues with backward. The calls only order the two streams, so a whole step can be captured and
// replayed. Every rank updates all weights, which on a device is cheaper than an all-gather.
//
// This class suffices for a world of one rank; NcclCommunicator and HostStagedCommunicator add all-reduces.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective/communicator.hpp"
#include "core/cuda/device_streams.hpp"

namespace lockstep {

class DeviceCommunicator : public Communicator {
 public:
  /// `control` carries everything but gradients. `device_streams` must outlive the communicator.
  DeviceCommunicator(std::unique_ptr<Communicator> control, cuda::DeviceStreams& device_streams);

  [[nodiscard]] int rank() const noexcept final { return control_->rank(); }
  [[nodiscard]] int size() const noexcept final { return control_->size(); }
  [[nodiscard]] std::string describe() const override { return control_->describe(); }
  [[nodiscard]] std::vector<int> mirror_of_rank() const final;
  [[nodiscard]] bool is_mirror_owner() const noexcept final { return true; }
  [[nodiscard]] bool is_graph_capturable() const noexcept override { return true; }

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes, std::vector<Range> buckets) override;

  void mark_ready(std::size_t bucket) final;
  [[nodiscard]] ReducedShard wait_reduced(std::size_t bucket) final;
  void mark_updated(std::size_t bucket) final;

  /// Makes the compute stream wait for all updates so far.
  void wait_updated(std::size_t bucket) final;

  void all_reduce_sum(std::span<double> values) final { control_->all_reduce_sum(values); }
  void broadcast(std::span<std::byte> bytes, int root) final { control_->broadcast(bytes, root); }
  void start_gather(std::span<const std::span<std::byte>> shards, int root, OnGathered on_gathered,
                    std::size_t max_steps) final {
    control_->start_gather(shards, root, std::move(on_gathered), max_steps);
    control_->finish_gather();  // a device's step makes no progress on gathers
  }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) final {
    return control_->all_gather(text);
  }
  void barrier() final { control_->barrier(); }
  [[nodiscard]] CommunicationTimes take_times() noexcept final { return control_->take_times(); }

 protected:
  /// As `allocate`, with gradients in zero-initialized memory of a subclass.
  ArenaMemory use_memory(std::span<float> gradients, std::size_t mirrored_bytes, std::vector<Range> buckets);

  /// Enqueues the all-reduce of a bucket over all ranks, in place, on the communication stream.
  virtual void all_reduce(std::size_t bucket, std::span<float> gradients);

  [[nodiscard]] Communicator& control() noexcept { return *control_; }
  [[nodiscard]] cuda::DeviceStreams& device_streams() noexcept { return device_streams_; }
  [[nodiscard]] const std::vector<Range>& buckets() const noexcept { return buckets_; }

 private:
  std::unique_ptr<Communicator> control_;
  cuda::DeviceStreams& device_streams_;
  std::span<float> gradients_;
  cuda::DeviceBuffer gradients_memory_;  ///< unused if a subclass has them
  cuda::DeviceBuffer mirrored_;
  std::vector<Range> buckets_;
  std::vector<cuda::Event> ready_;
  cuda::Event updated_;
  bool is_update_awaited_ = true;  ///< true if the compute stream waits for all updates so far
  const float* source_ = nullptr;
};

}  // namespace lockstep
