// Lets the first convolution of a model multiply by the derivative of its activation in its own backward, which reads
// the gradient and the values of its output anyway. A Dense layer or a convolution after it would make a pass over
// both.
#pragma once

#include "graph/graph.hpp"

namespace lockstep::cuda {

/// Of images with one channel, for which there is a kernel that does it on the way.
void let_first_convolution_derive(Graph& graph);

}  // namespace lockstep::cuda
