// Checks of the files that a command will write, made before it computes anything.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <lockstep/training/options.hpp>

namespace lockstep {

/// A file and the option that names it.
struct NamedFile {
  std::string option;
  std::filesystem::path file;
  bool is_directory = false;
};

/// Throws UsageError if an output is something that the command reads (one of `inputs`, the data of `options`, or its
/// initial weights) or another output, or lies below one that is no directory.
void require_distinct(const Options& options, std::vector<NamedFile> inputs, std::span<const NamedFile> outputs);

/// Throws UsageError if there is something other than a regular file: opening a pipe would wait for its other end.
void require_regular(const NamedFile& output);

/// Throws IoError if what was printed did not reach standard output. For commands whose result is what they print.
void require_printed();

}  // namespace lockstep
