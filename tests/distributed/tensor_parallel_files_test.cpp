// Files do not depend on the sharding: weights round-trip, a background save holds the state of one step, and runs
// resume from backups with the same or another parallelism.
#include "checkpoint/model_file.hpp"
#include "cluster/world/world.hpp"
#include "collective/make_communicator.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/ranks.hpp"
#include "support/scoped_variable.hpp"
#include "support/sharded_models.hpp"
#include "support/shardings.hpp"

#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/callbacks.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// Saves the same state synchronously and in the background, and uses the model while its shards are in flight.
class SaveTwice : public Callback {
 public:
  explicit SaveTwice(const Dataset& data) : data_(data) {}

  static constexpr int saves = 3;
  static std::filesystem::path at_once(int save) { return directory / ("at_once_" + std::to_string(save) + ".h5"); }
  static std::filesystem::path beside(int save) { return directory / ("beside_" + std::to_string(save) + ".h5"); }

  void on_train_batch_end(Model& model, std::int64_t /*batch*/, const MetricSums& /*so_far*/) override {
    ++seen_;
    if (seen_ != 3 && seen_ != 4 && seen_ != 14) return;  // the second save begins while the first may be in flight
    const int save = saves_++;
    std::filesystem::remove(beside(save));
    model.save(at_once(save));
    model.save_async(beside(save));
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

/// The gather sends a rank's shard of this model, with Adam's slots, in about thirty chunks.
const Sequential large{Input({12}), Dense(1500, {.activation = relu}), Dropout(0.2), Dense(200, {.activation = relu}),
                       Dense(4)};

std::vector<NamedTensor> with_backups(Parallelism parallelism, int killed_at_step,
                                      const Sequential& architecture = models[0]) {
  return train_with_backups(architecture, Adam({.learning_rate = 0.01, .epsilon = 1e-4}), options_for(parallelism),
                            killed_at_step);
}

std::vector<NamedTensor> resumed(Parallelism before, Parallelism after) {
  const auto dies = [&] { return with_backups(before, 8); };
  CHECK_THROWS_AS(dies(), SimulatedDeath);
  return with_backups(after, never);
}

}  // namespace

TEST_CASE("set_weights and saved models round-trip under tensor parallelism") {
  const ShardedModel sharded =
      GENERATE(ShardedModel{models[1], ""}, row_parallel_models[0], row_parallel_models[1], row_parallel_models[3]);
  const ScopedVariable scoped(splits_variable, sharded.code);
  const auto use = [&sharded](Parallelism parallelism, const auto& action) {
    MultiWorkerMirroredStrategy strategy(options_for(parallelism, 8));
    Model model = strategy.build(sharded.model);
    model.compile({.optimizer = RMSprop(), .loss = logits});
    return action(model);
  };
  for (const Parallelism parallelism : {Parallelism::tensor, Parallelism::data}) {
    const std::vector<NamedTensor> given = use(parallelism, [&](Model& model) {
      std::vector<NamedTensor> weights = model.weights();
      for (NamedTensor& variable : weights) {
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
    make_communicator(world)->barrier();
    for (const Parallelism other : {Parallelism::tensor, Parallelism::data}) {
      use(other, [&](Model& model) {
        model.load_weights(directory / "given.h5");
        CHECK(equal(model.weights(), given));
        return 0;
      });
    }
  }
}

TEST_CASE("backups do not depend on the parallelism") {
  remove_backups(options_for(Parallelism::tensor));
  const std::vector<NamedTensor> data_parallel = with_backups(Parallelism::data, never);
  const std::vector<NamedTensor> tensor_parallel = with_backups(Parallelism::tensor, never);
  CHECK(equal(resumed(Parallelism::tensor, Parallelism::tensor), tensor_parallel));
  CHECK(equal(resumed(Parallelism::data, Parallelism::data), data_parallel));
  for (const auto& weights : {resumed(Parallelism::tensor, Parallelism::data),
                              resumed(Parallelism::data, Parallelism::tensor), tensor_parallel}) {
    check_near(weights, data_parallel, 1e-3);
  }
}

TEST_CASE("training resumes under the same or another parallelism") {
  remove_backups(options_for(Parallelism::tensor));
  const auto with_link = [](const std::string& link, Parallelism parallelism, int killed_at_step) {
    const ScopedVariable scoped(link_variable, link);
    return with_backups(parallelism, killed_at_step);
  };
  const std::vector<NamedTensor> whole = with_link(links[0], Parallelism::tensor, never);
  for (const auto& [link, parallelism] :
       {std::pair(links[0], Parallelism::tensor), std::pair(links[2], Parallelism::tensor),
        std::pair(links[2], Parallelism::data)}) {
    CHECK_THROWS_AS(with_link(links[0], Parallelism::tensor, 8), SimulatedDeath);
    const std::vector<NamedTensor> resumed = with_link(link, parallelism, never);
    if (link == links[0]) CHECK(equal(resumed, whole));
    check_near(resumed, whole, 1e-3);
  }
}

TEST_CASE("shards gathered in the background are those of the step of their snapshot") {
  const Examples examples = make_examples(large, logits, 40, 3);
  const World world;
  {
    MultiWorkerMirroredStrategy strategy(options_for(Parallelism::tensor, 10));
    Model model = strategy.build(large);
    model.compile({.optimizer = Adam(), .loss = logits});
    model.fit(examples.data, {.epochs = 4, .callbacks = {SaveTwice(examples.data)}});
    model.save_async(directory / "last.h5");  // no step follows
  }
  if (!world.is_chief()) return;
  CHECK(std::filesystem::exists(directory / "last.h5"));
  for (int save = 0; save < SaveTwice::saves; ++save) {
    const ModelData at_once = load_model(SaveTwice::at_once(save));
    const ModelData beside = load_model(SaveTwice::beside(save));
    CHECK(equal(beside.weights, at_once.weights));
    REQUIRE(at_once.compile_state);
    REQUIRE(beside.compile_state);
    CHECK(beside.compile_state->iteration == at_once.compile_state->iteration);
    CHECK_FALSE(at_once.compile_state->slots.empty());
    CHECK(equal(beside.compile_state->slots, at_once.compile_state->slots));
  }
}

TEST_CASE("a run killed during a background gather resumes from that backup or the one before") {
  remove_backups(options_for(Parallelism::tensor));
  const std::vector<NamedTensor> whole = with_backups(Parallelism::tensor, never, large);
  for (const int killed_at_step : {4, 7, 8, 13}) {
    CHECK_THROWS_AS(with_backups(Parallelism::tensor, killed_at_step, large), SimulatedDeath);
    CHECK(equal(with_backups(Parallelism::tensor, never, large), whole));
  }
}

TEST_CASE("a resumed job keeps its parallelism even if another would be chosen now") {
  remove_backups(options_for(Parallelism::tensor));
  const auto with_link = [&](const char* link, int killed_at_step) {
    const ScopedVariable scoped(link_variable, link);
    return with_backups(Parallelism::automatic, killed_at_step);
  };
  const char* const for_features = "1e-9,1e7,1e8";
  const char* const for_examples = "1e-9,1e13,1e6";
  for (const auto& [before, after] : {std::pair(for_features, for_examples), std::pair(for_examples, for_features)}) {
    const std::vector<NamedTensor> whole = with_link(before, never);
    CHECK_THROWS_AS(with_link(before, 8), SimulatedDeath);
    CHECK(equal(with_link(after, never), whole));
  }
}
