#include <lockstep/training/options.hpp>

#include <string>

#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("a process reads its own arguments", "[options]") {
  std::string program = "/usr/bin/keras_mnist";
  std::string option = "--epochs=3";
  char* argv[] = {program.data(), option.data(), nullptr};
  const Options options = Options::parse(2, argv, {.epochs = 10});
  CHECK(options.program == "keras_mnist");
  CHECK(options.epochs == 3);
}
