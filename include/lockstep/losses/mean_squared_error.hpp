// keras.losses.MeanSquaredError.
#pragma once

namespace lockstep {

/// The mean over a target's elements of (y - prediction)^2.
struct MeanSquaredError {};

}  // namespace lockstep
