// Fuzzes the protocol of a launcher's port: a stream of frames in arbitrary fragments, and the body of every message
// type. Any bytes must yield messages that serialize to the same bytes, or a DataError. Whatever a member sends, the
// coordinator of a running job and other members may at most disconnect it.
#include "cluster/net/frame.hpp"
#include "cluster/rendezvous/coordinator.hpp"
#include "cluster/rendezvous/member.hpp"
#include "cluster/rendezvous/message.hpp"

#include "seeds.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace {

using namespace lockstep;

/// Seeds: one frame of every type, and all of them concatenated.
std::vector<std::string> frames() {
  const Placement placement{1, "space", {{"node", 0}, {"node-1", 1}}, {{0, 0, 0}, {1, 1, 0}}};
  const std::vector<Message> messages{Hello{"0.1", "job", 7, true, std::string(32, 'n'), {1, 2, "h", "name", "a", 1}},
                                      Challenge{"n"},
                                      Proof{"p"},
                                      Welcome{"w"},
                                      Refused{64, "no"},
                                      Heartbeat{},
                                      Ready{},
                                      GenerationBegins{placement},
                                      RankEnvironment{1, 1, {{"A", "b"}, {"C", ""}}},
                                      Fence{1, 0, "blob"},
                                      FenceDone{1, 0, {"blob", ""}},
                                      TrainerStarted{1, 1},
                                      Progress{1, 1, Activity::training, 5, 6, 0.5, 100},
                                      TrainerExited{1, 1, 70, 0},
                                      Failed{1, "why"},
                                      GenerationEnds{1, 1, "why"},
                                      Leaving{"why"},
                                      JobResult{75, "why"},
                                      Goodbye{},
                                      Notice{"text"},
                                      ProbePeers{1, {{0, "", 0}, {1, "10.0.0.1", 5000}}},
                                      PeersProbed{1, {{1, "no answer"}}}};
  std::vector<std::string> seeds;
  std::string all;
  for (const Message& message : messages) {
    seeds.push_back(encode(to_frame(message)));
    all += seeds.back();
  }
  seeds.push_back(all);
  return seeds;
}

/// A job of two members with a running generation.
struct Job {
  Coordinator coordinator{{"worker 0", "worker 1"}, "run", {}, 0};
  Member member{1, "worker 0 (a:1)", {}, 0};

  Job() {
    for (std::uint64_t number = 0; number < 2; ++number) {
      if (!coordinator.join({number, 1, "host " + std::to_string(number), "node", "", 1}, 0).empty()) std::abort();
      coordinator.receive(number, Ready{}, 0);
    }
    member.connected(0);
    for (const CoordinatorAction& action : coordinator.take_actions()) {
      if (const auto* send = std::get_if<Send>(&action)) member.receive(send->message, 0);
    }
    (void)member.fence("blob");
  }

  void hear(const Message& message, double now) {
    coordinator.receive(1, message, now);
    coordinator.tick(now);
    for (const CoordinatorAction& action : coordinator.take_actions()) {
      if (const auto* send = std::get_if<Send>(&action)) (void)encode(to_frame(send->message));
    }
    member.receive(message, now);
    member.tick(now);
    (void)member.take_messages();
    for (const LauncherAction& action : member.take_actions()) {
      if (std::holds_alternative<EndGeneration>(action)) member.all_ended();
    }
  }
};

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  static const std::vector<std::string> seeds = frames();
  return lockstep::testing::mutate_from(seeds, data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  FrameReader reader(max_member_message_bytes);
  Job job;
  double now = 0;
  try {
    const std::size_t piece = 1 + size % 97;
    for (std::size_t at = 0; at < size; at += piece) {
      reader.add(bytes.subspan(at, std::min(piece, size - at)));
      while (const std::optional<Frame> frame = reader.next()) {
        const Message message = to_message(*frame);
        if (to_frame(message).kind != frame->kind || to_frame(message).body != frame->body) std::abort();
        job.hear(message, now += 0.3);
      }
    }
  } catch (const DataError&) {  // expected for most inputs
  }
  return 0;
}
