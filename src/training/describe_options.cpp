// See describe_options.hpp.
#include "training/describe_options.hpp"

#include <lockstep/training/callbacks.hpp>

#include <algorithm>
#include <limits>

namespace lockstep {

Record describe_options(const Options& options) {
  Record record{{"data_dir", options.data_dir.string()},
                {"model_dir", options.model_dir.string()},
                {"epochs", options.epochs},
                {"steps_per_epoch", options.steps_per_epoch},
                {"global_batch_size", options.global_batch_size},
                {"learning_rate", options.learning_rate.value_or(std::numeric_limits<double>::quiet_NaN())},
                {"initial_weights", options.initial_weights.string()},
                {"input_scale", options.input_scale.value_or(std::numeric_limits<double>::quiet_NaN())},
                {"seed", options.seed},
                {"device", to_string(options.device)},
                {"communication", to_string(options.communication)},
                {"precision", to_string(options.precision)},
                {"allow_tf32", options.allow_tf32},
                {"division", to_string(options.division)},
                {"gradient_compression", to_string(options.gradient_compression)},
                {"replicas", options.replicas},
                {"deterministic", options.deterministic},
                {"backup_dir", options.backup_dir.string()},
                {"backup_save_freq", describe_backup_frequency(options.backup_save_freq)},
                {"resume", to_string(options.resume)},
                {"on_checkpoint_failure", to_string(options.on_checkpoint_failure)},
                {"verbose", options.verbose},
                {"program", options.program}};
  for (const auto& [name, value] : options.own) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    record[key] = value;
  }
  return record;
}

std::string to_string(Device device) {
  switch (device) {
    case Device::automatic: return "auto";
    case Device::cpu: return "cpu";
    case Device::cuda: return "cuda";
  }
  return "?";
}

std::string to_string(Communication communication) {
  switch (communication) {
    case Communication::automatic: return "auto";
    case Communication::shared: return "shared";
    case Communication::mpi: return "mpi";
    case Communication::nccl: return "nccl";
  }
  return "?";
}

std::string to_string(Division division) {
  switch (division) {
    case Division::automatic: return "auto";
    case Division::examples: return "examples";
    case Division::features: return "features";
  }
  return "?";
}

std::string to_string(GradientCompression compression) {
  return compression == GradientCompression::bfloat16 ? "bfloat16" : "none";
}

std::string to_string(Resume resume) {
  switch (resume) {
    case Resume::automatic: return "auto";
    case Resume::require: return "require";
    case Resume::never: return "never";
  }
  return "?";
}

std::string to_string(CheckpointFailure failure) {
  switch (failure) {
    case CheckpointFailure::stop: return "stop";
    case CheckpointFailure::proceed: return "continue";
  }
  return "?";
}

std::string to_string(Precision precision) {
  switch (precision) {
    case Precision::float32: return "float32";
    case Precision::mixed_bfloat16: return "mixed_bfloat16";
  }
  return "?";
}

std::string describe_backup_frequency(std::int64_t frequency) {
  if (frequency == BackupOptions::every_epoch) return "epoch";
  return frequency == BackupOptions::never ? "never" : std::to_string(frequency);
}

}  // namespace lockstep
