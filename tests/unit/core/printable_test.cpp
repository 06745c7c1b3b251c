// Text from files and peers is stripped of control characters before it reaches a terminal.
#include "core/printable.hpp"

#include "support/catch.hpp"

#include <string>

using lockstep::printable;
using lockstep::printable_line;

TEST_CASE("control characters become question marks", "[printable]") {
  CHECK(printable("\x1B[31mred\x7F") == "?[31mred?");
  CHECK(printable(std::string("a\0b\r", 4)) == "a?b?");
  CHECK(printable("line\n\tnext") == "line\n?next");
}

TEST_CASE("C1 control characters in UTF-8 become question marks and other letters stay", "[printable]") {
  CHECK(printable("\xC2\x9B"
                  "31m") == "??31m");
  CHECK(printable("\xC2\x80\xC2\x9F\xC2\xA0") == "????\xC2\xA0");
  CHECK(printable("\xC3\x9F\xE2\x82\xAC") == "\xC3\x9F\xE2\x82\xAC");
}

TEST_CASE("a printable line has no line breaks and a bounded length", "[printable]") {
  CHECK(printable_line("a\nb\tc\x1B") == "a b c?");
  CHECK(printable_line("abcdef", 3) == "abc...");
  CHECK(printable_line("abc", 3) == "abc");
}
