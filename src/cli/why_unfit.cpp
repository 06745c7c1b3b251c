// See why_unfit.hpp.
#include "cli/why_unfit.hpp"

#include "backend/make_backend.hpp"
#include "cli/model_settings.hpp"
#include "graph/lower.hpp"
#include "graph/output_options.hpp"
#include "session/check_arrays.hpp"

#include <lockstep/core/error.hpp>

#include <optional>

namespace lockstep {

namespace {

void check_dataset(Dataset& data, const Options& options, const Architecture& model, const CompileOptions& compiled) {
  check_inputs(data, options, model);
  convert_targets(data, compiled, model);
  check_data(data, model, output_options(compiled, model), options.input_scale);
}

/// Loads the data and checks it as the commands do.
void require_fitting_data(const Options& data, Purpose purpose, const Architecture& model,
                          const CompileOptions& compiled) {
  const ArrayNames names = array_names(model);
  if (purpose == Purpose::predict) {
    const Dataset inputs = load_inputs(data.data_dir, names);
    check_inputs(inputs, data, model);
    check_inputs_alone(inputs, model, data.input_scale);
  } else if (purpose == Purpose::evaluate) {
    Dataset test = load_test_data(data.data_dir, names);
    check_dataset(test, data, model, compiled);
  } else {
    TrainTestSplit split = load_dataset(data.data_dir, names, TestSet::optional);
    check_dataset(split.train, data, model, compiled);
    if (split.test.size() > 0) check_dataset(split.test, data, model, compiled);
    if (split.validation) check_dataset(*split.validation, data, model, compiled);
  }
}

/// Compiles the model as the commands do. Throws what they throw.
void require_fit(const InspectedFile& file, Purpose purpose, ModelSettings settings, const Options& data) {
  const Architecture& architecture = file.model->architecture;
  CompileOptions options{.loss = MeanSquaredError()};  // lockstep predict computes no loss
  if (purpose != Purpose::predict) {
    std::optional<SavedCompileOptions> saved;
    if (file.model->compile_state) saved = static_cast<const SavedCompileOptions&>(*file.model->compile_state);
    settings.model = file.path;
    options = resolve_compile_options(settings, architecture, saved, purpose == Purpose::train);
  }
  const Graph graph = lower(architecture, options, Precision::automatic);
  if (graph.mixed_bfloat16) make_cpu_backend(1)->require_bfloat16();
  if (!data.data_dir.empty()) require_fitting_data(data, purpose, architecture, options);
}

}  // namespace

std::string why_unfit(const InspectedFile& file, Purpose purpose, const ModelSettings& settings, const Options& data) {
  if (purpose == Purpose::none) return {};
  if (!file.model) {
    return file.path.string() +
           " holds weights without the model they belong to; save the whole model as .keras or .h5";
  }
  try {
    require_fit(file, purpose, settings, data);
  } catch (const UsageError& error) {
    return error.what();
  } catch (const DataError& error) {
    return error.what();
  }
  return {};
}

}  // namespace lockstep
