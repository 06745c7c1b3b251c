// Backups in a directory: which stay, which is taken, what is tidied up; and the state that comes back bit by bit.
#include "checkpoint/backup_directory.hpp"
#include "checkpoint/training_state.hpp"
#include "random_model.hpp"
#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

TrainingState state_of(int epoch) {
  TrainingState state;
  state.epoch = epoch;
  state.step = 3;
  state.learning_rate = 0.1;
  state.loss_sum = 1.0 / 3.0;
  state.correct = std::nextafter(2.0, 3.0);
  state.count = 5e-324;
  state.seconds = std::numeric_limits<double>::max();
  state.history.epochs.push_back({0, {{"loss", 0.1}, {"nan", std::nan("")}}, 1.5, 2.5});
  state.numbers = {{"total", -std::numeric_limits<double>::infinity()}};
  state.callbacks.push_back({{{"best", std::numeric_limits<double>::infinity()}}, {{"w", {2, 2}, {1, 2, 3, 4}}}});
  state.callbacks.push_back({});
  state.replicas = 2;
  state.job = {{"--seed", "7"}, {"quotes", "\"and\" \\ and \xff"}};
  state.made_by = {{"plan", "0123"}};
  return state;
}

SavedModel backup(std::uint64_t step) {
  for (std::uint64_t seed = step;; seed += 1000) {
    SavedModel model = random_model(seed);
    if (!model.training) continue;
    model.training->iteration = static_cast<std::int64_t>(step);
    model.state = to_saved_state(state_of(static_cast<int>(step)));
    return model;
  }
}

std::vector<BackupName> names(const BackupDirectory& directory) { return directory.list(); }

}  // namespace

TEST_CASE("A training state comes back bit by bit, infinities and all") {
  const TrainingState state = state_of(4);
  const TrainingState again = training_state_from(to_saved_state(state), "test");
  CHECK(again.epoch == 4);
  CHECK(again.step == 3);
  CHECK(!again.stopped);
  CHECK(again.learning_rate == state.learning_rate);
  CHECK(again.loss_sum == state.loss_sum);
  CHECK(again.correct == state.correct);
  CHECK(again.count == state.count);
  CHECK(again.seconds == state.seconds);
  CHECK(again.history.epochs[0].logs.at("loss") == 0.1);
  CHECK(std::isnan(again.history.epochs[0].logs.at("nan")));
  CHECK(again.history.epochs[0].images_per_second == 2.5);
  CHECK(again.numbers == state.numbers);
  REQUIRE(again.callbacks.size() == 2);
  CHECK(again.callbacks[0].numbers == state.callbacks[0].numbers);
  CHECK(again.callbacks[0].arrays.at(0).values == state.callbacks[0].arrays[0].values);
  CHECK(again.replicas == 2);
  CHECK(again.job.at("--seed") == "7");
  CHECK(again.made_by == state.made_by);
}

TEST_CASE("A training state that is none is refused by its source's name") {
  const SavedState good = to_saved_state(state_of(1));
  const auto with = [&good](const std::string& from, const std::string& to) {
    SavedState changed = good;
    const std::size_t at = changed.text.find(from);
    REQUIRE(at != std::string::npos);
    changed.text.replace(at, from.size(), to);
    return changed;
  };
  SavedState without_arrays = good;
  without_arrays.arrays.clear();
  for (const SavedState& bad : {SavedState{"", {}}, SavedState{"[1, 2", {}}, SavedState{"{}", {}}, without_arrays,
                                with("\"version\":1", "\"version\":2"), with("\"epoch\":1", "\"epoch\":-1"),
                                with("\"step\":3", "\"step\":\"3\""), with("\"inf\"", "\"in\"")}) {
    try {
      static_cast<void>(training_state_from(bad, "FILE"));
      FAIL("it was taken: " << bad.text);
    } catch (const DataError& error) {
      CHECK(std::string(error.what()).starts_with("FILE: its training state cannot be read ("));
    }
  }
}

TEST_CASE("A directory keeps the newest backups of a fit and the last of each before it") {
  const ScratchDirectory scratch;
  const BackupDirectory directory(scratch / "backup");
  const auto warn = [](const std::string& message) { FAIL(message); };
  CHECK(names(directory).empty());
  CHECK(!directory.newest(1, warn));
  for (const std::uint64_t step : {5, 10, 15}) directory.write({1, step}, backup(step), 2);
  CHECK(names(directory) == std::vector<BackupName>{{1, 10}, {1, 15}});
  directory.write({2, 4}, backup(4), 2);
  directory.write({2, 12}, backup(12), 2);
  directory.write({2, 100}, backup(100), 2);
  CHECK(names(directory) == std::vector<BackupName>{{1, 15}, {2, 12}, {2, 100}});

  const auto found = directory.newest(2, warn);
  REQUIRE(found);
  CHECK(found->path == directory.path() / "fit-2-step-0000000100.h5");
  CHECK(found->model.training->iteration == 100);
  std::string why;
  CHECK(equal(found->model, backup(100), why));
  CHECK(found->model.state->text == backup(100).state->text);
  CHECK(found->model.state->arrays.at(0).values == std::vector<float>{1, 2, 3, 4});
  CHECK(directory.newest(1, warn)->model.training->iteration == 15);
  CHECK(!directory.newest(3, warn));

  std::ofstream(directory.path() / "somebody's file") << "stays";
  directory.clear();
  CHECK(names(directory).empty());
  CHECK(fs::exists(directory.path() / "somebody's file"));
}

TEST_CASE("Files of other names are no backups") {
  const ScratchDirectory scratch;
  const BackupDirectory directory(scratch.path());
  for (const char* name : {"fit-1-step-7.h5", "fit-1-step-0000000007.h5.damaged", "fit-x-step-0000000007.h5",
                           "model.h5", "fit-1-step-00000000007.h5", "fit-01-step-0000000007.h5"}) {
    std::ofstream(scratch / name) << "no backup";
  }
  CHECK(names(directory).empty());
  std::ofstream(scratch / "fit-3-step-0000000007.h5") << "no backup either";
  CHECK(names(directory) == std::vector<BackupName>{{3, 7}});
}

TEST_CASE("A whole model without a training state is no backup") {
  const ScratchDirectory scratch;
  const BackupDirectory directory(scratch.path());
  SavedModel model = backup(1);
  model.state.reset();
  directory.write({1, 1}, model, 2);
  std::vector<std::string> warnings;
  CHECK_THROWS_AS(directory.newest(1, [&](const std::string& message) { warnings.push_back(message); }), DataError);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("no training state") != std::string::npos);
}
