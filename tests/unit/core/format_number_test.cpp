// Counts and sizes as people read them.
#include "core/format_number.hpp"

#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("counts have a comma every three digits", "[format]") {
  CHECK(with_commas(0) == "0");
  CHECK(with_commas(999) == "999");
  CHECK(with_commas(2770634) == "2,770,634");
  CHECK(with_commas(-1234) == "-1,234");
}

TEST_CASE("sizes have units of 1024 bytes, as in Keras' summaries", "[format]") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(11082536) == "10.57 MB");
}

TEST_CASE("traffic has units of 1000 bytes", "[format]") {
  CHECK(format_traffic(999) == "999 B");
  CHECK(format_traffic(64480) == "64.5 kB");
}
