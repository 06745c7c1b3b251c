// Rows of operation_bench that compare the algorithms of 3 x 3 convolutions in blocks of channels. They justify the
// rates of Winograd's algorithm in src/backend/cpu/convolution_table.cpp.
#pragma once

namespace lockstep::bench {

/// Adds rows "convolution/8x32->32x16/forward/winograd": images, channels, output channels, height and width of the
/// input; passes forward, data and weights; algorithms winograd, onednn_direct and onednn_winograd, and the first two
/// in bfloat16 (winograd_bfloat16).
void add_convolution_rows();

}  // namespace lockstep::bench
