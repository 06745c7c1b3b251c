// See subprocess_read.hpp.
#include "checkpoint/subprocess_read.hpp"

#include "checkpoint/model_serialization.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

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

/// The first number that the child sends.
enum Outcome : std::uint64_t { loaded = 1, bad_data = 2, bad_file = 3, no_memory = 4, fault = 5 };

/// The last number that the child sends; without it the result is incomplete.
constexpr std::uint64_t complete = 0x4c6f636b73746570;

void read_and_send(PipeWriter& output, const std::function<SendResult()>& read) {
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

void read_in_subprocess(const std::filesystem::path& file, const std::function<SendResult()>& read,
                        const std::function<bool(const Subprocess&)>& receive) {
  // Decompression runs at 100 MB/s or more. A child that takes longer than 1 s per 8 MiB loops in a damaged file.
  std::error_code unknown_size;
  const std::uintmax_t size = std::filesystem::file_size(file, unknown_size);
  const unsigned cpu_seconds = 3 + (unknown_size ? 0 : static_cast<unsigned>(size >> 23U));
  // Reading takes memory for a few copies of the model. Compressed files rarely need more than 16 times their size.
  const std::uint64_t memory = (std::uint64_t{1} << 30U) + (unknown_size ? 0 : 16 * std::uint64_t{size});
  Subprocess child([&read](PipeWriter& output) { read_and_send(output, read); }, cpu_seconds, memory);

  std::uint64_t outcome = 0;
  std::uint64_t last = 0;
  std::string message;
  bool is_complete = child.receive(outcome);
  if (is_complete) is_complete = outcome == Outcome::loaded ? receive(child) : child.receive(message, max_text_bytes);
  if (!is_complete || !child.receive(last) || last != complete) {
    throw DataError(
        fmt::format("cannot read {}: the process that read it {}, so the file is probably damaged; use an "
                    "earlier copy",
                    file.string(), child.describe_exit()));
  }
  if (outcome == Outcome::bad_data) throw DataError(message);
  if (outcome == Outcome::bad_file) throw IoError(message);
  if (outcome == Outcome::no_memory) {
    throw DataError(
        fmt::format("cannot read {}: reading takes more memory than an intact file of its size needs, so it "
                    "is probably damaged; use an earlier copy",
                    file.string()));
  }
  if (outcome != Outcome::loaded) {
    throw InternalError(fmt::format("reading {} failed: {}; please report this", file.string(), message));
  }
}

ModelData read_model_in_subprocess(const std::filesystem::path& file, const std::function<ModelData()>& read) {
  std::optional<ModelData> model;
  const auto read_here = [&read]() -> SendResult {
    const auto result = std::make_shared<ModelData>(read());
    return [result](PipeWriter& output) {
      write_model([&output](std::span<const std::byte> bytes) { output.send(bytes); }, *result);
    };
  };
  read_in_subprocess(file, read_here, [&](const Subprocess& child) {
    model = read_model([&child](std::span<std::byte> bytes) { return child.receive(bytes); }, file.string());
    return model.has_value();
  });
  return *std::move(model);
}

}  // namespace lockstep
