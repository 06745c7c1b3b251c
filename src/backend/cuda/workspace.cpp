// See workspace.hpp.
#include "backend/cuda/workspace.hpp"

#include <utility>

namespace lockstep::cuda {

namespace {

constexpr std::size_t least_offer = std::size_t{64} << 20U;
constexpr std::size_t largest_offer = std::size_t{1} << 30U;

}  // namespace

void Workspace::begin_choice() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const std::size_t offer = std::clamp(free / 8, least_offer, largest_offer);
  if (offer > memory_.size()) choice_ = DeviceBuffer(offer);
}

void Workspace::end_choice() {
  choice_ = {};
  if (required_ <= memory_.size()) return;
  former_.push_back(std::move(memory_));
  memory_ = DeviceBuffer(required_);
}

}  // namespace lockstep::cuda
