// Long frames of a connection: sent from memory of others and received where they belong, whatever the sizes in which
// the kernel takes and gives them.
#include "cluster/net/connection.hpp"

#include "support/catch.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

constexpr std::uint16_t long_kind = 61;
constexpr std::size_t limit = std::size_t{1} << 30U;

std::vector<std::byte> numbered_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251);
  return bytes;
}

/// Places bodies of `long_kind` that begin with "here" in two parts of its memory.
struct Memory {
  explicit Memory(std::size_t size) : bytes(size) {}

  [[nodiscard]] Placer placer() {
    return {4, [this](std::uint16_t kind, std::string_view beginning) -> Places {
              if (kind != long_kind || beginning != "here") return {};
              const std::size_t first = bytes.size() / 3;
              return {std::span(bytes).first(first), std::span(bytes).subspan(first)};
            }};
  }

  std::vector<std::byte> bytes;
};

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Two connections whose kernel buffers are small.
struct Pair {
  Pair() {
    std::array<int, 2> descriptors{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, descriptors.data()) == 0);
    constexpr int buffer = 1 << 16;
    for (const int descriptor : descriptors)
      REQUIRE(setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) == 0);
    sender = std::make_unique<Connection>(Socket(descriptors[0]), limit);
    receiver = std::make_unique<Connection>(Socket(descriptors[1]), limit);
  }

  void send_long(std::span<const std::byte> rest, const std::string& beginning = "here") const {
    const std::span<const std::byte> first = rest.first(rest.size() / 2);
    sender->send(std::make_shared<const std::string>(encode({long_kind, beginning}, rest.size())),
                 {first, rest.subspan(first.size())});
  }

  [[nodiscard]] std::vector<Frame> receive_once(const Placer& placer) const {
    sender->flush();
    receiver->read();
    std::vector<Frame> frames;
    while (std::optional<Frame> frame = receiver->next(placer)) frames.push_back(std::move(*frame));
    return frames;
  }

  [[nodiscard]] std::vector<Frame> receive(std::size_t count, const Placer& placer) const {
    std::vector<Frame> frames;
    for (int i = 0; i < 10000 && frames.size() < count && receiver->is_open(); ++i) {
      for (Frame& frame : receive_once(placer)) frames.push_back(std::move(frame));
    }
    return frames;
  }

  std::unique_ptr<Connection> sender;
  std::unique_ptr<Connection> receiver;
};

}  // namespace

TEST_CASE("a body is placed whatever the fragments in which it arrives") {
  const std::vector<std::byte> sent = numbered_bytes(100);
  const std::string stream = encode({1, "before"}) + encode({long_kind, "here"}, sent.size()) + text_of(sent) +
                             encode({2, "after"}) + encode({long_kind, "here"}, sent.size()) + text_of(sent);
  for (std::size_t fragment = 1; fragment <= 60; ++fragment) {
    INFO("fragments of " << fragment << " bytes");
    Memory memory(sent.size());
    FrameReader reader(limit);
    std::vector<Frame> frames;
    std::span<const std::byte> rest = std::as_bytes(std::span(stream));
    while (!rest.empty()) {
      std::span<const std::byte> bytes = rest.first(std::min(fragment, rest.size()));
      rest = rest.subspan(bytes.size());
      for (const std::span<std::byte> place : reader.missing()) {
        const std::size_t count = std::min(place.size(), bytes.size());
        std::copy_n(bytes.begin(), count, place.begin());
        bytes = bytes.subspan(count);
        reader.filled(count);
      }
      reader.add(bytes);
      while (std::optional<Frame> frame = reader.next(memory.placer())) {
        if (frame->is_placed) {
          CHECK(memory.bytes == sent);
          std::ranges::fill(memory.bytes, std::byte{0});
        }
        frames.push_back(std::move(*frame));
      }
    }
    REQUIRE(frames.size() == 4);
    CHECK(frames[0].body == "before");
    CHECK(frames[2].body == "after");
    for (const std::size_t i : {1, 3}) {
      CHECK(frames[i].is_placed);
      CHECK(frames[i].body == "here");
    }
  }
}

TEST_CASE("a long body is sent from where it lies and received where it belongs, between short frames") {
  const std::vector<std::byte> sent = numbered_bytes(3'000'001);
  Memory memory(sent.size());
  const Pair pair;
  pair.sender->send(encode_shared({1, "before"}));
  pair.send_long(sent);
  pair.sender->send(encode_shared({2, "after"}));
  CHECK_FALSE(pair.sender->is_flushed());
  CHECK(pair.sender->unsent_bytes() < 100);  // the borrowed bytes take no memory of the connection
  const std::vector<Frame> frames = pair.receive(3, memory.placer());
  REQUIRE(frames.size() == 3);
  CHECK(frames[0].body == "before");
  CHECK(frames[1].is_placed);
  CHECK(frames[2].body == "after");
  CHECK(memory.bytes == sent);
  CHECK(pair.sender->is_flushed());
  CHECK(pair.sender->unsent_bytes() == 0);
}

TEST_CASE("a body that fits no place is buffered") {
  const std::vector<std::byte> sent = numbered_bytes(300'000);
  const Pair pair;
  Memory memory(sent.size());
  SECTION("it is longer than the place") { memory.bytes.pop_back(); }
  SECTION("it is shorter") { memory.bytes.emplace_back(); }
  SECTION("there is none") { memory.bytes.clear(); }
  const std::vector<std::byte> before = memory.bytes;
  pair.send_long(sent);
  const std::vector<Frame> frames = pair.receive(1, memory.placer());
  REQUIRE(frames.size() == 1);
  CHECK_FALSE(frames[0].is_placed);
  CHECK(frames[0].body == "here" + text_of(sent));
  CHECK(memory.bytes == before);
}

TEST_CASE("a connection that is lost within a placed body yields no frame of it") {
  const std::vector<std::byte> sent = numbered_bytes(3'000'000);
  Memory memory(sent.size());
  Pair pair;
  pair.sender->send(encode_shared({1, "before"}));
  pair.send_long(sent);
  std::vector<Frame> frames = pair.receive_once(memory.placer());
  pair.sender.reset();
  for (int i = 0; i < 100 && pair.receiver->is_open(); ++i) {
    pair.receiver->read();
    while (std::optional<Frame> frame = pair.receiver->next(memory.placer())) frames.push_back(std::move(*frame));
  }
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].body == "before");
  CHECK(pair.receiver->problem() == "the peer closed the connection");
}

TEST_CASE("a detached connection uses no memory of others") {
  const std::vector<std::byte> sent = numbered_bytes(3'000'000);
  std::vector<std::byte> borrowed = sent;
  Memory memory(sent.size());
  const Pair pair;
  pair.send_long(borrowed);
  CHECK(pair.receive_once(memory.placer()).empty());
  SECTION("when it sends") {
    pair.sender->detach();
    std::ranges::fill(borrowed, std::byte{0});
    REQUIRE(pair.receive(1, memory.placer()).size() == 1);
    CHECK(memory.bytes == sent);
    CHECK(pair.sender->unsent_bytes() == 0);
  }
  SECTION("when it receives") {
    pair.receiver->detach();
    const std::vector<std::byte> before = memory.bytes;
    const std::vector<Frame> frames = pair.receive(1, {});
    REQUIRE(frames.size() == 1);
    CHECK_FALSE(frames[0].is_placed);
    CHECK(frames[0].body == "here" + text_of(sent));
    CHECK(memory.bytes == before);
  }
  SECTION("when the body is complete, and not taken yet") {
    pair.sender->send(encode_shared({2, "after"}));
    for (int i = 0; i < 10000 && !pair.sender->is_flushed(); ++i) {
      pair.sender->flush();
      pair.receiver->read();
    }
    pair.receiver->read();
    pair.receiver->detach();
    const std::vector<Frame> frames = pair.receive(2, {});
    REQUIRE(frames.size() == 2);
    CHECK(frames[0].body == "here" + text_of(sent));
    CHECK(frames[1].body == "after");
  }
}
