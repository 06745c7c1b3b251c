// See message.hpp. The fields of each message are listed once; the writer and the reader both follow that list.
#include "cluster/rendezvous/message.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

/// T, or const T.
template <typename Candidate, typename T>
concept Like = std::same_as<std::remove_const_t<Candidate>, T>;

auto fields(Like<PeerInfo> auto& it) {
  return std::tie(it.member, it.incarnation, it.host, it.host_name, it.address, it.ranks, it.addresses, it.probe_port);
}
auto fields(Like<Node> auto& it) { return std::tie(it.host_name, it.server, it.ranks_on_machine); }
auto fields(Like<RankPlacement> auto& it) { return std::tie(it.member, it.node, it.local_rank); }
auto fields(Like<Placement> auto& it) {
  return std::tie(it.generation, it.nspace, it.nodes, it.ranks, it.full_world_size, it.addresses, it.master_port);
}

auto fields(Like<Hello> auto& it) { return std::tie(it.version, it.job, it.cluster, it.has_token, it.nonce, it.who); }
auto fields(Like<Challenge> auto& it) { return std::tie(it.nonce); }
auto fields(Like<Proof> auto& it) { return std::tie(it.proof); }
auto fields(Like<Welcome> auto& it) { return std::tie(it.proof); }
auto fields(Like<Refused> auto& it) { return std::tie(it.code, it.reason); }
auto fields(Like<Heartbeat> auto& /*it*/) { return std::tuple<>(); }
auto fields(Like<Ready> auto& /*it*/) { return std::tuple<>(); }
auto fields(Like<GenerationBegins> auto& it) { return std::tie(it.placement); }
auto fields(Like<RankEnvironment> auto& it) { return std::tie(it.generation, it.rank, it.variables); }
auto fields(Like<Fence> auto& it) { return std::tie(it.generation, it.sequence, it.blob); }
auto fields(Like<FenceDone> auto& it) { return std::tie(it.generation, it.sequence, it.blobs); }
auto fields(Like<TrainerStarted> auto& it) { return std::tie(it.generation, it.rank); }
auto fields(Like<BackupStatus> auto& it) { return std::tie(it.step, it.time, it.skipped, it.failed); }
auto fields(Like<GradientCounts> auto& it) { return std::tie(it.by_staleness, it.total_staleness, it.dropped); }
auto fields(Like<Progress> auto& it) {
  return std::tie(it.generation, it.rank, it.activity, it.step, it.epoch, it.loss, it.examples_per_second,
                  it.allreduce_seconds, it.wait_seconds, it.max_silent_seconds, it.silent_seconds, it.backups,
                  it.gradients);
}
auto fields(Like<TrainerExited> auto& it) {
  return std::tie(it.generation, it.rank, it.code, it.signal, it.out_of_memory, it.error, it.is_wrapper, it.is_final);
}
auto fields(Like<Failed> auto& it) { return std::tie(it.generation, it.reason); }
auto fields(Like<GenerationEnds> auto& it) { return std::tie(it.generation, it.member, it.reason); }
auto fields(Like<Leaving> auto& it) { return std::tie(it.reason); }
auto fields(Like<JobResult> auto& it) { return std::tie(it.code, it.reason); }
auto fields(Like<Goodbye> auto& /*it*/) { return std::tuple<>(); }
auto fields(Like<Notice> auto& it) { return std::tie(it.text); }
auto fields(Like<Admit> auto& it) { return std::tie(it.generation); }
auto fields(Like<TrainingDone> auto& it) { return std::tie(it.is_record); }
auto fields(Like<PrintStacks> auto& it) { return std::tie(it.generation); }
auto fields(Like<ProbeTarget> auto& it) { return std::tie(it.member, it.address, it.port); }
auto fields(Like<ProbePeers> auto& it) { return std::tie(it.round, it.targets); }
auto fields(Like<UnreachablePeer> auto& it) { return std::tie(it.member, it.why); }
auto fields(Like<PeersProbed> auto& it) { return std::tie(it.round, it.unreachable); }
auto fields(Like<TasksNeverCame> auto& /*it*/) { return std::tuple<>(); }

template <typename T>
concept Compound = requires(T& value) {
  fields(value);
};

class Writer {
 public:
  void operator()(std::uint64_t value) { body_.number(value); }
  void operator()(bool value) { body_.number(value ? 1 : 0); }
  void operator()(double value) { body_.number(std::bit_cast<std::uint64_t>(value)); }
  void operator()(Activity value) { body_.number(static_cast<std::uint64_t>(value)); }
  void operator()(const std::string& value) { body_.text(value); }

  template <typename T>
  void operator()(const std::vector<T>& values) {
    body_.number(values.size());
    for (const T& value : values) (*this)(value);
  }

  template <typename T, std::size_t Size>
  void operator()(const std::array<T, Size>& values) {
    for (const T& value : values) (*this)(value);
  }

  void operator()(const Environment& values) {
    body_.number(values.size());
    for (const auto& [name, value] : values) body_.text(name).text(value);
  }

  template <Compound T>
  void operator()(const T& value) {
    std::apply([this](const auto&... field) { ((*this)(field), ...); }, fields(value));
  }

  [[nodiscard]] std::string take() { return body_.take(); }

 private:
  BodyWriter body_;
};

class Reader {
 public:
  explicit Reader(std::string_view body) : body_(body) {}

  void operator()(std::uint64_t& value) { value = body_.number(); }
  void operator()(bool& value) { value = below(2) == 1; }
  void operator()(double& value) { value = std::bit_cast<double>(body_.number()); }
  void operator()(Activity& value) { value = static_cast<Activity>(below(4)); }
  void operator()(std::string& value) { value = body_.text(); }

  template <typename T>
  void operator()(std::vector<T>& values) {
    values.resize(body_.count(min_bytes<T>()));
    for (T& value : values) (*this)(value);
  }

  template <typename T, std::size_t Size>
  void operator()(std::array<T, Size>& values) {
    for (T& value : values) (*this)(value);
  }

  void operator()(Environment& values) {
    for (std::size_t left = body_.count(16); left > 0; --left) {
      const std::string name = body_.text();
      if (!values.empty() && name <= values.rbegin()->first) throw DataError("a message lists a variable twice");
      values.emplace_hint(values.end(), name, body_.text());
    }
  }

  template <Compound T>
  void operator()(T& value) {
    std::apply([this](auto&... field) { ((*this)(field), ...); }, fields(value));
  }

  void finish() const { body_.finish(); }

 private:
  /// Lower bound of the encoded size: every field takes at least eight bytes (a number, or the length of a text).
  template <typename T>
  static constexpr std::size_t min_bytes() {
    if constexpr (Compound<T>) {
      return 8 * std::tuple_size_v<decltype(fields(std::declval<T&>()))>;
    } else {
      return 8;
    }
  }

  std::uint64_t below(std::uint64_t end) {
    const std::uint64_t value = body_.number();
    if (value >= end) throw DataError("a message holds an invalid value");
    return value;
  }

  BodyReader body_;
};

template <std::size_t Index = 0>
Message read_kind(const Frame& frame) {
  if constexpr (Index == std::variant_size_v<Message>) {
    throw DataError(fmt::format("unknown message kind {}", frame.kind));
  } else {
    using Type = std::variant_alternative_t<Index, Message>;
    if (frame.kind != Type::kind) return read_kind<Index + 1>(frame);
    Type message;
    Reader reader(frame.body);
    reader(message);
    reader.finish();
    return message;
  }
}

}  // namespace

Frame to_frame(const Message& message) {
  return std::visit(
      [](const auto& it) {
        Writer writer;
        writer(it);
        return Frame{std::remove_cvref_t<decltype(it)>::kind, writer.take()};
      },
      message);
}

std::string to_datagram(const Message& message) {
  const Frame frame = to_frame(message);
  return static_cast<char>(frame.kind) + frame.body;
}

Message from_datagram(std::string_view bytes) {
  if (bytes.empty()) throw DataError("a message is empty");
  return to_message({static_cast<std::uint8_t>(bytes.front()), std::string(bytes.substr(1))});
}

Message to_message(const Frame& frame) { return read_kind(frame); }

const char* message_name(const Message& message) {
  return std::visit([](const auto& it) { return std::remove_cvref_t<decltype(it)>::name; }, message);
}

}  // namespace lockstep
