// See commands.hpp.
#include "cli/commands.hpp"

#include "cli/cluster.hpp"
#include "cli/export.hpp"
#include "cli/inference.hpp"
#include "cli/inspect.hpp"
#include "cli/launch.hpp"
#include "cli/plan.hpp"
#include "cli/serve.hpp"
#include "cli/train.hpp"
#include "cli/worker/worker.hpp"

#include <array>

namespace lockstep {

std::span<const Command> commands() {
  static const std::array all{
      Command{"train", "Train a Keras model on all workers of TF_CONFIG or mpirun", train},
      Command{"evaluate", "Print a model's loss and metrics on the test set", evaluate},
      Command{"predict", "Write a model's outputs for the test set", predict},
      Command{"serve", "Answer requests for predictions over HTTP, with the newest model", serve},
      Command{"plan", "Print how workers would shard a model, and how long a step takes", plan},
      Command{"launch", "Run a program on all workers of a cluster; restart it when one is lost", launch},
      Command{"inspect", "Show, check or compare model files", inspect_models},
      Command{"export", "Write a model as ONNX or SavedModel, for other programs", export_model},
      Command{"cluster", "Show the cluster of TF_CONFIG or CLUSTER_CONFIG, and which tasks answer", show_cluster},
      Command{"worker", "Train, evaluate or predict for the Python package, which starts it", work_for_caller},
  };
  return all;
}

}  // namespace lockstep
