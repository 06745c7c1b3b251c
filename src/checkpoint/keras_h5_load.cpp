// Reads the file in a child process and takes the model from a pipe, so that a damaged file costs no more than a
// message. The way there and back takes some tens of milliseconds for a model of ten megabytes.
#include "checkpoint/child_process.hpp"
#include "checkpoint/keras_config.hpp"
#include "checkpoint/keras_h5.hpp"
#include "checkpoint/keras_h5_read.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
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

/// Of JSON and of messages; more is damage.
constexpr std::uint64_t longest_text = std::uint64_t{1} << 30U;

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

void read_and_send(ChildOutput& output, const std::filesystem::path& file) {
  const auto report = [&output](Outcome outcome, const std::exception& error) {
    output.send(outcome);
    output.send(std::string(error.what()));
  };
  try {
    const SavedModel model = read_keras_h5(file);
    output.send(Outcome::loaded);
    send(output, model);
  } catch (const DataError& error) {
    report(Outcome::bad_data, error);
  } catch (const IoError& error) {
    report(Outcome::bad_file, error);
  } catch (const std::exception& error) {
    report(Outcome::fault, error);
  }
  output.send(complete);
}

bool receive(ChildProcess& child, std::vector<SavedTensor>& tensors) {
  for (SavedTensor& tensor : tensors) {
    tensor.values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    if (!child.receive(std::as_writable_bytes(std::span(tensor.values)))) return false;
  }
  return true;
}

/// Shapes follow from the architecture, so only values need be sent. Nothing if the child broke off.
std::optional<SavedModel> receive_model(ChildProcess& child, const std::string& source) {
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

SavedModel load_keras_h5(const std::filesystem::path& file) {
  // Unpacking runs at 100 MB/s and more; who takes longer has lost its way in a damaged file.
  std::error_code unknown_size;
  const std::uintmax_t size = std::filesystem::file_size(file, unknown_size);
  const unsigned cpu_seconds = 3 + (unknown_size ? 0 : static_cast<unsigned>(size >> 23U));
  ChildProcess child([&file](ChildOutput& output) { read_and_send(output, file); }, cpu_seconds);

  std::uint64_t outcome = 0;
  std::uint64_t last = 0;
  std::string message;
  std::optional<SavedModel> model;
  if (child.receive(outcome)) {
    if (outcome == Outcome::loaded) {
      model = receive_model(child, file.string());
    } else if (!child.receive(message, longest_text)) {
      outcome = 0;
    }
  }
  if (!child.receive(last) || last != complete) {
    throw DataError("Cannot read " + file.string() + ": the process that read it " + child.describe_end() +
                    ", so the file is probably damaged; use an earlier copy of it.");
  }
  if (outcome == Outcome::bad_data) throw DataError(message);
  if (outcome == Outcome::bad_file) throw IoError(message);
  if (!model) throw InternalError("Reading " + file.string() + " failed: " + message + "; please report this.");
  return *std::move(model);
}

}  // namespace lockstep
