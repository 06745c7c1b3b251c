// Checks of the files that a command will write, made before it computes anything.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>

#include <lockstep/training/options.hpp>

namespace lockstep {

/// A file and the option that names it.
struct NamedFile {
  std::string option;
  std::filesystem::path file;
};

/// Throws UsageError if the output is one of the command's inputs: the data of `options`, its initial weights, or one
/// of `inputs`.
void require_not_an_input(const NamedFile& output, const Options& options, std::initializer_list<NamedFile> inputs);

/// Throws UsageError if the output has the name of one of the `others`, which the command writes too.
void require_other_name(const NamedFile& output, std::initializer_list<NamedFile> others);

/// Throws UsageError if there is something else than a regular file: opening a pipe would wait for its other end.
void require_regular(const NamedFile& output);

/// Throws IoError if what was printed did not reach standard output. For commands whose result is what they print.
void require_printed();

}  // namespace lockstep
