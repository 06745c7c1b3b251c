// See guarded_read.hpp.
#include "checkpoint/guarded_read.hpp"

#include "checkpoint/keras_config.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// What the child begins with.
enum Outcome : std::uint64_t { loaded = 1, bad_data = 2, bad_file = 3, fault = 4 };

/// The last thing it sends: all before it is complete.
constexpr std::uint64_t complete = 0x4c6f636b73746570;

void read_and_send(ChildOutput& output, const std::function<SendResult()>& read) {
  const auto report = [&output](Outcome outcome, const std::exception& error) {
    output.send(outcome);
    output.send(std::string(error.what()));
  };
  try {
    const SendResult send = read();
    output.send(Outcome::loaded);
    send(output);
  } catch (const DataError& error) {
    report(Outcome::bad_data, error);
  } catch (const IoError& error) {
    report(Outcome::bad_file, error);
  } catch (const std::exception& error) {
    report(Outcome::fault, error);
  }
  output.send(complete);
}

void send(ChildOutput& output, const std::vector<SavedTensor>& tensors) {
  for (const SavedTensor& tensor : tensors) output.send(std::as_bytes(std::span(tensor.values)));
}

void send(ChildOutput& output, const SavedModel& model) {
  output.send(sequential_to_json(model.architecture));
  output.send(model.training ? training_to_json(*model.training) : std::string());
  output.send(model.training ? static_cast<std::uint64_t>(model.training->iteration) : 0);
  send(output, model.weights);
  if (model.training) send(output, model.training->slots);
}

bool receive(const ChildProcess& child, std::vector<SavedTensor>& tensors) {
  for (SavedTensor& tensor : tensors) {
    tensor.values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    if (!child.receive(std::as_writable_bytes(std::span(tensor.values)))) return false;
  }
  return true;
}

/// Shapes follow from the architecture, so only values need be sent. Nothing if the child broke off.
std::optional<SavedModel> receive_model(const ChildProcess& child, const std::string& source) {
  std::string architecture;
  std::string training;
  std::uint64_t iteration = 0;
  if (!child.receive(architecture, longest_text) || !child.receive(training, longest_text) ||
      !child.receive(iteration)) {
    return std::nullopt;
  }
  SavedModel model{sequential_from_json(architecture, source), {}, {}};
  model.weights = weights_for(model.architecture);
  if (!receive(child, model.weights)) return std::nullopt;
  if (training.empty()) return model;
  model.training = training_from_json(training, source);
  model.training->iteration = static_cast<std::int64_t>(iteration);
  model.training->slots = slots_for(model.architecture, model.training->optimizer);
  if (!receive(child, model.training->slots)) return std::nullopt;
  return model;
}

}  // namespace

void read_guarded(const std::filesystem::path& file, const std::function<SendResult()>& read,
                  const std::function<bool(const ChildProcess&)>& receive) {
  // Unpacking runs at 100 MB/s and more; who takes longer has lost its way in a damaged file.
  std::error_code unknown_size;
  const std::uintmax_t size = std::filesystem::file_size(file, unknown_size);
  const unsigned cpu_seconds = 3 + (unknown_size ? 0 : static_cast<unsigned>(size >> 23U));
  ChildProcess child([&read](ChildOutput& output) { read_and_send(output, read); }, cpu_seconds);

  std::uint64_t outcome = 0;
  std::uint64_t last = 0;
  std::string message;
  bool whole = child.receive(outcome);
  if (whole) whole = outcome == Outcome::loaded ? receive(child) : child.receive(message, longest_text);
  if (!whole || !child.receive(last) || last != complete) {
    throw DataError("Cannot read " + file.string() + ": the process that read it " + child.describe_end() +
                    ", so the file is probably damaged; use an earlier copy of it.");
  }
  if (outcome == Outcome::bad_data) throw DataError(message);
  if (outcome == Outcome::bad_file) throw IoError(message);
  if (outcome != Outcome::loaded) {
    throw InternalError("Reading " + file.string() + " failed: " + message + "; please report this.");
  }
}

SavedModel read_model_guarded(const std::filesystem::path& file, const std::function<SavedModel()>& read) {
  std::optional<SavedModel> model;
  const auto read_here = [&read]() -> SendResult {
    const auto result = std::make_shared<SavedModel>(read());
    return [result](ChildOutput& output) { send(output, *result); };
  };
  read_guarded(file, read_here, [&](const ChildProcess& child) {
    model = receive_model(child, file.string());
    return model.has_value();
  });
  return *std::move(model);
}

}  // namespace lockstep
