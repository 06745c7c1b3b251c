// See head_scanner.hpp.
#include "serve/head_scanner.hpp"

namespace lockstep {

void HeadScanner::read(std::string_view bytes) noexcept {
  for (const char byte : bytes) {
    if (is_complete()) return;
    read(byte);
  }
}

/// As libevent does, takes \n for the end of a line, with or without \r before it.
void HeadScanner::read(char byte) noexcept {
  switch (state_) {
    case State::before_request_line:
      if (byte != '\r' && byte != '\n') state_ = State::line;
      return;
    case State::line:
      if (byte == '\n') state_ = State::line_begin;
      return;
    case State::line_begin:
      if (byte == ' ' || byte == '\t') has_folded_line_ = true;
      state_ = byte == '\n' ? State::complete : byte == '\r' ? State::carriage_return : State::line;
      return;
    case State::carriage_return: state_ = byte == '\n' ? State::complete : State::line; return;
    case State::complete: return;
  }
}

}  // namespace lockstep
