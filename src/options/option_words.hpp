// The words for values of enumerations, on the command line, in files and in messages.
#pragma once

#include <lockstep/training/options.hpp>

#include <array>
#include <string>
#include <utility>

namespace lockstep {

/// `all` pairs each value of an enumeration with its word.
template <class Enum>
struct OptionWords;

template <>
struct OptionWords<Device> {
  static constexpr std::array all{std::pair{Device::automatic, "auto"}, std::pair{Device::cpu, "cpu"},
                                  std::pair{Device::cuda, "cuda"}};
};

template <>
struct OptionWords<Communication> {
  static constexpr std::array all{std::pair{Communication::automatic, "auto"},
                                  std::pair{Communication::shared, "shared"}, std::pair{Communication::mpi, "mpi"},
                                  std::pair{Communication::nccl, "nccl"}};
};

template <>
struct OptionWords<Precision> {
  static constexpr std::array all{std::pair{Precision::automatic, "auto"}, std::pair{Precision::float32, "float32"},
                                  std::pair{Precision::mixed_bfloat16, "mixed_bfloat16"}};
};

template <>
struct OptionWords<Convolutions> {
  static constexpr std::array all{std::pair{Convolutions::automatic, "auto"},
                                  std::pair{Convolutions::direct, "direct"}};
};

template <>
struct OptionWords<Parallelism> {
  static constexpr std::array all{std::pair{Parallelism::automatic, "auto"}, std::pair{Parallelism::data, "data"},
                                  std::pair{Parallelism::tensor, "tensor"}};
};

template <>
struct OptionWords<StrategyKind> {
  static constexpr std::array all{std::pair{StrategyKind::mirrored, "mirrored"},
                                  std::pair{StrategyKind::parameter_server, "parameter-server"}};
};

template <>
struct OptionWords<ServerMode> {
  static constexpr std::array all{std::pair{ServerMode::synchronous, "synchronous"},
                                  std::pair{ServerMode::asynchronous, "asynchronous"}};
};

template <>
struct OptionWords<GradientCompression> {
  static constexpr std::array all{std::pair{GradientCompression::none, "none"},
                                  std::pair{GradientCompression::bfloat16, "bfloat16"}};
};

template <>
struct OptionWords<Resume> {
  static constexpr std::array all{std::pair{Resume::automatic, "auto"}, std::pair{Resume::require, "require"},
                                  std::pair{Resume::never, "never"}};
};

template <>
struct OptionWords<CheckpointFailure> {
  static constexpr std::array all{std::pair{CheckpointFailure::stop, "stop"},
                                  std::pair{CheckpointFailure::proceed, "continue"}};
};

/// The word for `value`: "auto", "mixed_bfloat16", ...
template <class Enum>
requires requires { OptionWords<Enum>::all; }
[[nodiscard]] std::string to_string(Enum value) {
  for (const auto& [one, word] : OptionWords<Enum>::all) {
    if (one == value) return word;
  }
  return "?";
}

}  // namespace lockstep
