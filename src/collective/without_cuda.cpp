// Stands for cuda/ in a build without CUDA.
#include "collective/make_communicator.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {

std::unique_ptr<Communicator> make_device_communicator(
    const World&, Transport, cuda::DeviceQueue&,
    std::function<void(bool)>) {  // NOLINT(performance-unnecessary-value-param): as where it is used
  throw InternalError("a device, in a build without CUDA");
}

}  // namespace lockstep
