// Estimator's exporters: an evaluator keeps models as EXPORT_DIR/NAME/VERSION/model.keras, from which servers take the
// highest version.
#pragma once

#include "checkpoint/newest_model.hpp"
#include "core/enum_names.hpp"
#include "core/file_descriptor.hpp"

#include <lockstep/core/history.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

enum class Exporter : std::uint8_t {
  latest,  ///< each model that is evaluated
  best,    ///< each that is better than those before
  final    ///< the last one, when the job has ended
};

/// In the evaluation.json beside an exported model, among its scores.
inline constexpr const char* input_scale_key = "input_scale";

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

/// The exported models of one job. The file .exports.json lists them, because other versions there are the user's.
class Exports {
 public:
  /// Creates the directory, locks it and goes on from what an evaluator of the same job has exported. Without exporters
  /// it does nothing. Throws PeerError if another evaluator exports there, UsageError if one of another job than that
  /// in `model_directory` has, DataError if .exports.json is damaged, IoError.
  Exports(ExportSettings settings, const std::filesystem::path& model_directory);

  /// Copies the model to DIRECTORY/NAME/NUMBER/model.EXTENSION, unless the highest number there has it. Beside it,
  /// evaluation.json has what its evaluation has found. NUMBER is the version's time in milliseconds, or more if there
  /// is a higher one. The directory appears whole and durable. Removes this job's lowest numbers beyond those that are
  /// kept, and what an interrupted exporter has left. Does nothing if the exporter is not chosen. Throws IoError or
  /// std::filesystem::filesystem_error; the versions before then stay.
  void add(Exporter exporter, const ModelVersion& version, const Logs& scores);

  /// By what the evaluation multiplied bytes, for the evaluation.json of later versions: a server's page draws bytes.
  void set_input_scale(std::optional<double> scale) noexcept { input_scale_ = scale; }

 private:
  using Numbers = std::vector<std::uint64_t>;

  [[nodiscard]] std::filesystem::path file() const { return settings_.directory / ".exports.json"; }
  void read();
  void write() const;
  void remove_all_but_newest(Exporter exporter);

  ExportSettings settings_;
  std::string job_;  ///< its model directory, relative to this one: volumes are mounted at several paths
  FileDescriptor lock_;
  std::map<Exporter, Numbers> written_;  ///< ascending
  std::optional<double> input_scale_;
};

}  // namespace lockstep
