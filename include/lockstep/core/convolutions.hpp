// How CPUs compute convolutions: the choices of --convolutions.
#pragma once

namespace lockstep {

enum class Convolutions {
  automatic,  ///< what is expected to be fastest for each: for most 3 x 3 kernels, Winograd's algorithm
  direct,     ///< the sums as they are defined, whose rounding errors are a third to two thirds
  winograd,   ///< Winograd's algorithm wherever it is possible, fast or not: for tests, not a choice of --convolutions
};

}  // namespace lockstep
