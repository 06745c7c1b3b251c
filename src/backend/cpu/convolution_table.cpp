// See convolution_table.hpp.
//
// Rows of winograd were measured on AMD Zen 5 (float32) and Zen 4 (both types), beside direct_blocked, on 16 to 512
// channels and maps of 3 to 56. They hold for the work that winograd_work() counts. Other ordinary convolutions and few
// channels were measured on an Intel Xeon with AMX (2 MiB of second-level cache, oneDNN 2.6.3), one thread: ordinary
// ones on 32 -> 64 and 64 -> 64 channels, 3 x 3, local batches of 64; few channels on 1 -> 32, 28 x 28. Instruction
// sets below AMX were measured there with ONEDNN_MAX_CPU_ISA, but avx512_bf16's ordinary convolutions on Zen 4.
// Depthwise convolutions were measured with the layers of MobileNetV2. Rates of grouped ones are guesses.
#include "backend/cpu/convolution_table.hpp"

#include "backend/cpu/onednn.hpp"

#include <array>

namespace lockstep {

namespace {

using enum ConvolutionAlgorithm;
using enum InstructionSet;
constexpr auto slow_bf16 = avx512_slow_bf16;
constexpr auto f32 = ElementType::float32;
constexpr auto bf16 = ElementType::bfloat16;
constexpr auto nhwc = Layout::nhwc;
constexpr auto c16 = Layout::nChw16c;
constexpr auto c8 = Layout::nChw8c;
constexpr auto nchw = Layout::nchw;
constexpr auto plain = ConvolutionKind::ordinary;
constexpr auto few = ConvolutionKind::few_channels;
constexpr auto group = ConvolutionKind::grouped;
constexpr auto depth = ConvolutionKind::depthwise;

// Of equally fast rows the first is chosen. Without AMX that is a blocked one, since normalization is faster on blocks.
// clang-format off
constexpr std::array rows{
    //              algorithm            from         type  kind   input output forward data weights
    ConvolutionRow{direct_blocked,      baseline,    f32,  plain, c8,   c8,    20,   20,   20},
    ConvolutionRow{direct_blocked,      avx2,        f32,  plain, c8,   c8,    57,   57,   50},
    ConvolutionRow{direct_nhwc,         baseline,    f32,  plain, nhwc, nhwc,  20,   20,   20},
    ConvolutionRow{direct_nhwc,         avx2,        f32,  plain, nhwc, nhwc,  57,   57,   50},
    ConvolutionRow{direct_blocked,      avx512,      f32,  plain, c16,  c16,   88,   86,   86},
    ConvolutionRow{direct_nhwc,         avx512,      f32,  plain, nhwc, nhwc,  88,   84,   84},

    ConvolutionRow{winograd,            avx2,        f32,  plain, c8,   c8,    150,  150,  150},
    ConvolutionRow{winograd,            avx512,      f32,  plain, c16,  c16,   300,  300,  300},
    ConvolutionRow{winograd,            slow_bf16,   bf16, plain, c16,  c16,   300,  300,  300},

    ConvolutionRow{direct_blocked,      baseline,    f32,  few,   nchw, c8,    15,   15,   5},
    ConvolutionRow{direct_blocked,      avx2,        f32,  few,   nchw, c8,    43,   40,   6},
    ConvolutionRow{direct_nhwc,         baseline,    f32,  few,   nhwc, nhwc,  15,   15,   6},
    ConvolutionRow{direct_nhwc,         avx2,        f32,  few,   nhwc, nhwc,  43,   40,   14},
    ConvolutionRow{direct_blocked,      avx512,      f32,  few,   nchw, c16,   60,   60,   61},
    ConvolutionRow{direct_nhwc,         avx512,      f32,  few,   nhwc, nhwc,  40,   40,   24},

    ConvolutionRow{direct_blocked,      slow_bf16,   bf16, plain, c16,  c16,   59,   57,   53},
    ConvolutionRow{direct_nhwc,         slow_bf16,   bf16, plain, nhwc, nhwc,  58,   57,   53},
    ConvolutionRow{direct_blocked,      avx512_bf16, bf16, plain, c16,  c16,   176,  172,  160},
    ConvolutionRow{direct_nhwc,         avx512_bf16, bf16, plain, nhwc, nhwc,  174,  172,  160},
    ConvolutionRow{direct_blocked,      amx_bf16,    bf16, plain, c16,  c16,   59,   58,   47},
    ConvolutionRow{direct_nhwc,         amx_bf16,    bf16, plain, nhwc, nhwc,  800,  440,  160},

    ConvolutionRow{direct_blocked,      slow_bf16,   bf16, few,   nchw, c16,   27,   27,   29},
    ConvolutionRow{direct_nhwc,         slow_bf16,   bf16, few,   nhwc, nhwc,  21,   27,   18},
    ConvolutionRow{direct_few_channels, slow_bf16,   bf16, few,   nhwc, nhwc,  55,   0,    60},
    ConvolutionRow{direct_few_channels, slow_bf16,   bf16, few,   nhwc, c16,   55,   0,    60},

    ConvolutionRow{direct_blocked,      baseline,    f32,  group, c8,   c8,    20,   20,   20},
    ConvolutionRow{direct_blocked,      avx2,        f32,  group, c8,   c8,    55,   55,   45},
    ConvolutionRow{direct_nhwc,         baseline,    f32,  group, nhwc, nhwc,  10,   10,   5},
    ConvolutionRow{direct_nhwc,         avx2,        f32,  group, nhwc, nhwc,  35,   35,   20},
    ConvolutionRow{direct_blocked,      avx512,      f32,  group, c16,  c16,   120,  120,  115},

    ConvolutionRow{direct_blocked,      slow_bf16,   bf16, group, c16,  c16,   60,   60,   50},
    ConvolutionRow{direct_nhwc,         slow_bf16,   bf16, group, nhwc, nhwc,  60,   60,   30},

    ConvolutionRow{direct_blocked,      baseline,    f32,  depth, c8,   c8,    15,   15,   15},
    ConvolutionRow{direct_blocked,      avx2,        f32,  depth, c8,   c8,    35,   25,   25},
    ConvolutionRow{direct_nhwc,         baseline,    f32,  depth, nhwc, nhwc,  15,   10,   3},
    ConvolutionRow{direct_nhwc,         avx2,        f32,  depth, nhwc, nhwc,  30,   20,   20},
    ConvolutionRow{direct_blocked,      avx512,      f32,  depth, c16,  c16,   50,   40,   40},
    ConvolutionRow{direct_nhwc,         avx512,      f32,  depth, nhwc, nhwc,  40,   30,   40},
    ConvolutionRow{direct_depthwise,    baseline,    f32,  depth, nhwc, nhwc,  0,    0,    4},
    ConvolutionRow{direct_depthwise,    avx2,        f32,  depth, nhwc, nhwc,  0,    0,    15},
    ConvolutionRow{direct_depthwise,    avx512,      f32,  depth, nhwc, nhwc,  0,    0,    25},
    ConvolutionRow{direct_depthwise,    avx512,      f32,  depth, c16,  c16,   0,    0,    25},

    ConvolutionRow{direct_blocked,      slow_bf16,   bf16, depth, c16,  c16,   65,   45,   60},
    ConvolutionRow{direct_nhwc,         slow_bf16,   bf16, depth, nhwc, nhwc,  55,   45,   50},
    ConvolutionRow{direct_depthwise,    slow_bf16,   bf16, depth, nhwc, nhwc,  0,    0,    20},
    ConvolutionRow{direct_depthwise,    slow_bf16,   bf16, depth, c16,  c16,   0,    0,    20},
};
// clang-format on

}  // namespace

std::span<const ConvolutionRow> convolution_table() noexcept { return rows; }

double product_rate(InstructionSet set, ElementType type) noexcept {
  if (set == InstructionSet::baseline) return 20;
  if (set == InstructionSet::avx2) return 57;
  if (type == ElementType::float32) return 100;
  if (set == InstructionSet::avx512_slow_bf16) return 60;
  return set == InstructionSet::amx_bf16 ? 600 : 190;
}

}  // namespace lockstep
