// What a communicator is created with, besides its world.
#pragma once

#include <lockstep/core/communication.hpp>

#include <functional>

namespace lockstep {

namespace cuda {
class DeviceStreams;
}

struct CommunicatorOptions {
  Communication communication = Communication::automatic;
  /// The device whose memory holds the arenas; null for host memory. Must outlive the communicator.
  cuda::DeviceStreams* device = nullptr;
  /// For gradients that the CPU all-reduces and that leave a host.
  GradientCompression compression = GradientCompression::none;
  double timeout = 600;  ///< seconds that a rank waits for another before it throws PeerError; 0: no limit
  /// Called with true repeatedly during waits of more than a moment, and with false at their end. Must not throw.
  std::function<void(bool)> while_waiting = {};
};

}  // namespace lockstep
