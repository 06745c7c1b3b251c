// The order in which a training step runs its plan. Steps run in the plan's order, except for updates. An update
// becomes due at its place in the plan. Due updates run in order:
//   - after each step, while the next update's bucket is already reduced;
//   - before a step that waits for their bucket (WaitUpdated);
//   - at the end of the training step.
// So all-reduces between hosts overlap this rank's compute. Training (step.cpp) and the simulation of the cost model
// (cost_model.cpp) share these rules.
#pragma once

#include "plan/plan.hpp"

#include <cstddef>
#include <variant>
#include <vector>

namespace lockstep {

class Schedule {
 public:
  /// The schedule of a step with or without the all-reduce of its metrics. `plan` must outlive the schedule.
  Schedule(const Plan& plan, bool reduces_metrics);

  /// Runs the step once on an executor with three functions, where `place` is an index in Plan::training:
  ///   void run(std::size_t place);                         any step but an Update
  ///   void update(std::size_t place, std::size_t bucket);  an Update
  ///   bool is_reduced(std::size_t bucket);                 whether no data of other hosts is missing for its update
  template <typename Executor>
  void run(Executor& executor) const;

 private:
  struct PlacedUpdate {
    std::size_t place;
    std::size_t bucket;
  };

  const Plan& plan_;
  std::vector<std::size_t> places_;
  std::vector<PlacedUpdate> updates_;  ///< the Update steps among them
};

template <typename Executor>
void Schedule::run(Executor& executor) const {
  std::size_t due = 0;   // updates before this index are due
  std::size_t made = 0;  // updates before this index have run
  const auto update = [&](const PlacedUpdate& next) { executor.update(next.place, next.bucket); };
  for (const std::size_t place : places_) {
    const PlanStep& step = plan_.training[place];
    if (std::holds_alternative<Update>(step)) {
      ++due;
    } else {
      if (const auto* wait = std::get_if<WaitUpdated>(&step)) {
        std::size_t end = due;
        while (end > made && updates_[end - 1].bucket != wait->bucket) --end;
        for (; made < end; ++made) update(updates_[made]);
      }
      executor.run(place);
    }
    for (; made < due && executor.is_reduced(updates_[made].bucket); ++made) update(updates_[made]);
  }
  for (; made < due; ++made) update(updates_[made]);
}

}  // namespace lockstep
