// See shared_read.hpp.
#include "training/shared_read.hpp"

#include "checkpoint/keras_h5.hpp"
#include "checkpoint/keras_weights.hpp"
#include "checkpoint/model_file.hpp"
#include "checkpoint/model_stream.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>

namespace lockstep {

namespace {

enum Outcome : std::uint64_t { nothing, found, wrong_usage, bad_data, bad_file };

[[noreturn]] void fail(Outcome outcome, const std::string& message) {
  if (outcome == wrong_usage) throw UsageError(message);
  if (outcome == bad_data) throw DataError(message);
  throw IoError(message);
}

/// Broadcasts from the chief, in the order in which the others receive.
ByteSink sender(Runtime& runtime) {
  return [&runtime](std::span<const std::byte> bytes) {
    // Its own bytes are only read.
    runtime.control().broadcast({const_cast<std::byte*>(bytes.data()), bytes.size()}, 0);  // NOLINT
  };
}

ByteSource receiver(Runtime& runtime) {
  return [&runtime](std::span<std::byte> bytes) {
    runtime.control().broadcast(bytes, 0);
    return true;
  };
}

std::optional<SharedModel> read_and_send(Runtime& runtime, const std::function<std::optional<SharedModel>()>& read) {
  const ByteSink sink = sender(runtime);
  const auto report = [&sink](Outcome outcome, const std::exception& error) {
    write_number(sink, outcome);
    write_text(sink, error.what());
  };
  std::optional<SharedModel> result;
  try {
    result = read();
  } catch (const UsageError& error) {
    report(wrong_usage, error);
    throw;
  } catch (const DataError& error) {
    report(bad_data, error);
    throw;
  } catch (const IoError& error) {
    report(bad_file, error);
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

std::optional<SharedModel> read_on_chief(Runtime& runtime, const std::function<std::optional<SharedModel>()>& read) {
  if (runtime.world().size() == 1) return read();
  if (runtime.world().is_chief()) return read_and_send(runtime, read);
  const ByteSource source = receiver(runtime);
  const auto outcome = static_cast<Outcome>(read_number(source).value());
  if (outcome == nothing) return std::nullopt;
  std::string text = read_text(source).value();
  if (outcome != found) fail(outcome, text);
  auto model = read_model(source, text).value();
  return SharedModel{std::move(text), std::move(model)};
}

SharedModel read_model_file(Runtime& runtime, const std::filesystem::path& file, const Sequential* known) {
  const auto read = [&]() -> std::optional<SharedModel> {
    const ModelFormat format = model_format_of(file);
    const bool bare = format == ModelFormat::weights || (format == ModelFormat::h5 && !has_architecture(file));
    if (!bare) return SharedModel{file.string(), load_model(file)};
    if (known == nullptr) {
      throw DataError(file.string() + " holds weights without the model they belong to; save the whole model.");
    }
    return SharedModel{file.string(), load_keras_weights(file, {*known, weights_for(*known), {}})};
  };
  return read_on_chief(runtime, read).value();
}

std::string read_text_file(Runtime& runtime, const std::filesystem::path& file) {
  constexpr std::uintmax_t most = std::uintmax_t{64} << 20U;
  std::string text;
  std::string problem;
  if (runtime.world().is_chief()) {
    std::error_code error;
    if (std::filesystem::file_size(file, error) > most && !error) {
      problem = file.string() + " is larger than 64 MiB; is it the right file?";
    } else if (std::filesystem::is_directory(file, error)) {
      problem = file.string() + " is a directory; name a file.";
    } else if (std::ifstream stream(file, std::ios::binary); !stream) {
      problem = "Cannot read " + file.string() + ": " + std::generic_category().message(errno) + ".";
    } else {
      text.assign(std::istreambuf_iterator<char>(stream), {});
    }
  }
  const ByteSink sink = sender(runtime);
  const ByteSource source = receiver(runtime);
  for (std::string* each : {&problem, &text}) {
    if (runtime.world().is_chief()) {
      write_text(sink, *each);
    } else {
      *each = read_text(source).value();
    }
  }
  if (!problem.empty()) throw IoError(problem);
  return text;
}

void check_weights(const SharedModel& file, const Sequential& architecture) {
  const std::vector<SavedTensor> expected = weights_for(architecture);
  const std::vector<SavedTensor>& weights = file.model.weights;
  for (std::size_t i = 0; i < std::min(weights.size(), expected.size()); ++i) {
    if (weights[i].shape == expected[i].shape) continue;
    throw DataError(file.path + " holds another model: its weight '" + weights[i].name + "' has the shape " +
                    weights[i].shape.to_string() + " where this model's '" + expected[i].name + "' has " +
                    expected[i].shape.to_string() + "; name a file of this model.");
  }
  if (weights.size() != expected.size()) {
    throw DataError(file.path + " holds another model: it has " + std::to_string(weights.size()) +
                    " weights, this one " + std::to_string(expected.size()) + "; name a file of this model.");
  }
  for (const SavedTensor& weight : weights) {
    const auto is_number = [](float value) { return std::isfinite(value); };
    const auto bad = std::find_if_not(weight.values.begin(), weight.values.end(), is_number);
    if (bad == weight.values.end()) continue;
    throw DataError(file.path + ": the weight '" + weight.name +
                    "' holds NaN or infinite values (the first is number " +
                    std::to_string(bad - weight.values.begin()) + "); use an earlier copy.");
  }
}

}  // namespace lockstep
