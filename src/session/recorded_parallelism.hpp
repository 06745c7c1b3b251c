// What --parallelism auto chose in an earlier generation of this job, as the record of the model directory tells: a
// restart measures nothing again.
#pragma once

#include "session/run_context.hpp"

#include <string>

namespace lockstep {

/// The code of the sharding with which an earlier generation trained this model on as many workers, "-" for data
/// parallel; empty if none did. `model` is a digest of what is trained. Collective. Throws IoError, and DataError for a
/// damaged record.
[[nodiscard]] std::string recorded_sharding(RunContext& run_context, const std::string& model);

/// Collective. The model directory, if there is one, must be locked. Throws IoError.
void record_sharding(RunContext& run_context, const std::string& model, const std::string& code);

}  // namespace lockstep
