// Formats MODEL_DIR/report.html: what history.json holds, for people. The page needs no network and no scripts.
#pragma once

#include "report/history_json.hpp"

#include <string>

namespace lockstep {

/// Curves of loss and metrics, where the time of a step goes, the epochs, the world and all options: one page of HTML,
/// in light and dark. Texts are escaped; values that are not finite leave gaps.
[[nodiscard]] std::string report_html(const RunReport& report);

}  // namespace lockstep
