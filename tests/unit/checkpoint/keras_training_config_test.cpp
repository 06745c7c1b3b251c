// Keras' JSON of compiled models: optimizers, losses and metrics of all versions are read, and unsupported ones are
// rejected by name.
#include "checkpoint/keras/keras_config.hpp"

#include "keras_fragments.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("metrics round-trip, by name where they have Keras' defaults") {
  const std::vector<Metric> given{accuracy,
                                  metrics::SparseTopKCategoricalAccuracy(),
                                  metrics::TopKCategoricalAccuracy({.k = 3}),
                                  metrics::MeanAbsoluteError(),
                                  metrics::MeanSquaredError(),
                                  metrics::RootMeanSquaredError()};
  const std::string text = training_config_to_json({SGD(), MeanSquaredError(), given});
  CHECK(training_config_from_json(text).metrics == given);
  CHECK(text.find(R"("metrics":["accuracy","sparse_top_k_categorical_accuracy",)"
                  R"({"module":"keras.metrics","class_name":"TopKCategoricalAccuracy",)"
                  R"("config":{"name":"top_k_categorical_accuracy","dtype":"float32","k":3},"registered_name":null},)"
                  R"("mean_absolute_error","mean_squared_error","root_mean_squared_error"])") != std::string::npos);
}

TEST_CASE("learning rate schedules round-trip through JSON") {
  const auto json_of = [](const LearningRate& rate) {
    const std::string text = training_config_to_json({SGD({.learning_rate = rate}), MeanSquaredError(), {}});
    CHECK(learning_rate_of(training_config_from_json(text).optimizer) == rate);
    const std::size_t begin = text.find(R"("learning_rate":)") + 16;
    return text.substr(begin, text.find(R"(,"momentum")") - begin);
  };
  CHECK(json_of(0.5) == "0.5");
  CHECK(json_of(CosineDecay({.initial_learning_rate = 1, .decay_steps = 100})) ==
        R"({"module":"keras.optimizers.schedules","class_name":"CosineDecay","config":{"initial_learning_rate":1.0,)"
        R"("decay_steps":100,"alpha":0.0},"registered_name":null})");
  CHECK(
      json_of(
          CosineDecay(
              {.initial_learning_rate = 0, .decay_steps = 7.5, .alpha = 0.1, .warmup_target = 0.5, .warmup_steps = 3}))
          .find(R"("decay_steps":7.5,"alpha":0.1,"warmup_target":0.5,"warmup_steps":3})") != std::string::npos);
  CHECK(json_of(ExponentialDecay({.initial_learning_rate = 1, .decay_steps = 2, .decay_rate = 1, .staircase = true}))
            .find(R"({"initial_learning_rate":1.0,"decay_steps":2,"decay_rate":1.0,"staircase":true})") !=
        std::string::npos);
  CHECK(json_of(InverseTimeDecay({.initial_learning_rate = 1, .decay_steps = 2, .decay_rate = 3}))
            .find(R"("class_name":"InverseTimeDecay")") != std::string::npos);
  CHECK(json_of(PiecewiseConstantDecay({.boundaries = {10, 20}, .values = {1, 0.5, 0}}))
            .find(R"({"boundaries":[10,20],"values":[1.0,0.5,0.0]})") != std::string::npos);
  CHECK(json_of(PolynomialDecay({.initial_learning_rate = 1, .decay_steps = 2}))
            .find(R"("end_learning_rate":0.0001,"power":1.0,"cycle":false})") != std::string::npos);

  // tf_keras 2 writes no name, and Keras 3 writes one without a meaning.
  const auto read = [](const std::string& schedule) {
    return learning_rate_of(
        training_config_from_json(
            training_of(R"({"class_name": "Adam", "config": {"learning_rate": )" + schedule + "}}", mse))
            .optimizer);
  };
  CHECK(read(R"({"module": "keras.optimizers.schedules", "class_name": "CosineDecay", "config": {
     "initial_learning_rate": 0.1, "decay_steps": 50.0, "alpha": 0.0, "name": null, "warmup_target": null,
     "warmup_steps": 0}, "registered_name": null})") == CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 50}));
  CHECK(read(R"({"class_name": "PiecewiseConstantDecay", "config": {"boundaries": [1, 2.5], "values": [1, 0.5, 0.25],
     "name": "PiecewiseConstant"}})") == PiecewiseConstantDecay({.boundaries = {1, 2.5}, .values = {1, 0.5, 0.25}}));

  const auto schedule = [](const std::string& class_name, const std::string& config) {
    return training_of(R"({"class_name": "SGD", "config": {"learning_rate": {"class_name": ")" + class_name +
                           R"(", "config": {)" + config + "}}}}",
                       mse);
  };
  const std::string begin = R"("initial_learning_rate": 0.1, "decay_steps": 5)";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {schedule("OneCycle", begin), {"m.h5", "SGD's learning_rate OneCycle", "PolynomialDecay"}},
      {schedule("CosineDecay", R"("decay_steps": 5)"), {"CosineDecay", "'initial_learning_rate'"}},
      {schedule("CosineDecay", begin + R"(, "warmup_target": "high")"), {"warmup_target", "high"}},
      {schedule("CosineDecay", begin + R"(, "restarts": 3)"), {"CosineDecay", "restarts = 3"}},
      {schedule("ExponentialDecay", begin), {"ExponentialDecay", "'decay_rate'"}},
      {schedule("ExponentialDecay", begin + R"(, "decay_rate": -1)"), {"ExponentialDecay.decay_rate is -1"}},
      {schedule("PolynomialDecay", begin + R"(, "cycle": 1)"), {"cycle = 1"}},
      {schedule("PiecewiseConstantDecay", R"("boundaries": 3, "values": [1])"), {"boundaries = 3"}},
      {schedule("PiecewiseConstantDecay", R"("boundaries": [3], "values": ["x", 1])"), {"values = "}},
      {schedule("PiecewiseConstantDecay", R"("boundaries": [3], "values": [1])"), {"values are 1 for 1 boundaries"}},
      {training_of(R"({"class_name": "SGD", "config": {"learning_rate": "fast"}})", mse), {"learning_rate", "fast"}},
      {training_of(R"({"class_name": "SGD", "config": {"learning_rate": {"module": "mine", "class_name": "CosineDecay",
         "config": {}}}})",
                   mse),
       {"CosineDecay", "module mine"}},
  };
  for (const auto& [text, words] : cases) require_words(training_refusal(text), words);
}

TEST_CASE("clipping round-trips through JSON and unset options write no key") {
  const auto again = [](const Optimizer& optimizer) {
    const std::string text = training_config_to_json({optimizer, MeanSquaredError(), {}});
    const Clipping clipping = clipping_of(optimizer);
    CHECK((text.find("clip") == std::string::npos) == (clipping.kind == ClippingKind::none));
    const Clipping read = clipping_of(training_config_from_json(text).optimizer);
    CHECK(read.kind == clipping.kind);
    CHECK(read.bound == clipping.bound);
    return text;
  };
  again(SGD());
  CHECK(again(SGD({.clipnorm = 0.5})).find(R"("clipnorm":0.5)") != std::string::npos);
  CHECK(again(Adam({.clipvalue = 2})).find(R"("clipvalue":2.0)") != std::string::npos);
  CHECK(again(AdamW({.global_clipnorm = 0.1})).find(R"("global_clipnorm":0.1)") != std::string::npos);
  again(RMSprop({.clipvalue = 1e-3}));
}

TEST_CASE("metrics are recognized by class, in every form that Keras writes") {
  const std::string sparse = R"("sparse_categorical_crossentropy")";
  for (const char* metrics :
       {R"("accuracy")", R"(["accuracy"])", R"([["accuracy"]])", R"({"dense": "accuracy"})",
        R"({"dense": ["accuracy"]})",
        R"([{"class_name": "SparseCategoricalAccuracy", "config": {"name": "accuracy", "dtype": "float32"}}])",
        R"([[{"class_name": "MeanMetricWrapper",
              "config": {"name": "accuracy", "dtype": "float32", "fn": "sparse_categorical_accuracy"}}]])"}) {
    INFO(metrics);
    CHECK(training_config_from_json(training_of(sgd, sparse, metrics)).metrics == std::vector<Metric>{accuracy});
  }
  for (
      const char* metrics :
      {R"("mean_absolute_error")",
       R"([{"class_name": "MeanAbsoluteError", "config": {"name": "mean_absolute_error"}}])",
       R"([{"class_name": "function", "config": "mean_absolute_error"}])",
       R"([{"class_name": "MeanMetricWrapper", "config": {"name": "mean_absolute_error", "fn": "mean_absolute_error"}}])"}) {
    INFO(metrics);
    CHECK(training_config_from_json(training_of(sgd, mse, metrics)).metrics ==
          std::vector<Metric>{metrics::MeanAbsoluteError()});
  }
}

TEST_CASE("a metric's name is what logs call it, and says nothing of what it computes") {
  const auto read = [](const std::string& metric) {
    return training_config_from_json(training_of(sgd, mse, "[" + metric + "]")).metrics;
  };
  using Metrics = std::vector<Metric>;
  CHECK(read(R"("mae")") == Metrics{metrics::MeanAbsoluteError{.name = "mae"}});
  CHECK(read(R"("MSE")") == Metrics{metrics::MeanSquaredError{.name = "MSE"}});
  CHECK(read(R"("MeanSquaredError")") == Metrics{metrics::MeanSquaredError{.name = "MeanSquaredError"}});
  CHECK(read(R"("acc")") == Metrics{metrics::Accuracy{.name = "acc"}});
  CHECK(read(R"({"class_name": "TopKCategoricalAccuracy", "config": {"name": "top3", "k": 3}})") ==
        Metrics{metrics::TopKCategoricalAccuracy{.k = 3, .name = "top3"}});
  CHECK(read(R"({"class_name": "AUC", "config": {"name": "accuracy"}})") == Metrics{metrics::AUC{.name = "accuracy"}});
  CHECK(read(R"({"class_name": "CategoricalAccuracy", "config": {"name": "accuracy"}})") ==
        Metrics{metrics::Accuracy()});  // Keras would take this class too
  CHECK(read(R"({"class_name": "TopKCategoricalAccuracy", "config": {"name": "accuracy", "k": 5}})") ==
        Metrics{metrics::TopKCategoricalAccuracy{.name = "accuracy"}});
  for (const Metrics& given :
       {Metrics{metrics::MeanAbsoluteError{.name = "mae"}}, Metrics{metrics::MeanAbsoluteError{.name = "x"}},
        Metrics{metrics::AUC{.curve = metrics::Curve::PR, .name = "accuracy"}}}) {
    CHECK(training_config_from_json(training_config_to_json({SGD(), MeanSquaredError(), given})).metrics == given);
  }
}

TEST_CASE("every metric may be written as a class, for Keras 2") {
  const std::vector<Metric> given{metrics::Accuracy(), metrics::MeanSquaredError{.name = "mse"},
                                  metrics::AUC{.curve = metrics::Curve::PR}};
  for (const auto& [outputs, name] : {std::pair(1, "BinaryAccuracy"), {3, "CategoricalAccuracy"}}) {
    const std::string text = training_config_to_json_of_classes({SGD(), MeanSquaredError(), given}, outputs);
    require_words(text,
                  {name, "\"MeanSquaredError\",\"config\":{\"name\":\"mse\"", "\"AUC\",\"config\":{\"name\":\"auc\""});
    CHECK(training_config_from_json(text, "m.h5", outputs).metrics == given);
  }
  const std::string sparse =
      training_config_to_json_of_classes({SGD(), SparseCategoricalCrossentropy(), {accuracy}}, 3);
  require_words(sparse, {"SparseCategoricalAccuracy", "\"name\":\"accuracy\""});
  CHECK(training_config_from_json(sparse, "m.h5", 3).metrics == std::vector<Metric>{accuracy});
}

TEST_CASE("the number of outputs decides what accuracy is") {
  const auto read = [](const std::string& function, std::int64_t outputs) {
    const std::string metric =
        R"([{"class_name": "MeanMetricWrapper", "config": {"name": "accuracy", "fn": ")" + function;
    return training_config_from_json(training_of(sgd, R"("categorical_crossentropy")", metric + "\"}}]"), "m.h5",
                                     outputs)
        .metrics.front();
  };
  CHECK(read("binary_accuracy", 1) == accuracy);
  CHECK(read("categorical_accuracy", 2) == accuracy);
  CHECK(read("binary_accuracy", 2) == Metric(metrics::BinaryAccuracy{.name = "accuracy"}));
  CHECK(read("categorical_accuracy", 1) == Metric(metrics::CategoricalAccuracy{.name = "accuracy"}));
}

TEST_CASE("parts of a compilation that Lockstep lacks are noted one by one") {
  const CompileState training =
      training_config_from_json(training_of(R"({"class_name": "Muon", "config": {}})", R"("tversky")", R"(["mae"])"),
                                "m.h5", {}, UnsupportedCompilation::note);
  require_words(training.refusals.optimizer, {"m.h5", "Muon"});
  require_words(training.refusals.loss, {"m.h5", "tversky"});
  CHECK(training.refusals.metrics.empty());
  CHECK(training.metrics == std::vector<Metric>{metrics::MeanAbsoluteError{.name = "mae"}});
  CHECK(training.refusals.first() == training.refusals.optimizer);
  const std::string precision = R"([{"class_name": "Precision", "config": {"class_id": 1}}])";
  const std::string with_weighted = training_of(sgd, mse, precision + R"(, "weighted_metrics": )" + precision);
  const CompileState by_metric = training_config_from_json(with_weighted, "m.h5", {}, UnsupportedCompilation::note);
  CHECK(by_metric.refusals.loss.empty());
  require_words(by_metric.refusals.metrics, {"m.h5", "Precision", "class_id"});
}

TEST_CASE("a weight decay of zero is none") {
  CHECK(training_config_from_json(training_of(R"({"class_name": "SGD", "config": {"weight_decay": 0.0}})", mse))
            .optimizer.index() == Optimizer(SGD()).index());
}

TEST_CASE("unsupported compile settings are rejected by name") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {training_of(R"({"class_name": "Muon", "config": {}})", mse),
       {"m.h5", "Muon", "AdamW", "before model.compile()"}},
      {training_of(R"({"class_name": "Adam", "config": {"amsgrad": 1}})", mse), {"Adam", "amsgrad"}},
      {training_of(R"({"class_name": "AdamW", "config": {"weight_decay": null}})", mse),
       {"AdamW", "weight_decay = null"}},
      {training_of(sgd, R"({"class_name": "CategoricalFocalCrossentropy", "config": {"alpha": null}})"),
       {"CategoricalFocalCrossentropy", "alpha = null"}},
      {R"({"loss": "mse", "steps_per_execution": 0, "optimizer_config": )" + sgd + "}", {"steps_per_execution = 0"}},
      {training_of(R"({"class_name": "SGD", "config": {"learning_rate": NaN}})", mse),
       {"m.h5", "has the number NaN as learning_rate", "finite"}},
      {training_of(R"({"class_name": "SGD", "config": {"learning_rate": -Infinity, "momentum": 0.5}})", mse),
       {"has the number -Infinity as learning_rate"}},
      {training_of(R"({"class_name": "SGD", "config": {"learning_rate": {"class_name": "ExponentialDecay", "config":
       {"initial_learning_rate": 1, "decay_steps": 3, "decay_rate": 0.5}}}})",
                   mse),
       {"ExponentialDecay", "whole number 1", "1.0"}},
      {training_of(R"({"class_name": "Adam", "config": {"loss_scale_factor": 2.0}})", mse),
       {"Adam", "loss_scale_factor"}},
      {training_of(R"({"class_name": "Adam", "config": {"gradient_accumulation_steps": 1}})", mse),
       {"Adam's gradient_accumulation_steps is 1"}},
      {training_of(R"({"class_name": "Adam", "config": {"clipnorm": -1.0}})", mse), {"m.h5", "Adam's clipnorm is -1"}},
      {training_of(R"({"class_name": "Adam", "config": {"clipvalue": "x"}})", mse), {"m.h5", "clipvalue"}},
      {training_of(R"({"class_name": "SGD", "config": {"clipnorm": 1.0, "clipvalue": 1.0}})", mse),
       {"SGD", "more than one of clipnorm"}},
      {training_of(R"({"class_name": "SGD", "config": {"weight_decay": -0.1}})", mse), {"SGD's weight_decay is -0.1"}},
      {training_of(R"({"class_name": "SGD", "config": {"use_ema": true, "ema_momentum": 2}})", mse),
       {"SGD's ema_momentum is 2"}},
      {training_of(R"({"class_name": "SGD", "config": {"learning_rate": {"class_name": "CosineDecay", "config": {}}}})",
                   mse),
       {"learning_rate", "CosineDecay"}},
      {training_of(R"({"class_name": "SGD", "config": {"momentum": 7}})", mse), {"momentum", "7"}},
      {training_of(sgd, R"({"class_name": "Tversky", "config": {}})"), {"Tversky", "MeanSquaredError"}},
      {training_of(sgd, R"({"class_name": "MeanSquaredError", "config": {"reduction": "none"}})"),
       {"reduction none", "mean_with_sample_weight"}},
      {training_of(sgd, R"({"class_name": "MeanSquaredError", "config": {"reduction": null}})"), {"reduction none"}},
      {training_of(sgd, R"({"class_name": "CategoricalCrossentropy", "config": {"label_smoothing": "x"}})"),
       {"label_smoothing"}},
      {training_of(sgd, R"({"class_name": "SparseCategoricalCrossentropy", "config": {"ignore_class": 3}})"),
       {"ignore_class"}},
      {training_of(sgd, mse, R"(["f1"])"), {"f1", "accuracy", "mean_absolute_error"}},
      {training_of(sgd, mse, R"([{"class_name": "AUC", "config": {"name": "a\u001bb"}}])"),
       {"AUC", "cannot be printed"}},
      {training_of(sgd, mse, R"([{"class_name": "F1Score", "config": {"name": "f1", "average": null}}])"),
       {"F1Score", "average = null", "does not support"}},
      {training_of(sgd, mse, R"([{"class_name": "AUC", "config": {"name": "auc", "dtype": "bfloat16"}}])"),
       {"AUC", "dtype = \"bfloat16\"", "does not support"}},
      {training_of(sgd, mse, R"([{"class_name": "SparseTopKCategoricalAccuracy",
         "config": {"name": "sparse_top_k_categorical_accuracy", "from_sorted_ids": true}}])"),
       {"SparseTopKCategoricalAccuracy", "from_sorted_ids"}},
      {training_of(sgd, mse, R"([["accuracy"], ["accuracy"]])"), {"2 lists of metrics", "one output"}},
      {training_of(sgd, mse, R"({"a": "mae", "b": "mae"})"), {"2 lists of metrics"}},
      {training_of(sgd, mse, R"([7])"), {"a metric"}},
      {training_of(sgd, mse, R"([{"class_name": "Accuracy", "config": {"name": "accuracy"}}])"), {"Accuracy"}},
      {training_of(sgd, mse, R"([{"module": "builtins", "class_name": "function", "config": "accuracy"}])"),
       {"accuracy"}},
      {training_of(sgd, mse, R"([{"module": "builtins", "class_name": "function", "config": "mse"}])"), {"mse"}},
      {training_of(sgd, mse, R"([{"module": "builtins", "class_name": "function", "config": "f1_score"}])"),
       {"f1_score"}},
      {training_of(sgd, mse, R"([{"module": null, "class_name": "MeanSquaredError", "config": {},
         "registered_name": "mine>MeanSquaredError"}])"),
       {"mine>MeanSquaredError"}},
      {training_of(sgd, R"({"module": "builtins", "class_name": "function", "config": "mse"})"), {"the loss mse"}},
      {training_of(sgd, R"({"class_name": "mse", "config": {}})"), {"the loss mse"}},
      {training_of(sgd, R"({"module": null, "class_name": "MeanSquaredError", "config": {},
         "registered_name": "MeanSquaredError"})"),
       {"MeanSquaredError", "your program"}},
      {training_of(sgd, R"(["mse", "mse"])"), {"2 losses", "one output"}},
      {R"({"loss": "mse"})", {"no optimizer"}},
      {R"({"optimizer_config": )" + sgd + "}", {"no loss"}},
      {R"({"loss": "mse", "loss_weights": [0.5], "optimizer_config": )" + sgd + "}",
       {"loss_weights [0.5]", "sample_weight"}},
      {R"({"loss": "mse", "loss_weights": {"price": 2}, "optimizer_config": )" + sgd + "}", {R"({"price":2})"}},
  };
  for (const auto& [text, words] : cases) require_words(training_refusal(text), words);

  for (const char* loss : {R"("mse")", R"("mean_squared_error")", R"("MeanSquaredError")", R"(["mse"])",
                           R"({"dense": "mse"})", R"({"class_name": "function", "config": "mean_squared_error"})"}) {
    CHECK(std::holds_alternative<MeanSquaredError>(training_config_from_json(training_of(sgd, loss)).loss));
  }
  for (const char* weight : {"1", "[1.0]", R"({"price": 1})", "null"}) {
    const std::string text = std::string(R"({"loss": "mse", "loss_weights": )") + weight + R"(, "optimizer_config": )";
    CHECK(std::holds_alternative<MeanSquaredError>(training_config_from_json(text + sgd + "}").loss));
  }
  const CompileState averaging = training_config_from_json(training_of(
      R"({"class_name": "SGD", "config": {"use_ema": true, "ema_momentum": 0.5, "ema_overwrite_frequency": 3,
          "weight_decay": 0.25, "gradient_accumulation_steps": 4}})",
      R"({"class_name": "MeanSquaredError", "config": {"reduction": "sum"}})"));
  const auto& options = std::get<SGD>(averaging.optimizer);
  CHECK(options.use_ema);
  CHECK(options.ema_momentum == 0.5);
  CHECK(options.ema_overwrite_frequency == 3);
  CHECK(options.weight_decay == 0.25);
  CHECK(options.gradient_accumulation_steps == 4);
  CHECK(std::get<MeanSquaredError>(averaging.loss).reduction == Reduction::sum);

  const CompileState named =
      training_config_from_json(training_of(sgd, R"("categorical_crossentropy")", R"(["accuracy"])"));
  CHECK(std::holds_alternative<CategoricalCrossentropy>(named.loss));
  CHECK(learning_rate_of(named.optimizer) == 0.5);
}

TEST_CASE("losses and metrics of several outputs are lists, or dictionaries by name") {
  const Tensor input = Input({4});
  const Functional model(std::vector{input},
                         std::vector{Dense(3, {.name = "kind"})(input), Dense(1, {.name = "price"})(input)});
  const auto read = [&](const std::string& rest) {
    return training_config_from_json("{" + rest + R"(, "optimizer_config": )" + sgd + "}", "m.h5", model);
  };
  const std::string losses = R"("loss": ["sparse_categorical_crossentropy", "mse"])";
  const CompileState lists = read(losses + R"(, "loss_weights": [1, 0.5], "metrics": [["accuracy"], ["mae", "mse"]])");
  REQUIRE(lists.outputs.size() == 2);
  CHECK(lists.outputs[0].output == "kind");
  CHECK(std::holds_alternative<SparseCategoricalCrossentropy>(lists.outputs[0].loss));
  CHECK(lists.outputs[0].metrics == std::vector<Metric>{accuracy});
  CHECK(lists.outputs[1].output == "price");
  CHECK(lists.outputs[1].loss_weight == 0.5);
  CHECK(lists.outputs[1].metrics.size() == 2);
  const CompileState by_name = read(R"("loss": {"price": "mse", "kind": "sparse_categorical_crossentropy"},
              "loss_weights": {"price": 0.5, "kind": 1}, "metrics": {"price": ["mae", "mse"], "kind": "accuracy"})");
  const CompileOptions& options = lists;
  CHECK(training_config_to_json(by_name) == training_config_to_json(options));
  const std::string text = training_config_to_json(options);
  CHECK(training_config_to_json(training_config_from_json(text, "m.h5", model)) == text);
  const CompileState one = read(R"("loss": "mse", "metrics": {"price": ["mae"]}, "loss_weights": null)");
  CHECK(std::holds_alternative<MeanSquaredError>(one.outputs[1].loss));
  CHECK(one.outputs[0].metrics.empty());
  CHECK(one.outputs[1].metrics.size() == 1);
  const CompileState weighted = read(losses + R"(, "weighted_metrics": [null, ["mae"]])");
  CHECK(weighted.outputs[0].weighted_metrics.empty());
  CHECK(weighted.outputs[1].weighted_metrics.size() == 1);

  const auto refusal = [&](const std::string& rest) { return message_of<DataError>([&] { (void)read(rest); }); };
  require_words(refusal(R"("loss": ["mse"])"), {"losses", "2 outputs", "compile the model"});
  require_words(refusal(R"("loss": "mse", "loss_weights": [1, 0.5])"), {"loss_weights", "one loss for 2 outputs"});
  require_words(refusal(R"("loss": ["mse", null])"), {"'price' has no loss"});
  require_words(refusal(R"("loss": {"kind": "mse"})"), {"'price' has no loss"});
  require_words(refusal(R"("loss": {"kind": "mse", "price": "mse", "more": "mse"})"), {"losses of the output 'more'"});
  require_words(refusal(losses + R"(, "loss_weights": [1])"), {"loss_weights", "2 outputs"});
  require_words(refusal(losses + R"(, "loss_weights": {"kind": 1})"), {"'price' has no number in loss_weights"});
  require_words(refusal(losses + R"(, "metrics": ["mae"])"), {"metrics", "2 outputs"});
}

TEST_CASE("optimizers of a user or of TensorFlow 2.10 are not taken for those of Keras 3") {
  const std::string none = message_of<DataError>([] {});
  const auto read = [](const std::string& optimizer, KerasVersion version) {
    return message_of<DataError>([&] {
      (void)training_config_from_json(training_of(optimizer, mse), "m.h5", {}, UnsupportedCompilation::refuse, version);
    });
  };
  const std::string own = R"({"class_name": "Custom>SGD", "config": {"learning_rate": 0.1}})";
  require_words(read(own, KerasVersion::three), {"m.h5", "Custom>SGD", "is not one of"});
  CHECK(read(own, KerasVersion::two) == none);  // tf_keras writes its own so, too
  const auto adagrad = [](const std::string& rest) {
    return R"({"class_name": "Adagrad", "config": {"learning_rate": 0.1)" + rest + "}}";
  };
  CHECK(read(adagrad(R"(, "decay": 0.0, "initial_accumulator_value": 0.1, "epsilon": 1e-07)"), KerasVersion::two) ==
        none);
  CHECK(read(adagrad(R"(, "epsilon": 0.5)"), KerasVersion::two) == none);
  for (const char* rest : {R"(, "decay": 0.0, "epsilon": 0.5)", R"(, "decay": 0.0, "initial_accumulator_value": 0.0)"})
    require_words(read(adagrad(rest), KerasVersion::two), {"Adagrad", "legacy"});
}

TEST_CASE("a loss of another output is refused") {
  const std::string none = message_of<DataError>([] {});
  const Tensor input = Input({4});
  const Functional model(input, Dense(1, {.name = "price"})(input));
  const auto read = [&](const std::string& key) {
    return message_of<DataError>(
        [&] { (void)training_config_from_json(training_of(sgd, "{\"" + key + R"(": "mse"})"), "m.h5", model); });
  };
  CHECK(read("price") == none);
  require_words(read("cost"), {"m.h5", "'cost'", "'price'"});
}
