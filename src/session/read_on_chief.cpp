// See read_on_chief.hpp.
#include "session/read_on_chief.hpp"

#include "checkpoint/keras/keras_h5.hpp"
#include "checkpoint/keras/keras_weights.hpp"
#include "checkpoint/model_file.hpp"
#include "checkpoint/model_serialization.hpp"
#include "core/error_of_code.hpp"
#include "core/regular_file.hpp"
#include "ownership/finished_job.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>

namespace lockstep {

namespace {

/// What the chief sends first: one of these, or the exit code of its error.
constexpr std::uint64_t nothing = 0;
constexpr std::uint64_t found = 1;

/// Broadcasts from the chief. Each call pairs with one call of the other ranks' `receiver`, of the same size.
ByteSink sender(RunContext& run_context) {
  return [&run_context](std::span<const std::byte> bytes) {
    // The root's buffer is only read.
    run_context.control().broadcast({const_cast<std::byte*>(bytes.data()), bytes.size()}, 0);  // NOLINT
  };
}

ByteSource receiver(RunContext& run_context) {
  return [&run_context](std::span<std::byte> bytes) {
    run_context.control().broadcast(bytes, 0);
    return true;
  };
}

std::optional<LoadedModel> read_and_broadcast(RunContext& run_context,
                                              const std::function<std::optional<LoadedModel>()>& read) {
  const ByteSink sink = sender(run_context);
  std::optional<LoadedModel> result;
  try {
    result = read();
  } catch (const Error& error) {
    write_number(sink, static_cast<std::uint64_t>(error.code()));
    write_text(sink, error.what());
    throw;
  }
  write_number(sink, result ? found : nothing);
  if (result) {
    write_text(sink, result->path);
    write_model(sink, result->model);
  }
  return result;
}

}  // namespace

std::optional<LoadedModel> read_on_chief(RunContext& run_context,
                                         const std::function<std::optional<LoadedModel>()>& read) {
  if (run_context.world().size() == 1 && run_context.tasks() == nullptr) return read();
  if (run_context.world().is_chief()) return read_and_broadcast(run_context, read);
  const ByteSource source = receiver(run_context);
  const std::uint64_t outcome = read_number(source).value();
  if (outcome == nothing) return std::nullopt;
  std::string text = read_text(source).value();
  if (outcome != found) throw_error_of_code(outcome, text);
  auto model = read_model(source, text).value();
  return LoadedModel{std::move(text), std::move(model)};
}

void run_on_chief(RunContext& run_context, const std::function<void()>& work) {
  static_cast<void>(read_on_chief(run_context, [&work] {
    work();
    return std::optional<LoadedModel>();
  }));
}

void own_model_directory(RunContext& run_context, const JobContents& contents, bool may_resume) {
  run_context.set_contents(contents);
  const std::filesystem::path& directory = run_context.options().model_dir;
  if (directory.empty()) return;
  std::string state;
  run_on_chief(run_context, [&] {
    const DirectoryOwner& job = run_context.identity();
    if (job.outlives_launchers && has_finished(directory, job)) {
      state = fmt::format("Job {} has finished, as {} records; nothing is left to do.", job.job, directory.string());
    } else {
      run_context.lock_directory(directory);
      if (!may_resume) run_context.record_training({});
    }
  });
  if (const std::string finished = run_context.control().all_gather(state).front(); !finished.empty()) {
    run_context.end_finished_job(finished);
  }
}

namespace {

/// A wrong setting, which no restart mends.
void require_exists(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error) && !error)
    throw UsageError(fmt::format("cannot read {}: No such file or directory; check the path", file.string()));
}

}  // namespace

LoadedModel read_model_file(RunContext& run_context, const std::filesystem::path& file, const Architecture* known) {
  const auto read = [&]() -> std::optional<LoadedModel> {
    require_exists(file);
    const ModelFormat format = model_format_of(file);
    const bool bare = format == ModelFormat::weights || (format == ModelFormat::h5 && !has_architecture(file));
    if (!bare) return LoadedModel{file.string(), load_model(file, UnsupportedCompilation::note)};
    if (known == nullptr) {
      throw DataError(file.string() +
                      " holds weights without the model they belong to; save the whole model as .keras or .h5");
    }
    return LoadedModel{file.string(), load_keras_weights(file, {*known, weights_for(*known), {}})};
  };
  return read_on_chief(run_context, read).value();
}

namespace {

std::string read_small_file(const std::filesystem::path& file) {
  constexpr std::uintmax_t max_bytes = std::uintmax_t{64} << 20U;
  require_regular_file(file, "JSON file");
  std::error_code error;
  if (std::filesystem::file_size(file, error) > max_bytes && !error) {
    throw IoError(file.string() + " is larger than 64 MiB; is it the right file?");
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw IoError("cannot read " + file.string() + ": " + std::generic_category().message(errno));
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

std::string read_text_file(RunContext& run_context, const std::filesystem::path& file) {
  std::string text;
  std::string missing;
  std::string problem;
  if (run_context.world().is_chief()) {
    try {
      require_exists(file);
      text = read_small_file(file);
    } catch (const UsageError& error) {
      missing = error.what();
    } catch (const IoError& error) {
      problem = error.what();
    }
  }
  const ByteSink sink = sender(run_context);
  const ByteSource source = receiver(run_context);
  for (std::string* each : {&missing, &problem, &text}) {
    if (run_context.world().is_chief()) {
      write_text(sink, *each);
    } else {
      *each = read_text(source).value();
    }
  }
  if (!missing.empty()) throw UsageError(missing);
  if (!problem.empty()) throw IoError(problem);
  return text;
}

void check_weights(const std::string& path, const std::vector<NamedTensor>& weights, const Architecture& architecture) {
  const std::vector<NamedTensor> expected = weights_for(architecture);
  for (std::size_t i = 0; i < std::min(weights.size(), expected.size()); ++i) {
    if (weights[i].shape == expected[i].shape) continue;
    throw DataError(path + " holds another model: its weight '" + weights[i].name + "' has shape " +
                    weights[i].shape.to_string() + ", but this model's '" + expected[i].name + "' has " +
                    expected[i].shape.to_string() + "; name a file of this model");
  }
  if (weights.size() != expected.size()) {
    throw DataError(
        fmt::format("{} holds another model: it has {} weights, but this model has {}; name a file of this model", path,
                    weights.size(), expected.size()));
  }
  if (const auto problem = find_nonfinite(weights)) {
    throw DataError(fmt::format("{}: weight {}; use an earlier copy", path, *problem));
  }
}

}  // namespace lockstep
