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
#include "collective/packed_lines.hpp"
#include "collective/topology.hpp"
#include "core/bfloat16.hpp"

namespace lockstep {

namespace {

constexpr std::size_t max_message_elements = std::size_t{1} << 17U;  // MPI's eager limit (cluster/world/world.cpp)
constexpr std::size_t max_packed_elements = max_message_elements - max_message_elements / 64;  // leaves room for bits
constexpr std::size_t min_compressed_elements = 4096;  // latency dominates shorter messages: rounding gains nothing
constexpr std::size_t max_tested_slices = 4;           // unfinished slices that make_progress() tests
constexpr std::size_t cache_line_bytes = 64;
constexpr std::size_t tags = 16384;  // MPI guarantees twice as many; slices that share a tag arrive in order

/// A part of a shard, and whether it lies in one of the ranges by which the shard was split.
struct Segment {
  Range range;
  bool is_inside = false;
};

/// Splits a shard at the borders of ascending ranges. Segments shorter than `min_elements` count as `short_is_inside`,
/// and like neighbours are joined, which saves messages.
std::vector<Segment> split(const Range& shard, std::span<const Range> ranges, std::size_t min_elements,
                           bool short_is_inside) {
  std::vector<Segment> segments;
  const auto append = [&](std::size_t end, bool is_inside) {
    const std::size_t begin = segments.empty() ? shard.begin : segments.back().range.end;
    if (begin >= end) return;
    if (end - begin < min_elements) is_inside = short_is_inside;
    if (!segments.empty() && segments.back().is_inside == is_inside) {
      segments.back().range.end = end;
    } else {
      segments.push_back({{begin, end}, is_inside});
    }
  };
  for (const Range& range : ranges) {
    append(std::min(range.begin, shard.end), false);
    append(std::min(range.end, shard.end), true);
  }
  append(shard.end, false);
  return segments;
}

std::vector<Range> ascending(std::vector<Range> ranges) {
  std::ranges::sort(ranges, {}, &Range::begin);
  return ranges;
}

std::size_t element_bytes(bool is_compressed) { return is_compressed ? sizeof(BFloat16) : sizeof(float); }

std::size_t rounded_to_cache_lines(std::size_t bytes) {
  return (bytes + cache_line_bytes - 1) / cache_line_bytes * cache_line_bytes;
}

}  // namespace

InterHostAllReduce::InterHostAllReduce(const MpiComm& comm, std::span<float> gradients, std::span<const Range> shards,
                                       const WireFormat& format)
    : comm_(comm.get()), gradients_(gradients) {
  int number = 0;
  check_mpi(MPI_Comm_size(comm_, &number), "MPI_Comm_size");
  hosts_ = static_cast<std::size_t>(number);
  check_mpi(MPI_Comm_rank(comm_, &number), "MPI_Comm_rank");
  host_ = static_cast<std::size_t>(number);

  const bool compresses = format.compression == GradientCompression::bfloat16;
  const std::vector<Range> uncompressed =
      compresses ? ascending(format.uncompressed) : std::vector<Range>{{0, gradients.size()}};
  const std::vector<Range> packed = ascending(format.packed);
  for (const Range& shard : shards) {
    first_slice_.push_back(slices_.size());
    for (const Segment& whole : split(shard, packed, min_compressed_elements, false)) {
      const std::size_t max_elements = whole.is_inside ? max_packed_elements : max_message_elements;
      for (const Segment& segment : split(whole.range, uncompressed, min_compressed_elements, true)) {
        for (std::size_t at = segment.range.begin; at < segment.range.end; at += max_elements) {
          slices_.push_back({.range = {at, std::min(segment.range.end, at + max_elements)},
                             .is_compressed = !segment.is_inside,
                             .is_packed = whole.is_inside});
        }
      }
    }
  }
  first_slice_.push_back(slices_.size());

  if (compresses) send_buffer_ = AlignedBuffer(gradients.size() * sizeof(BFloat16));
  if (hosts_ == 2) peer_gradients_ = AlignedBuffer(gradients.size() * sizeof(float));
  receive_buffer_ = AlignedBuffer(assign_receive_offsets());
  const std::size_t packed_bytes = assign_packed_offsets();
  packed_sends_ = AlignedBuffer(packed_bytes);
  packed_receives_ = AlignedBuffer(packed_bytes);
  statuses_.resize(hosts_);
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
      for (MPI_Request& request : *requests) {
        if (request != MPI_REQUEST_NULL) (void)MPI_Request_free(&request);  // null: a packed message that was sent
      }
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
      bytes += rounded_to_cache_lines(own.size() * element_bytes(slice.is_compressed));
    }
  }
  return bytes;
}

/// For each host's shard of a packed slice, as many bytes as the largest shard may take: what is sent to a host, or
/// gathered from this rank, and what a host sends.
std::size_t InterHostAllReduce::assign_packed_offsets() {
  std::size_t bytes = 0;
  for (GradientSlice& slice : slices_) {
    if (!slice.is_packed) continue;
    const std::size_t each = element_bytes(slice.is_compressed);
    std::size_t largest = 0;
    for (std::size_t host = 0; host < hosts_; ++host) largest = std::max(largest, shard_of_host(slice, host).size());
    for (std::size_t host = 0; host < hosts_; ++host) {
      slice.packed_offsets.push_back(bytes);
      bytes += rounded_to_cache_lines(max_packed_bytes(largest * each, elements_per_line * each));
    }
  }
  return bytes;
}

Range InterHostAllReduce::shard_of_host(const GradientSlice& slice, std::size_t host) const noexcept {
  return hosts_ == 2 ? slice.range : shard_of(slice.range, host, hosts_);
}

std::byte* InterHostAllReduce::wire_data(const GradientSlice& slice, std::size_t element) const noexcept {
  if (slice.is_compressed) return reinterpret_cast<std::byte*>(send_buffer_.as<BFloat16>().data() + element);
  return reinterpret_cast<std::byte*>(gradients_.data() + element);
}

std::byte* InterHostAllReduce::exchange_data(const GradientSlice& slice, std::size_t host) const noexcept {
  const bool in_place = hosts_ == 2 && !slice.is_compressed;
  if (in_place) return reinterpret_cast<std::byte*>(peer_gradients_.as<float>().data() + slice.range.begin);
  return receive_buffer_.data() + slice.receive_offsets[host];
}

void InterHostAllReduce::create_requests(std::size_t index) {
  GradientSlice& slice = slices_[index];
  slice.tag = static_cast<int>(2 * (index % tags));
  MPI_Datatype wire_type = slice.is_compressed ? MPI_UINT16_T : MPI_FLOAT;
  const auto send = [&](const Range& what, std::size_t host, int tag, std::vector<MPI_Request>& requests) {
    if (what.empty() || slice.is_packed) return;
    check_mpi(MPI_Send_init(wire_data(slice, what.begin), static_cast<int>(what.size()), wire_type,
                            static_cast<int>(host), tag, comm_, &requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Send_init");
  };
  const auto receive = [&](std::byte* where, const Range& what, std::size_t host, int tag,
                           std::vector<MPI_Request>& requests) {
    if (what.empty()) return;
    MPI_Datatype type = wire_type;
    std::size_t count = what.size();
    if (slice.is_packed) {
      const std::size_t each = element_bytes(slice.is_compressed);
      where = packed_receives_.data() + slice.packed_offsets[host];
      type = MPI_BYTE;
      count = max_packed_bytes(count * each, elements_per_line * each);
    }
    check_mpi(MPI_Recv_init(where, static_cast<int>(count), type, static_cast<int>(host), tag, comm_,
                            &requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Recv_init");
  };
  const Range own = shard_of_host(slice, host_);
  for (std::size_t step = 1; step < hosts_;
       ++step) {  // each host begins with its successor, so that no host is every other's first
    const std::size_t host = (host_ + step) % hosts_;
    const Range peer = shard_of_host(slice, host);
    receive(exchange_data(slice, host), own, host, slice.tag, slice.receives);
    send(peer, host, slice.tag, slice.sends);
    if (hosts_ == 2) continue;
    send(own, host, slice.tag + 1, slice.gathers);
    receive(wire_data(slice, peer.begin), peer, host, slice.tag + 1, slice.gathers);
  }
  start_requests(slice.receives);
}

void InterHostAllReduce::start_requests(std::vector<MPI_Request>& requests) {
  if (requests.empty()) return;
  check_mpi(MPI_Startall(static_cast<int>(requests.size()), requests.data()), "MPI_Startall");
}

bool InterHostAllReduce::test_all(std::vector<MPI_Request>& requests, std::span<MPI_Status> statuses) {
  int done = 1;
  if (!requests.empty()) {
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                          statuses.empty() ? MPI_STATUSES_IGNORE : statuses.data()),
              "MPI_Testall");
  }
  return done != 0;
}

std::span<const std::byte> InterHostAllReduce::pack(const GradientSlice& slice, const Range& range, std::size_t host) {
  const std::size_t each = element_bytes(slice.is_compressed);
  std::byte* const packed = packed_sends_.data() + slice.packed_offsets[host];
  return {packed, pack_lines({wire_data(slice, range.begin), range.size() * each}, elements_per_line * each, packed)};
}

void InterHostAllReduce::send_packed(GradientSlice& slice, std::span<const std::byte> packed, std::size_t host,
                                     int tag) {
  packed_bytes_sent_ += packed.size();
  check_mpi(MPI_Isend(packed.data(), static_cast<int>(packed.size()), MPI_BYTE, static_cast<int>(host), tag, comm_,
                      &slice.sends.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Isend");
}

/// All receives have completed, with `statuses_`.
void InterHostAllReduce::unpack_received(const GradientSlice& slice, std::size_t receives) {
  const std::size_t each = element_bytes(slice.is_compressed);
  for (const MPI_Status& status : std::span(statuses_).first(receives)) {
    const auto host = static_cast<std::size_t>(status.MPI_SOURCE);
    int count = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    const bool gathers = slice.state == State::gathering;
    const Range range = shard_of_host(slice, gathers ? host : host_);
    std::byte* const values = gathers ? wire_data(slice, range.begin) : exchange_data(slice, host);
    unpack_lines({packed_receives_.data() + slice.packed_offsets[host], static_cast<std::size_t>(count)},
                 elements_per_line * each, {values, range.size() * each});
  }
}

bool InterHostAllReduce::has_received_all(GradientSlice& slice, std::vector<MPI_Request>& receives) {
  if (!slice.is_packed) return test_all(receives);
  if (slice.is_unpacked) return true;
  if (!test_all(receives, statuses_)) return false;
  unpack_received(slice, receives.size());
  return slice.is_unpacked = true;
}

/// Starts to send each host the shard that it sums.
void InterHostAllReduce::start_exchange(GradientSlice& slice) {
  slice.state = State::exchanging;
  slice.is_unpacked = false;
  if (!slice.is_packed) return start_requests(slice.sends);
  slice.sends.clear();
  for (std::size_t step = 1; step < hosts_; ++step) {
    const std::size_t host = (host_ + step) % hosts_;
    const Range shard = shard_of_host(slice, host);
    if (!shard.empty()) send_packed(slice, pack(slice, shard, host), host, slice.tag);
  }
}

/// Starts to send the sum of this rank's shard to all others, and to receive theirs.
void InterHostAllReduce::start_gathers(GradientSlice& slice) {
  slice.state = State::gathering;
  slice.is_unpacked = false;
  start_requests(slice.gathers);
  const Range own = shard_of_host(slice, host_);
  if (!slice.is_packed || own.empty()) return;
  slice.sends.clear();
  const std::span<const std::byte> packed = pack(slice, own, host_);
  for (std::size_t step = 1; step < hosts_; ++step) send_packed(slice, packed, (host_ + step) % hosts_, slice.tag + 1);
}

void InterHostAllReduce::start(std::size_t bucket) {
  for (std::size_t index = first_slice_[bucket]; index < first_slice_[bucket + 1]; ++index) {
    GradientSlice& slice = slices_[index];
    if (slice.is_compressed) compress(slice.range);
    start_exchange(slice);
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
    if (!has_received_all(slice, slice.receives) || !test_all(slice.sends)) return false;
    if (hosts_ == 2) {
      finish(slice);
      return true;
    }
    slice.is_compressed ? reduce_own_shard<BFloat16>(slice) : reduce_own_shard<float>(slice);
    start_gathers(slice);
  }
  if (!has_received_all(slice, slice.gathers) || !test_all(slice.sends)) return false;
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
