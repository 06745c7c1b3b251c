// See check_output.hpp.
#include "cli/check_output.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/load_dataset.hpp>

#include <fmt/format.h>
#include <iostream>
#include <system_error>
#include <utility>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

/// Also true for two names of a file that does not exist yet.
bool is_same_file(const fs::path& a, const fs::path& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code unknown;
  if (fs::equivalent(a, b, unknown) && !unknown) return true;
  const fs::path left = fs::weakly_canonical(a, unknown);
  return !unknown && left == fs::weakly_canonical(b, unknown) && !unknown;
}

}  // namespace

void require_regular(const NamedFile& output) {
  std::error_code unknown;
  if (output.file.empty() || !fs::exists(output.file, unknown) || fs::is_regular_file(output.file, unknown)) return;
  throw UsageError(fmt::format("{} {} is no regular file; choose another", output.option, output.file.string()));
}

void require_printed() {
  if (!std::cout.flush()) throw IoError("cannot write to standard output; check for a full disk or a closed pipe");
}

void require_distinct(const Options& options, std::vector<NamedFile> inputs, std::span<const NamedFile> outputs) {
  inputs.push_back({"--initial-weights", options.initial_weights});
  for (fs::path& file : dataset_files(options.data_dir)) inputs.push_back({"--data-dir", std::move(file)});
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    for (const auto& [option, file] : inputs) {
      if (!is_same_file(output->file, file)) continue;
      throw UsageError(fmt::format("{} would overwrite {}, which {} reads; choose another name", output->option,
                                   output->file.string(), option));
    }
    for (auto other = outputs.begin(); other != output; ++other) {
      if (!is_same_file(output->file, other->file)) continue;
      throw UsageError(fmt::format("{} is {}, which the run writes because of {}; choose another name", output->option,
                                   output->file.string(), other->option));
    }
  }
}

}  // namespace lockstep
