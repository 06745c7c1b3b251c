// A model divided by features trains what the same ranks train by examples: the same weights to float tolerance after a
// hundred steps, for every layer and optimizer, and however the layers are divided.
#include "plan/division.hpp"
#include "checkpoint/model_file.hpp"
#include "cluster/world.hpp"
#include "collective/make_communicator.hpp"
#include "plan/lower.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/ranks.hpp"
#include "support/reference_training.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const SparseCategoricalCrossentropy logits({.from_logits = true});
const std::filesystem::path directory = std::filesystem::temp_directory_path() / "lockstep-division-test";

/// Links that lead to other divisions: two that cost little, where most layers go by examples and only the last ones by
/// features; an ordinary one, one that is to be spared.
const std::vector<std::string> links{"1e-9,1e13,1e9", "1e-9,1e8,1e9", "5e-5,1.25e8,1e11", "1e-3,1e5,1e13"};

class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~ScopedVariable() { unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

constexpr const char* link_variable = "LOCKSTEP_TEST_LINK";
constexpr const char* ways_variable = "LOCKSTEP_TEST_WAYS";  // a division by its code

/// Every layer; channels and units that divide, that don't, and that are fewer than the ranks.
const std::vector<Sequential> models{
    Sequential{Input({8, 8, 1}), Conv2D(16, 3, {.activation = activations::tanh}), AveragePooling2D(),
               BatchNormalization(), Dropout(0.3), Conv2D(32, 2, {.activation = sigmoid}), Flatten(),
               Dense(300, {.activation = activations::tanh}), Dropout(0.5), Dense(4)},
    Sequential{Input({9, 9, 2}), Conv2D(13, 3, {.use_bias = false}), BatchNormalization(), Activation(relu),
               Dropout(0.25), MaxPooling2D(), Flatten(), Dropout(0.2), Dense(6, {.activation = sigmoid}), Dense(5)},
    Sequential{Input({9, 8, 1}), Conv2D(33, 3, {.padding = Padding::same, .activation = relu}), MaxPooling2D(),
               Conv2D(17, 2, {.activation = relu}), GlobalAveragePooling2D(), Dense(7, {.use_bias = false}),
               Activation(sigmoid), Dense(3, {.activation = softmax})},
    Sequential{Input({12}), Dense(24, {.activation = relu}), Dense(17, {.activation = activations::tanh}),
               BatchNormalization(), Dense(31, {.use_bias = false}), Activation(sigmoid), Dropout(0.4),
               Dense(21, {.activation = softmax}), Dense(9, {.activation = activations::tanh}), Dense(4)},
    Sequential{Input({6, 2}), Reshape({12}), Dense(3, {.activation = activations::tanh}), Dense(2), Dense(3)},
    Sequential{Input({4, 4, 3}), Conv2D(2, 2, {.activation = relu}), Reshape({9, 2}), Dropout(0.1), Flatten(),
               Dense(3)},
};

struct Divided {
  Sequential model;
  std::string code;
  std::string behind_examples = {};  ///< another: what such a convolution takes comes from layers by examples
};

/// Convolutions that take slices of their input's channels (r): by sixteens and by eights; of five and seven channels,
/// padded, strided and dilated; behind a layer that gives parts of gradients; of two channels, so that of three ranks
/// one has nothing; and a model that is divided to its end.
const std::vector<Divided> by_input_channels{
    {{Input({12, 12, 1}), Conv2D(48, 3, {.activation = activations::tanh}), AveragePooling2D(),
      Conv2D(32, 3, {.padding = Padding::same, .activation = sigmoid}), BatchNormalization(), Dropout(0.3), Flatten(),
      Dense(20, {.activation = activations::tanh}), Dense(4)},
     "accraacra",
     "eeeraacra"},
    {{Input({9, 9, 2}), Conv2D(5, 3, {.use_bias = false}), MaxPooling2D(), Conv2D(7, 2, {.padding = Padding::same}),
      BatchNormalization(), Dropout(0.2), Flatten(), Dense(4)},
     "accraaaa",
     "eeeraaaa"},
    {{Input({9, 9, 2}), Conv2D(6, 3, {.activation = sigmoid}), BatchNormalization(), Conv2D(7, 2), Dropout(0.2),
      Activation(activations::tanh), Conv2D(5, Extent(2, 3), {.strides = 2, .padding = Padding::same}), Dropout(0.1),
      Conv2D(3, Extent(1, 2), {.activation = activations::tanh, .use_bias = false}), GlobalAveragePooling2D(),
      Dense(4)},
     "appcccraaaaa",
     "eeeraaccraaa"},
    {{Input({10, 10, 1}), Conv2D(2, 3, {.activation = activations::tanh}), Conv2D(16, 3, {.dilation_rate = 2}),
      Conv2D(8, 2, {.activation = activations::tanh}), Conv2D(24, 2, {.activation = sigmoid}), Flatten(), Dense(4)},
     "acrcraa",
     "eercraa"},
    {{Input({8, 8, 1}), Conv2D(16, 3), Activation(activations::tanh), Conv2D(4, 3, {.activation = softmax}),
      AveragePooling2D(), Conv2D(7, 2, {.activation = sigmoid}), Flatten(), Dense(4)},
     "acraacra",
     "eeraacra"},
};

const std::vector<Optimizer> optimizers{
    SGD({.learning_rate = 0.1}),
    SGD({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true}),
    Adam({.learning_rate = 0.01, .epsilon = 1e-4}),
    AdamW({.learning_rate = 0.01, .weight_decay = 0.01, .epsilon = 1e-4}),
    RMSprop({.learning_rate = 0.003, .momentum = 0.5, .epsilon = 1e-3, .centered = true}),
};

Options options_for(Division division, int batch) {
  return {.model_dir = directory,
          .global_batch_size = batch,
          .seed = 7,
          .division = division,
          .verbose = 0,
          .program = "division_test"};
}

struct Outcome {
  std::vector<Variable> weights;
  History history;
  Logs evaluation;
  std::vector<float> outputs;
};

Loss loss_of(const Sequential& architecture) {
  const auto* dense = std::get_if<Dense>(&architecture.layers().back().layer);
  return SparseCategoricalCrossentropy({.from_logits = dense == nullptr || dense->activation != softmax});
}

Outcome train(const Sequential& architecture, const Optimizer& optimizer, const Examples& examples,
              const Options& options, int epochs) {
  MultiWorkerMirroredStrategy strategy(options);
  Model model = strategy.build(architecture);
  model.compile({.optimizer = optimizer, .loss = loss_of(architecture), .metrics = {accuracy}});
  Outcome outcome;
  outcome.history = model.fit(examples.data, {.epochs = epochs});
  outcome.weights = model.weights();
  outcome.evaluation = model.evaluate(examples.data);
  outcome.outputs = model.predict(examples.data);
  return outcome;
}

std::string describe_layers(const Sequential& model) {
  std::string text;
  for (const LayerInfo& layer : model.layers()) text += layer.class_name + layer.output_shape.to_string() + " ";
  return text;
}

/// Where rounding decides on which side of a kink a value lies, its gradient is another one from then on.
bool has_kinks(const Sequential& model) { return describe_layers(model).find("MaxPooling2D") != std::string::npos; }

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
    scale += std::pow(b[i], 2);
  }
  return std::sqrt(sum) / std::max(std::sqrt(scale), 0.1);
}

void check_equal(const Outcome& features, const Outcome& examples, double tolerance) {
  REQUIRE(features.weights.size() == examples.weights.size());
  for (std::size_t p = 0; p < features.weights.size(); ++p) {
    INFO(features.weights[p].name);
    REQUIRE(features.weights[p].shape == examples.weights[p].shape);
    CHECK(distance(features.weights[p].values, examples.weights[p].values) < tolerance);
  }
  REQUIRE(features.history.epochs.size() == examples.history.epochs.size());
  for (std::size_t e = 0; e < features.history.epochs.size(); ++e) {
    CHECK(features.history["loss"][e] == Approx(examples.history["loss"][e]).epsilon(tolerance));
  }
  CHECK(features.evaluation.at("loss") == Approx(examples.evaluation.at("loss")).epsilon(tolerance));
  CHECK(distance(features.outputs, examples.outputs) < tolerance);
}

/// Saves the same moment twice, at once and beside training, and uses the model while its slices are on their way.
class SaveTwice : public Callback {
 public:
  explicit SaveTwice(const Dataset& data) : data_(data) {}

  static constexpr int saves = 3;
  static std::filesystem::path at_once(int save) { return directory / ("at_once_" + std::to_string(save) + ".h5"); }
  static std::filesystem::path beside(int save) { return directory / ("beside_" + std::to_string(save) + ".h5"); }

  void on_train_batch_end(Model& model, std::int64_t /*batch*/, const StepMetrics& /*so_far*/) override {
    ++seen_;
    if (seen_ != 3 && seen_ != 4 && seen_ != 14) return;  // the second while the first may be under way
    const int save = saves_++;
    std::filesystem::remove(beside(save));
    model.save(at_once(save));
    model.save_later(beside(save));
    if (World().size() > 1) CHECK_FALSE(std::filesystem::exists(beside(save)));
    if (seen_ != 14) return;
    model.evaluate(data_);
    model.predict(data_);
    static_cast<void>(model.weights());
  }

 private:
  const Dataset& data_;
  int seen_ = 0;
  int saves_ = 0;
};

bool equal(const std::vector<SavedTensor>& a, const std::vector<SavedTensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const SavedTensor& x, const SavedTensor& y) {
    return x.name == y.name && x.shape == y.shape && x.values == y.values;
  });
}

/// A rank's slices of it, with Adam's arrays, are some thirty pieces on their way to the chief.
const Sequential large{Input({12}), Dense(1500, {.activation = relu}), Dropout(0.2), Dense(200, {.activation = relu}),
                       Dense(4)};

constexpr int never = 1 << 30;

void clear_backups() {
  const World world;
  if (world.is_chief()) std::filesystem::remove_all(directory / "backup");
  make_communicator(world, Transport::automatic)->barrier();
}

/// Weights after four epochs of a run that keeps backups; none where it died before.
std::vector<Variable> train_with_backups(Division division, int dies_at, const Sequential& architecture = models[0]) {
  const Examples examples = make_examples(architecture, logits, 40, 3);
  MultiWorkerMirroredStrategy strategy(options_for(division, 10));
  Model model = strategy.build(architecture);
  model.compile({.optimizer = Adam({.learning_rate = 0.01, .epsilon = 1e-4}), .loss = logits, .metrics = {accuracy}});
  model.fit(examples.data,
            {.epochs = 4, .callbacks = {BackupAndRestore(directory / "backup", {.save_freq = 3}), DieAt(dies_at)}});
  return model.weights();
}

std::vector<Variable> resumed(Division before, Division after) {
  const auto dies = [&] { return train_with_backups(before, 8); };
  CHECK_THROWS_AS(dies(), Death);
  return train_with_backups(after, never);
}

}  // namespace

TEST_CASE("Links that cost little divide by examples first, by features then") {
  const Speeds speeds{.latency = 1e-9, .bytes_per_second = 1e13, .flops_per_second = 1e9};
  for (const Sequential& model : models) {
    for (const int ranks : {2, 3, 4}) {
      const auto division = divide_by_features(lower(model, loss_of(model), false), ranks, 10, speeds);
      REQUIRE(division);
      CHECK(division->code().substr(0, 3) == "eee");
    }
  }
}

TEST_CASE("A hundred steps by features are a hundred steps by examples") {
  std::size_t turn = 0;
  for (const Sequential& model : models) {
    const Examples examples = make_examples(model, loss_of(model), 37, 3);
    // 20 batches of 10 and 27 in an epoch, the last of them of 7: more than a hundred steps.
    const Optimizer& optimizer = optimizers[turn % optimizers.size()];
    const Outcome few_by_examples = train(model, optimizer, examples, options_for(Division::examples, 10), 2);
    const Outcome by_examples = train(model, optimizer, examples, options_for(Division::examples, 10), 26);
    for (const std::string& link : links) {
      const ScopedVariable scoped(link_variable, link);
      INFO(describe_layers(model) << ", " << name_of(optimizer) << ", link " << link);
      check_equal(train(model, optimizer, examples, options_for(Division::features, 10), 2), few_by_examples, 1e-4);
      const Outcome by_features = train(model, optimizer, examples, options_for(Division::features, 10), 26);
      check_equal(by_features, by_examples, has_kinks(model) ? 5e-2 : 2e-3);
      CHECK(equal_everywhere(by_features.weights));
    }
    ++turn;
  }
}

TEST_CASE("Convolutions may take slices of their input's channels") {
  std::size_t turn = 0;
  for (const Divided& divided : by_input_channels) {
    const Sequential& model = divided.model;
    const Examples examples = make_examples(model, loss_of(model), 37, 3);
    const Optimizer& optimizer = optimizers[turn++ % optimizers.size()];
    const auto by_examples = [&](int epochs) {
      return train(model, optimizer, examples, options_for(Division::examples, 10), epochs);
    };
    const Outcome few_by_examples = by_examples(2);
    const Outcome many_by_examples = by_examples(26);
    for (const std::string& code : {divided.code, divided.behind_examples}) {
      const ScopedVariable scoped(ways_variable, code);
      INFO(describe_layers(model) << ", " << name_of(optimizer) << ", " << code);
      const auto by_features = [&](int epochs) {
        return train(model, optimizer, examples, options_for(Division::features, 10), epochs);
      };
      check_equal(by_features(2), few_by_examples, 1e-4);
      const Outcome many = by_features(26);
      check_equal(many, many_by_examples, has_kinks(model) ? 5e-2 : 2e-3);
      CHECK(equal_everywhere(many.weights));
      CHECK(equal(many.weights, by_features(26).weights));
    }
  }
}

TEST_CASE("A trunk by examples runs through its rows slice by slice") {
  const Sequential model{Input({48, 48, 1}),
                         Conv2D(64, 3, {.activation = relu}),
                         MaxPooling2D(),
                         Dropout(0.2),
                         Conv2D(8, 3, {.activation = activations::tanh}),
                         Flatten(),
                         Dense(20),
                         Dense(4)};
  const Examples examples = make_examples(model, logits, 75, 3);
  const SGD optimizer({.learning_rate = 0.01});
  const Outcome by_examples = train(model, optimizer, examples, options_for(Division::examples, 73), 3);
  for (const std::string& link : {links[0], links[1]}) {
    const ScopedVariable scoped(link_variable, link);
    INFO("link " << link);
    check_equal(train(model, optimizer, examples, options_for(Division::features, 73), 3), by_examples, 1e-4);
  }
}

TEST_CASE("Every optimizer moves slices as it moves whole layers") {
  for (const Optimizer& optimizer : optimizers) {
    INFO(name_of(optimizer));
    const Examples examples = make_examples(models[0], logits, 24, 3);
    const Outcome by_examples = train(models[0], optimizer, examples, options_for(Division::examples, 12), 3);
    const Outcome by_features = train(models[0], optimizer, examples, options_for(Division::features, 12), 3);
    check_equal(by_features, by_examples, 1e-4);
  }
}

TEST_CASE("Replicas belong to the job by features as well, and batches may be smaller than the world") {
  const Examples examples = make_examples(models[0], logits, 23, 3);
  const auto check = [&](int batch, int replicas, const std::string& link, const std::string& code) {
    const ScopedVariable scoped_link(link_variable, link);
    const ScopedVariable scoped_ways(ways_variable, code);
    INFO("batches of " << batch << ", " << replicas << " replicas, link " << link << ", " << code);
    const auto run = [&](Division division) {
      Options options = options_for(division, batch);
      options.replicas = replicas;
      return train(models[0], SGD({.learning_rate = 0.1}), examples, options, 2);
    };
    check_equal(run(Division::features), run(Division::examples), 1e-3);
  };
  // The last: from examples into a convolution.
  for (const auto& [link, code] :
       {std::pair(links[0], ""), std::pair(links[2], ""), std::pair(links[0], "eeeeeraaaa")}) {
    check(11, 5, link, code);
    check(10, 4, link, code);
    check(1, 0, link, code);
    check(2, 0, link, code);
  }
}

TEST_CASE("In mixed precision slices keep the tolerances of bfloat16") {
  const Examples examples = make_examples(models[0], logits, 32, 3);
  const auto run = [&](Division division) {
    Options options = options_for(division, 16);
    options.precision = Precision::mixed_bfloat16;
    return train(models[0], SGD({.learning_rate = 0.1}), examples, options, 5);
  };
  Outcome by_examples;
  try {
    by_examples = run(Division::examples);
  } catch (const UsageError&) {
    return;  // a CPU without bfloat16
  }
  for (const std::string& link : links) {
    const ScopedVariable scoped(link_variable, link);
    INFO("link " << link);
    const Outcome by_features = run(Division::features);
    check_equal(by_features, by_examples, 0.05);
    CHECK(equal_everywhere(by_features.weights));
  }
}

TEST_CASE("In mixed precision parts of a convolution are summed up in float32") {
  for (const auto& [model, code] : {std::pair(by_input_channels[0].model, by_input_channels[0].code),
                                    std::pair(by_input_channels[0].model, by_input_channels[0].behind_examples),
                                    std::pair(by_input_channels[3].model, by_input_channels[3].code)}) {
    const ScopedVariable scoped(ways_variable, code);
    const Examples examples = make_examples(model, logits, 32, 3);
    const auto run = [&model = model, &examples](Division division) {
      Options options = options_for(division, 16);
      options.precision = Precision::mixed_bfloat16;
      return train(model, SGD({.learning_rate = 0.1}), examples, options, 2);
    };
    Outcome by_examples;
    try {
      by_examples = run(Division::examples);
    } catch (const UsageError&) {
      return;  // a CPU without bfloat16
    }
    INFO(describe_layers(model));
    const Outcome by_features = run(Division::features);
    check_equal(by_features, by_examples, 0.1);  // of small biases
    CHECK(equal_everywhere(by_features.weights));
  }
}

TEST_CASE("The same world divided by features computes the same bits again") {
  const Examples examples = make_examples(models[1], logits, 30, 3);
  for (const std::string& link : links) {
    const ScopedVariable scoped(link_variable, link);
    const auto run = [&] { return train(models[1], Adam(), examples, options_for(Division::features, 12), 3); };
    const Outcome first = run();
    const Outcome second = run();
    CHECK(equal(first.weights, second.weights));
    CHECK(first.history["loss"] == second.history["loss"]);
    CHECK(first.outputs == second.outputs);
  }
}

TEST_CASE("Backups know nothing of the division") {
  clear_backups();
  const std::vector<Variable> by_examples = train_with_backups(Division::examples, never);
  const std::vector<Variable> by_features = train_with_backups(Division::features, never);
  CHECK(equal(resumed(Division::features, Division::features), by_features));
  CHECK(equal(resumed(Division::examples, Division::examples), by_examples));
  for (const auto& weights : {resumed(Division::features, Division::examples),
                              resumed(Division::examples, Division::features), by_features}) {
    for (std::size_t p = 0; p < weights.size(); ++p) {
      INFO(weights[p].name);
      CHECK(distance(weights[p].values, by_examples[p].values) < 1e-3);
    }
  }
}

TEST_CASE("What began by examples and went on by features is continued like that, or divided otherwise") {
  clear_backups();
  const auto with_link = [](const std::string& link, Division division, int dies_at) {
    const ScopedVariable scoped(link_variable, link);
    return train_with_backups(division, dies_at);
  };
  const std::vector<Variable> whole = with_link(links[0], Division::features, never);
  for (const auto& [link, division] : {std::pair(links[0], Division::features), std::pair(links[2], Division::features),
                                       std::pair(links[2], Division::examples)}) {
    CHECK_THROWS_AS(with_link(links[0], Division::features, 8), Death);
    const std::vector<Variable> resumed = with_link(link, division, never);
    if (link == links[0]) CHECK(equal(resumed, whole));
    for (std::size_t p = 0; p < resumed.size(); ++p) CHECK(distance(resumed[p].values, whole[p].values) < 1e-3);
  }
}

TEST_CASE("Slices that travel beside training are those of the step at which they were taken") {
  const Examples examples = make_examples(large, logits, 40, 3);
  const World world;
  {
    MultiWorkerMirroredStrategy strategy(options_for(Division::features, 10));
    Model model = strategy.build(large);
    model.compile({.optimizer = Adam(), .loss = logits});
    model.fit(examples.data, {.epochs = 4, .callbacks = {SaveTwice(examples.data)}});
    model.save_later(directory / "last.h5");  // and nothing follows
  }
  if (!world.is_chief()) return;
  CHECK(std::filesystem::exists(directory / "last.h5"));
  for (int save = 0; save < SaveTwice::saves; ++save) {
    const SavedModel at_once = load_model(SaveTwice::at_once(save));
    const SavedModel beside = load_model(SaveTwice::beside(save));
    CHECK(equal(beside.weights, at_once.weights));
    REQUIRE(at_once.training);
    REQUIRE(beside.training);
    CHECK(beside.training->iteration == at_once.training->iteration);
    CHECK_FALSE(at_once.training->slots.empty());
    CHECK(equal(beside.training->slots, at_once.training->slots));
  }
}

TEST_CASE("A run that dies while slices travel goes on from the backup before, or from that one") {
  clear_backups();
  const std::vector<Variable> whole = train_with_backups(Division::features, never, large);
  for (const int dies_at : {4, 7, 8, 13}) {
    CHECK_THROWS_AS(train_with_backups(Division::features, dies_at, large), Death);
    CHECK(equal(train_with_backups(Division::features, never, large), whole));
  }
}

TEST_CASE("Weights given to a divided model come back as they were, and so does a saved model") {
  const Divided divided =
      GENERATE(Divided{models[1], ""}, by_input_channels[0], by_input_channels[1], by_input_channels[3]);
  const ScopedVariable scoped(ways_variable, divided.code);
  const auto use = [&divided](Division division, const auto& action) {
    MultiWorkerMirroredStrategy strategy(options_for(division, 8));
    Model model = strategy.build(divided.model);
    model.compile({.optimizer = RMSprop(), .loss = logits});
    return action(model);
  };
  for (const Division division : {Division::features, Division::examples}) {
    const std::vector<Variable> given = use(division, [&](Model& model) {
      std::vector<Variable> weights = model.weights();
      for (Variable& variable : weights) {
        for (std::size_t i = 0; i < variable.values.size(); ++i) variable.values[i] = 0.001F * static_cast<float>(i);
      }
      model.set_weights(weights);
      CHECK(equal(model.weights(), weights));
      model.compile({.optimizer = SGD(), .loss = logits});
      CHECK(equal(model.weights(), weights));
      model.save(directory / "given.h5");
      return weights;
    });
    const World world;
    make_communicator(world, Transport::automatic)->barrier();
    for (const Division other : {Division::features, Division::examples}) {
      use(other, [&](Model& model) {
        model.load_weights(directory / "given.h5");
        CHECK(equal(model.weights(), given));
        return 0;
      });
    }
  }
}

TEST_CASE("A model that cannot be divided is refused on all ranks alike") {
  MultiWorkerMirroredStrategy strategy(options_for(Division::features, 8));
  Model model = strategy.build(Sequential{Input({6}), Dense(3)});
  std::string message;
  try {
    model.compile({.optimizer = SGD(), .loss = logits});
  } catch (const UsageError& error) {
    message = error.what();
  }
  INFO(message);
  CHECK(message.find("layer 'dense' are the model's outputs") != std::string::npos);
  CHECK(message.find("--division examples") != std::string::npos);
}

TEST_CASE("The choice is made for all workers alike, and goes on with a backup") {
  const World world;
  const Examples examples = make_examples(models[0], logits, 24, 3);
  const auto by_examples = train(models[0], Adam(), examples, options_for(Division::examples, 12), 2).weights;
  {  // measured: whichever it is, all have it
    const auto measured = train(models[0], Adam(), examples, options_for(Division::automatic, 12), 2).weights;
    CHECK(equal_everywhere(measured));
    for (std::size_t p = 0; p < measured.size(); ++p) {
      CHECK(distance(measured[p].values, by_examples[p].values) < 1e-3);
    }
  }
  const auto chosen = [&](const std::string& link) {
    const ScopedVariable scoped(link_variable, link);
    return train(models[0], Adam(), examples, options_for(Division::automatic, 12), 2).weights;
  };
  const std::string slow_kernels = "1e-9,1e13,1e6";  // where examples divide what this model can only repeat
  CHECK(equal(chosen(slow_kernels), by_examples));
  const std::string slow_link = "1e-9,1e7,1e8";
  {
    const ScopedVariable scoped(link_variable, slow_link);
    const auto divided = train(models[0], Adam(), examples, options_for(Division::features, 12), 2).weights;
    CHECK(equal(chosen(slow_link), world.size() > 1 ? divided : by_examples));
  }
  const std::string no_link = "1e-9,1e4,1e13";  // where each computes all
  const auto alone = chosen(no_link);
  CHECK(equal_everywhere(alone));
  // Of workers who see different networks, the chief is right.
  CHECK(equal(chosen(world.rank() == 0 ? slow_kernels : slow_link), by_examples));
  CHECK(equal(chosen(world.rank() == 0 ? slow_link : slow_kernels), chosen(slow_link)));
  for (std::size_t p = 0; p < alone.size(); ++p) CHECK(distance(alone[p].values, by_examples[p].values) < 1e-3);
}

TEST_CASE("A job goes on as it was divided before, even where the other division would be chosen now") {
  clear_backups();
  const auto with_link = [&](const char* link, int dies_at) {
    const ScopedVariable scoped(link_variable, link);
    return train_with_backups(Division::automatic, dies_at);
  };
  const char* const for_features = "1e-9,1e7,1e8";
  const char* const for_examples = "1e-9,1e13,1e6";
  for (const auto& [before, after] : {std::pair(for_features, for_examples), std::pair(for_examples, for_features)}) {
    const std::vector<Variable> whole = with_link(before, never);
    CHECK_THROWS_AS(with_link(before, 8), Death);
    CHECK(equal(with_link(after, never), whole));
  }
}
