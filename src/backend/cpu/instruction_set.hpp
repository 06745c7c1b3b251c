// The vector and matrix instructions that kernels may use, and why they may not use all that the CPU has.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Each includes those before it, or the same instructions at a lower speed.
enum class InstructionSet {
  baseline,
  avx2,
  avx512,
  avx512_slow_bf16,  ///< bfloat16 vector instructions that are slower than float32's: Intel's
  avx512_bf16,       ///< fast ones: AMD's
  amx_bf16
};

/// ONEDNN_MAX_CPU_ISA's names for them.
inline constexpr std::array instruction_set_names{std::string_view("SSE41"),
                                                  std::string_view("AVX2"),
                                                  std::string_view("AVX512_CORE"),
                                                  std::string_view("AVX512_CORE_BF16"),
                                                  std::string_view("AVX512_CORE_BF16"),
                                                  std::string_view("AVX512_CORE_AMX")};

[[nodiscard]] constexpr std::string_view to_string(InstructionSet set) noexcept {
  return instruction_set_names[static_cast<std::size_t>(set)];
}

/// Of ONEDNN_MAX_CPU_ISA's values, which name more sets than Lockstep tells apart. None for ALL, DEFAULT and unknown
/// ones.
[[nodiscard]] std::optional<InstructionSet> instruction_set_from(std::string_view name);

/// What this CPU and the operating system support. For AMX, asks Linux for the permission to use tile registers.
[[nodiscard]] InstructionSet instruction_set_of_cpu();

/// The same, within ONEDNN_MAX_CPU_ISA. Does not ask oneDNN, so limit_instruction_set still works afterwards.
[[nodiscard]] InstructionSet permitted_instruction_set();

/// What oneDNN's kernels use: that of the CPU, unless ONEDNN_MAX_CPU_ISA or limit_instruction_set says less.
[[nodiscard]] InstructionSet instruction_set_in_use();

/// Limits oneDNN to `set`, which a worker of this job has and no more. Works only before oneDNN is used for the first
/// time in this process; later it does nothing.
void limit_instruction_set(InstructionSet set);

/// Why kernels use fewer instructions than the CPU has, as a clause; empty if they use all: "ONEDNN_MAX_CPU_ISA is
/// AVX2", "Linux does not permit AMX here (arch_prctl: Operation not permitted)".
[[nodiscard]] std::string why_instructions_are_limited();

/// What workers with these sets all use: the smallest. Beside a worker without AMX, one with AMX has slow bfloat16.
[[nodiscard]] InstructionSet common_instruction_set(std::span<const InstructionSet> sets);

}  // namespace lockstep
