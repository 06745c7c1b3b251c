// The options of `lockstep launch`.
#include "core/environment.hpp"
#include "options/other_variables.hpp"
#include "support/catch.hpp"
#include "unit/cli/run_lockstep.hpp"

#include <regex>
#include <string>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("programs know the variables of lockstep launch") {
  const std::string help = run_lockstep({"launch", "--help"}).out;
  const std::regex option("\n +--([a-z-]+)");
  int count = 0;
  for (std::sregex_iterator found(help.begin(), help.end(), option), end; found != end; ++found) {
    const std::string name = (*found)[1];
    if (name == "help" || name == "version") continue;
    CAPTURE(name);
    CHECK(has_other_reader(variable_of_option(name), "1"));
    ++count;
  }
  CHECK(count >= 15);
}
