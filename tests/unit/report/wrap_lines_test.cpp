#include "report/wrap_lines.hpp"
#include "support/catch.hpp"

#include <string>

using lockstep::wrap_lines;

TEST_CASE("long lines are broken at spaces", "[wrap_lines]") {
  CHECK(wrap_lines("one two three\n", 7, 4) == "one two\nthree\n");
  CHECK(wrap_lines("  one two three", 7, 4) == "  one\n  two\n  three");
  CHECK(wrap_lines("short\n\nlines\n", 7, 4) == "short\n\nlines\n");
  CHECK(wrap_lines("", 7, 4).empty());
}

TEST_CASE("the description of an option stays in its column", "[wrap_lines]") {
  CHECK(wrap_lines("  --n N   the number of things\n", 18, 10) ==
        "  --n N   the\n          number\n          of\n          things\n");
  CHECK(wrap_lines("          a second line of it\n", 18, 10) ==
        "          a second\n          line of\n          it\n");
}

TEST_CASE("words are not broken", "[wrap_lines]") {
  CHECK(wrap_lines("a/very/long/path and more", 8, 4) == "a/very/long/path\nand more");
  CHECK(wrap_lines("a/very/long/path", 8, 4) == "a/very/long/path");
  CHECK(wrap_lines("spaces at the end     ", 19, 4) == "spaces at the end     ");
}
