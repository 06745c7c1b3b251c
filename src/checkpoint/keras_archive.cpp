// See keras_archive.hpp.
#include "checkpoint/keras_archive.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/guarded_read.hpp"
#include "checkpoint/hdf5_reader.hpp"
#include "checkpoint/keras_config.hpp"
#include "checkpoint/keras_weights.hpp"
#include "checkpoint/zip_file.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// Nothing in the file is newer, so no version of Keras 3 need wonder. The date is fixed: equal models, equal bytes.
constexpr std::string_view metadata = R"({"keras_version": "3.0.0", "date_saved": "1980-01-01@00:00:00"})";

constexpr const char* config_name = "config.json";
constexpr const char* weights_name = "model.weights.h5";

/// Far more than the largest model described, and than memory is likely to hold.
constexpr std::size_t longest_config = std::size_t{256} << 20U;
constexpr std::size_t largest_weights = std::size_t{1} << 40U;

SavedModel read_keras_archive(const std::filesystem::path& file) {
  const ZipReader archive(file);
  const std::vector<std::byte> bytes = archive.read(config_name, longest_config);
  const std::string config(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string source = file.string() + ":" + config_name;
  SavedModel model{sequential_from_json(config, source), {}, archive_training_from_json(config, source)};
  if (!archive.has(weights_name) && archive.has("model.weights.json")) {
    throw DataError(file.string() +
                    " keeps its weights in several files, which Lockstep does not read; save the model "
                    "without max_shard_size.");
  }
  std::vector<std::byte> weights = archive.read(weights_name, largest_weights);
  return read_keras_weights(Hdf5Reader(weights, file.string() + ":" + weights_name), std::move(model));
}

}  // namespace

void save_keras_archive(const std::filesystem::path& file, const SavedModel& model) {
  const std::string config = archive_to_json(model);
  const std::vector<std::byte> weights = keras_weights_image(model);
  const std::array members{ZipMember{"metadata.json", std::as_bytes(std::span(metadata))},
                           ZipMember{config_name, std::as_bytes(std::span(config))}, ZipMember{weights_name, weights}};
  write_file_atomically(file, make_zip(members));
}

SavedModel load_keras_archive(const std::filesystem::path& file) {
  return read_model_guarded(file, [&file] { return read_keras_archive(file); });
}

}  // namespace lockstep
