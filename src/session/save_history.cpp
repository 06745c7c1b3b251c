// See save_history.hpp.
#include "session/save_history.hpp"

#include "checkpoint/atomic_file.hpp"
#include "core/clock.hpp"
#include "core/environment.hpp"
#include "options/shared_options.hpp"
#include "report/report_html.hpp"

#include <lockstep/core/error.hpp>

#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>

namespace lockstep {

namespace {

double peak_memory_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

}  // namespace

RunReport complete_report(RunReport report, RunContext& run_context, const std::string& communication,
                          const NamedValues& model) {
  report.model = run_context.options().program;
  report.config = describe_options(run_context.options());
  report.world = {{"workers", std::int64_t{run_context.world().size()}},
                  {"hosts", std::int64_t{run_context.world().hosts()}},
                  {"communication", communication},
                  {"device", run_context.backend().describe()}};
  report.world.insert(model.begin(), model.end());
  report.versions = {
      {"lockstep", std::string(LOCKSTEP_VERSION)}, {"mpi", World::mpi_library()}, {"hdf5", hdf5_version()}};
  for (const auto& [library, version] : run_context.backend().libraries()) report.versions[library] = version;
  report.timing.peak_memory_mb = peak_memory_mb();
  const double now = wall_clock_seconds();
  report.generations = parse_generations(value_of(current_environment(), earlier_generations_variable));
  report.generations.push_back({run_context.identity().generation,
                                static_cast<std::uint64_t>(run_context.world().size()),
                                now - seconds_since_process_start(), now, ""});
  return report;
}

void save_history(const std::filesystem::path& path, const RunReport& report, const WriteGuard& guard) {
  const std::string text = history_json(report);
  write_file_atomically(path, std::as_bytes(std::span(text)), guard);
  const std::string page = report_html(report);
  write_file_atomically(path.parent_path() / "report.html", std::as_bytes(std::span(page)), guard);
}

}  // namespace lockstep
