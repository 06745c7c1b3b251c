// Replaces cuda/ in builds without CUDA.
#include "collective/make_communicator.hpp"

#include <lockstep/core/error.hpp>

namespace lockstep {

std::unique_ptr<Communicator> make_device_communicator(const World&, const CommunicatorOptions&) {
  throw InternalError("a communicator for a device was requested in a build without CUDA");
}

}  // namespace lockstep
