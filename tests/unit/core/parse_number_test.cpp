// Numbers are read whole or not at all.
#include "core/parse_number.hpp"

#include "support/catch.hpp"

#include <cstdint>
#include <optional>
#include <vector>

using namespace lockstep;

TEST_CASE("a number is the whole text and fits its type", "[parse_number]") {
  CHECK(parse_number<int>("-12") == -12);
  CHECK(parse_number<double>("1e-3") == 1e-3);
  CHECK(parse_number<std::uint16_t>("65535") == 65535);
  for (const char* wrong : {"", " 1", "1 ", "+1", "-1", "0x10", "1.5", "65536"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_number<std::uint16_t>(wrong));
  }
}

TEST_CASE("a list of numbers has one number between commas", "[parse_number]") {
  CHECK(parse_numbers<int>("7") == std::vector<int>{7});
  CHECK(parse_numbers<double>("1,1e3,-2") == std::vector<double>{1, 1000, -2});
  for (const char* wrong : {"", ",", "1,", ",1", "1,,2", "1, 2", "1;2"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_numbers<int>(wrong));
  }
}
