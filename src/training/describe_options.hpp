// Options as the words in which a user says them: for help, records and messages.
#pragma once

#include <lockstep/training/options.hpp>

#include <cstdint>
#include <string>

#include "report/history_json.hpp"

namespace lockstep {

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

/// "epoch", "never", or a number of optimizer steps.
[[nodiscard]] std::string describe_backup_frequency(std::int64_t frequency);

}  // namespace lockstep
