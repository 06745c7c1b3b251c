// The CPU's limit of multiply-adds, which no direct convolution and no product can exceed.
#pragma once

namespace lockstep::bench {

/// Adds the row limit/multiply_adds/f32, of independent multiply-adds in registers. Its counter is floating-point
/// operations per second of one thread, two for each multiply-add.
void add_multiply_add_row();

}  // namespace lockstep::bench
