// How gradients are written down on the wire between hosts.
#pragma once

namespace lockstep {

enum class Compression {
  none,      ///< float32
  bfloat16,  ///< half the bytes, 8 bits of precision; sums are float32
};

}  // namespace lockstep
