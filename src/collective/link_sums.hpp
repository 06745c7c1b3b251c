// Sums between hosts that travel while this rank computes. MPI moves bytes only while somebody calls it, and its
// collectives make no step without; so a sum here is a few messages, all posted as soon as the gradient is there: the
// kernel carries them, and `advance`, called between the operations of a step, takes what has come and sends what
// follows from it. No thread, which would take the core from the computation.
//
// A bucket travels in parcels. Two hosts swap theirs and both add the two: nothing is summed or copied apart. More
// hosts sum a piece of each parcel apiece and send the sum to the others, so that each sends 2 (n - 1) / n of it. Sums
// run in the order of hosts: same world, same bits, and the same ones everywhere.
//
// With Compression::bfloat16 what travels is rounded to nearest even. Of two hosts' parcels each adds the rounded ones,
// its own included; of more, the sum is rounded, and its owner takes the rounded one, too: so all ranks have equal
// bits.
//
// Receives are posted before anybody sends: what comes early needs no second copy.
//
// Includes mpi.h: for .cpp files only.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "cluster/mpi_support.hpp"
#include "collective/communicator.hpp"
#include "collective/compression.hpp"
#include "core/aligned_buffer.hpp"
#include "core/bfloat16.hpp"

namespace lockstep {

class LinkSums {
 public:
  /// Collective over `link`, a rank of each host, which must outlive the sums, as must the `gradients`. `shares`: the
  /// part of each bucket that is summed here; the same on all. What lies in `exact` ranges is never rounded.
  LinkSums(const MpiComm& link, std::span<float> gradients, std::span<const BucketRange> shares,
           Compression compression, std::span<const BucketRange> exact);
  ~LinkSums();
  LinkSums(const LinkSums&) = delete;
  LinkSums& operator=(const LinkSums&) = delete;

  /// This host's sum of the share lies in the gradients and may be overwritten from now on.
  void start(std::size_t bucket);

  /// Moves on what is under way. Never waits.
  void advance();

  /// True once the sum of a started bucket is there.
  [[nodiscard]] bool has_arrived(std::size_t bucket) const noexcept;

  /// What a bucket that has arrived is the sum of.
  [[nodiscard]] std::span<const float* const> sources() const noexcept {
    return {sources_.data(), hosts_ == 2 ? 2U : 1U};
  }

  /// The sum was read: the next one may come.
  void release(std::size_t bucket);

 private:
  enum class State { idle, first_round, second_round, arrived };

  struct Parcel {
    BucketRange range;
    bool rounded = false;
    State state = State::idle;
    std::vector<MPI_Request> receives = {};  ///< of the first round: the others' parts of what I sum
    std::vector<MPI_Request> sends = {};     ///< of the first round: my parts of what others sum
    std::vector<MPI_Request> sums = {};      ///< of the second round: to and from everybody
    std::vector<std::size_t> places = {};    ///< by host: where in the inbox its part comes to lie
  };

  /// What a host sums of a parcel.
  [[nodiscard]] BucketRange piece(const Parcel& parcel, std::size_t host) const noexcept;
  /// Where an element lies as it travels.
  [[nodiscard]] void* wire(const Parcel& parcel, std::size_t element) const noexcept;
  [[nodiscard]] std::size_t assign_places();
  void prepare(std::size_t index);
  static void begin(std::vector<MPI_Request>& requests);
  [[nodiscard]] static bool are_done(std::vector<MPI_Request>& requests);
  [[nodiscard]] bool move_on(Parcel& parcel);
  template <typename Word>
  void sum_piece(const Parcel& parcel);
  void round(const BucketRange& range);
  void finish(Parcel& parcel);

  MPI_Comm link_;
  std::size_t hosts_ = 0;
  std::size_t host_ = 0;  ///< mine
  std::span<float> gradients_;
  AlignedBuffer outbox_;   ///< by element: what travels rounded
  AlignedBuffer inbox_;    ///< by place: what comes in the first round, unless it can lie in `swapped_`
  AlignedBuffer swapped_;  ///< by element: the gradients of the other of two hosts
  std::vector<Parcel> parcels_;
  std::vector<std::size_t> first_parcel_;  ///< by bucket, and one behind the last
  std::deque<std::size_t> under_way_;      ///< parcels, the oldest first
  std::array<const float*, 2> sources_{};
};

}  // namespace lockstep
