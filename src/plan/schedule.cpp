// See schedule.hpp.
#include "plan/schedule.hpp"

namespace lockstep {

Schedule::Schedule(const Plan& plan, bool reduces_metrics)
    : plan_(plan), places_(plan.places_of_step(reduces_metrics)) {
  for (const std::size_t place : places_) {
    if (const auto* update = std::get_if<Update>(&plan.training[place])) updates_.push_back({place, update->bucket});
  }
}

}  // namespace lockstep
