// What changes from step to step, in device memory: recorded steps are replayed with the same kernels and pointers, and
// read the rest from here. The host fills one of these before each step and copies it over.
#pragma once

#include <cstdint>

#include "core/request.hpp"

namespace lockstep::cuda {

/// An optimizer's numbers of one step; those that its formula has no use for are 0.
struct OptimizerScalars {
  float rate = 0;
  float momentum = 0;
  float decay = 0;  ///< learning rate times weight decay
  float alpha = 0;  ///< learning rate, bias corrected
  float one_minus_beta_1 = 0;
  float one_minus_beta_2 = 0;
  float rho = 0;
  float epsilon = 0;
};

struct StepArguments {
  const void* inputs = nullptr;   ///< of the whole data set, on the device
  const void* targets = nullptr;  ///< likewise
  const std::uint32_t* examples = nullptr;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t first_place = 0;   ///< place of examples[0] in the global batch
  std::uint32_t metrics_slot = 0;  ///< where the host looks for this step's metric sums
  float gradient_scale = 0;
  float replica_share = 0;  ///< 1 / replicas with examples, over all ranks
  Request request = Request::none;
  OptimizerScalars optimizer = {};
};

}  // namespace lockstep::cuda
