// See check_output.hpp.
#include "cli/check_output.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <iostream>
#include <system_error>
#include <vector>

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

void require_other_name(const NamedFile& output, std::initializer_list<NamedFile> others) {
  for (const auto& [option, file] : others) {
    if (!is_same_file(output.file, file)) continue;
    throw UsageError(fmt::format("{} is {}, which the run writes because of {}; choose another name", output.option,
                                 output.file.string(), option));
  }
}

void require_not_an_input(const NamedFile& output, const Options& options, std::initializer_list<NamedFile> inputs) {
  std::vector<NamedFile> all(inputs);
  all.push_back({"--initial-weights", options.initial_weights});
  all.push_back({"--data-dir", options.data_dir});
  std::error_code unreadable;
  for (fs::directory_iterator entry(options.data_dir, unreadable), end; !unreadable && entry != end;
       entry.increment(unreadable)) {
    all.push_back({"--data-dir", entry->path()});
  }
  for (const auto& [option, file] : all) {
    if (!is_same_file(output.file, file)) continue;
    throw UsageError(fmt::format("{} would overwrite {}, which {} reads; choose another file", output.option,
                                 output.file.string(), option));
  }
}

}  // namespace lockstep
