// Any number of ranks, on any number of hosts, must train like the reference in one process, with global batches that
// are divisible by the ranks, that are not, and that leave ranks without examples.
#include "cluster/world/world.hpp"
#include "support/catch.hpp"
#include "support/draw_graph.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/models.hpp"
#include "support/optimizers.hpp"
#include "support/ranks.hpp"
#include "support/reference_training.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const SparseCategoricalCrossentropy logits({.from_logits = true});

const Sequential everything = many_kinds_of_layers();
const Sequential small{Input({6}), Dense(5, {.activation = activations::tanh}), Dense(3)};

Options silent_options(int batch, Communication communication = Communication::automatic) {
  return {.model_dir = std::filesystem::temp_directory_path() / "lockstep-distributed-test",
          .global_batch_size = batch,
          .seed = 7,
          .communication = communication,
          .parallelism =
              Parallelism::data,  // tensor_parallel_test covers the others; `auto` may choose differently in each run
          .verbose = 0};
}

struct Job {
  MultiWorkerMirroredStrategy strategy;
  Model model;
  Job(const Architecture& architecture, const CompileOptions& compile, const Options& options)
      : strategy(options), model(strategy.build(architecture)) {
    model.compile(compile);
  }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(strategy.num_workers()); }
};

std::string exact_text(const Logs& logs) {
  std::string text;
  for (const auto& [name, value] : logs) text += name + " " + std::to_string(std::bit_cast<std::uint64_t>(value)) + " ";
  return text;
}

bool is_synchronized(const Architecture& architecture) {
  return std::ranges::any_of(architecture.layers(), [](const LayerInfo& layer) {
    const auto* normalization = std::get_if<BatchNormalization>(&layer.layer);
    return normalization != nullptr && normalization->synchronized;
  });
}

/// `by_default`: --global-batch-size, if fit() is given `batch`.
void check_training(const CompileOptions& compile, int batch, std::size_t count, Communication communication,
                    int replicas = 0, int by_default = 0, const Architecture& architecture = everything,
                    Parallelism parallelism = Parallelism::data) {
  Options options = silent_options(by_default > 0 ? by_default : batch, communication);
  options.parallelism = parallelism;
  options.batch_norm_replicas = replicas;
  const Examples examples = make_examples(architecture, compile.loss, count, 3);
  Job job(architecture, compile, options);
  INFO(keras_name(compile.optimizer) << ", " << count << " examples in batches of " << batch << ", " << job.ranks()
                                     << " ranks");
  const std::size_t slices = replicas > 0 ? static_cast<std::size_t>(replicas) : job.ranks();
  ReferenceTraining expected(architecture, compile, examples, 7, is_synchronized(architecture) ? 1 : slices);

  const History history = job.model.fit(examples.data, {.batch_size = by_default > 0 ? batch : 0, .epochs = 2});
  const auto epochs = expected.fit(2, static_cast<std::size_t>(batch));
  for (std::size_t e = 0; e < 2; ++e) {
    CHECK(history["loss"][e] == Approx(epochs[e].loss()).epsilon(1e-4));
    CHECK(history["accuracy"][e] == Approx(epochs[e].accuracy()));
    CHECK(equal_on_all_ranks(exact_text(history.epochs[e].logs)));
  }
  const std::vector<NamedTensor> weights = job.model.weights();
  const auto [error, name] = expected.compare(weights);
  INFO("worst: " << name);
  CHECK(error < 1e-4);
  CHECK(equal_on_all_ranks(weights));

  const Logs logs = job.model.evaluate(examples.data);
  CHECK(logs.at("loss") == Approx(expected.evaluate().loss()).epsilon(1e-4));
  CHECK(logs.at("accuracy") == Approx(expected.evaluate().accuracy()));
  CHECK(equal_on_all_ranks(exact_text(logs)));
  const std::vector<float> outputs = job.model.predict(examples.data);
  CHECK(relative_error(outputs, expected.predict()) < 1e-4);
  for (const int batch_size : {1, 100}) {
    CHECK(job.model.evaluate(examples.data, {.batch_size = batch_size}).at("loss") ==
          Approx(expected.evaluate().loss()).epsilon(1e-4));
    CHECK(relative_error(job.model.predict(examples.data, {.batch_size = batch_size}), expected.predict()) < 1e-4);
  }
  CHECK(equal_on_all_ranks(std::to_string(digest_of({{"outputs", Shape{}, outputs}}))));
}

}  // namespace

TEST_CASE("a model of two inputs trains on any number of ranks like the reference") {
  const Tensor image = Input({6, 6, 1}, "image");
  const Tensor numbers = Input({3}, "numbers");
  const Dense shared(4, {.activation = activations::tanh});
  const Tensor seen = shared(GlobalAveragePooling2D()(Conv2D(3, 3)(image)));
  const Tensor all = Concatenate()({Dropout(0.25)(seen), shared(numbers), BatchNormalization()(numbers)});
  const Functional model(std::vector{numbers, image}, std::vector{Dense(3)(all)});
  const CompileOptions compile{
      .optimizer = Adam({.learning_rate = 0.01, .epsilon = 1e-4}), .loss = logits, .metrics = {accuracy}};
  for (const auto& [batch, count] : std::vector<std::pair<int, std::size_t>>{{12, 36}, {5, 13}, {1, 3}}) {
    for (const Communication communication : {Communication::automatic, Communication::mpi})
      check_training(compile, batch, count, communication, 0, 0, model);
  }
}

TEST_CASE("penalties of outputs train on any number of ranks like the reference") {
  const Tensor input = Input({6});
  const Tensor hidden = Dense(8, {.activation = activations::tanh, .activity_regularizer = L1L2(0.02, 0.03)})(input);
  const Tensor dot = Dot(1, {.normalize = true})({hidden, Dense(8)(input)});
  const Functional model(input, ActivityRegularization({.l2 = 0.05})(Dense(3)(Concatenate()({hidden, dot}))));
  const CompileOptions compile{
      .optimizer = Adam({.learning_rate = 0.01, .epsilon = 1e-4}), .loss = logits, .metrics = {accuracy}};
  for (const auto& [batch, count] : std::vector<std::pair<int, std::size_t>>{{12, 36}, {5, 13}, {1, 3}})
    check_training(compile, batch, count, Communication::automatic, 0, 0, model);
}

TEST_CASE("synchronized normalizations see the whole batch on any number of ranks") {
  const BatchNormalization normalize({.momentum = 0.5, .synchronized = true});
  const Tensor image = Input({6, 6, 2});
  const Tensor x = ReLU()(normalize(Conv2D(16, 3, {.use_bias = false})(image)));
  const Tensor y = Add()({x, normalize(Conv2D(16, 1)(x))});  // the layer's second call
  const Tensor z = Activation(activations::tanh)(BatchNormalization({.center = false, .synchronized = true})(y));
  const Tensor flat =
      BatchNormalization({.scale = false, .synchronized = true})(Dense(7, {.use_bias = false})(Flatten()(z)));
  const Functional graph(image, Dense(3)(flat));
  const Sequential chain{Input({6, 6, 2}),
                         BatchNormalization({.synchronized = true}),
                         Conv2D(5, 3),
                         MaxPooling2D(),
                         BatchNormalization({.synchronized = true}),
                         Activation(relu),
                         Flatten(),
                         Dense(3)};
  const CompileOptions compile{
      .optimizer = Adam({.learning_rate = 0.01, .epsilon = 1e-4}), .loss = logits, .metrics = {accuracy}};
  for (const Architecture& model : {Architecture(graph), Architecture(chain)}) {
    for (const auto& [batch, count] : std::vector<std::pair<int, std::size_t>>{{12, 36}, {5, 13}, {2, 7}}) {
      check_training(compile, batch, count, Communication::automatic, 0, 0, model);
      check_training(compile, batch, count, Communication::mpi, 0, 0, model);
    }
    check_training(compile, 10, 27, Communication::automatic, 4, 0, model);
    check_training(compile, 12, 27, Communication::automatic, 0, 0, model, Parallelism::automatic);
  }
}

TEST_CASE("random graphs train on any number of ranks like the reference, as `auto` divides them") {
  const CompileOptions compile{
      .optimizer = Adam({.learning_rate = 0.01, .epsilon = 1e-4}), .loss = logits, .metrics = {accuracy}};
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Architecture model = DrawGraph(1000 + seed).model();
    CAPTURE(seed);
    check_training(compile, seed % 2 == 0 ? 12 : 5, 13, Communication::automatic, 0, 0, model, Parallelism::automatic);
  }
}

TEST_CASE("images are augmented alike on any number of ranks") {
  const Sequential model{Input({6, 6, 1}), RandomFlip(), RandomRotation(0.2), RandomZoom(0.3), Conv2D(3, 3),
                         Flatten(),        Dense(3)};
  const CompileOptions compile{
      .optimizer = Adam({.learning_rate = 0.01, .epsilon = 1e-4}), .loss = logits, .metrics = {accuracy}};
  for (const auto& [batch, count] : std::vector<std::pair<int, std::size_t>>{{12, 36}, {5, 13}, {1, 3}})
    check_training(compile, batch, count, Communication::automatic, 0, 0, model);
}

TEST_CASE("a model of two outputs trains on any number of ranks like one that concatenates them") {
  const Tensor input = Input({6}, "input");
  const Tensor hidden = Dropout(0.25)(Dense(8, {.activation = activations::tanh})(input));
  const Tensor narrow = Dense(1, {.name = "narrow"})(hidden);
  const Tensor wide = Dense(3, {.name = "wide"})(Concatenate()({hidden, narrow}));
  const Functional joined(input, Concatenate()({narrow, wide}));
  const Functional model(std::vector{input}, std::vector{narrow, wide});
  const Optimizer optimizer = Adam({.learning_rate = 0.01, .epsilon = 1e-4});
  for (const auto& [batch, count] : std::vector<std::pair<int, std::size_t>>{{12, 36}, {5, 13}, {1, 3}}) {
    const Dataset data = make_examples(joined, MeanSquaredError(), count, 3).data;
    std::vector<float> ones;
    std::vector<float> threes;
    const auto& all = std::get<SharedArray<float>>(data.target().values);
    for (std::size_t i = 0; i < all.size(); ++i) (i % 4 == 0 ? ones : threes).push_back(all[i]);
    Dataset separate = data;
    separate.targets = {{Shape{1}, std::move(ones), "narrow"}, {Shape{3}, std::move(threes), "wide"}};

    Job expected(joined, {.optimizer = optimizer, .loss = MeanSquaredError()}, silent_options(batch));
    Job job(model,
            {.optimizer = optimizer,
             .outputs = {{.output = "narrow", .loss = MeanSquaredError(), .loss_weight = 0.25},
                         {.output = "wide", .loss = MeanSquaredError(), .loss_weight = 0.75}}},
            silent_options(batch));
    job.model.set_weights(expected.model.weights());
    const History before = expected.model.fit(data, {.epochs = 2});
    const History history = job.model.fit(separate, {.epochs = 2});
    for (std::size_t e = 0; e < 2; ++e) {
      CHECK(history["loss"][e] == Approx(before["loss"][e]).epsilon(1e-4));
      CHECK(history["loss"][e] ==
            Approx(0.25 * history["narrow_loss"][e] + 0.75 * history["wide_loss"][e]).epsilon(1e-5));
      CHECK(equal_on_all_ranks(exact_text(history.epochs[e].logs)));
    }
    const std::vector<NamedTensor> weights = job.model.weights();
    const std::vector<NamedTensor> wanted = expected.model.weights();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const reference::Values values(wanted[i].values.begin(), wanted[i].values.end());
      CHECK(relative_error(weights[i].values, values) < 1e-4);
    }
    CHECK(equal_on_all_ranks(weights));
  }
}

TEST_CASE("training on any number of ranks matches the reference") {
  const std::vector<Optimizer> optimizers =
      testing::complete({SGD({.learning_rate = 0.1}), Adam({.learning_rate = 0.01, .epsilon = 1e-4}),
                         RMSprop({.learning_rate = 0.003, .momentum = 0.5, .epsilon = 1e-3, .centered = true}),
                         AdamW({.learning_rate = 0.01, .epsilon = 1e-4})});
  std::size_t turn = 0;
  for (const Communication communication : {Communication::automatic, Communication::mpi}) {
    for (const auto& [batch, count] :
         std::vector<std::pair<int, std::size_t>>{{12, 36}, {10, 27}, {2, 7}, {1, 3}, {9, 20}, {5, 13}}) {
      const CompileOptions compile{
          .optimizer = optimizers[turn++ % optimizers.size()], .loss = logits, .metrics = {accuracy}};
      check_training(compile, batch, count, communication);
    }
  }
  CHECK(turn >= optimizers.size());  // every optimizer was tested
}

TEST_CASE("results depend on the number of replicas, not on the number of ranks") {
  const CompileOptions compile{.optimizer = SGD({.learning_rate = 0.1}), .loss = logits, .metrics = {accuracy}};
  check_training(compile, 10, 27, Communication::automatic, 4);
  check_training(compile, 11, 27, Communication::automatic, 5);
}

TEST_CASE("layers that are not trainable stay as they are") {
  for (const Optimizer& optimizer : {Optimizer(SGD({.learning_rate = 0.1, .clipnorm = 0.1})),
                                     Optimizer(Adam({.learning_rate = 0.01, .epsilon = 1e-4}))}) {
    const CompileOptions compile{.optimizer = optimizer, .loss = logits, .metrics = {accuracy}};
    check_training(compile, 10, 27, Communication::automatic, 4, 0, partly_frozen());
    check_training(compile, 2, 7, Communication::mpi, 0, 0, partly_frozen());
  }
}

TEST_CASE("constraints hold on any number of ranks and hosts") {
  const Sequential model{
      Input({6, 6, 2}),
      Conv2D(16, 3, {.activation = activations::tanh, .use_bias = false, .kernel_constraint = MaxNorm(0.5, {0, 1, 2})}),
      BatchNormalization({.gamma_constraint = NonNeg()}),
      Flatten(),
      Dense(40, {.activation = activations::tanh, .kernel_constraint = UnitNorm(), .bias_constraint = "non_neg"}),
      Dense(3, {.kernel_constraint = MinMaxNorm(0.2, 0.8, 0.5)})};
  for (const Optimizer& optimizer : {Optimizer(SGD({.learning_rate = 0.1, .clipnorm = 0.1})),
                                     Optimizer(Adam({.learning_rate = 0.01, .epsilon = 1e-4}))}) {
    const CompileOptions compile{.optimizer = optimizer, .loss = logits, .metrics = {accuracy}};
    check_training(compile, 10, 27, Communication::automatic, 4, 0, model);
    check_training(compile, 2, 7, Communication::mpi, 0, 0, model);
  }
}

TEST_CASE("fit takes a batch size") {
  const CompileOptions compile{
      .optimizer = Adam({.learning_rate = 0.01, .epsilon = 1e-4}), .loss = logits, .metrics = {accuracy}};
  for (const int by_default : {1, 5, 30}) {
    check_training(compile, 10, 27, Communication::automatic, 4, by_default);
    check_training(compile, 2, 7, Communication::automatic, 0, by_default);
  }
}

TEST_CASE("training is reproducible bit for bit") {
  const Examples examples = make_examples(everything, logits, 40, 3);
  const auto run = [&] {
    Job job(everything, {.optimizer = Adam(), .loss = logits, .metrics = {accuracy}}, silent_options(10));
    const History history = job.model.fit(examples.data, {.epochs = 2, .validation_data = &examples.data});
    return std::pair(digest_of(job.model.weights()), exact_text(history.epochs[1].logs));
  };
  const auto first = run();
  CHECK(run() == first);
}

TEST_CASE("gradient compression keeps ranks identical and training accurate") {
  const Examples examples = make_examples(everything, logits, 40, 3);
  const auto run = [&](GradientCompression compression) {
    Options options = silent_options(10, Communication::mpi);  // each rank acts as a host
    options.gradient_compression = compression;
    Job job(everything, {.optimizer = SGD({.learning_rate = 0.1}), .loss = logits, .metrics = {accuracy}}, options);
    const History history = job.model.fit(examples.data, {.epochs = 3});
    const std::uint64_t digest = digest_of(job.model.weights());
    CHECK(equal_on_all_ranks(std::to_string(digest) + exact_text(history.epochs[2].logs)));
    return std::pair(digest, history["loss"][2]);
  };
  const auto exact = run(GradientCompression::none);
  const auto rounded = run(GradientCompression::bfloat16);
  CHECK(run(GradientCompression::bfloat16) == rounded);
  const World world;
  CHECK((rounded.first == exact.first) == (world.size() == 1));  // a single rank sends nothing
  CHECK(rounded.second == Approx(exact.second).epsilon(0.01));
}

TEST_CASE("an Embedding trains alike within a host and between hosts") {
  constexpr std::size_t count = 24;
  constexpr std::size_t words = 5;
  std::vector<float> indices(count * words);
  std::vector<std::int32_t> classes(count);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<float>(i * i * 37 % 4000);
  for (std::size_t i = 0; i < count; ++i) classes[i] = static_cast<std::int32_t>(i % 3);
  const Dataset data(Shape{words}, indices, Shape{}, classes, "words");
  const Architecture model = Sequential{Input({words}), Embedding(4000, 64), Flatten(), Dense(3)};
  const Optimizer optimizer = GENERATE(Optimizer(SGD()), Optimizer(Adagrad()), Optimizer(Adam()));
  const auto train = [&](Communication communication) {
    Job job(model, {.optimizer = optimizer, .loss = logits}, silent_options(8, communication));
    job.model.fit(data, {.epochs = 3});
    return job.model.weights();
  };
  const std::vector<NamedTensor> between_hosts = train(Communication::mpi);  // each rank acts as a host
  CHECK(equal_on_all_ranks(between_hosts));
  const std::vector<NamedTensor> within_host = train(Communication::automatic);
  for (std::size_t i = 0; i < between_hosts.size(); ++i) {
    const std::vector<double> expected(within_host[i].values.begin(), within_host[i].values.end());
    CHECK(relative_error(between_hosts[i].values, expected) < 1e-5);
  }
}

TEST_CASE("every metric is that of all ranks' examples") {
  const Loss loss = MeanSquaredError();
  const Examples examples = make_examples(small, loss, 23, 5);
  const auto evaluate = [&](int batch) {
    Job job(small,
            {.loss = loss,
             .metrics = {metrics::MeanAbsoluteError(), metrics::RootMeanSquaredError(),
                         metrics::TopKCategoricalAccuracy({.k = 2})}},
            silent_options(batch));
    const std::vector<float> outputs = job.model.predict(examples.data);
    double absolute = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) absolute += std::abs(examples.targets[i] - outputs[i]);
    Logs logs = job.model.evaluate(examples.data);
    CHECK(logs.at("mean_absolute_error") == Approx(absolute / static_cast<double>(outputs.size())));
    CHECK(logs.at("root_mean_squared_error") == Approx(std::sqrt(logs.at("loss"))));
    CHECK(equal_on_all_ranks(exact_text(logs)));
    return logs;
  };
  CHECK(evaluate(10).at("top_k_categorical_accuracy") == evaluate(7).at("top_k_categorical_accuracy"));
}

TEST_CASE("a custom training loop sees the same metrics on all ranks") {
  const Examples examples = make_examples(small, logits, 23, 5);
  const CompileOptions compile{.optimizer = SGD({.learning_rate = 0.1}), .loss = logits, .metrics = {accuracy}};
  Job job(small, compile, silent_options(5));
  ReferenceTraining expected(small, compile, examples, 7, job.ranks());
  for ([[maybe_unused]] const int epoch : job.model.epochs(2)) {
    for (const Batch& batch : job.model.batches(examples.data)) {
      const MetricSums step = job.model.train_step(batch);
      const ReferenceMetrics wanted = expected.train_step(batch.position, batch.size);
      CHECK(step.loss_sum == Approx(wanted.loss_sum).epsilon(1e-5));
      CHECK(step.sums == std::vector{wanted.num_correct});
      CHECK(step.num_examples == wanted.num_examples);
    }
    MetricSums test;
    for (const Batch& batch : job.model.batches(examples.data, {.shuffle = false})) test += job.model.test_step(batch);
    CHECK(test.loss() == Approx(expected.evaluate().loss()).epsilon(1e-5));
  }
}

TEST_CASE("set_weights reaches every rank") {
  Job job(everything, {.optimizer = SGD(), .loss = logits}, silent_options(8));
  std::vector<NamedTensor> weights = job.model.weights();
  for (NamedTensor& variable : weights) {
    for (std::size_t i = 0; i < variable.values.size(); ++i) variable.values[i] = 0.001F * static_cast<float>(i % 100);
  }
  job.model.set_weights(weights);
  CHECK(digest_of(job.model.weights()) == digest_of(weights));
  job.model.compile({.optimizer = Adam(), .loss = logits});
  CHECK(digest_of(job.model.weights()) == digest_of(weights));
}

TEST_CASE("ranks with different options get an error that names both values") {
  const World world;
  if (world.size() == 1) return;
  const bool odd_one = world.rank() == world.size() - 1;
  const auto message = [&](const std::function<void()>& action, const std::string& one, const std::string& other) {
    const std::string text = message_of<UsageError>(action);
    INFO(text);
    CHECK(contains(text, one));
    CHECK(contains(text, other));
    CHECK(equal_on_all_ranks(text));
  };
  const CompileOptions compile{.optimizer = SGD({.learning_rate = 0.1}), .loss = logits};
  Options options = silent_options(8);
  options.seed = odd_one ? 18 : 17;
  message([&] { Job(small, compile, options); }, "has 17", "has 18");

  options = silent_options(8);
  options.gradient_compression = odd_one ? GradientCompression::bfloat16 : GradientCompression::none;
  message([&] { Job(small, compile, options); }, "--gradient-compression", "has bfloat16");

  const Sequential other{Input({6}), Dense(4, {.activation = activations::tanh}), Dense(3)};
  message([&] { Job(odd_one ? other : small, compile, silent_options(8)); }, "Dense(5,)", "Dense(4,)");
  message(
      [&] {
        Job(small, {.optimizer = SGD({.learning_rate = odd_one ? 0.25 : 0.125}), .loss = logits}, silent_options(8));
      },
      "0.125", "0.25");
  message([&] { Job(small, compile, silent_options(odd_one ? 8 : 16)); }, "has 8", "has 16");

  message(
      [&] {
        const Examples same = make_examples(small, logits, 16, 1);
        Job(small, compile, silent_options(8)).model.fit(same.data, {.batch_size = odd_one ? 4 : 2});
      },
      "has 2", "has 4");

  const Examples examples = make_examples(small, logits, 16, odd_one ? 1 : 2);
  Job job(small, compile, silent_options(8));
  message([&] { job.model.fit(examples.data); }, "the data", "16 examples of (6,)");
  const Examples same = make_examples(small, logits, 16, 1);
  CHECK_NOTHROW(job.model.fit(same.data));  // no rank is stuck in a collective
}

TEST_CASE("a weight that became NaN after an epoch's last loss stops all ranks before the next epoch") {
  const auto parallelism = GENERATE(Parallelism::data, Parallelism::tensor);
  const Examples examples = make_examples(small, MeanSquaredError(), 24, 5);
  Options options = silent_options(8);
  options.parallelism = parallelism;
  options.backup_save_freq = BackupOptions::never;
  Job job(Sequential{Input({6}), Dense(5), Dense(3)}, {.optimizer = SGD(), .loss = MeanSquaredError()}, options);
  struct Poison : Callback {
    int epochs = 0;
    void on_epoch_begin(Model& /*model*/, int /*epoch*/) override { ++epochs; }
    void on_train_batch_end(Model& model, std::int64_t batch, const MetricSums& /*so_far*/) override {
      if (batch < 2) return;
      std::vector<NamedTensor> weights = model.weights();
      weights[0].values[7] = std::numeric_limits<float>::infinity();
      model.set_weights(weights);
    }
  };
  const auto poison = std::make_shared<Poison>();
  const std::string message =
      message_of<DataError>([&] { job.model.fit(examples.data, {.epochs = 3, .callbacks = {poison}}); });
  INFO(message);
  CHECK(contains(message, "'dense/kernel' holds NaN or infinite values (the first at index 7) after epoch 1"));
  CHECK(equal_on_all_ranks(message));
  CHECK(poison->epochs == 1);
}

TEST_CASE("a NaN loss stops all ranks at the same step") {
  const Examples examples = make_examples(small, MeanSquaredError(), 24, 5);
  Job job(Sequential{Input({6}), Dense(5), Dense(3)},
          {.optimizer = SGD({.learning_rate = 1e30}), .loss = MeanSquaredError()}, silent_options(8));
  const std::string message = message_of<DataError>([&] { job.model.fit(examples.data, {.epochs = 3}); });
  INFO(message);
  CHECK(contains(message, "in epoch 1, step 2"));
  CHECK(equal_on_all_ranks(message));
}
