// Files know nothing of how a model is divided: weights come back as they were given, what is saved beside training is
// of one step, and runs go on from backups as they were divided before, or otherwise.
#include "checkpoint/model_file.hpp"
#include "cluster/world.hpp"
#include "collective/make_communicator.hpp"
#include "support/catch.hpp"
#include "support/divided_models.hpp"
#include "support/division.hpp"
#include "support/examples.hpp"
#include "support/ranks.hpp"
#include "support/scoped_variable.hpp"

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

std::vector<Variable> with_backups(Division division, int dies_at, const Sequential& architecture = models[0]) {
  return train_with_backups(architecture, Adam({.learning_rate = 0.01, .epsilon = 1e-4}), options_for(division),
                            dies_at);
}

std::vector<Variable> resumed(Division before, Division after) {
  const auto dies = [&] { return with_backups(before, 8); };
  CHECK_THROWS_AS(dies(), Death);
  return with_backups(after, never);
}

}  // namespace

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

TEST_CASE("Backups know nothing of the division") {
  remove_backups(options_for(Division::features));
  const std::vector<Variable> by_examples = with_backups(Division::examples, never);
  const std::vector<Variable> by_features = with_backups(Division::features, never);
  CHECK(equal(resumed(Division::features, Division::features), by_features));
  CHECK(equal(resumed(Division::examples, Division::examples), by_examples));
  for (const auto& weights : {resumed(Division::features, Division::examples),
                              resumed(Division::examples, Division::features), by_features}) {
    check_near(weights, by_examples, 1e-3);
  }
}

TEST_CASE("What began by examples and went on by features is continued like that, or divided otherwise") {
  remove_backups(options_for(Division::features));
  const auto with_link = [](const std::string& link, Division division, int dies_at) {
    const ScopedVariable scoped(link_variable, link);
    return with_backups(division, dies_at);
  };
  const std::vector<Variable> whole = with_link(links[0], Division::features, never);
  for (const auto& [link, division] : {std::pair(links[0], Division::features), std::pair(links[2], Division::features),
                                       std::pair(links[2], Division::examples)}) {
    CHECK_THROWS_AS(with_link(links[0], Division::features, 8), Death);
    const std::vector<Variable> resumed = with_link(link, division, never);
    if (link == links[0]) CHECK(equal(resumed, whole));
    check_near(resumed, whole, 1e-3);
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
  remove_backups(options_for(Division::features));
  const std::vector<Variable> whole = with_backups(Division::features, never, large);
  for (const int dies_at : {4, 7, 8, 13}) {
    CHECK_THROWS_AS(with_backups(Division::features, dies_at, large), Death);
    CHECK(equal(with_backups(Division::features, never, large), whole));
  }
}

TEST_CASE("A job goes on as it was divided before, even where the other division would be chosen now") {
  remove_backups(options_for(Division::features));
  const auto with_link = [&](const char* link, int dies_at) {
    const ScopedVariable scoped(link_variable, link);
    return with_backups(Division::automatic, dies_at);
  };
  const char* const for_features = "1e-9,1e7,1e8";
  const char* const for_examples = "1e-9,1e13,1e6";
  for (const auto& [before, after] : {std::pair(for_features, for_examples), std::pair(for_examples, for_features)}) {
    const std::vector<Variable> whole = with_link(before, never);
    CHECK_THROWS_AS(with_link(before, 8), Death);
    CHECK(equal(with_link(after, never), whole));
  }
}
