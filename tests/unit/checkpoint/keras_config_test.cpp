// Keras' JSON of models: configurations of all versions are read, and unsupported features are rejected by name.
#include "checkpoint/keras/keras_config.hpp"

#include "keras_fragments.hpp"
#include "random_model.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("the sample configuration is written verbatim") {
  const Sequential model{Input({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}), Flatten(),
                         Dense(10)};
  CHECK(
      architecture_to_json(model) ==
      R"({"class_name":"Sequential","config":{"name":"sequential","layers":[)"
      R"({"class_name":"InputLayer","config":{"name":"input_layer","dtype":"float32","batch_input_shape":[null,28,28]}},)"
      R"({"class_name":"Reshape","config":{"name":"reshape","trainable":true,"dtype":"float32","target_shape":[28,28,1]}},)"
      R"({"class_name":"Conv2D","config":{"name":"conv2d","trainable":true,"dtype":"float32","filters":32,)"
      R"("kernel_size":[3,3],"strides":[1,1],"padding":"valid","data_format":"channels_last","dilation_rate":[1,1],)"
      R"("groups":1,"activation":"relu","use_bias":true,"kernel_initializer":{"class_name":"GlorotUniform","config":{"seed":null}},)"
      R"("bias_initializer":{"class_name":"Zeros","config":{}}}},)"
      R"({"class_name":"Flatten","config":{"name":"flatten","trainable":true,"dtype":"float32","data_format":"channels_last"}},)"
      R"({"class_name":"Dense","config":{"name":"dense","trainable":true,"dtype":"float32","units":10,"activation":"linear",)"
      R"("use_bias":true,"kernel_initializer":{"class_name":"GlorotUniform","config":{"seed":null}},)"
      R"("bias_initializer":{"class_name":"Zeros","config":{}}}}]}})");
  const CompileOptions training{
      SGD({.learning_rate = 0.001}), SparseCategoricalCrossentropy({.from_logits = true}), {accuracy}};
  CHECK(training_config_to_json(training) ==
        R"({"loss":{"class_name":"SparseCategoricalCrossentropy","config":{"name":"sparse_categorical_crossentropy",)"
        R"("reduction":"sum_over_batch_size","from_logits":true}},"metrics":["accuracy"],"weighted_metrics":null,)"
        R"("loss_weights":null,"optimizer_config":{"class_name":"SGD","config":{"name":"SGD","learning_rate":0.001,)"
        R"("momentum":0.0,"nesterov":false}}})");
}

TEST_CASE("random models round-trip through JSON") {
  for (std::uint64_t seed = 1000; seed < 1400; ++seed) {
    const ModelData model = lockstep::testing::random_model(seed);
    const std::string text = architecture_to_json(model.architecture);
    const Architecture back = model_from_json(text);
    CHECK(architecture_to_json(back) == text);
    CHECK(back.output_shape() == model.architecture.output_shape());
    if (!model.compile_state) continue;
    const std::string training = training_config_to_json(*model.compile_state);
    CHECK(training_config_to_json(training_config_from_json(training, "m.h5", model.architecture)) == training);
  }
}

TEST_CASE("Keras 2 configurations are read") {
  const Architecture model = model_from_json(R"({"class_name": "Sequential", "config": {"name": "old", "layers": [
    {"class_name": "Conv2D", "config": {"name": "c", "batch_input_shape": [null, 8, 8, 1], "filters": 2, "kernel_size": 3,
     "kernel_initializer": "he_uniform"}},
    {"class_name": "BatchNormalization", "config": {"name": "b", "axis": [3]}},
    {"class_name": "Flatten", "config": {"name": "f"}}]}})");
  CHECK(model.input_shape() == Shape{8, 8, 1});
  REQUIRE(model.layers().size() == 4);
  CHECK(model.layers()[0].name == "input_layer");
  CHECK(model.output_shape() == Shape{72});
  CHECK(std::get<Conv2D>(model.layers()[1].layer).kernel_initializer == Initializer::he_uniform);

  const Architecture deferred = model_from_json(R"({"class_name": "Sequential", "config": {"name": "d", "layers": [
    {"class_name": "Dense", "config": {"units": 2}}], "build_input_shape": [null, 5]}})");
  CHECK(deferred.input_shape() == Shape{5});
  require_words(refusal(R"({"class_name": "Sequential", "config": {"name": "d", "layers": [
    {"class_name": "Dense", "config": {"units": 2}}]}})"),
                {"m.h5", "shape of its input", "keras.Input"});

  const CompileState training = training_config_from_json(
      training_of(
          R"({"class_name": "Custom>Adam", "config": {"name": "Adam", "weight_decay": null, "clipnorm": null, "global_clipnorm": null,
        "clipvalue": null, "use_ema": false, "ema_momentum": 0.99, "ema_overwrite_frequency": null, "jit_compile": false,
        "is_legacy_optimizer": false, "learning_rate": 0.0010000000474974513, "beta_1": 0.8, "beta_2": 0.99,
        "epsilon": 1e-07, "amsgrad": false}})",
          R"({"class_name": "SparseCategoricalCrossentropy", "config": {"reduction": "auto", "name": "x", "from_logits": true,
        "ignore_class": null, "fn": "sparse_categorical_crossentropy"}})",
          R"([[{"class_name": "MeanMetricWrapper", "config": {"name": "accuracy", "dtype": "float32",
        "fn": "sparse_categorical_accuracy"}}]])"),
      "m.h5", {}, UnsupportedCompilation::refuse, KerasVersion::two);
  const auto& adam = std::get<Adam>(training.optimizer);
  CHECK(adam.beta_1 == 0.8);
  CHECK(static_cast<float>(adam.learning_rate.at(0)) == 0.001F);
  CHECK(std::get<SparseCategoricalCrossentropy>(training.loss).from_logits);
  CHECK(training.metrics == std::vector<Metric>{accuracy});
}

TEST_CASE("policies are read and written, layer by layer") {
  const std::string keras_3 = R"({"module": "keras", "class_name": "DTypePolicy",
      "config": {"name": "mixed_bfloat16"}, "registered_name": null})";
  const std::string keras_2 = R"({"class_name": "Policy", "config": {"name": "mixed_bfloat16"}})";
  for (const std::string& policy : {keras_3, keras_2, std::string(R"("mixed_bfloat16")")}) {
    const Architecture model =
        model_from_json(model_of(R"({"class_name": "Conv2D", "config": {"filters": 2, "kernel_size": 3, "dtype": )" +
                                 policy + "}}," + R"({"class_name": "Flatten", "config": {"dtype": )" + policy + "}}," +
                                 R"({"class_name": "Dense", "config": {"units": 2, "dtype": "float32"}})"));
    const auto precisions = [](const Architecture& any) {
      std::vector<Precision> all;
      for (const LayerInfo& layer : any.layers()) all.push_back(layer.precision);
      return all;
    };
    const std::vector<Precision> expected{Precision::float32, Precision::mixed_bfloat16, Precision::mixed_bfloat16,
                                          Precision::float32};
    CHECK(precisions(model) == expected);
    CHECK(precisions(model_from_json(architecture_to_json(model))) == expected);
    CHECK(precisions(model.flattened()) == expected);
  }
}

TEST_CASE("inputs of integers keep their type") {
  const auto model_with = [](const std::string& type) {
    return R"({"class_name": "Sequential", "config": {"name": "m", "layers": [{"class_name": "InputLayer", "config":
      {"batch_shape": [null, 4], "dtype": )" +
           type + R"(, "name": "in"}}, {"class_name": "Dense", "config": {"units": 2}}]}})";
  };
  for (const auto& [name, type] : {std::pair("int32", InputType::int32), std::pair("int64", InputType::int64),
                                   std::pair("uint8", InputType::uint8), std::pair("bool", InputType::boolean),
                                   std::pair("float32", InputType::float32)}) {
    const Architecture model = model_from_json(model_with('"' + std::string(name) + '"'));
    CHECK(model.input_type() == type);
    CHECK(model_from_json(architecture_to_json(model)).input_type() == type);
    CHECK(NestedModel(model).model->input_type() == type);
  }
  CHECK(model_from_json(model_with("null")).input_type() == InputType::float32);
  require_words(refusal(model_with(R"("string")")), {"'in' (InputLayer)", "dtype string", "uint8"});
}

TEST_CASE("Keras 3 configurations are read") {
  const Architecture model = model_from_json(model_of(
      R"({"module": "keras.layers", "class_name": "Conv2D", "registered_name": null, "build_config": {"input_shape": [null, 8, 8, 1]},
      "config": {"name": "c", "trainable": true,
       "dtype": {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}, "registered_name": null},
       "filters": 4, "kernel_size": [3, 2], "strides": [2, 1], "padding": "same", "data_format": "channels_last",
       "dilation_rate": [1, 1], "groups": 1, "activation": "tanh", "use_bias": false,
       "kernel_initializer": {"module": "keras.initializers", "class_name": "HeNormal",
         "config": {"seed": 3, "input_axes": null, "output_axes": null}, "registered_name": null},
       "bias_initializer": {"module": "keras.initializers", "class_name": "Zeros", "config": {}, "registered_name": null},
       "kernel_regularizer": null, "bias_regularizer": null, "activity_regularizer": null, "kernel_constraint": null,
       "bias_constraint": null, "an_option_of_tomorrow": false, "and_another": null}},
      {"class_name": "BatchNormalization", "config": {"name": "b", "axis": -1, "momentum": 0.9, "epsilon": 0.01,
       "center": false, "scale": true, "synchronized": true, "renorm": false, "renorm_clipping": null,
       "renorm_momentum": 0.99, "gamma_initializer": {"class_name": "Ones", "config": {}}}},
      {"class_name": "Activation", "config": {"activation": {"module": "builtins", "class_name": "function", "config": "relu"}}})"));
  CHECK(model.name() == "m");
  REQUIRE(model.layers().size() == 4);
  const auto& conv = std::get<Conv2D>(model.layers()[1].layer);
  CHECK(conv.filters == 4);
  CHECK(conv.kernel_size == Size2D(3, 2));
  CHECK(conv.strides == Size2D(2, 1));
  CHECK(conv.padding == Padding::same);
  CHECK(conv.activation == activations::tanh);
  CHECK_FALSE(conv.use_bias);
  CHECK(conv.kernel_initializer == Initializer::he_normal);
  const auto& normalization = std::get<BatchNormalization>(model.layers()[2].layer);
  CHECK(normalization.momentum == 0.9);
  CHECK(normalization.epsilon == 0.01);
  CHECK_FALSE(normalization.center);
  CHECK(normalization.scale);
  CHECK(normalization.synchronized);
  CHECK(std::get<Activation>(model.layers()[3].layer).function == relu);
  CHECK(model.layers()[3].name == "activation");
}

TEST_CASE("unsupported layers and options are rejected by name") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {layer("LSTM", R"("units": 3)"),
       {"m.h5", "layer 'it'", "LSTM", "does not have; lockstep.fit trains models that Keras 3 loads", "Dense"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "groups": 2)"), {"Conv2D", "2 groups", "1 input channels"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "data_format": "channels_first")"),
       {"data_format", "channels_first"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "padding": "causal")"), {"padding", "causal"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": [3, 3, 3])"), {"kernel_size = [3,3,3]"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "use_bias": null)"), {"use_bias = null"}},
      {layer("MaxPooling2D", R"("pool_size": 2, "strides": [0, 2])"), {"strides = [0,2]"}},
      {layer(
           "Conv2D",
           R"("filters": 2, "kernel_size": 3, "kernel_regularizer": {"class_name": "OrthogonalRegularizer", "config": {}})"),
       {"kernel_regularizer", "OrthogonalRegularizer", "but Lockstep supports L1, L2 and L1L2; build"}},
      {layer("Conv2D",
             R"("filters": 2, "kernel_size": 3, "kernel_regularizer": {"class_name": "L2", "config": {"l2": -0.1}})"),
       {"-0.1", "kernel", "not negative"}},
      {layer("Dense", R"("units": 2, "activity_regularizer": {"class_name": "L2", "config": {"l2": -0.1}})"),
       {"-0.1", "output", "not negative"}},
      {layer("BatchNormalization", R"("activity_regularizer": {"class_name": "L2", "config": {"l2": 0.1}})"),
       {"activity_regularizer", "L2"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "activation": "glu")"),
       {"activation = \"glu\", but Lockstep supports ", "relu, ", "or use lockstep.fit"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "padding": "full")"), {"supports valid, same and causal;"}},
      {layer("Dense", R"("units": 2, "kernel_constraint": {"class_name": "Odd", "config": {}})"),
       {"kernel_constraint", "Odd", "supports MaxNorm"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "kernel_initializer": {"class_name": "STFT", "config": {}})"),
       {"kernel_initializer", "STFT", "supports", "GlorotUniform"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "trainable": 0)"), {"trainable = 0"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "dtype": "mixed_float16")"),
       {"dtype mixed_float16", "float32 or mixed_bfloat16", "build the model"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3,
        "dtype": {"class_name": "DTypePolicy", "config": {"name": "float64"}})"),
       {"dtype float64", "float32 or mixed_bfloat16"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "dtype": {"class_name": "DTypePolicyMap", "config": {}})"),
       {"dtype = ", "DTypePolicyMap"}},
      {layer("Conv2D", R"("filters": 2, "kernel_size": 3, "lora_rank": 4)"), {"lora_rank = 4"}},
      {layer("Conv2D", R"("kernel_size": 3)"), {"Conv2D", "'filters'"}},
      {layer("Conv2D", R"("filters": 2.5, "kernel_size": 3)"), {"filters = 2.5"}},
      {layer("Conv2D", R"("filters": 99999999999, "kernel_size": 3)"), {"filters = 99999999999"}},
      {layer("Conv2D", R"("filters": -2, "kernel_size": 3)"), {"filters -2"}},
      {layer("BatchNormalization", R"("axis": 1)"), {"BatchNormalization", "axis = 1"}},
      {layer("BatchNormalization", R"("renorm": true)"), {"renorm"}},
      {layer("BatchNormalization", R"("gamma_initializer": "zeros")"), {"gamma_initializer"}},
      {layer("Dropout", R"("rate": 0.5, "noise_shape": [null, 8])"), {"noise_shape"}},
      {layer("Dropout", R"("rate": 0.5, "noise_shape": [1, 1, 1, 1])"),
       {"noise_shape = [1,1,1,1]", "one mask for several examples", "None for the batch"}},
      {layer("Dropout", R"("rate": 1.5)"), {"1.5"}},
      {layer("Rescaling", R"("scale": [0.5, 1.0])"), {"Rescaling", "scale = [0.5,1.0]"}},
      {layer("Rescaling", R"("offset": 1.0)"), {"Rescaling", "'scale'"}},
      {layer("Conv2DTranspose", R"("filters": 2, "kernel_size": 3, "output_padding": 1)"), {"output_padding = 1"}},
      {layer("Conv1DTranspose", R"("filters": 2, "kernel_size": 3, "output_padding": 1)"), {"output_padding = 1"}},
      {layer("Resizing", R"("height": 2, "width": 3, "interpolation": "bicubic")"),
       {"interpolation = \"bicubic\"", "supports nearest and bilinear"}},
      {layer("Resizing", R"("height": 2, "width": 3, "antialias": true)"), {"antialias = true"}},
      {layer("Resizing", R"("height": 2, "width": 3, "crop_to_aspect_ratio": true)"), {"crop_to_aspect_ratio"}},
      {layer("RMSNormalization", R"("axis": [1])"), {"axis = [1]"}},
      {layer("DepthwiseConv2D", R"("kernel_size": 3, "padding": "causal")"), {"padding 'causal'", "only Conv1D"}},
      {layer("MaxPooling1D", R"("pool_size": [2, 2])"), {"pool_size = [2,2]"}},
      {layer("Conv1D", R"("filters": 2, "kernel_size": [3])"), {"rank 2, (steps, channels)"}},
      // Functions of the user's own: Keras writes the names of its own activations as text, and finds no class here.
      {layer("Activation", R"("activation": {"module": "builtins", "class_name": "function", "config": "swish"})"),
       {"activation = ", "swish"}},
      {layer("Activation", R"("activation": "")"), {"activation = "}},
      {layer("Dense",
             R"("units": 3, "kernel_regularizer": {"module": "builtins", "class_name": "function", "config": "l2"})"),
       {"kernel_regularizer = ", "l2"}},
      {layer(
           "Dense",
           R"("units": 3, "kernel_initializer": {"module": "builtins", "class_name": "function", "config": "zeros"})"),
       {"kernel_initializer = ", "zeros"}},
      {R"({"module": "my.layers", "class_name": "Dense", "config": {"units": 3}})", {"Dense", "module my.layers"}},
      {R"({"module": "keras_cv.layers", "class_name": "Dense", "config": {"units": 3}, "registered_name": "keras_cv>Dense"})",
       {"keras_cv>Dense", "module keras_cv.layers"}},
      {R"({"module": null, "class_name": "Dense", "config": {"units": 3}, "registered_name": "my_pkg>Dense"})",
       {"my_pkg>Dense", "your program", "Keras' own classes"}},
      {R"({"module": "keras.layers", "class_name": "Dense", "config": {"units": 3}, "registered_name": "my_pkg>Dense"})",
       {"my_pkg>Dense"}},
      {R"({"module": "builtins", "class_name": "Dense", "config": {"units": 3}})", {"Dense", "module builtins"}},
      {R"({"config": {}})", {"class_name"}},
      {"17", {"17", "object"}},
  };
  for (const auto& [text, words] : cases) require_words(refusal(model_of(text)), words);

  require_words(refusal(R"({"class_name": "MyModel", "config": {}})"), {"MyModel", "Sequential", "Functional"});
  require_words(refusal(R"({"class_name": "Functional", "config": {}})"), {"list of layers"});
  require_words(refusal(R"({"class_name": "Sequential", "config": {"layers": []}})"), {"layers"});
  require_words(refusal(R"({"class_name": "Sequential", "config": {"layers": {}}})"), {"layers"});
  require_words(refusal("{\"class_name\": \"Seq"), {"m.h5", "not JSON", "byte"});
  require_words(refusal("[1e999]"), {"out of range"});
  require_words(refusal(std::string(1'000'000, '[')), {"too deeply"});
  require_words(refusal("[]"), {"object"});
  require_words(refusal(R"({"class_name": "Sequential", "config": {"layers": [
     {"class_name": "InputLayer", "config": {"batch_shape": ["x", 4]}}, {"class_name": "Flatten", "config": {}}]}})"),
                {"batch_shape = [\"x\",4]"});
  require_words(refusal(R"({"class_name": "Sequential", "config": {"layers": [
     {"class_name": "InputLayer", "config": {"batch_shape": [null, null, 8, 3]}}, {"class_name": "Flatten", "config": {}}]}})"),
                {"batch_shape = [null,null,8,3]", "leaves sizes open", "(None, 224, 224, 3)"});
  require_words(refusal(R"({"class_name": "Sequential", "config": {"layers": [
     {"class_name": "InputLayer", "config": {"batch_shape": [null, 2000000000, 2000000000, 2000000000, 2000000000]}},
     {"class_name": "Flatten", "config": {}}]}})"),
                {"m.h5", "more than"});
}

TEST_CASE("a file with weights needs no initializer") {
  const Architecture model = model_of_weights_from_json(
      model_of(layer("Conv2D", R"("filters": 2, "kernel_size": 3, "bias_initializer": "ones",
                                  "kernel_initializer": {"class_name": "STFT", "config": {}})") +
               "," +
               R"({"class_name": "BatchNormalization", "config": {"name": "other", "gamma_initializer": "zeros"}})"),
      "m.h5", KerasVersion::three);
  const auto& convolution = model.layers()[1].parameters;
  CHECK(convolution[0].initializer == Initializer::glorot_uniform);
  CHECK(convolution[1].initializer == Initializer::ones);
  CHECK(model.layers()[2].parameters[0].initializer == Initializer::ones);
}

TEST_CASE("Keras 2's hard_sigmoid is another function") {
  const std::string text = model_of(layer("Conv2D", R"("filters": 2, "kernel_size": 3, "activation": "hard_sigmoid")"));
  CHECK_NOTHROW((void)model_of_weights_from_json(text, "m.h5", to_keras_version("3.15.1")));
  require_words(
      message_of<DataError>([&] { (void)model_of_weights_from_json(text, "m.h5", to_keras_version("2.15.0")); }),
      {"m.h5: layer 'it' (Conv2D)", "hard_sigmoid", "another activation"});
}

TEST_CASE("a fixed batch size is not part of the model") {
  const Architecture model = model_from_json(R"({"class_name": "Sequential", "config": {"layers": [
     {"class_name": "InputLayer", "config": {"batch_shape": [32, 4]}}, {"class_name": "Flatten", "config": {}}]}})");
  CHECK(model.input_shape() == Shape{4});
}

TEST_CASE(".h5 files have the keys that Keras 2 knows, .keras files those of Keras 3") {
  const Architecture model = Sequential{Input({8, 8, 1}), LeakyReLU(0.5)};
  const std::string h5 = architecture_to_json(model);
  CHECK(contains(h5, R"("alpha":0.5)"));
  CHECK(!contains(h5, "negative_slope"));
  const std::string archive = archive_config_to_json({model, {}, {}});
  CHECK(contains(archive, R"("negative_slope":0.5)"));
  CHECK(!contains(archive, "alpha"));
  for (const std::string& text : {h5, archive}) {
    CHECK(std::get<LeakyReLU>(model_from_json(text).layers()[1].layer).negative_slope == 0.5);
  }
}

TEST_CASE("Rescaling round-trips through JSON") {
  const Sequential model{Input({4}), Rescaling(1.0 / 127.5, -1), Dense(2)};
  const std::string text = architecture_to_json(model);
  CHECK(text.find(R"({"class_name":"Rescaling","config":{"name":"rescaling","trainable":true,"dtype":"float32",)"
                  R"("scale":0.00784313725490196,"offset":-1.0}})") != std::string::npos);
  const Architecture back = model_from_json(text);
  CHECK(std::get<Rescaling>(back.layers()[1].layer).scale == 1.0 / 127.5);
  CHECK(std::get<Rescaling>(back.layers()[1].layer).offset == -1);
  const Architecture bare = model_from_json(model_of(layer("Rescaling", R"("scale": 2)")));
  CHECK(std::get<Rescaling>(bare.layers()[1].layer).scale == 2);
  CHECK(std::get<Rescaling>(bare.layers()[1].layer).offset == 0);
}

TEST_CASE("layers and models that are not trainable are read and written") {
  const auto text = [](const char* of_model, const char* of_layer) {
    return std::string(R"({"class_name": "Sequential", "config": {"name": "m", "trainable": )") + of_model +
           R"(, "layers": [
      {"class_name": "InputLayer", "config": {"name": "in", "batch_input_shape": [null, 4]}},
      {"class_name": "Dense", "config": {"name": "base", "trainable": )" +
           of_layer + R"(, "units": 3}},
      {"class_name": "Dense", "config": {"name": "head", "units": 2}}]}})";
  };
  const Architecture partly = model_from_json(text("true", "false"));
  CHECK(partly.count_parameters(true) == 8);
  CHECK(partly.count_parameters(false) == 15);
  CHECK(architecture_to_json(model_from_json(architecture_to_json(partly))) == architecture_to_json(partly));
  CHECK(layers_to_json(partly) != layers_to_json(model_from_json(text("true", "true"))));
  require_words(refusal(text("false", "true")), {"'base' (Dense)", "after it has read the file"});
}
