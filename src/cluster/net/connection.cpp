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

std::string describe(const Transfer& transfer) {
  return transfer.error == 0 ? "the peer closed the connection"
                             : "the connection broke (" + std::generic_category().message(transfer.error) + ")";
}

}  // namespace

SharedBytes encode_shared(const Frame& frame) { return std::make_shared<const std::string>(encode(frame)); }

short Connection::events() const noexcept { return queue_.empty() ? POLLIN : POLLIN | POLLOUT; }

void Connection::send(SharedBytes bytes) {
  if (!is_open()) return;
  unsent_ += bytes->size();
  queue_.push_back(std::move(bytes));
  flush();
  if (unsent_ > max_unsent) fail("the peer does not read its messages");
}

void Connection::flush() {
  while (is_open() && !queue_.empty()) {
    const std::span<const char> rest = std::span(*queue_.front()).subspan(sent_of_first_);
    const Transfer transfer = send_some(socket_, std::as_bytes(rest));
    unsent_ -= transfer.bytes;
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
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written before it is read
  std::array<std::byte, max_read_bytes> buffer;
  const Transfer transfer = receive_some(socket_, buffer);
  const std::span<const std::byte> bytes = std::span(buffer).first(transfer.bytes);
  constexpr std::size_t recognized = 4;
  if (first_bytes_.size() < recognized) {
    first_bytes_.append(reinterpret_cast<const char*>(bytes.data()),
                        std::min(bytes.size(), recognized - first_bytes_.size()));
    has_valid_magic_ = first_bytes_ == frame_magic;
  }
  try {
    reader_.add(bytes);
    while (std::optional<Frame> frame = reader_.next()) frames.push_back(std::move(*frame));
  } catch (const DataError& error) {
    fail(error.what());
  }
  if (transfer.end == TransferEnd::closed) fail(describe(transfer));
  return frames;
}

void Connection::end_sending() noexcept { (void)shutdown(socket_.descriptor(), SHUT_WR); }

void Connection::fail(std::string problem) {
  if (!is_open()) return;
  problem_ = std::move(problem);
  queue_.clear();
  unsent_ = 0;
}

}  // namespace lockstep
