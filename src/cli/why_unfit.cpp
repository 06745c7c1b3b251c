// See why_unfit.hpp.
#include "cli/why_unfit.hpp"

#include "backend/make_backend.hpp"
#include "cli/model_settings.hpp"
#include "graph/lower.hpp"
#include "session/compiled_model.hpp"

#include <lockstep/core/error.hpp>

#include <optional>

namespace lockstep {

namespace {

/// Compiles the model as the commands do. Throws what they throw.
void require_fit(const InspectedFile& file, Purpose purpose) {
  const Architecture& architecture = file.model->architecture;
  CompileOptions options{.loss = MeanSquaredError()};  // lockstep predict computes no loss
  if (purpose != Purpose::predict) {
    std::optional<SavedCompileOptions> saved;
    if (file.model->compile_state) saved = static_cast<const SavedCompileOptions&>(*file.model->compile_state);
    ModelSettings settings;
    settings.model = file.path;
    options = resolve_compile_options(settings, architecture, saved, purpose == Purpose::train);
  }
  complete(options, architecture);
  const Graph graph = lower(architecture, options, Precision::automatic);
  if (graph.mixed_bfloat16) make_cpu_backend(1)->require_bfloat16();
}

}  // namespace

std::string why_unfit(const InspectedFile& file, Purpose purpose) {
  if (purpose == Purpose::none) return {};
  if (!file.model) {
    return file.path.string() +
           " holds weights without the model they belong to; save the whole model as .keras or .h5";
  }
  try {
    require_fit(file, purpose);
  } catch (const UsageError& error) {
    return error.what();
  } catch (const DataError& error) {
    return error.what();
  }
  return {};
}

}  // namespace lockstep
