// The options that all model programs share, read from the command line and the environment.
#pragma once

#include <lockstep/core/communication.hpp>
#include <lockstep/core/convolutions.hpp>
#include <lockstep/core/precision.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class Device { automatic, cpu, cuda };

/// How a step is distributed. data: each worker computes its slice of the batch with all weights. tensor: each worker
/// computes the whole batch with its shard of the weights. automatic: what is predicted to be faster; data unless it
/// gains 5 %.
enum class Parallelism { automatic, data, tensor };

/// Who holds the variables. mirrored: every worker. parameter_server: the `ps` tasks of TF_CONFIG, and workers compute.
enum class StrategyKind { mirrored, parameter_server };

/// Whether parameter servers wait for the workers. synchronous: an update adds up the gradients of a step.
/// asynchronous: each gradient makes an update of its own as it comes, though others have changed the weights
/// meanwhile.
enum class ServerMode { synchronous, asynchronous };

/// What a run does with backups it finds. automatic: resume if there is one. require: resume or fail. never: remove
/// them and start over.
enum class Resume { automatic, require, never };

/// Whether training stops or proceeds when a checkpoint or backup cannot be written.
enum class CheckpointFailure { stop, proceed };

/// The text of an option's value, and its source: "--epochs" or the name of an environment variable.
struct OptionValue {
  std::string source;
  std::string value;
};

/// An option that only one program has. The environment variable LOCKSTEP_<NAME> sets it, too.
struct ProgramOption {
  std::string name;                                   ///< "hidden-units" for --hidden-units
  std::string metavar = "TEXT";                       ///< placeholder for the value in --help
  std::string help = {};                              ///< one line
  std::string shown_default = "none";                 ///< the default in --help
  std::function<void(const OptionValue& given)> set;  ///< throws UsageError for a value it cannot use
};

/// A program passes its defaults as designated initializers; `parse` overrides them with the user's values.
/// Precedence: command line, then LOCKSTEP_<OPTION>, then the TensorFlow templates' DATA_DIR, MODEL_DIR, BATCH_SIZE
/// (the global batch) and NUM_TRAIN_EPOCH, then the program's default.
struct Options {
  std::filesystem::path data_dir = {};        ///< directory or FILE.npz; empty: synthetic digits
  std::filesystem::path model_dir = "model";  ///< empty for a program that writes nothing there
  int epochs = 1;
  int steps_per_epoch = 0;  ///< 0: one pass over the data
  int global_batch_size = 128;
  std::optional<double> learning_rate = {};    ///< none: the program's default
  std::filesystem::path initial_weights = {};  ///< a file of Keras or Lockstep; empty: random, or a loaded model's
  std::optional<double> input_scale = {};      ///< factor for byte inputs; none: see README, Data
  std::uint64_t seed = 42;
  Device device = Device::automatic;
  Communication communication = Communication::automatic;
  Precision precision = Precision::automatic;
  Convolutions convolutions = Convolutions::automatic;
  bool clip_probabilities = false;  ///< compute crossentropies as Keras on JAX and PyTorch, not as on TensorFlow
  bool allow_tf32 = false;          ///< let GPUs round the inputs of float32 products to TF32's 10-bit mantissa
  Parallelism parallelism = Parallelism::automatic;
  StrategyKind strategy = StrategyKind::mirrored;
  std::string ps_placement = "round-robin";  ///< which server holds what: see README
  ServerMode ps_mode = ServerMode::synchronous;
  std::int64_t max_staleness = -1;  ///< updates that an asynchronous gradient may miss; 0: synchronous, -1: no bound
  int replicas_to_aggregate = 0;    ///< gradients that a synchronous step waits for; 0: those of all workers
  GradientCompression gradient_compression = GradientCompression::none;
  int batch_norm_replicas = 0;  ///< slices of the global batch that BatchNormalization sees; 0: one per worker
  bool deterministic = false;
  int verbose = 1;                        ///< 0 silent, 1 progress bar, 2 kernels and one line per epoch
  std::filesystem::path backup_dir = {};  ///< empty: no backups; `parse` sets MODEL_DIR/backup if it is empty
  std::int64_t backup_save_freq = 0;      ///< in optimizer steps; 0: every epoch, -1: never
  Resume resume = Resume::automatic;
  CheckpointFailure on_checkpoint_failure = CheckpointFailure::stop;
  double collective_timeout = 600;    ///< seconds that a rank waits for another; 0: no limit
  std::string assumed_hardware = {};  ///< for developers: "LATENCY,BYTES_PER_SECOND,FLOPS", instead of measuring
  std::string sharding = {};  ///< for developers: a sharding's code for Parallelism::tensor, instead of searching
  std::string layout = {};    ///< for developers: of images wherever possible, "nhwc"; empty: the fastest
  std::string program = {};   ///< file name of argv[0]
  std::map<std::string, std::string> program_options = {};  ///< values of the ProgramOptions that were set, by name

  /// For --help and --version, prints the text and exits with 0. For an invalid option, prints an error and exits with
  /// 64.
  [[nodiscard]] static Options parse(int argc, char** argv, Options defaults,
                                     const std::vector<ProgramOption>& program_options = {});
};

}  // namespace lockstep
