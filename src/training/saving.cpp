// See saving.hpp.
#include "training/saving.hpp"

#include "checkpoint/atomic_file.hpp"
#include "training/describe_options.hpp"

#include <lockstep/core/error.hpp>

#include <sys/resource.h>

#include <array>
#include <cstddef>
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

void save_history(const std::filesystem::path& path, RunReport report, Runtime& runtime,
                  const std::string& communication, const Record& division) {
  report.model = runtime.options().program;
  report.config = describe_options(runtime.options());
  report.world = {{"workers", std::int64_t{runtime.world().size()}},
                  {"hosts", std::int64_t{runtime.world().hosts()}},
                  {"replicas", static_cast<std::int64_t>(runtime.replicas())},
                  {"communication", communication},
                  {"device", runtime.backend().describe()}};
  report.world.insert(division.begin(), division.end());
  report.versions = {
      {"lockstep", std::string(LOCKSTEP_VERSION)}, {"mpi", World::mpi_library()}, {"hdf5", hdf5_version()}};
  for (const auto& [library, version] : runtime.backend().libraries()) report.versions[library] = version;
  report.timing.peak_memory_mb = peak_memory_mb();
  const std::string text = history_json(report);
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

void check_writable(const std::filesystem::path& directory) {
  AtomicFile probe(directory / "model.h5");  // makes the directory; removed again since nothing commits it
  constexpr std::array<std::byte, 4096> page{};
  probe.write(page);  // a full disk takes empty files still
}

}  // namespace lockstep
