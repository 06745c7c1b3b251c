// Encodes the records of TensorBoard's event files. A record is a length and a protobuf message of type Event, each
// followed by its checksum.
//
// The messages are encoded by hand: Lockstep writes only two kinds of message, and protobuf would add a code generator
// to the build and a library to every program. Fields are in the order of TensorBoard's own writer, so that tests can
// compare bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// CRC-32C, rotated and offset as in TensorFlow's TFRecord format.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes) noexcept;

/// The first record of every event file. `wall_time` is in seconds since 1970.
[[nodiscard]] std::string version_record(double wall_time);

/// One point of the curve `tag`, as TensorFlow 2 writes it.
[[nodiscard]] std::string scalar_record(std::string_view tag, double value, std::int64_t step, double wall_time);

}  // namespace lockstep
