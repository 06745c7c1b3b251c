#include "core/generation_record.hpp"

#include <cstddef>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("generations pass through a variable", "[generation_record]") {
  const std::vector<GenerationRecord> records = {{1, 3, 1000.5, 1010, "worker 2 left:\n SIGTERM"}, {2, 2, 1015, 0, ""}};
  const std::vector<GenerationRecord> read = parse_generations(format_generations(records));
  REQUIRE(read.size() == 2);
  CHECK(read[0].generation == 1);
  CHECK(read[0].ranks == 3);
  CHECK(read[0].began == 1000.5);
  CHECK(read[0].ended == 1010);
  CHECK(read[0].reason == "worker 2 left:  SIGTERM");
  CHECK(read[1].ended == 0);
  CHECK(read[1].reason.empty());
}

TEST_CASE("of many generations the last ones are told, and of long reasons the beginning", "[generation_record]") {
  std::vector<GenerationRecord> records(1000);
  for (std::size_t i = 0; i < records.size(); ++i) records[i] = {i + 1, 1, 1, 2, std::string(5000, 'x')};
  const std::string text = format_generations(records);
  CHECK(text.size() < 50 * 300);
  const std::vector<GenerationRecord> read = parse_generations(text);
  REQUIRE(read.size() == 50);
  CHECK(read.front().generation == 951);
}

TEST_CASE("lines that are no generation are left out", "[generation_record]") {
  for (const char* text :
       {"", "\n\n", "1", "1 2 3", "a 2 3 4 x", "1 2 nan 4 x", "1 2 3 inf x", "-1 2 3 4 x", "1  3 4 x"}) {
    CAPTURE(text);
    CHECK(parse_generations(text).empty());
  }
  CHECK(parse_generations("x\n1 2 3 4 why\n").size() == 1);
}
