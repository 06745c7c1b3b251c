// The records of TensorBoard's event files, as bytes: a length, a protobuf message of type Event, and a checksum of
// each.
//
// The messages are put together by hand. Lockstep writes two kinds of them and reads none, which takes three functions;
// protobuf would bring a code generator into the build, a library into every program, and its own order of fields where
// ours is that of TensorBoard's own writer, so that tests compare byte for byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// CRC-32C, turned and shifted as TensorFlow does it so that checksums of checksums stay useful.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes) noexcept;

/// What every event file begins with. `wall_time` is in seconds since 1970.
[[nodiscard]] std::string version_record(double wall_time);

/// One point of the curve `tag`, as TensorFlow 2 writes it.
[[nodiscard]] std::string scalar_record(std::string_view tag, double value, std::int64_t step, double wall_time);

}  // namespace lockstep
