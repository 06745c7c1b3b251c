// Options::parse without a process around it: arguments and environment come in as values, errors and requests for text
// go out as exceptions.
#pragma once

#include <lockstep/training/options.hpp>

#include <span>
#include <string>

#include "core/environment.hpp"
#include "report/history_json.hpp"

namespace lockstep {

/// Thrown where the user asks for --help or --version: the text to print before the program ends with 0.
struct TextRequest {
  std::string text;
};

/// What a program is for.
struct Purpose {
  std::string sentence = "Trains on every worker of the world";  ///< in its help
  bool trains = true;                                            ///< else it has no options for training
};

/// `args` are those after the program's name, which is `defaults.program`. Throws UsageError or TextRequest.
[[nodiscard]] Options parse_options(std::span<const std::string> args, const Environment& environment, Options defaults,
                                    std::span<const ProgramOption> own = {}, const Purpose& purpose = {});

/// Options::parse for a program of any purpose.
[[nodiscard]] Options parse_or_exit(std::span<const std::string> args, Options defaults,
                                    std::span<const ProgramOption> own, const Purpose& purpose = {});

/// Every option by its name without dashes, for history.json.
[[nodiscard]] Record describe_options(const Options& options);

/// The words of the command line: "auto", "cpu", "mixed_bfloat16", ...
[[nodiscard]] std::string to_string(Device device);
[[nodiscard]] std::string to_string(Communication communication);
[[nodiscard]] std::string to_string(Precision precision);
[[nodiscard]] std::string to_string(Division division);
[[nodiscard]] std::string to_string(GradientCompression compression);
[[nodiscard]] std::string to_string(Resume resume);
[[nodiscard]] std::string to_string(CheckpointFailure failure);

}  // namespace lockstep
