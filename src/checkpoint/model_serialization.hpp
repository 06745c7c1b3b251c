// Encodes a model as a byte stream between processes that trust each other: from the child that reads a file to its
// parent, and from the chief to all ranks.
#pragma once

#include "checkpoint/model_data.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// The limit for JSON and messages; longer ones are damaged.
constexpr std::uint64_t max_text_bytes = std::uint64_t{1} << 30U;

using ByteSink = std::function<void(std::span<const std::byte>)>;

/// Fills the span; returns false if the sender stopped early.
using ByteSource = std::function<bool(std::span<std::byte>)>;

/// Reads match writes: the reader calls the corresponding functions in the same order.
void write_number(const ByteSink& sink, std::uint64_t number);
void write_text(const ByteSink& sink, const std::string& text);
void write_model(const ByteSink& sink, const ModelData& model);

[[nodiscard]] std::optional<std::uint64_t> read_number(const ByteSource& source);

/// Returns nullopt if the stream ended or the text is longer than `max_bytes`.
[[nodiscard]] std::optional<std::string> read_text(const ByteSource& source, std::uint64_t max_bytes = max_text_bytes);

/// Returns nullopt if the stream ended early or its arrays take more than `max_bytes`. `name` is the file's name, for
/// messages.
[[nodiscard]] std::optional<ModelData> read_model(const ByteSource& source, const std::string& name,
                                                  std::uint64_t max_bytes = ~std::uint64_t{0});

}  // namespace lockstep
