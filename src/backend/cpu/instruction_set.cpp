// See instruction_set.hpp. oneDNN is asked only for what it uses; what the CPU has is read from cpuid, because asking
// oneDNN fixes its limit for the rest of the process.
#include "backend/cpu/instruction_set.hpp"

#include "core/environment.hpp"

#include <dnnl.hpp>

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lockstep {

namespace {

struct AmxPermission {
  bool has_amx = false;  ///< the CPU has tile registers and bfloat16 products
  int error = 0;         ///< errno of the refused request; 0: granted
};

#if defined(__x86_64__)

struct CpuidLeaf {
  explicit CpuidLeaf(unsigned leaf, unsigned subleaf = 0) {
    if (__get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx) == 0) eax = ebx = ecx = edx = 0;
  }
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

bool has_bit(unsigned word, unsigned bit) { return ((word >> bit) & 1U) != 0; }

AmxPermission request_amx() {
  const CpuidLeaf features(7);
  AmxPermission permission{.has_amx = has_bit(features.edx, 22) && has_bit(features.edx, 24)};  // AMX-BF16, AMX-TILE
  constexpr int request_permission = 0x1023;                                                    // ARCH_REQ_XCOMP_PERM
  constexpr int tile_data = 18;                                                                 // XFEATURE_XTILEDATA
  if (permission.has_amx && ::syscall(SYS_arch_prctl, request_permission, tile_data) != 0) permission.error = errno;
  return permission;
}

InstructionSet vector_instructions() {
  if (__builtin_cpu_supports("avx2") == 0) return InstructionSet::baseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  if (!avx512) return InstructionSet::avx2;
  return has_bit(CpuidLeaf(7, 1).eax, 5) ? InstructionSet::avx512_bf16 : InstructionSet::avx512;
}

bool has_slow_bfloat16() { return __builtin_cpu_is("intel") != 0; }

#else

AmxPermission request_amx() { return {}; }
InstructionSet vector_instructions() { return InstructionSet::baseline; }
bool has_slow_bfloat16() { return false; }

#endif

const AmxPermission& amx() {
  static const AmxPermission permission = request_amx();
  return permission;
}

/// The variable that limits oneDNN and its value; empty if there is none. oneDNN 2 also reads the older name.
std::pair<std::string, std::string> limiting_variable() {
  const Environment environment = current_environment();
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    if (std::string value = value_of(environment, name); !value.empty()) return {name, std::move(value)};
  }
  return {};
}

/// The set at this CPU's speed.
InstructionSet on_this_cpu(InstructionSet set) {
  const bool is_slow = set == InstructionSet::avx512_bf16 && has_slow_bfloat16();
  return is_slow ? InstructionSet::avx512_slow_bf16 : set;
}

}  // namespace

std::optional<InstructionSet> instruction_set_from(std::string_view name) {
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  constexpr std::array values{
      std::pair{"SSE41", InstructionSet::baseline},
      std::pair{"AVX", InstructionSet::baseline},
      std::pair{"AVX2", InstructionSet::avx2},
      std::pair{"AVX2_VNNI", InstructionSet::avx2},
      std::pair{"AVX2_VNNI_2", InstructionSet::avx2},
      std::pair{"AVX512_CORE", InstructionSet::avx512},
      std::pair{"AVX512_CORE_VNNI", InstructionSet::avx512},
      std::pair{"AVX512_CORE_BF16", InstructionSet::avx512_bf16},
      std::pair{"AVX512_CORE_FP16", InstructionSet::avx512_bf16},
      std::pair{"AVX10_1_512", InstructionSet::avx512_bf16},
      std::pair{"AVX512_CORE_AMX", InstructionSet::amx_bf16},
  };
  for (const auto& [value, set] : values) {
    if (upper == value) return set;
  }
  return std::nullopt;
}

InstructionSet permitted_instruction_set() {
  const InstructionSet cpu = instruction_set_of_cpu();
  return on_this_cpu(std::min(cpu, instruction_set_from(limiting_variable().second).value_or(cpu)));
}

InstructionSet instruction_set_of_cpu() {
  const InstructionSet vectors = vector_instructions();
  const bool uses_amx = vectors == InstructionSet::avx512_bf16 && amx().has_amx && amx().error == 0;
  return uses_amx ? InstructionSet::amx_bf16 : on_this_cpu(vectors);
}

InstructionSet instruction_set_in_use() {
  static_cast<void>(instruction_set_of_cpu());  // asks for AMX before oneDNN looks
  const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto includes = [effective](dnnl::cpu_isa isa) {
    return (effective & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
  };
  if (includes(dnnl::cpu_isa::avx512_core_amx)) return InstructionSet::amx_bf16;
  if (includes(dnnl::cpu_isa::avx512_core_bf16)) return on_this_cpu(InstructionSet::avx512_bf16);
  if (includes(dnnl::cpu_isa::avx512_core)) return InstructionSet::avx512;
  if (includes(dnnl::cpu_isa::avx2)) return InstructionSet::avx2;
  return InstructionSet::baseline;
}

void limit_instruction_set(InstructionSet set) {
  using dnnl::cpu_isa;
  constexpr std::array limits{cpu_isa::sse41,
                              cpu_isa::avx2,
                              cpu_isa::avx512_core,
                              cpu_isa::avx512_core_bf16,
                              cpu_isa::avx512_core_bf16,
                              cpu_isa::avx512_core_amx};
  static_cast<void>(dnnl::set_max_cpu_isa(limits[static_cast<std::size_t>(set)]));
}

std::string why_instructions_are_limited() {
  const InstructionSet used = instruction_set_in_use();
  if (used < instruction_set_of_cpu()) {
    const auto [variable, value] = limiting_variable();
    const auto limit = instruction_set_from(value);
    if (limit && on_this_cpu(*limit) == used) return fmt::format("{} is {}", variable, value);
    return fmt::format("another worker uses no more than {}", to_string(used));
  }
  if (amx().has_amx && amx().error != 0) {
    return fmt::format("Linux does not permit AMX here (arch_prctl: {})", std::generic_category().message(amx().error));
  }
  return {};
}

InstructionSet common_instruction_set(std::span<const InstructionSet> sets) {
  const InstructionSet smallest = *std::ranges::min_element(sets);
  const bool has_amx = std::ranges::find(sets, InstructionSet::amx_bf16) != sets.end();
  return smallest == InstructionSet::avx512_bf16 && has_amx ? InstructionSet::avx512_slow_bf16 : smallest;
}

}  // namespace lockstep
