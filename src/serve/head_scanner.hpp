// Finds folded header lines, which libevent joins before anybody sees them, and which proxies read in other ways.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// Reads the bytes of one request until the empty line that ends its head.
class HeadScanner {
 public:
  /// More bytes have arrived. Those behind the head are not looked at.
  void read(std::string_view bytes) noexcept;

  [[nodiscard]] bool is_complete() const noexcept { return state_ == State::complete; }

  /// Whether a line begins with a space or a tab, and so continues the line before.
  [[nodiscard]] bool has_folded_line() const noexcept { return has_folded_line_; }

 private:
  enum class State : std::uint8_t { before_request_line, line, line_begin, carriage_return, complete };

  void read(char byte) noexcept;

  State state_ = State::before_request_line;
  bool has_folded_line_ = false;
};

}  // namespace lockstep
