// See keras_archive.hpp.
#include "checkpoint/keras/keras_archive.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/hdf5/hdf5_reader.hpp"
#include "checkpoint/hdf5/hdf5_writer.hpp"
#include "checkpoint/keras/config_reader.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/keras_h5_read.hpp"
#include "checkpoint/keras/keras_weights.hpp"
#include "checkpoint/keras/zip_file.hpp"
#include "checkpoint/subprocess_read.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// The oldest version that can read the file. The date is fixed, so that equal models give equal bytes.
constexpr std::string_view metadata = R"({"keras_version": "3.0.0", "date_saved": "1980-01-01@00:00:00"})";

constexpr const char* metadata_name = "metadata.json";
constexpr const char* config_name = "config.json";
constexpr const char* weights_name = "model.weights.h5";

/// Generous limits for configurations and weights; larger members are damaged.
constexpr std::size_t max_config_bytes = std::size_t{256} << 20U;
constexpr std::size_t max_weights_bytes = std::size_t{1} << 40U;

std::string read_text(const ZipReader& archive, const char* name) {
  const std::vector<std::byte> bytes = archive.read(name, max_config_bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The weights of an archive that Lockstep wrote hold a digest of its other members.
void check_digest(const Hdf5Reader& weights, const ZipReader& archive, const std::string& config) {
  const std::optional<std::uint64_t> digest = weights.read_digest("/");
  if (!digest || (archive.has(metadata_name) && *digest == config_digest(config, read_text(archive, metadata_name)))) {
    return;
  }
  weights.fail(fmt::format("does not match the archive's {} or {}; the file is damaged, so use an earlier copy",
                           config_name, metadata_name));
}

KerasVersion keras_version(const ZipReader& archive, const std::filesystem::path& file) {
  if (!archive.has(metadata_name)) return KerasVersion::three;
  const std::string source = file.string() + ":" + metadata_name;
  const nlohmann::json document = parse_json(read_text(archive, metadata_name), source);
  return to_keras_version(ConfigReader(document, source).text("keras_version", ""));
}

ModelData read_keras_archive(const std::filesystem::path& file) {
  const ZipReader archive(file);
  const std::string config = read_text(archive, config_name);
  const std::string source = file.string() + ":" + config_name;
  const KerasVersion version = keras_version(archive, file);
  ModelData model{model_of_weights_from_json(config, source, version), {}, {}};
  model.compile_state =
      archive_compile_config_from_json(config, source, model.architecture, UnsupportedCompilation::note);
  if (model.compile_state && version == KerasVersion::two) refuse_rules_of_keras2(*model.compile_state, file.string());
  if (!archive.has(weights_name) && archive.has("model.weights.json")) {
    throw DataError(
        fmt::format("{} keeps its weights in several files, which Lockstep does not read; save the model "
                    "without max_shard_size",
                    file.string()));
  }
  std::vector<std::byte> weights = archive.read(weights_name, max_weights_bytes);
  const Hdf5Reader reader(weights, file.string() + ":" + weights_name);
  check_digest(reader, archive, config);
  return read_keras_weights(reader, std::move(model), version);
}

}  // namespace

void save_keras_archive(const std::filesystem::path& file, const ModelData& model, const WriteGuard& guard) {
  const std::string config = archive_config_to_json(model);
  Hdf5Writer writer(estimate_file_size(model));
  const auto weights = write_keras_weights(writer, model, config_digest(config, std::string(metadata)));
  const std::array members{ZipMember{metadata_name, std::as_bytes(std::span(metadata))},
                           ZipMember{config_name, std::as_bytes(std::span(config))}, ZipMember{weights_name, weights}};
  AtomicFile archive(file, guard);
  archive.expect(metadata.size() + config.size() + weights.size());
  write_zip(members, [&archive](std::size_t at, std::span<const std::byte> bytes) { archive.write_at(at, bytes); });
  archive.commit();
}

ModelData load_keras_archive(const std::filesystem::path& file) {
  return read_model_in_subprocess(file, [&file] { return read_keras_archive(file); });
}

}  // namespace lockstep
