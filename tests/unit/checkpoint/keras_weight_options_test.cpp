// Keras' JSON of regularizers and constraints.
#include "checkpoint/keras/keras_config.hpp"

#include "keras_fragments.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("regularizers are read and written") {
  const auto regularizer_of = [](const std::string& json) {
    const Architecture model = model_from_json(
        model_of(layer("Conv2D", R"("filters": 2, "kernel_size": 3, "kernel_regularizer": )" + json)), "m.h5");
    CHECK(model_from_json(architecture_to_json(model), "again").layers()[1].parameters[0].regularizer ==
          model.layers()[1].parameters[0].regularizer);
    return model.layers()[1].parameters[0].regularizer;
  };
  CHECK(regularizer_of("null") == Regularizer());
  CHECK(regularizer_of(R"({"class_name": "L2", "config": {"l2": 0.0002}})") == L2(0.0002));
  CHECK(regularizer_of(R"({"class_name": "L1", "config": {"l1": 0.5}})") == L1(0.5));
  CHECK(regularizer_of(R"({"class_name": "L1L2", "config": {"l1": 0.5, "l2": 0.25}})") == L1L2(0.5, 0.25));
  CHECK(regularizer_of(R"({"module": "keras.regularizers", "class_name": "L2", "config": {"l2": 0.5},
                           "registered_name": null})") == L2(0.5));
}

TEST_CASE("constraints are read and written") {
  const auto constraint_of = [](const std::string& json) {
    const Architecture model = model_from_json(
        model_of(layer("Conv2D", R"("filters": 2, "kernel_size": 3, "kernel_constraint": )" + json)), "m.h5");
    CHECK(model_from_json(architecture_to_json(model), "again").layers()[1].parameters[0].constraint ==
          model.layers()[1].parameters[0].constraint);
    return model.layers()[1].parameters[0].constraint;
  };
  CHECK(constraint_of("null") == Constraint());
  CHECK(constraint_of(R"({"class_name": "MaxNorm", "config": {"max_value": 3, "axis": [0, 1, 2]}})") ==
        MaxNorm(3, {0, 1, 2}));
  CHECK(constraint_of(R"({"class_name": "MaxNorm", "config": {}})") == MaxNorm());
  CHECK(constraint_of(R"({"class_name": "NonNeg", "config": {}})") == NonNeg());
  CHECK(constraint_of(R"({"class_name": "UnitNorm", "config": {"axis": null}})") == UnitNorm(std::vector<int>()));
  CHECK(constraint_of(R"({"module": "keras.constraints", "class_name": "MinMaxNorm", "registered_name": null,
        "config": {"min_value": 0.25, "max_value": 0.75, "rate": 0.5, "axis": -1}})") ==
        MinMaxNorm(0.25, 0.75, 0.5, {-1}));
  const auto refused = [&](const std::string& constraint) {
    return refusal(model_of(layer("Dense", R"("units": 2, "kernel_constraint": )" + constraint)));
  };
  require_words(refused(R"({"class_name": "MyNorm", "config": {}})"), {"kernel_constraint", "MyNorm"});
  require_words(refused(R"({"class_name": "MaxNorm", "config": {"axis": 7}})"), {"kernel", "axis 7"});
  require_words(refused(R"({"class_name": "MaxNorm", "config": {"max_value": 1, "power": 3}})"), {"power = 3"});
}
