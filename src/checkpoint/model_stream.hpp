// A model as a stream of bytes between processes that trust each other: from the child that read a file to its parent,
// from the chief to everybody.
#pragma once

#include "checkpoint/saved_model.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// Of JSON and of messages; more is damage.
constexpr std::uint64_t longest_text = std::uint64_t{1} << 30U;

using ByteSink = std::function<void(std::span<const std::byte>)>;

/// Fills the bytes; false if the other side broke off.
using ByteSource = std::function<bool(std::span<std::byte>)>;

/// What one side writes, the other reads with as many calls of the same lengths.
void write_number(const ByteSink& sink, std::uint64_t number);
void write_text(const ByteSink& sink, const std::string& text);
void write_model(const ByteSink& sink, const SavedModel& model);

[[nodiscard]] std::optional<std::uint64_t> read_number(const ByteSource& source);

/// Nothing also for a text of more than `most` bytes.
[[nodiscard]] std::optional<std::string> read_text(const ByteSource& source, std::uint64_t most = longest_text);

/// `name` is for messages.
[[nodiscard]] std::optional<SavedModel> read_model(const ByteSource& source, const std::string& name);

}  // namespace lockstep
