// See guarded_read.hpp.
#include "checkpoint/guarded_read.hpp"

#include "checkpoint/model_stream.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// What the child begins with.
enum Outcome : std::uint64_t { loaded = 1, bad_data = 2, bad_file = 3, no_memory = 4, fault = 5 };

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
  } catch (const std::bad_alloc& error) {
    report(Outcome::no_memory, error);
  } catch (const std::exception& error) {
    report(Outcome::fault, error);
  }
  output.send(complete);
}

}  // namespace

void read_guarded(const std::filesystem::path& file, const std::function<SendResult()>& read,
                  const std::function<bool(const ChildProcess&)>& receive) {
  // Unpacking runs at 100 MB/s and more; who takes longer has lost its way in a damaged file.
  std::error_code unknown_size;
  const std::uintmax_t size = std::filesystem::file_size(file, unknown_size);
  const unsigned cpu_seconds = 3 + (unknown_size ? 0 : static_cast<unsigned>(size >> 23U));
  // A model takes its size a few times over on its way; packed models are rare, and those of zeros rarer.
  const std::uint64_t memory = (std::uint64_t{1} << 30U) + (unknown_size ? 0 : 16 * std::uint64_t{size});
  ChildProcess child([&read](ChildOutput& output) { read_and_send(output, read); }, cpu_seconds, memory);

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
  if (outcome == Outcome::no_memory) {
    throw DataError("Cannot read " + file.string() +
                    ": that takes more memory than a whole file of its size would, so it is probably damaged; use an "
                    "earlier copy of it.");
  }
  if (outcome != Outcome::loaded) {
    throw InternalError("Reading " + file.string() + " failed: " + message + "; please report this.");
  }
}

SavedModel read_model_guarded(const std::filesystem::path& file, const std::function<SavedModel()>& read) {
  std::optional<SavedModel> model;
  const auto read_here = [&read]() -> SendResult {
    const auto result = std::make_shared<SavedModel>(read());
    return [result](ChildOutput& output) {
      write_model([&output](std::span<const std::byte> bytes) { output.send(bytes); }, *result);
    };
  };
  read_guarded(file, read_here, [&](const ChildProcess& child) {
    model = read_model([&child](std::span<std::byte> bytes) { return child.receive(bytes); }, file.string());
    return model.has_value();
  });
  return *std::move(model);
}

}  // namespace lockstep
