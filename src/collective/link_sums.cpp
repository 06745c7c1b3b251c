// See link_sums.hpp.
#include "collective/link_sums.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "collective/rounding.hpp"
#include "collective/topology.hpp"
#include "core/bfloat16.hpp"

namespace lockstep {

namespace {

constexpr std::size_t parcel_elements = std::size_t{1} << 17U;  // what MPI sends at once (cluster/world.cpp)
constexpr std::size_t few_elements = 4096;  // in less, latency is what costs: rounding gains nothing
constexpr std::size_t looked_at = 4;        // of the parcels under way, at once
constexpr std::size_t line_bytes = 64;
constexpr std::size_t tags = 16384;  // MPI promises twice as many. Parcels that share one come in their order

struct Run {
  BucketRange range;
  bool exact;
};

/// Cuts a share where exact ranges begin and end. Short runs of others are exact, too: fewer messages.
std::vector<Run> runs_of(const BucketRange& share, std::span<const BucketRange> exact) {
  std::vector<Run> runs;
  const auto append = [&](std::size_t end, bool is_exact) {
    const std::size_t begin = runs.empty() ? share.begin : runs.back().range.end;
    if (begin >= end) return;
    is_exact = is_exact || end - begin < few_elements;
    if (!runs.empty() && runs.back().exact == is_exact) {
      runs.back().range.end = end;
    } else {
      runs.push_back({{begin, end}, is_exact});
    }
  };
  for (const BucketRange& range : exact) {  // ascending
    append(std::min(range.begin, share.end), false);
    append(std::min(range.end, share.end), true);
  }
  append(share.end, false);
  return runs;
}

}  // namespace

LinkSums::LinkSums(const MpiComm& link, std::span<float> gradients, std::span<const BucketRange> shares,
                   Compression compression, std::span<const BucketRange> exact)
    : link_(link.get()), gradients_(gradients) {
  int number = 0;
  check_mpi(MPI_Comm_size(link_, &number), "MPI_Comm_size");
  hosts_ = static_cast<std::size_t>(number);
  check_mpi(MPI_Comm_rank(link_, &number), "MPI_Comm_rank");
  host_ = static_cast<std::size_t>(number);

  std::vector<BucketRange> sorted(exact.begin(), exact.end());
  std::ranges::sort(sorted, {}, &BucketRange::begin);
  if (compression == Compression::none) sorted = std::vector<BucketRange>{{0, gradients.size()}};
  for (const BucketRange& share : shares) {
    first_parcel_.push_back(parcels_.size());
    for (const Run& run : runs_of(share, sorted)) {
      for (std::size_t at = run.range.begin; at < run.range.end; at += parcel_elements) {
        parcels_.push_back({.range = {at, std::min(run.range.end, at + parcel_elements)}, .rounded = !run.exact});
      }
    }
  }
  first_parcel_.push_back(parcels_.size());

  if (compression == Compression::bfloat16) outbox_ = AlignedBuffer(gradients.size() * sizeof(BFloat16));
  if (hosts_ == 2) swapped_ = AlignedBuffer(gradients.size() * sizeof(float));
  inbox_ = AlignedBuffer(assign_places());
  for (std::size_t index = 0; index < parcels_.size(); ++index) prepare(index);
  const float* const other = swapped_.as<float>().data();
  sources_ = {gradients_.data(), other};
  if (hosts_ == 2 && host_ == 1) std::swap(sources_[0], sources_[1]);
}

LinkSums::~LinkSums() {
  if (!mpi_is_up()) return;
  // None of these can be answered to: a destructor has nobody to tell. While an exception leaves, a peer may be gone in
  // the midst of a message, which nobody waits for then.
  const bool waits = std::uncaught_exceptions() == 0;
  for (Parcel& parcel : parcels_) {
    for (MPI_Request& request : parcel.receives) {
      if (parcel.state != State::arrived) (void)MPI_Cancel(&request);
      if (waits) (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
      (void)MPI_Request_free(&request);
    }
    for (std::vector<MPI_Request>* const requests : {&parcel.sends, &parcel.sums}) {
      for (MPI_Request& request : *requests) (void)MPI_Request_free(&request);
    }
  }
}

std::size_t LinkSums::assign_places() {
  std::size_t bytes = 0;
  for (Parcel& parcel : parcels_) {
    parcel.places.resize(hosts_);
    if (hosts_ == 2 && !parcel.rounded) continue;
    for (std::size_t host = 0; host < hosts_; ++host) {
      if (host == host_) continue;
      const BucketRange mine = piece(parcel, host_);
      parcel.places[host] = bytes;
      bytes += (mine.end - mine.begin) * (parcel.rounded ? sizeof(BFloat16) : sizeof(float));
      bytes = (bytes + line_bytes - 1) / line_bytes * line_bytes;
    }
  }
  return bytes;
}

BucketRange LinkSums::piece(const Parcel& parcel, std::size_t host) const noexcept {
  return hosts_ == 2 ? parcel.range : share_of(parcel.range, host, hosts_);
}

void* LinkSums::wire(const Parcel& parcel, std::size_t element) const noexcept {
  if (parcel.rounded) return outbox_.as<BFloat16>().data() + element;
  return gradients_.data() + element;
}

void LinkSums::prepare(std::size_t index) {
  Parcel& parcel = parcels_[index];
  MPI_Datatype word = parcel.rounded ? MPI_UINT16_T : MPI_FLOAT;
  const int tag = static_cast<int>(2 * (index % tags));
  const auto send = [&](const BucketRange& what, std::size_t host, int with_tag, std::vector<MPI_Request>& requests) {
    if (what.begin == what.end) return;
    check_mpi(MPI_Send_init(wire(parcel, what.begin), static_cast<int>(what.end - what.begin), word,
                            static_cast<int>(host), with_tag, link_, &requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Send_init");
  };
  const auto receive = [&](void* where, const BucketRange& what, std::size_t host, int with_tag,
                           std::vector<MPI_Request>& requests) {
    if (what.begin == what.end) return;
    check_mpi(MPI_Recv_init(where, static_cast<int>(what.end - what.begin), word, static_cast<int>(host), with_tag,
                            link_, &requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Recv_init");
  };
  const BucketRange mine = piece(parcel, host_);
  for (std::size_t step = 1; step < hosts_;
       ++step) {  // each host begins with the next one: no one is everybody's first
    const std::size_t host = (host_ + step) % hosts_;
    const BucketRange theirs = piece(parcel, host);
    const bool in_place = hosts_ == 2 && !parcel.rounded;
    receive(
        in_place ? swapped_.as<std::byte>().data() + mine.begin * sizeof(float) : inbox_.data() + parcel.places[host],
        mine, host, tag, parcel.receives);
    send(theirs, host, tag, parcel.sends);
    if (hosts_ == 2) continue;
    send(mine, host, tag + 1, parcel.sums);
    receive(wire(parcel, theirs.begin), theirs, host, tag + 1, parcel.sums);
  }
  begin(parcel.receives);
}

void LinkSums::begin(std::vector<MPI_Request>& requests) {
  if (requests.empty()) return;
  check_mpi(MPI_Startall(static_cast<int>(requests.size()), requests.data()), "MPI_Startall");
}

bool LinkSums::are_done(std::vector<MPI_Request>& requests) {
  int done = 1;
  if (!requests.empty()) {
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
  }
  return done != 0;
}

void LinkSums::start(std::size_t bucket) {
  for (std::size_t index = first_parcel_[bucket]; index < first_parcel_[bucket + 1]; ++index) {
    Parcel& parcel = parcels_[index];
    if (parcel.rounded) round(parcel.range);
    parcel.state = State::first_round;
    begin(parcel.sends);
    under_way_.push_back(index);
  }
}

void LinkSums::round(const BucketRange& range) {
  float* const gradients = gradients_.data() + range.begin;
  BFloat16* const outbox = outbox_.as<BFloat16>().data() + range.begin;
  const std::size_t count = range.end - range.begin;
  round_to_bfloat16(gradients, outbox, count);
  if (hosts_ == 2) widen(outbox, gradients, count);
}

void LinkSums::advance() {
  std::size_t looks = 0;
  for (auto index = under_way_.begin(); index != under_way_.end() && looks < looked_at;) {
    if (move_on(parcels_[*index])) {
      index = under_way_.erase(index);
    } else {
      ++index;
      ++looks;
    }
  }
}

bool LinkSums::move_on(Parcel& parcel) {
  if (parcel.state == State::first_round) {
    if (!are_done(parcel.receives) || !are_done(parcel.sends)) return false;
    if (hosts_ == 2) {
      finish(parcel);
      return true;
    }
    parcel.rounded ? sum_piece<BFloat16>(parcel) : sum_piece<float>(parcel);
    parcel.state = State::second_round;
    begin(parcel.sums);
  }
  if (!are_done(parcel.sums)) return false;
  finish(parcel);
  return true;
}

template <typename Word>
void LinkSums::sum_piece(const Parcel& parcel) {
  const BucketRange mine = piece(parcel, host_);
  float* const gradients = gradients_.data();
  std::array<float, 2048> block;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  for (std::size_t at = mine.begin; at < mine.end; at += block.size()) {
    const std::size_t count = std::min(block.size(), mine.end - at);
    std::fill_n(block.data(), count, -0.0F);  // which adds nothing to any number
    for (std::size_t host = 0; host < hosts_; ++host) {
      if (host == host_) {
        for (std::size_t i = 0; i < count; ++i) block[i] += gradients[at + i];
        continue;
      }
      const Word* const theirs = reinterpret_cast<const Word*>(inbox_.data() + parcel.places[host]) + (at - mine.begin);
      for (std::size_t i = 0; i < count; ++i) block[i] += static_cast<float>(theirs[i]);
    }
    std::copy_n(block.data(), count, gradients + at);
  }
  if (parcel.rounded) round(mine);
}

void LinkSums::finish(Parcel& parcel) {
  parcel.state = State::arrived;
  if (!parcel.rounded) return;
  const std::size_t begin = parcel.range.begin;
  const std::size_t count = parcel.range.end - begin;
  if (hosts_ == 2) {
    const auto* const came = reinterpret_cast<const BFloat16*>(inbox_.data() + parcel.places[1 - host_]);
    widen(came, swapped_.as<float>().data() + begin, count);
  } else {
    widen(outbox_.as<BFloat16>().data() + begin, gradients_.data() + begin, count);
  }
}

bool LinkSums::has_arrived(std::size_t bucket) const noexcept {
  const auto begin = parcels_.begin() + static_cast<std::ptrdiff_t>(first_parcel_[bucket]);
  const auto end = parcels_.begin() + static_cast<std::ptrdiff_t>(first_parcel_[bucket + 1]);
  return std::all_of(begin, end, [](const Parcel& parcel) { return parcel.state == State::arrived; });
}

void LinkSums::release(std::size_t bucket) {
  for (std::size_t index = first_parcel_[bucket]; index < first_parcel_[bucket + 1]; ++index) {
    Parcel& parcel = parcels_[index];
    parcel.state = State::idle;
    begin(parcel.receives);
  }
}

}  // namespace lockstep
