// The options every model program shares, from its command line and its environment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class Device { automatic, cpu, cuda };
enum class Communication { automatic, shared, mpi, nccl };
enum class Precision { float32, mixed_bfloat16 };

/// What each worker computes of a step: some examples through the whole model, or all examples through its channels.
enum class Division { automatic, examples, features };

/// How gradients travel between hosts: as they are, or rounded to half the bytes.
enum class GradientCompression { none, bfloat16 };

/// What becomes of the backups that a run finds: go on where there are some, go on or fail, begin anew and remove them.
enum class Resume { automatic, require, never };

/// What a checkpoint or backup that cannot be written during training does.
enum class CheckpointFailure { stop, proceed };

/// An option of a program's own, beside those that all share. As with these, LOCKSTEP_<NAME> means the same.
struct ProgramOption {
  std::string name;                                   ///< "hidden-units", for --hidden-units
  std::string value = "TEXT";                         ///< what stands for its value in the help
  std::string help = {};                              ///< one line
  std::string shown_default = "none";                 ///< in the help
  std::function<void(const std::string& value)> set;  ///< throws UsageError for a value it cannot use
};

/// A program gives its own defaults as designated initialisers; `parse` overlays what its user says.
/// Precedence: command line, then LOCKSTEP_<OPTION>, then the TensorFlow templates' DATA_DIR, MODEL_DIR, BATCH_SIZE
/// (the global batch) and NUM_TRAIN_EPOCH, then the program's default.
struct Options {
  std::filesystem::path data_dir = {};        ///< directory or FILE.npz; empty: embedded digits
  std::filesystem::path model_dir = "model";  ///< empty for a program that keeps nothing there
  int epochs = 1;
  int steps_per_epoch = 0;  ///< 0: one pass over the data
  int global_batch_size = 128;
  std::optional<double> learning_rate = {};    ///< none: the program's own
  std::filesystem::path initial_weights = {};  ///< a file of Keras or Lockstep; empty: random, or a loaded model's
  std::optional<double> input_scale = {};      ///< bytes are multiplied with it; none: 1/255, or 1 before a Rescaling
  std::uint64_t seed = 42;
  Device device = Device::automatic;
  Communication communication = Communication::automatic;
  Precision precision = Precision::float32;
  bool allow_tf32 = false;  ///< let GPUs round the inputs of float32 products to TF32's 10 bits
  Division division = Division::automatic;
  GradientCompression gradient_compression = GradientCompression::none;
  int replicas = 0;  ///< slices of the global batch that BatchNormalization sees; 0: one a worker
  bool deterministic = false;
  int verbose = 1;                        ///< 0 silent, 1 progress bar, 2 one line per epoch
  std::filesystem::path backup_dir = {};  ///< empty: no backups; `parse` makes that MODEL_DIR/backup
  std::int64_t backup_save_freq = 0;      ///< in optimizer steps; 0: every epoch, -1: never
  Resume resume = Resume::automatic;
  CheckpointFailure on_checkpoint_failure = CheckpointFailure::stop;
  std::string program = {};                     ///< file name of argv[0]
  std::map<std::string, std::string> own = {};  ///< the program's own options that were given, by name

  /// Prints help or version and exits 0 where asked to. A wrong option ends the program with 64 and one sentence.
  [[nodiscard]] static Options parse(int argc, char** argv, Options defaults,
                                     const std::vector<ProgramOption>& own = {});
};

}  // namespace lockstep
