// See recorded_parallelism.hpp.
#include "session/recorded_parallelism.hpp"

#include "core/process_identity.hpp"
#include "ownership/directory_record.hpp"
#include "session/read_on_chief.hpp"

#include <fmt/format.h>
#include <cstddef>
#include <optional>

namespace lockstep {

namespace {

constexpr std::size_t max_code = 1024;  // a record has a bounded length

/// Choices are made anew for other models and worlds.
std::string key_of(RunContext& run_context, const std::string& model) {
  return fmt::format("{} workers, model {}: ", run_context.world().size(), model);
}

/// Whatever else decides makes the same choice again.
bool is_recorded(RunContext& run_context) {
  const Options& run = run_context.options();
  return run.parallelism == Parallelism::automatic && !run.model_dir.empty() && run_context.world().size() > 1;
}

}  // namespace

std::string recorded_sharding(RunContext& run_context, const std::string& model) {
  if (!is_recorded(run_context)) return {};
  std::string code;
  run_on_chief(run_context, [&] {
    const std::optional<DirectoryRecord> record = find_record(run_context.options().model_dir);
    if (!record || record->owner.job != run_context.identity().job) return;
    if (record->process == process_identity()) return;  // another model of this program chose it
    const std::string key = key_of(run_context, model);
    if (record->owner.parallelism.starts_with(key)) code = record->owner.parallelism.substr(key.size());
  });
  return run_context.control().all_gather(code).front();
}

void record_sharding(RunContext& run_context, const std::string& model, const std::string& code) {
  if (!is_recorded(run_context) || code.size() > max_code) return;
  run_on_chief(run_context, [&] {
    run_context.lock_directory(run_context.options().model_dir).record_parallelism(key_of(run_context, model) + code);
  });
}

}  // namespace lockstep
