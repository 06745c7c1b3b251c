// See serve_parameters.hpp.
#include "session/serve_parameters.hpp"

#include "collective/parameter_server/server_communicator.hpp"
#include "core/fault_point.hpp"
#include "core/format_number.hpp"
#include "core/log.hpp"
#include "session/compiled_model.hpp"

#include <fmt/format.h>
#include <algorithm>

namespace lockstep {

namespace {

void make_step(CompiledModel& model) {
  ProgressReporter& progress = model.run_context.launcher().progress();
  progress.report_step_begin();
  model.serve_step();
  const StepProfile& profile = model.steps.front()->step.profile();
  progress.report_step_end(
      {.step = model.iteration, .allreduce_seconds = profile.communication, .wait_seconds = profile.waiting});
}

}  // namespace

void serve_parameters(RunContext& run_context) {
  TaskGroup& tasks = *run_context.tasks();
  log_info(fmt::format("serving variables to {}; {} prints the progress", count_of(tasks.workers(), "worker"),
                       tasks.name_of(0)));
  while (true) {
    CompiledModel* next = nullptr;
    const auto is_due = [&] {
      const auto& models = run_context.served_models();
      const auto model = std::ranges::find_if(models, [](CompiledModel* each) { return each->server->has_step(); });
      next = model == models.end() ? nullptr : *model;
      return next != nullptr || tasks.is_over();
    };
    tasks.request_stop(run_context.launcher().request());
    tasks.wait_idle(is_due, [&] {
      run_context.report_busy();
      tasks.request_stop(run_context.launcher().request());
    });
    if (next == nullptr) break;
    make_step(*next);
  }
  if (tasks.code() == 0) run_context.launcher().report_finished();
  tasks.see_workers_off();
  fault_point("finished");
  World::end_together(tasks.code());
}

}  // namespace lockstep
