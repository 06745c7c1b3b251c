// See kernel_candidates.hpp.
#include "backend/cuda/kernel_candidates.hpp"

#include "backend/cuda/kernel.hpp"
#include "backend/cuda/launch_timer.hpp"
#include "backend/cuda/scratch_tensors.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <limits>
#include <optional>

namespace lockstep::cuda {

namespace {

/// Nothing if the device has too little memory.
std::unique_ptr<ScratchTensors> try_to_make_scratch(const KernelScope& scope) {
  try {
    return std::make_unique<ScratchTensors>(scope);
  } catch (const Error&) {
    (void)cudaGetLastError();
    return nullptr;
  }
}

Candidate choose(const KernelScope& scope, std::vector<Candidate> candidates) {
  const CudaContext& context = scope.cuda_context;
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return context.rules().deterministic && !candidate.is_deterministic;
  });
  const bool is_choice = candidates.size() > 1 && !context.rules().deterministic;
  const std::unique_ptr<ScratchTensors> scratch = is_choice ? try_to_make_scratch(scope) : nullptr;
  const KernelScope& trial = scratch ? scratch->scope() : scope;
  LaunchTimer timer(context.stream());
  const Candidate* fastest = nullptr;
  double best = std::numeric_limits<double>::infinity();
  int working = 0;
  std::string failure = "there is none";
  for (const Candidate& candidate : candidates) {
    try {
      const std::unique_ptr<Kernel> kernel = candidate.make(trial);
      const auto enqueue = [&] { kernel->enqueue({}); };
      timer.run(enqueue);
      ++working;
      const double time = scratch ? timer.milliseconds(enqueue, best) : best;
      if (fastest == nullptr || time < best) {
        fastest = &candidate;
        best = time;
      }
    } catch (const Error& error) {
      (void)cudaGetLastError();  // the others may work
      failure = error.what();
    }
    if (fastest != nullptr && !scratch) break;
  }
  if (fastest == nullptr) {
    throw InternalError(fmt::format("the GPU has no kernel for layer '{}' ({}): {}", scope.layer().name,
                                    to_string(scope.operation.kind), failure));
  }
  if (working == 1 && !fastest->last_resort.empty()) log_warning(fastest->last_resort);
  return *fastest;
}

}  // namespace

std::unique_ptr<Kernel> make_fastest(const KernelScope& scope, const ProblemKey& problem,
                                     const std::function<std::vector<Candidate>()>& list) {
  ProblemKey key = problem;
  key.push_back(static_cast<std::int64_t>(scope.operation.kind));
  const Candidate& choice = scope.cuda_context.algorithms().get_or_choose(key, [&] { return choose(scope, list()); });
  scope.cuda_context.workspace().require(choice.workspace);
  return choice.make(scope);
}

}  // namespace lockstep::cuda
