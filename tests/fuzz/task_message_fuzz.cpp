// Fuzzes the messages between the tasks of a parameter-server job: a stream of frames in arbitrary fragments, whose
// long bodies are placed. Any bytes must yield the same messages as without places, or a DataError, and nothing beside
// the places may be written.
#include "cluster/net/frame.hpp"
#include "cluster/parameter_server/task_message.hpp"

#include "seeds.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace lockstep;

constexpr std::size_t limit = 4096;
constexpr std::size_t shards = 3;
constexpr std::size_t first_bytes = 40;

/// Seeds: a frame of every type, and gradients of each shard one after the other.
std::vector<std::string> frames() {
  std::vector<std::string> seeds{encode(to_frame(Contribution{0, 1, "bytes"})),
                                 encode(to_frame(Contributions{0, 1, {"a", "", "b"}})), encode(to_frame(StopTask{1}))};
  std::string gradients;
  for (std::size_t shard = 0; shard < shards; ++shard) {
    const std::vector<std::byte> data((shard + 1) * first_bytes, static_cast<std::byte>(shard + 1));
    const std::array<std::span<const std::byte>, 1> parts{data};
    gradients += encode(to_frame(ModelMessageKind::gradient, 0, 1, shard, parts));
    seeds.push_back(*encode_beginning(ModelMessageKind::weights, 0, 1, shard, 8) + "in 8 of ");
  }
  seeds.push_back(gradients);
  seeds.push_back(gradients + seeds[0] + gradients);
  return seeds;
}

/// The memory of a receiver, where each shard lies between bytes that nobody writes.
class Memory {
 public:
  [[nodiscard]] Placer placer() {
    return {ModelMessage::beginning_bytes, [this](std::uint16_t kind, std::string_view beginning) {
              Frame frame{kind, std::string(beginning)};
              return is_model_message(frame) ? places_of(to_model_message(std::move(frame)).shard) : Places();
            }};
  }

  [[nodiscard]] Places places_of(std::uint64_t shard) {
    if (shard >= shards) return {};
    const std::size_t bytes = (shard + 1) * first_bytes;
    std::byte* const begin = &bytes_[shard * shards * 2 * first_bytes + first_bytes];
    return {{begin, bytes / 4}, {begin + bytes / 4, bytes - bytes / 4}};
  }

  /// Whether only shards were written. Clears them.
  [[nodiscard]] bool is_clean() {
    for (std::size_t shard = 0; shard < shards; ++shard) {
      for (const std::span<std::byte> place : places_of(shard)) std::ranges::fill(place, std::byte{0});
    }
    return std::ranges::all_of(bytes_, [](std::byte byte) { return byte == std::byte{0}; });
  }

 private:
  std::array<std::byte, shards * shards * 2 * first_bytes> bytes_{};
};

void decode(const Frame& frame) {
  switch (frame.kind) {
    case Contribution::kind: static_cast<void>(to_contribution(frame)); break;
    case Contributions::kind: static_cast<void>(to_contributions(frame)); break;
    case StopTask::kind: static_cast<void>(to_stop_task(frame)); break;
    default:
      if (is_model_message(frame)) static_cast<void>(to_model_message(Frame(frame)).data());
  }
}

/// All frames as if they had been buffered.
std::vector<Frame> buffered(std::span<const std::byte> bytes) {
  FrameReader reader(limit);
  std::vector<Frame> frames;
  try {
    reader.add(bytes);
    while (std::optional<Frame> frame = reader.next()) frames.push_back(std::move(*frame));
  } catch (const DataError&) {  // frames before the invalid one count
  }
  return frames;
}

/// `forgets_at`: how many bytes arrive before the places are forgotten.
void check_placed(std::span<const std::byte> bytes, std::size_t fragment, std::size_t forgets_at) {
  std::vector<Frame> expected = buffered(bytes);
  auto next = expected.begin();
  Memory memory;
  FrameReader reader(limit);
  std::size_t arrived = 0;
  try {
    while (arrived < bytes.size()) {
      std::span<const std::byte> some = bytes.subspan(arrived, std::min(fragment, bytes.size() - arrived));
      arrived += some.size();
      for (const std::span<std::byte> place : reader.missing()) {
        const std::size_t count = std::min(place.size(), some.size());
        std::copy_n(some.begin(), count, place.begin());
        some = some.subspan(count);
        reader.filled(count);
      }
      reader.add(some);
      if (arrived >= forgets_at && arrived < forgets_at + fragment) reader.forget_places();
      while (std::optional<Frame> frame = reader.next(memory.placer())) {
        if (std::exchange(frame->is_placed, false)) {
          for (const std::span<std::byte> place : memory.places_of(to_model_message(Frame(*frame)).shard))
            frame->body.append(reinterpret_cast<const char*>(place.data()), place.size());
        }
        if (next == expected.end() || next->kind != frame->kind || next->body != frame->body) std::abort();
        ++next;
      }
    }
    if (next != expected.end()) std::abort();
  } catch (const DataError&) {  // expected for most inputs
  }
  if (!memory.is_clean()) std::abort();
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  static const std::vector<std::string> seeds = frames();
  return lockstep::testing::mutate_from(seeds, data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  for (const Frame& frame : buffered(bytes)) {
    try {
      decode(frame);
    } catch (const DataError&) {  // expected for most inputs
    }
  }
  const std::size_t fragment = 1 + size % 97;
  check_placed(bytes, fragment, size);
  check_placed(bytes, fragment, size / 2);
  return 0;
}
