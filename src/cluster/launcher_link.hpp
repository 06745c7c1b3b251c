// A trainer's side of the socket pair that it shares with its launcher (child.hpp has the other).
#pragma once

#include <cstdint>

namespace lockstep {

/// Does nothing in a process that no launcher has started.
class LauncherLink {
 public:
  LauncherLink();

  /// How many steps of the training are done. Cheap: most calls tell nothing.
  void tell_step(std::uint64_t step) noexcept;

 private:
  int descriptor_;
  double next_ = 0;
};

/// From now on this process ends, with 75, when its launcher is gone: the other ranks would wait for it for ever.
void end_with_launcher();

}  // namespace lockstep
