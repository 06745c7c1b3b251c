// See export.hpp.
#include "cli/export.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/model_data.hpp"
#include "checkpoint/model_file.hpp"
#include "cli/check_output.hpp"
#include "cli/saved_model.hpp"
#include "core/file_system.hpp"
#include "core/printable.hpp"
#include "export/onnx_file.hpp"
#include "export/onnx_lowering.hpp"
#include "options/parse_rows.hpp"

#include <fmt/format.h>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {

enum class ExportFormat { automatic, onnx, saved_model };

template <>
struct OptionWords<ExportFormat> {
  static constexpr std::array all{std::pair{ExportFormat::automatic, "auto"}, std::pair{ExportFormat::onnx, "onnx"},
                                  std::pair{ExportFormat::saved_model, "saved-model"}};
};

namespace {

struct ExportOptions {
  fs::path model;
  fs::path output;
  ExportFormat format = ExportFormat::automatic;
  int opset = 0;  ///< 0: not given
};

void require_files(const ExportOptions& options) {
  if (options.model.empty() || options.output.empty()) {
    throw UsageError(fmt::format("lockstep export needs --{} FILE; see lockstep export --help",
                                 options.model.empty() ? "model" : "output"));
  }
  if (std::error_code unknown; !fs::exists(options.model, unknown) && !unknown)
    throw UsageError(fmt::format("there is no file {}; name a .keras or .h5 file", options.model.string()));
  if (std::error_code unknown; fs::is_directory(options.model, unknown))
    throw UsageError(fmt::format("--model {} is a directory; name a .keras or .h5 file", options.model.string()));
}

void require_not_model(const ExportOptions& options) {
  require_distinct({}, {{"--model", options.model}}, std::array{NamedFile{"--output", options.output}});
}

/// A typing error must not cost a model, a history or a data set.
void require_replaceable(const fs::path& output) {
  std::error_code unknown;
  if (follow_links(output).extension() == ".onnx" || !fs::exists(output, unknown)) return;
  throw UsageError(
      fmt::format("--output {} exists and does not end in .onnx, so it may be no file of ONNX; remove it, "
                  "or choose another name",
                  output.string()));
}

ExportFormat format_of(const ExportOptions& options) {
  if (options.format != ExportFormat::automatic) return options.format;
  if (options.output.extension() == ".onnx") return ExportFormat::onnx;
  throw UsageError(
      fmt::format("--output is {}, whose ending names no format; end it in .onnx, or give --format onnx or saved-model",
                  options.output.string()));
}

/// "x (batch, 28, 28)", for each.
std::string describe(const std::vector<OnnxPort>& ports) {
  std::string text;
  for (const OnnxPort& port : ports)
    text += fmt::format("{}{} (batch, {})", text.empty() ? "" : ", ", port.name, fmt::join(port.dims, ", "));
  return text;
}

void export_onnx(const ExportOptions& options, std::ostream& out) {
  require_onnx();
  require_regular({"--output", options.output});
  require_not_model(options);
  require_replaceable(options.output);
  require_writable(options.output);
  const ModelData model = load_model(options.model, UnsupportedCompilation::note);
  if (const std::optional<std::string> problem = find_nonfinite(model.weights))
    throw DataError(fmt::format("{}: weight {}; use an earlier copy", options.model.string(), *problem));
  const OnnxGraph graph = lower_to_onnx(model, options.opset == 0 ? default_onnx_opset : options.opset);
  write_onnx(options.output, graph);
  out << printable(fmt::format("Saved {}: ONNX, opset {}; from {} to {}\n", options.output.string(), graph.opset,
                               describe(graph.inputs), describe(graph.outputs)));
}

}  // namespace

ExitCode export_model(std::span<const std::string> args, std::ostream& out) {
  ExportOptions options;
  const std::vector<OptionRow> rows{
      {.name = "model", .metavar = "FILE", .help = "a .keras or .h5 file", .value = path(options.model)},
      {.name = "output", .metavar = "FILE", .help = "what to write", .value = path(options.output)},
      {.name = "format",
       .metavar = "FORMAT",
       .help = "onnx, saved-model (a directory, which Keras\nwrites), or auto: by the output's ending",
       .value = word(options.format)},
      {.name = "opset",
       .metavar = "N",
       .help = fmt::format("version of ONNX's operators, {} to {}", default_onnx_opset, max_onnx_opset),
       .value = whole_number(options.opset, default_onnx_opset, max_onnx_opset),
       .default_text = fmt::format("{}", default_onnx_opset)},
  };
  (void)parse_rows(args, {}, rows,
                   {.name = "lockstep export",
                    .description = "Writes a model for other programs, for inference.\n"
                                   "lockstep export --model FILE --output FILE.onnx"});
  require_files(options);
  if (format_of(options) == ExportFormat::onnx) {
    export_onnx(options, out);
  } else {
    if (options.opset != 0) {
      throw UsageError(
          "--opset is a version of ONNX's operators, which a SavedModel does not have; leave it out, or give --format "
          "onnx");
    }
    require_not_model(options);
    write_saved_model(options.model, options.output);
    out << printable(fmt::format("Saved {}: a SavedModel\n", options.output.string()));
  }
  return ExitCode::success;
}

}  // namespace lockstep
