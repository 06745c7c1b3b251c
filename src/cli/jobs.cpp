// See jobs.hpp.
#include "cli/jobs.hpp"

#include "cli/plan.hpp"
#include "cli/train.hpp"
#include "cli/use_model.hpp"

#include <array>

namespace lockstep {

std::span<const Job> jobs() {
  static const std::array<Job, 4> all{
      {{"train", "Train a model of Keras, on every worker of mpirun", train},
       {"evaluate", "Tell a model's loss and metrics on the test set", evaluate},
       {"predict", "Write a model's outputs for the test set", predict},
       {"plan", "Tell how workers would divide a model, and how long a step takes", plan}}};
  return all;
}

}  // namespace lockstep
