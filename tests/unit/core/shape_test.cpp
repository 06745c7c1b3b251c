// Shapes print as Python tuples, and histories can be read like Keras' dictionary of lists.
#include "support/catch.hpp"

#include <lockstep/core/history.hpp>
#include <lockstep/core/shape.hpp>

#include <stdexcept>
#include <vector>

using namespace lockstep;

TEST_CASE("shapes print as Python tuples") {
  CHECK(Shape{}.to_string() == "()");
  CHECK(Shape{3}.to_string() == "(3,)");
  CHECK(Shape{26, 26, 32}.to_string() == "(26, 26, 32)");
  CHECK(Shape{}.to_string_with_batch() == "(None,)");
  CHECK(Shape{10}.to_string_with_batch() == "(None, 10)");
  CHECK(Shape{26, 26, 32}.to_string_with_batch() == "(None, 26, 26, 32)");
  CHECK(Shape{}.elements() == 1);
  CHECK(Shape{26, 26, 32}.elements() == 21632);
  CHECK(Shape{2, 3}[1] == 3);
  CHECK_THROWS_AS((Shape{2, 3}[2]), std::out_of_range);
}

TEST_CASE("a history returns a metric of every epoch that has it") {
  const History history{
      .epochs = {{.epoch = 0, .logs = {{"loss", 2.5}}}, {.epoch = 1, .logs = {{"loss", 1.5}, {"val_loss", 1.75}}}}};
  CHECK(history["loss"] == std::vector<double>{2.5, 1.5});
  CHECK(history["val_loss"] == std::vector<double>{1.75});
  CHECK(history["accuracy"].empty());
}
