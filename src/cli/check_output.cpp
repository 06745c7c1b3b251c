// See check_output.hpp.
#include "cli/check_output.hpp"

#include "core/file_system.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/load_dataset.hpp>

#include <fmt/format.h>
#include <iostream>
#include <system_error>
#include <utility>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

/// Also true for two names of a file that does not exist yet. Links are followed, as writers do.
bool is_same_file(const fs::path& first, const fs::path& second) {
  if (first.empty() || second.empty()) return false;
  // Absolute, since weakly_canonical leaves a relative path so if nothing of it exists.
  const fs::path a = fs::absolute(follow_links(first));
  const fs::path b = fs::absolute(follow_links(second));
  std::error_code unknown;
  if (fs::equivalent(a, b, unknown) && !unknown) return true;
  const fs::path left = fs::weakly_canonical(a / "", unknown);  // "directory" and "directory/" become equal
  return !unknown && left == fs::weakly_canonical(b / "", unknown) && !unknown;
}

/// Whether the path needs a directory where `file` is to be a file. Neither may exist yet.
bool is_below(const fs::path& path, const NamedFile& file) {
  if (file.is_directory || path.empty()) return false;
  fs::path parent = fs::absolute(follow_links(path));
  if (!parent.has_filename()) parent = parent.parent_path();  // "directory/" is not below "directory"
  while (parent != parent.parent_path()) {
    parent = parent.parent_path();
    if (is_same_file(parent, file.file)) return true;
  }
  return false;
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
  inputs.push_back({.option = "--initial-weights", .file = options.initial_weights});
  for (fs::path& file : dataset_files(options.data_dir))
    inputs.push_back({.option = "--data-dir", .file = std::move(file)});
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    for (const NamedFile& input : inputs) {
      if (!is_same_file(output->file, input.file)) continue;
      throw UsageError(fmt::format("{} would overwrite {}, which {} reads; choose another name", output->option,
                                   output->file.string(), input.option));
    }
    for (auto other = outputs.begin(); other != output; ++other) {
      if (!is_same_file(output->file, other->file)) continue;
      throw UsageError(fmt::format("{} is {}, which the run writes because of {}; choose another name", output->option,
                                   output->file.string(), other->option));
    }
    for (const NamedFile& other : outputs) {
      if (!is_below(output->file, other)) continue;
      throw UsageError(
          fmt::format("{} is {}, below {}, which the run writes as a file because of {}; choose another "
                      "name",
                      output->option, output->file.string(), other.file.string(), other.option));
    }
  }
}

}  // namespace lockstep
