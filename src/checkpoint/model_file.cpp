// See model_file.hpp.
#include "checkpoint/model_file.hpp"

#include "checkpoint/keras/keras_archive.hpp"
#include "checkpoint/keras/keras_h5.hpp"
#include "checkpoint/keras/keras_weights.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {
namespace {

std::optional<ModelFormat> find_format(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  if (name.ends_with(".keras")) return ModelFormat::keras;
  if (name.ends_with(".weights.h5")) return ModelFormat::weights;
  if (name.ends_with(".h5") || name.ends_with(".hdf5")) return ModelFormat::h5;
  return std::nullopt;
}

}  // namespace

ModelFormat model_format_of(const std::filesystem::path& file) {
  if (const std::optional<ModelFormat> format = find_format(file)) return *format;
  throw UsageError(
      fmt::format("unknown model format of {}; the name must end in .keras, .h5, .hdf5 or .weights.h5", file.string()));
}

bool is_model_file_name(const std::filesystem::path& file) { return find_format(file).has_value(); }

void save_model(const std::filesystem::path& file, const ModelData& model, const WriteGuard& guard) {
  switch (model_format_of(file)) {
    case ModelFormat::keras: return save_keras_archive(file, model, guard);
    case ModelFormat::h5: return save_keras_h5(file, model, guard);
    case ModelFormat::weights: return save_keras_weights(file, model, guard);
  }
}

ModelData load_model(const std::filesystem::path& file, UnsupportedCompilation unsupported) {
  const ModelFormat format = model_format_of(file);
  if (format == ModelFormat::weights) {
    throw DataError(fmt::format(
        "{} holds weights without the model they belong to; save the whole model as .keras or .h5", file.string()));
  }
  ModelData model = format == ModelFormat::keras ? load_keras_archive(file) : load_keras_h5(file);
  if (unsupported == UnsupportedCompilation::refuse && model.compile_state) {
    if (const std::string& refusal = model.compile_state->refusals.first(); !refusal.empty()) throw DataError(refusal);
  }
  return model;
}

}  // namespace lockstep
