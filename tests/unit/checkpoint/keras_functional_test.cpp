// Keras' JSON of Functional models: branches, shared layers and nested models, as Keras 2 and Keras 3 write them.
#include "checkpoint/keras/keras_config.hpp"

#include "keras_fragments.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/error.hpp>

#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("Functional models are read in Keras' order, from Keras 2 and Keras 3") {
  const std::string keras2 = R"({"class_name": "Functional", "keras_version": "2.15.0", "backend": "tensorflow",
    "config": {"name": "model", "trainable": true, "layers": [
    {"class_name": "Dense", "config": {"name": "last", "units": 2}, "name": "last",
     "inbound_nodes": [[["f", 0, 0, {}]]]},
    {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 8, 8, 1], "dtype": "float32", "sparse": false,
     "ragged": false, "name": "in"}, "name": "in", "inbound_nodes": []},
    {"class_name": "Flatten", "config": {"name": "f"}, "name": "f", "inbound_nodes": [[["b", 0, 0, {"mask": null}]]]},
    {"class_name": "BatchNormalization", "config": {"name": "b", "axis": [3]}, "name": "b",
     "inbound_nodes": [[["in", 0, 0, {}]]]}],
    "input_layers": [["in", 0, 0]], "output_layers": [["last", 0, 0]]}})";
  const auto tensor = [](const std::string& from) {
    return R"({"class_name": "__keras_tensor__", "config": {"shape": [null, 8], "dtype": "float32", "keras_history": [")" +
           from + R"(", 0, 0]}})";
  };
  const auto called = [&](const std::string& layer, const std::string& options, const std::string& from,
                          const std::string& kwargs = "") {
    return R"({"module": "keras.layers", "class_name": ")" + layer + R"(", "config": {"name": "the_)" + layer + "\"" +
           options + R"(}, "registered_name": null, "build_config": {"input_shape": [null, 8]}, "name": "the_)" +
           layer + R"(", "inbound_nodes": [{"args": [)" + tensor(from) + R"(], "kwargs": {)" + kwargs + "}}]}";
  };
  const auto functional = [](const std::string& layers, const std::string& output) {
    return R"({"module": "keras", "class_name": "Functional", "registered_name": "Functional",
      "build_config": {"input_shape": null}, "compile_config": {"optimizer": "sgd"},
      "config": {"name": "functional", "trainable": true, "layers": [
      {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 8], "dtype": "float32",
       "name": "in"}, "registered_name": null, "name": "in", "inbound_nodes": []}, )" +
           layers + R"(], "input_layers": ["in", 0, 0], "output_layers": )" + output + "}}";
  };
  const std::string dropped = called("Dropout", R"(, "rate": 0.5)", "in", R"("training": false)");
  const std::string dense = called("Dense", R"(, "units": 3)", "the_Dropout");

  for (const Architecture& model :
       {model_from_json(keras2), model_from_json(architecture_to_json(model_from_json(keras2)))}) {
    CHECK(model.name() == "model");
    std::vector<std::string> names;
    for (const LayerInfo& info : model.layers()) names.push_back(info.name);
    CHECK(names == std::vector<std::string>{"in", "b", "f", "last"});
    CHECK(model.input_shape() == Shape{8, 8, 1});
    CHECK(model.output_shape() == Shape{2});
  }
  const Architecture keras3 = model_from_json(functional(dropped + ", " + dense, R"(["the_Dense", 0, 0])"));
  CHECK(keras3.name() == "functional");
  CHECK(keras3.layers()[1].name == "the_Dropout");
  CHECK(keras3.output_shape() == Shape{3});
  CHECK(architecture_to_json(model_from_json(architecture_to_json(keras3))) == architecture_to_json(keras3));

  const std::string both = R"([["the_Dense", 0, 0], ["the_Dropout", 0, 0]])";
  const std::string last = R"([["the_Dense", 0, 0]])";
  std::string twice = dense;
  twice.insert(twice.size() - 2, R"(, {"args": [], "kwargs": {}})");
  std::string with_two = dense;
  with_two.insert(with_two.find(R"("args": [)") + 9, tensor("in") + ", ");
  std::string with_number = dense;
  with_number.insert(with_number.find(R"("args": [)") + 9, "0.5, ");
  std::string second_output = dense;
  second_output.replace(second_output.find(R"("the_Dropout", 0, 0)"), 19, R"("the_Dropout", 0, 1)");
  const std::string image = called("Reshape", R"(, "target_shape": [2, 4, 1])", "in");
  const std::string cropped =
      called("CenterCrop", R"(, "height": 1, "width": 1)", "the_Reshape", R"("training": true)");
  CHECK(model_from_json(functional(image + ", " + cropped, R"(["the_CenterCrop", 0, 0])")).output_shape() ==
        Shape{1, 1, 1});
  const Architecture two_outputs = model_from_json(functional(dropped + ", " + dense, both));
  CHECK(two_outputs.outputs() == std::vector<int>{2, 1});
  const std::string in_circle =
      called("Dropout", R"(, "rate": 0.5)", "the_Dense") + ", " + called("Dense", R"(, "units": 8)", "the_Dropout");
  std::string second_call = dense;
  second_call.replace(second_call.find(R"("the_Dropout", 0, 0)"), 19, R"("the_Dropout", 1, 0)");
  std::string unfed = dropped;
  unfed.replace(unfed.find(R"("inbound_nodes": [)"), unfed.size(), R"("inbound_nodes": []})");
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {functional(unfed + ", " + dense, last), {"m.h5", "'the_Dropout' (Dropout)", "is fed by no layer"}},
      {functional(dropped + ", " + called("Dense", "", "in"), last),
       {"m.h5", "'the_Dropout' (Dropout)", "no output of the model depends on it"}},
      {functional(dropped + ", " + with_two, last), {"'the_Dense' (Dense)", "takes one tensor, but is called on 2"}},
      {functional(dropped + ", " + twice, last), {"'the_Dense' (Dense)", "called on no tensor"}},
      {functional(dropped + ", " + with_number, last), {"'the_Dense'", "more than layers' outputs"}},
      {functional(dropped + ", " + second_output, last), {"'the_Dense'", "later output of 'the_Dropout'"}},
      {functional(dropped + ", " + second_call, last), {"'the_Dense'", "node 1 of 'the_Dropout'", "only node 0"}},
      {functional(dropped + ", " + called("Dense", "", "gone"), last),
       {"'the_Dense'", "'gone', which the model lacks"}},
      {functional(dropped + ", " + dropped, last), {"the name 'the_Dropout'"}},
      {functional(dropped, last), {"output_layers", "'the_Dense', which the model lacks"}},
      {functional(dropped + ", " + called("Dense", "", "the_Dropout", R"("training": true)"), last),
       {"'the_Dense'", "training"}},
      {functional(in_circle, R"(["in", 0, 0])"), {"no output of the model depends on it"}},
      {functional(in_circle, last), {"depends on its own output"}},
      {functional(called("Flatten", "", "in"), R"(["the_Flatten", 0, 0], "trainable": "no")"), {"trainable"}},
      {functional(called("Flatten", "", "in"), "[]"), {"no layers as output_layers"}},
      {functional(called("Flatten", "", "in"), R"({"in": ["the_Flatten", 0, 0], "the_Flatten": ["in", 0, 0]})"),
       {"output_layers is a dict in which 'in' is the layer \"the_Flatten\""}},
      {functional(called("LSTM", "", "in"), R"([["the_LSTM", 0, 0]])"), {"LSTM", "does not have"}},
  };
  for (const auto& [text, words] : cases) require_words(refusal(text), words);
  CHECK_THROWS_AS(model_from_json("no JSON"), DataError);
}
