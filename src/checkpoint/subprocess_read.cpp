// See subprocess_read.hpp.
#include "checkpoint/subprocess_read.hpp"

#include "checkpoint/model_serialization.hpp"
#include "core/fault_point.hpp"
#include "core/file_descriptor.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
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
enum Outcome : std::uint64_t { loaded = 1, bad_data = 2, bad_file = 3, too_large = 4, no_memory = 5, fault = 6 };

/// Reading takes memory for a few copies of the model. Compressed files rarely need more than 16 times their size.
std::uint64_t memory_to_read(const std::filesystem::path& file) {
  std::error_code unknown_size;
  const std::uintmax_t size = std::filesystem::file_size(file, unknown_size);
  return (std::uint64_t{1} << 30U) + (unknown_size ? 0 : 16 * std::uint64_t{size});
}

/// The last number that the child sends; without it the result is incomplete.
constexpr std::uint64_t complete = 0x4c6f636b73746570;

void read_and_send(PipeWriter& output, const std::function<SendResult()>& read, std::uint64_t memory) {
  const auto report = [&output](Outcome outcome, const std::exception& error) {
    output.send(outcome);
    output.send(std::string(error.what()));
  };
  fault_point("read");
  try {
    const SendResult send = read();
    output.send(Outcome::loaded);
    send(output);
  } catch (const DataError& error) {
    report(Outcome::bad_data, error);
  } catch (const IoError& error) {
    report(Outcome::bad_file, error);
  } catch (const std::bad_alloc& error) {
    report(can_allocate(memory) ? Outcome::too_large : Outcome::no_memory, error);
  } catch (const std::exception& error) {
    report(Outcome::fault, error);
  }
  output.send(complete);
}

/// Throws IoError unless every byte of the file can be read. Libraries report failing disks and damaged files alike.
void require_readable(const std::filesystem::path& file) {
  const FileDescriptor descriptor(file, O_RDONLY);
  std::vector<std::byte> bytes(std::size_t{1} << 20U);
  ssize_t got = descriptor.valid() ? 1 : -1;
  while (got > 0) {
    do {
      got = ::read(descriptor.number(), bytes.data(), bytes.size());
    } while (got < 0 && errno == EINTR);
  }
  if (got < 0) {
    throw IoError(fmt::format("cannot read {}: {}; check the disk and its mount", file.string(),
                              std::generic_category().message(errno)));
  }
}

}  // namespace

void read_in_subprocess(const std::filesystem::path& file, const std::function<SendResult()>& read,
                        const std::function<bool(const Subprocess&)>& receive) {
  // Small files take 10 ms, those of thousands of layers 0.1 s a MiB, and large weights 10 ms a MiB. A child that takes
  // several times as long loops in a damaged file.
  std::error_code unknown_size;
  const std::uintmax_t size = std::filesystem::file_size(file, unknown_size);
  const double mebibytes = static_cast<double>(size) / (1 << 20);
  const double cpu_seconds = unknown_size ? 10 : std::min(0.5 + 4 * mebibytes, 10 + mebibytes / 8);
  const std::uint64_t memory = memory_to_read(file);
  Subprocess child([&](PipeWriter& output) { read_and_send(output, read, memory); },
                   {.cpu_seconds = cpu_seconds, .memory = memory});

  std::uint64_t outcome = 0;
  std::uint64_t last = 0;
  std::string message;
  bool is_complete = child.receive(outcome);
  if (is_complete) is_complete = outcome == Outcome::loaded ? receive(child) : child.receive(message, max_text_bytes);
  if (!is_complete || !child.receive(last) || last != complete) {
    const Subprocess::Exit exit = child.end();
    if (!exit.crashed) {
      throw IoError(fmt::format("cannot read {}: the process that read it {}, which says nothing about the file; {}",
                                file.string(), exit.description, exit.remedy));
    }
    require_readable(file);
    throw DataError(
        fmt::format("cannot read {}: the process that read it {}, so the file is probably damaged; use an "
                    "earlier copy",
                    file.string(), exit.description));
  }
  if (outcome == Outcome::bad_file) throw IoError(message);
  if (outcome == Outcome::no_memory) {
    throw IoError(fmt::format(
        "cannot read {}: too little memory; free memory or raise the limit (ulimit -v, ulimit -d)", file.string()));
  }
  if (outcome == Outcome::bad_data || outcome == Outcome::too_large) require_readable(file);
  if (outcome == Outcome::bad_data) throw DataError(message);
  if (outcome == Outcome::too_large) {
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
    model = read_model([&child](std::span<std::byte> bytes) { return child.receive(bytes); }, file.string(),
                       memory_to_read(file));
    return model.has_value();
  });
  return *std::move(model);
}

}  // namespace lockstep
