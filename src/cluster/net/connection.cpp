// See connection.hpp.
#include "cluster/net/connection.hpp"

#include <lockstep/core/error.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t max_unsent = std::size_t{512} << 20;  // counts shared bytes once per connection
constexpr std::size_t max_read_bytes = std::size_t{64} << 10;
constexpr std::size_t max_placed_bytes = std::size_t{4} << 20;

std::string describe(const Transfer& transfer) {
  return transfer.error == 0 ? "the peer closed the connection"
                             : "the connection broke (" + std::generic_category().message(transfer.error) + ")";
}

}  // namespace

SharedBytes encode_shared(const Frame& frame) { return std::make_shared<const std::string>(encode(frame)); }

short Connection::events() const noexcept { return queue_.empty() ? POLLIN : POLLIN | POLLOUT; }

void Connection::send(SharedBytes bytes, std::vector<std::span<const std::byte>> borrowed) {
  if (!is_open()) return;
  unsent_ += bytes->size();
  queue_.push_back({std::move(bytes), std::move(borrowed)});
  flush();
  if (unsent_ > max_unsent) fail("the peer does not read its messages");
}

void Connection::flush() {
  while (is_open() && !queue_.empty()) {
    const Outgoing& first = queue_.front();
    std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(*first.bytes))};
    parts.insert(parts.end(), first.borrowed.begin(), first.borrowed.end());
    std::size_t skipped = sent_of_first_;
    for (std::span<const std::byte>& part : parts) {
      const std::size_t bytes = std::min(skipped, part.size());
      part = part.subspan(bytes);
      skipped -= bytes;
    }
    const std::size_t own_bytes = parts.front().size();
    const Transfer transfer = send_parts(socket_, parts);
    unsent_ -= std::min(transfer.bytes, own_bytes);
    sent_of_first_ += transfer.bytes;
    if (transfer.end == TransferEnd::closed) fail(describe(transfer));
    if (transfer.end != TransferEnd::done) return;
    queue_.pop_front();
    sent_of_first_ = 0;
  }
}

std::vector<Frame> Connection::receive() {
  std::vector<Frame> frames;
  if (!is_open()) return frames;
  read();
  while (std::optional<Frame> frame = next()) frames.push_back(std::move(*frame));
  return frames;
}

void Connection::read() {
  if (!is_open() || !end_.empty()) return;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written before it is read
  std::array<std::byte, max_read_bytes> buffer;
  Places parts = reader_.missing();
  std::size_t missing = 0;
  for (std::span<std::byte>& part : parts) {
    part = part.first(std::min(part.size(), max_placed_bytes - missing));
    missing += part.size();
  }
  if (missing < max_placed_bytes) parts.emplace_back(buffer);
  const Transfer transfer = receive_parts(socket_, parts);
  const std::size_t placed = std::min(missing, transfer.bytes);
  if (placed > 0) reader_.filled(placed);
  const std::span<const std::byte> bytes = std::span(buffer).first(transfer.bytes - placed);
  constexpr std::size_t recognized = 4;
  if (first_bytes_.size() < recognized) {
    first_bytes_.append(reinterpret_cast<const char*>(bytes.data()),
                        std::min(bytes.size(), recognized - first_bytes_.size()));
    has_valid_magic_ = first_bytes_ == frame_magic;
  }
  if (transfer.end == TransferEnd::closed) end_ = describe(transfer);
  try {
    reader_.add(bytes);
  } catch (const DataError& error) {
    fail(error.what());
  }
}

std::optional<Frame> Connection::next(const Placer& placer) {
  try {
    if (std::optional<Frame> frame = reader_.next(placer)) return frame;
  } catch (const DataError& error) {
    fail(error.what());
  }
  if (!end_.empty()) fail(end_);
  return std::nullopt;
}

void Connection::detach() {
  reader_.forget_places();
  for (Outgoing& each : queue_) {
    if (each.borrowed.empty()) continue;
    if (&each == &queue_.front()) unsent_ -= std::max(sent_of_first_, each.bytes->size()) - each.bytes->size();
    std::string bytes = *each.bytes;
    for (const std::span<const std::byte> part : std::exchange(each.borrowed, {})) {
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
      unsent_ += part.size();
    }
    each.bytes = std::make_shared<const std::string>(std::move(bytes));
  }
}

void Connection::end_sending() noexcept { (void)shutdown(socket_.descriptor(), SHUT_WR); }

void Connection::fail(std::string problem) {
  if (!is_open()) return;
  problem_ = std::move(problem);
  queue_.clear();
  unsent_ = 0;
}

}  // namespace lockstep
