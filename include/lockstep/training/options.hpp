// The options every model program shares, from its command line and its environment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

enum class Device { automatic, cpu, cuda };
enum class Communication { automatic, shared, mpi, nccl };
enum class Precision { float32, mixed_bfloat16 };

/// A program gives its own defaults as designated initialisers; `parse` overlays what its user says.
/// Precedence: command line, then LOCKSTEP_<OPTION>, then the TensorFlow templates' DATA_DIR, MODEL_DIR, BATCH_SIZE
/// (the global batch) and NUM_TRAIN_EPOCH, then the program's default.
struct Options {
  std::filesystem::path data_dir = {};  ///< directory or FILE.npz; empty: embedded digits
  std::filesystem::path model_dir = "model";
  int epochs = 1;
  int steps_per_epoch = 0;  ///< 0: one pass over the data
  int global_batch_size = 128;
  std::optional<double> learning_rate = {};  ///< none: the program's own
  std::uint64_t seed = 42;
  Device device = Device::automatic;
  Communication communication = Communication::automatic;
  Precision precision = Precision::float32;
  int replicas = 0;  ///< slices of the global batch that BatchNormalization sees; 0: one a worker
  bool deterministic = false;
  int verbose = 1;           ///< 0 silent, 1 progress bar, 2 one line per epoch
  std::string program = {};  ///< file name of argv[0]

  /// Prints help or version and exits 0 where asked to. A wrong option ends the program with 64 and one sentence.
  [[nodiscard]] static Options parse(int argc, char** argv, Options defaults);
};

}  // namespace lockstep
