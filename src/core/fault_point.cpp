// See fault_point.hpp. Weak, so that a test program can define them.
#include "core/fault_point.hpp"

namespace lockstep {

__attribute__((weak)) void fault_point(std::string_view /*name*/, std::span<std::byte> /*memory*/) {}

__attribute__((weak)) void record_event(const HistoryEvent& /*event*/) {}

}  // namespace lockstep
