// Which pictures a classifier takes for another class: what report.html shows of them.
#pragma once

#include "report/history_json.hpp"
#include "session/compiled_model.hpp"

#include <lockstep/data/dataset.hpp>

#include <cstddef>

namespace lockstep {

/// The first mistakes among the first pictures of the data: a tenth of them, but at least `batch_size` if there are so
/// many. Nothing if the chief writes no report, if the model is no classifier, or if its input is no picture: bytes of
/// shape (height, width), or any values of shape (height, width, 1) or (height, width, 3), of 4 to 256 pixels a side.
/// Collective.
[[nodiscard]] Mistakes find_mistakes(CompiledModel& model, const Dataset& data, std::size_t batch_size);

}  // namespace lockstep
