// Arenas in a GPU's memory. Buckets are summed and updated on the communication stream while the compute stream goes on
// with backward; the calls only order the two streams, so a whole step can be recorded and replayed. Every rank updates
// all weights: on a device that is cheaper than sending them round.
//
// By itself this is a world of one rank; sums over several are what NcclCommunicator and StagedCommunicator add.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective/communicator.hpp"
#include "core/cuda/device_queue.hpp"

namespace lockstep {

class DeviceCommunicator : public Communicator {
 public:
  /// `control` carries all that is no gradient. `queue` must outlive the communicator.
  DeviceCommunicator(std::unique_ptr<Communicator> control, cuda::DeviceQueue& queue);

  [[nodiscard]] int rank() const noexcept final { return control_->rank(); }
  [[nodiscard]] int size() const noexcept final { return control_->size(); }
  [[nodiscard]] std::string describe() const override { return control_->describe(); }
  [[nodiscard]] bool owns_mirror() const noexcept final { return true; }
  [[nodiscard]] bool only_enqueues() const noexcept override { return true; }

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                       std::vector<BucketRange> buckets) override;

  void contribute(std::size_t bucket) final;
  [[nodiscard]] ReducedShare reduce(std::size_t bucket) final;
  void publish(std::size_t bucket) final;

  /// The compute stream waits for everything that was published so far.
  void await(std::size_t bucket) final;

  void all_reduce_sum(std::span<double> values) final { control_->all_reduce_sum(values); }
  void broadcast(std::span<std::byte> bytes, int root) final { control_->broadcast(bytes, root); }
  void start_gather(std::span<const std::span<std::byte>> parts, int root, PartCame came) final {
    control_->start_gather(parts, root, std::move(came));
    control_->finish_gather();  // nobody would move it on
  }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) final {
    return control_->all_gather(text);
  }
  void barrier() final { control_->barrier(); }
  [[nodiscard]] CommunicationTimes take_times() noexcept final { return control_->take_times(); }

 protected:
  /// Enqueues the sum of a bucket over all ranks, in place, on the communication stream.
  virtual void sum(std::size_t bucket, std::span<float> gradients);

  [[nodiscard]] Communicator& control() noexcept { return *control_; }
  [[nodiscard]] cuda::DeviceQueue& queue() noexcept { return queue_; }
  [[nodiscard]] const std::vector<BucketRange>& buckets() const noexcept { return buckets_; }

 private:
  std::unique_ptr<Communicator> control_;
  cuda::DeviceQueue& queue_;
  cuda::DeviceBuffer gradients_;
  cuda::DeviceBuffer mirrored_;
  std::vector<BucketRange> buckets_;
  std::vector<cuda::Event> contributed_;
  cuda::Event published_;
  bool awaited_ = true;  ///< nothing was published since the compute stream last waited
  const float* source_ = nullptr;
};

}  // namespace lockstep
