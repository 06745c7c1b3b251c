// See inter_host_all_reduce.hpp.
#include "collective/inter_host_all_reduce.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "collective/bfloat16_compression.hpp"
#include "collective/topology.hpp"
#include "core/bfloat16.hpp"

namespace lockstep {

namespace {

constexpr std::size_t max_message_elements = std::size_t{1} << 17U;  // MPI's eager limit (cluster/world/world.cpp)
constexpr std::size_t min_compressed_elements = 4096;  // latency dominates shorter messages: rounding gains nothing
constexpr std::size_t max_tested_slices = 4;           // unfinished slices that make_progress() tests
constexpr std::size_t cache_line_bytes = 64;
constexpr std::size_t tags = 16384;  // MPI guarantees twice as many; slices that share a tag arrive in order

struct Segment {
  Range range;
  bool uncompressed;
};

/// Splits a shard at the borders of uncompressed ranges. Short segments stay uncompressed too, which saves messages.
std::vector<Segment> split_by_compression(const Range& shard, std::span<const Range> uncompressed) {
  std::vector<Segment> segments;
  const auto append = [&](std::size_t end, bool is_uncompressed) {
    const std::size_t begin = segments.empty() ? shard.begin : segments.back().range.end;
    if (begin >= end) return;
    is_uncompressed = is_uncompressed || end - begin < min_compressed_elements;
    if (!segments.empty() && segments.back().uncompressed == is_uncompressed) {
      segments.back().range.end = end;
    } else {
      segments.push_back({{begin, end}, is_uncompressed});
    }
  };
  for (const Range& range : uncompressed) {  // ascending
    append(std::min(range.begin, shard.end), false);
    append(std::min(range.end, shard.end), true);
  }
  append(shard.end, false);
  return segments;
}

}  // namespace

InterHostAllReduce::InterHostAllReduce(const MpiComm& comm, std::span<float> gradients, std::span<const Range> shards,
                                       GradientCompression compression, std::span<const Range> uncompressed)
    : comm_(comm.get()), gradients_(gradients) {
  int number = 0;
  check_mpi(MPI_Comm_size(comm_, &number), "MPI_Comm_size");
  hosts_ = static_cast<std::size_t>(number);
  check_mpi(MPI_Comm_rank(comm_, &number), "MPI_Comm_rank");
  host_ = static_cast<std::size_t>(number);

  std::vector<Range> sorted(uncompressed.begin(), uncompressed.end());
  std::ranges::sort(sorted, {}, &Range::begin);
  if (compression == GradientCompression::none) sorted = std::vector<Range>{{0, gradients.size()}};
  for (const Range& shard : shards) {
    first_slice_.push_back(slices_.size());
    for (const Segment& segment : split_by_compression(shard, sorted)) {
      for (std::size_t at = segment.range.begin; at < segment.range.end; at += max_message_elements) {
        slices_.push_back({.range = {at, std::min(segment.range.end, at + max_message_elements)},
                           .is_compressed = !segment.uncompressed});
      }
    }
  }
  first_slice_.push_back(slices_.size());

  if (compression == GradientCompression::bfloat16) send_buffer_ = AlignedBuffer(gradients.size() * sizeof(BFloat16));
  if (hosts_ == 2) peer_gradients_ = AlignedBuffer(gradients.size() * sizeof(float));
  receive_buffer_ = AlignedBuffer(assign_receive_offsets());
  for (std::size_t index = 0; index < slices_.size(); ++index) create_requests(index);
  const float* const other = peer_gradients_.as<float>().data();
  sources_ = {gradients_.data(), other};
  if (hosts_ == 2 && host_ == 1) std::swap(sources_[0], sources_[1]);
}

InterHostAllReduce::~InterHostAllReduce() {
  if (!mpi_is_up()) return;
  // A destructor cannot report errors. While an exception propagates, a peer may be lost in the middle of a message, so
  // this does not wait for it.
  const bool is_waiting_allowed = std::uncaught_exceptions() == 0;
  for (GradientSlice& slice : slices_) {
    for (MPI_Request& request : slice.receives) {
      if (slice.state != State::reduced) (void)MPI_Cancel(&request);
      if (is_waiting_allowed) (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
      (void)MPI_Request_free(&request);
    }
    for (std::vector<MPI_Request>* const requests : {&slice.sends, &slice.gathers}) {
      for (MPI_Request& request : *requests) (void)MPI_Request_free(&request);
    }
  }
}

std::size_t InterHostAllReduce::assign_receive_offsets() {
  std::size_t bytes = 0;
  for (GradientSlice& slice : slices_) {
    slice.receive_offsets.resize(hosts_);
    if (hosts_ == 2 && !slice.is_compressed) continue;
    for (std::size_t host = 0; host < hosts_; ++host) {
      if (host == host_) continue;
      const Range own = shard_of_host(slice, host_);
      slice.receive_offsets[host] = bytes;
      bytes += (own.end - own.begin) * (slice.is_compressed ? sizeof(BFloat16) : sizeof(float));
      bytes = (bytes + cache_line_bytes - 1) / cache_line_bytes * cache_line_bytes;
    }
  }
  return bytes;
}

Range InterHostAllReduce::shard_of_host(const GradientSlice& slice, std::size_t host) const noexcept {
  return hosts_ == 2 ? slice.range : shard_of(slice.range, host, hosts_);
}

void* InterHostAllReduce::wire_data(const GradientSlice& slice, std::size_t element) const noexcept {
  if (slice.is_compressed) return send_buffer_.as<BFloat16>().data() + element;
  return gradients_.data() + element;
}

void InterHostAllReduce::create_requests(std::size_t index) {
  GradientSlice& slice = slices_[index];
  MPI_Datatype wire_type = slice.is_compressed ? MPI_UINT16_T : MPI_FLOAT;
  const int tag = static_cast<int>(2 * (index % tags));
  const auto send = [&](const Range& what, std::size_t host, int with_tag, std::vector<MPI_Request>& requests) {
    if (what.begin == what.end) return;
    check_mpi(MPI_Send_init(wire_data(slice, what.begin), static_cast<int>(what.end - what.begin), wire_type,
                            static_cast<int>(host), with_tag, comm_, &requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Send_init");
  };
  const auto receive = [&](void* where, const Range& what, std::size_t host, int with_tag,
                           std::vector<MPI_Request>& requests) {
    if (what.begin == what.end) return;
    check_mpi(MPI_Recv_init(where, static_cast<int>(what.end - what.begin), wire_type, static_cast<int>(host), with_tag,
                            comm_, &requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Recv_init");
  };
  const Range own = shard_of_host(slice, host_);
  for (std::size_t step = 1; step < hosts_;
       ++step) {  // each host begins with its successor, so that no host is every other's first
    const std::size_t host = (host_ + step) % hosts_;
    const Range peer = shard_of_host(slice, host);
    const bool in_place = hosts_ == 2 && !slice.is_compressed;
    receive(in_place ? peer_gradients_.as<std::byte>().data() + own.begin * sizeof(float)
                     : receive_buffer_.data() + slice.receive_offsets[host],
            own, host, tag, slice.receives);
    send(peer, host, tag, slice.sends);
    if (hosts_ == 2) continue;
    send(own, host, tag + 1, slice.gathers);
    receive(wire_data(slice, peer.begin), peer, host, tag + 1, slice.gathers);
  }
  start_requests(slice.receives);
}

void InterHostAllReduce::start_requests(std::vector<MPI_Request>& requests) {
  if (requests.empty()) return;
  check_mpi(MPI_Startall(static_cast<int>(requests.size()), requests.data()), "MPI_Startall");
}

bool InterHostAllReduce::test_all(std::vector<MPI_Request>& requests) {
  int done = 1;
  if (!requests.empty()) {
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
  }
  return done != 0;
}

void InterHostAllReduce::start(std::size_t bucket) {
  for (std::size_t index = first_slice_[bucket]; index < first_slice_[bucket + 1]; ++index) {
    GradientSlice& slice = slices_[index];
    if (slice.is_compressed) compress(slice.range);
    slice.state = State::exchanging;
    start_requests(slice.sends);
    in_flight_.push_back(index);
  }
}

void InterHostAllReduce::compress(const Range& range) {
  float* const gradients = gradients_.data() + range.begin;
  BFloat16* const send_buffer = send_buffer_.as<BFloat16>().data() + range.begin;
  const std::size_t count = range.end - range.begin;
  to_bfloat16(gradients, send_buffer, count);
  if (hosts_ == 2) from_bfloat16(send_buffer, gradients, count);
}

void InterHostAllReduce::make_progress() {
  std::size_t tested = 0;
  for (auto index = in_flight_.begin(); index != in_flight_.end() && tested < max_tested_slices;) {
    if (progress_slice(slices_[*index])) {
      index = in_flight_.erase(index);
    } else {
      ++index;
      ++tested;
    }
  }
}

bool InterHostAllReduce::progress_slice(GradientSlice& slice) {
  if (slice.state == State::exchanging) {
    if (!test_all(slice.receives) || !test_all(slice.sends)) return false;
    if (hosts_ == 2) {
      finish(slice);
      return true;
    }
    slice.is_compressed ? reduce_own_shard<BFloat16>(slice) : reduce_own_shard<float>(slice);
    slice.state = State::gathering;
    start_requests(slice.gathers);
  }
  if (!test_all(slice.gathers)) return false;
  finish(slice);
  return true;
}

template <typename WireType>
void InterHostAllReduce::reduce_own_shard(const GradientSlice& slice) {
  const Range own = shard_of_host(slice, host_);
  float* const gradients = gradients_.data();
  std::array<float, 2048> block;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  for (std::size_t at = own.begin; at < own.end; at += block.size()) {
    const std::size_t count = std::min(block.size(), own.end - at);
    std::fill_n(block.data(), count, -0.0F);  // the additive identity
    for (std::size_t host = 0; host < hosts_; ++host) {
      if (host == host_) {
        for (std::size_t i = 0; i < count; ++i) block[i] += gradients[at + i];
        continue;
      }
      const WireType* const peer =
          reinterpret_cast<const WireType*>(receive_buffer_.data() + slice.receive_offsets[host]) + (at - own.begin);
      for (std::size_t i = 0; i < count; ++i) block[i] += static_cast<float>(peer[i]);
    }
    std::copy_n(block.data(), count, gradients + at);
  }
  if (slice.is_compressed) compress(own);
}

void InterHostAllReduce::finish(GradientSlice& slice) {
  slice.state = State::reduced;
  if (!slice.is_compressed) return;
  const std::size_t begin = slice.range.begin;
  const std::size_t count = slice.range.end - begin;
  if (hosts_ == 2) {
    const auto* const received =
        reinterpret_cast<const BFloat16*>(receive_buffer_.data() + slice.receive_offsets[1 - host_]);
    from_bfloat16(received, peer_gradients_.as<float>().data() + begin, count);
  } else {
    from_bfloat16(send_buffer_.as<BFloat16>().data() + begin, gradients_.data() + begin, count);
  }
}

bool InterHostAllReduce::is_reduced(std::size_t bucket) const noexcept {
  const auto begin = slices_.begin() + static_cast<std::ptrdiff_t>(first_slice_[bucket]);
  const auto end = slices_.begin() + static_cast<std::ptrdiff_t>(first_slice_[bucket + 1]);
  return std::all_of(begin, end, [](const GradientSlice& slice) { return slice.state == State::reduced; });
}

void InterHostAllReduce::release(std::size_t bucket) {
  for (std::size_t index = first_slice_[bucket]; index < first_slice_[bucket + 1]; ++index) {
    GradientSlice& slice = slices_[index];
    slice.state = State::idle;
    start_requests(slice.receives);
  }
}

}  // namespace lockstep
