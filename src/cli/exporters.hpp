// Estimator's exporters: an evaluator keeps models as EXPORT_DIR/NAME/VERSION/model.keras, from which servers take the
// highest version.
#pragma once

#include "checkpoint/newest_model.hpp"
#include "core/enum_names.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

enum class Exporter : std::uint8_t {
  latest,  ///< each model that is evaluated
  best,    ///< each that is better than those before
  final    ///< the last one, when the job has ended
};

struct ExportSettings {
  std::vector<Exporter> exporters = {};
  std::filesystem::path directory = {};  ///< empty: "export" in the job's model directory
  std::size_t kept = 5;                  ///< versions of each exporter
  friend bool operator==(const ExportSettings&, const ExportSettings&) = default;
};

template <>
struct EnumNames<Exporter> {
  static constexpr std::array<std::pair<Exporter, std::string_view>, 3> all{
      {{Exporter::latest, "latest"}, {Exporter::best, "best"}, {Exporter::final, "final"}}};
};

/// Copies the model to DIRECTORY/NAME/NUMBER/model.EXTENSION, unless the highest number there has it. NUMBER is the
/// version's time in milliseconds, or more if there is a higher one. The directory appears whole and durable. Removes
/// the lowest numbers beyond those that are kept, and what an interrupted exporter has left. Does nothing if the
/// exporter is not chosen. Throws IoError or std::filesystem::filesystem_error; the versions before then stay.
void export_model(const ExportSettings& settings, Exporter exporter, const ModelVersion& version);

}  // namespace lockstep
