// Fuzzes the messages between a launcher and its PMIx server: frames in arbitrary fragments. The body of every message
// type must be a DataError or a message that serializes to the same bytes.
#include "cluster/net/frame.hpp"
#include "cluster/pmix/pmix_messages.hpp"
#include "seeds.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace lockstep;

/// One frame of every type, and all of them concatenated.
std::vector<std::string> frames() {
  const PmixJob job{.nspace = "job-1",
                    .node_of_rank = {0, 1, 0, 1},
                    .served = {1, 3},
                    .session_directory = "/tmp/a",
                    .memory_directory = "/dev/shm/a",
                    .ranks_on_machine = 4,
                    .tcp_address = "10.0.0.7",
                    .first_tcp_port = 40000,
                    .tcp_ports = 100};
  const std::vector<std::pair<PmixMessage, std::string>> messages{
      {PmixMessage::start, to_body(job)},
      {PmixMessage::ready, to_body(PmixReady{{{{"PMIX_RANK", "1"}, {"EMPTY", ""}}, {}}})},
      {PmixMessage::fence, to_body(PmixFence{3, "blob"})},
      {PmixMessage::fence_done, to_body(PmixFenceDone{3, true, "blob"})},
      {PmixMessage::abort, to_body(PmixAbort{2, -5, "why"})},
      {PmixMessage::failed, "why"}};
  std::vector<std::string> seeds;
  std::string all;
  for (const auto& [kind, body] : messages) {
    seeds.push_back(encode({static_cast<std::uint16_t>(kind), body}));
    all += seeds.back();
  }
  seeds.push_back(all);
  return seeds;
}

template <typename Message>
void check(const Message& message, const std::string& body) {
  if (to_body(message) != body) std::abort();
}

void read(const Frame& frame) {
  switch (static_cast<PmixMessage>(frame.kind)) {
    case PmixMessage::start: return check(read_job(frame.body), frame.body);
    case PmixMessage::fence: return check(read_fence(frame.body), frame.body);
    case PmixMessage::abort: return check(read_abort(frame.body), frame.body);
    // Several bodies mean the same: variables come in any order, and any number but 1 is false.
    case PmixMessage::ready: {
      const std::string written = to_body(read_ready(frame.body));
      return check(read_ready(written), written);
    }
    case PmixMessage::fence_done: {
      const std::string written = to_body(read_fence_done(frame.body));
      return check(read_fence_done(written), written);
    }
    case PmixMessage::failed: return;  // a text
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  static const std::vector<std::string> seeds = frames();
  return lockstep::testing::mutate_from(seeds, data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  FrameReader reader(max_pmix_message_bytes);
  try {
    const std::size_t piece = 1 + size % 97;
    for (std::size_t at = 0; at < size; at += piece) {
      reader.add(bytes.subspan(at, std::min(piece, size - at)));
      while (const std::optional<Frame> frame = reader.next()) {
        try {
          read(*frame);
        } catch (const DataError&) {  // expected for most bodies
        }
      }
    }
  } catch (const DataError&) {  // expected for most inputs
  }
  return 0;
}
