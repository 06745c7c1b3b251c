// Callbacks follow Keras' rules epoch by epoch and write the same files.
#include "core/file_descriptor.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"
#include "support/points.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/lockstep.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

struct Fixture {
  ScratchDirectory directory;
  Dataset data = make_points(40);
  MultiWorkerMirroredStrategy strategy{options()};
  Model model = make_model();

  [[nodiscard]] Options options() const {
    Options chosen;
    chosen.model_dir = directory.path() / "model";
    chosen.global_batch_size = 16;
    chosen.verbose = 0;
    return chosen;
  }
  Model make_model() {
    Model made = strategy.build(Sequential{Input({2}), Dense(4, {.activation = relu}), Dense(2)});
    made.compile({.optimizer = SGD({.learning_rate = 0.1}),
                  .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                  .metrics = {accuracy}});
    return made;
  }
};

/// Writes given values of a metric into the logs. It runs before the callback under test.
class Script : public Callback {
 public:
  Script(std::string name, std::vector<double> values) : name_(std::move(name)), values_(std::move(values)) {}
  void on_epoch_end(Model&, int epoch, Logs& logs) override {
    logs[name_] = values_.at(static_cast<std::size_t>(epoch));
  }

 private:
  std::string name_;
  std::vector<double> values_;
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("callbacks are called in order and may stop training at a batch") {
  Fixture f;
  struct Recorder : Callback {
    std::vector<std::string> calls;
    void on_train_begin(Model&) override { calls.emplace_back("begin"); }
    void on_epoch_begin(Model&, int epoch) override { calls.push_back("epoch " + std::to_string(epoch)); }
    void on_train_batch_end(Model& model, std::int64_t batch, const MetricSums& metrics) override {
      calls.push_back("batch " + std::to_string(batch) + " of " +
                      std::to_string(static_cast<int>(metrics.num_examples)));
      if (calls.size() == 8) model.stop_training();
    }
    void on_epoch_end(Model&, int epoch, Logs& logs) override {
      calls.push_back("end " + std::to_string(epoch));
      logs["mine"] = 7;
    }
    void on_train_end(Model&) override { calls.emplace_back("done"); }
  };
  const auto recorder = std::make_shared<Recorder>();
  const History history = f.model.fit(f.data, {.epochs = 5, .callbacks = {recorder}});
  CHECK(recorder->calls == std::vector<std::string>{"begin", "epoch 0", "batch 0 of 16", "batch 1 of 32",
                                                    "batch 2 of 40", "end 0", "epoch 1", "batch 0 of 16", "end 1",
                                                    "done"});
  REQUIRE(history.epochs.size() == 2);
  CHECK(history["mine"] == std::vector<double>{7, 7});
}

TEST_CASE("a CSVLogger writes no file that another process writes") {
  Fixture f;
  const fs::path file = f.directory / "log.csv";
  {
    const FileDescriptor other(file, O_WRONLY | O_CREAT);
    REQUIRE(flock(other.number(), LOCK_EX | LOCK_NB) == 0);  // of another open file, as of another process
    CHECK_THROWS_AS(f.model.fit(f.data, {.epochs = 1, .callbacks = {CSVLogger(file)}}), PeerError);
  }
  f.model.fit(f.data, {.epochs = 1, .callbacks = {CSVLogger(file)}});
  const FileDescriptor after(file, O_WRONLY);
  CHECK(flock(after.number(), LOCK_EX | LOCK_NB) == 0);
}

TEST_CASE("a CSVLogger leaves a file that has taken its log's place") {
  Fixture f;
  const fs::path file = f.directory / "log.csv";
  struct Replace : Callback {
    fs::path file;
    explicit Replace(fs::path path) : file(std::move(path)) {}
    void on_epoch_end(Model&, int epoch, Logs&) override {
      if (epoch != 1) return;
      fs::rename(file, file.string() + ".moved");
      std::ofstream(file) << "epoch of another job";
    }
  };
  require_words(message_of<PeerError>([&] {
                  f.model.fit(f.data, {.epochs = 3, .callbacks = {Replace(file), CSVLogger(file)}});
                }),
                {file.string(), "moved, removed or replaced"});
  CHECK(read(file) == "epoch of another job");
}

TEST_CASE("a CSVLogger replaces logs only") {
  Fixture f;
  const fs::path file = f.directory / "table.csv";
  for (const char* content : {"name,label\n", "a"}) {
    std::ofstream(file) << content;
    CHECK_THROWS_AS(f.model.fit(f.data, {.epochs = 1, .callbacks = {CSVLogger(file)}}), UsageError);
    CHECK(read(file) == content);
  }
  std::ofstream(file, std::ios::trunc).close();
  f.model.fit(f.data, {.epochs = 1, .callbacks = {CSVLogger(file)}});
  f.model.fit(f.data, {.epochs = 2, .callbacks = {CSVLogger(file)}});
  CHECK(read(file).starts_with("epoch,"));
}

TEST_CASE("a monitor compares nothing before it begins") {
  Fixture f;
  Monitor monitor("accuracy", MonitorMode::max, 0);
  CHECK_THROWS_AS(monitor.update(1), UsageError);
  monitor.begin(f.model);
  CHECK(monitor.update(1));
  CHECK_FALSE(monitor.update(0.5));
}

TEST_CASE("initial_epoch, validation_split and validation_freq match Keras") {
  Fixture f;
  const History history =
      f.model.fit(f.data, {.epochs = 6, .validation_split = 0.25, .validation_freq = 2, .initial_epoch = 2});
  REQUIRE(history.epochs.size() == 4);
  CHECK(history.epochs.front().epoch == 2);
  CHECK(history["val_loss"].size() == 2);  // epochs 3 and 5
  CHECK_THROWS_AS(f.model.fit(f.data, {.validation_split = 1.0}), UsageError);
  CHECK_THROWS_AS(f.model.fit(f.data, {.validation_split = std::nan("")}), UsageError);
  require_words(message_of<UsageError>([&] { f.model.fit(f.data, {.validation_split = 0.999}); }),
                {"validation_split is 0.999", "leaves none of"});
  CHECK_THROWS_AS(f.model.fit(f.data, {.validation_freq = 0}), UsageError);
  CHECK_THROWS_AS(f.model.fit(f.data, {.epochs = -2}), UsageError);
  CHECK_THROWS_AS(f.model.fit(f.data, {.initial_epoch = -2}), UsageError);
}

TEST_CASE("EarlyStopping counts epochs without improvement and restores the best weights") {
  Fixture f;
  struct Keeper : Callback {
    std::vector<std::vector<NamedTensor>> weights;
    void on_epoch_end(Model& model, int, Logs&) override { weights.push_back(model.weights()); }
  };
  const auto keeper = std::make_shared<Keeper>();
  const auto stopping = std::make_shared<EarlyStopping>(
      EarlyStoppingOptions{.min_delta = 0.1, .patience = 3, .restore_best_weights = true});
  const History history = f.model.fit(
      f.data, {.epochs = 9, .callbacks = {Script("val_loss", {3, 2, 2.5, 1.95, 2, 2, 2, 2, 2}), keeper, stopping}});
  // 1.95 improves on 2 by less than min_delta: epoch 1 stays the best, and epochs 2, 3 and 4 are without improvement.
  CHECK(history.epochs.size() == 5);
  CHECK(stopping->save_state().number("best_epoch", -1) == 1);
  const std::vector<NamedTensor> restored = f.model.weights();
  for (std::size_t i = 0; i < restored.size(); ++i) CHECK(restored[i].values == keeper->weights[1][i].values);

  keeper->weights.clear();
  f.model.fit(f.data, {.epochs = 3, .callbacks = {Script("val_loss", {3, 2, 2.5}), keeper, stopping}});
  const std::vector<NamedTensor> after_all_epochs = f.model.weights();
  for (std::size_t i = 0; i < restored.size(); ++i) CHECK(after_all_epochs[i].values == keeper->weights[1][i].values);

  const History upward =
      f.model.fit(f.data, {.epochs = 4,
                           .callbacks = {Script("val_accuracy", {0.1, 0.2, 0.2, 0.2}),
                                         EarlyStopping({.monitor = "val_accuracy", .patience = 1})}});
  CHECK(upward.epochs.size() == 3);
  const History downward =
      f.model.fit(f.data, {.epochs = 4,
                           .callbacks = {Script("val_mean_absolute_error", {0.2, 0.1, 0.2, 0.2}),
                                         EarlyStopping({.monitor = "val_mean_absolute_error", .patience = 1})}});
  CHECK(downward.epochs.size() == 3);
  CHECK_THROWS_AS(f.model.fit(f.data, {.callbacks = {EarlyStopping({.monitor = "speed"})}}), UsageError);
}

TEST_CASE("a metric improves as its class does, whatever its name") {
  Fixture f;
  f.model.compile({.optimizer = SGD(),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {metrics::Accuracy{.name = "closeness_loss"}}});
  const History history =
      f.model.fit(f.data, {.epochs = 4,
                           .callbacks = {Script("val_closeness_loss", {0.1, 0.2, 0.3, 0.4}),
                                         EarlyStopping({.monitor = "val_closeness_loss", .patience = 1})}});
  CHECK(history.epochs.size() == 4);
}

TEST_CASE("ReduceLROnPlateau waits, cools down and stops at min_lr") {
  Fixture f;
  const History history = f.model.fit(
      f.data, {.epochs = 8,
               .callbacks = {Script("val_loss", {1, 1, 1, 1, 1, 1, 1, 1}),
                             ReduceLROnPlateau({.factor = 0.5, .patience = 2, .cooldown = 1, .min_lr = 0.04})}});
  // Epoch 0 is the best. After epochs 1 and 2 without improvement the rate is halved. Epoch 3 ends the cooldown and
  // counts as waiting, so epoch 4 reduces the rate to min_lr.
  const std::vector<double> expected{0.1, 0.1, 0.1, 0.05, 0.05, 0.04, 0.04, 0.04};
  const std::vector<double> rates = history["learning_rate"];
  REQUIRE(rates.size() == expected.size());
  for (std::size_t i = 0; i < rates.size(); ++i) CHECK(rates[i] == Approx(expected[i]));
  CHECK_THROWS_AS(ReduceLROnPlateau({.factor = 1.5}), UsageError);
}

TEST_CASE("LearningRateScheduler sets the rate of the epoch's steps") {
  Fixture f;
  const std::vector<NamedTensor> before = f.model.weights();
  const auto zero = [](int, double) { return 0.0; };
  f.model.fit(f.data, {.epochs = 1, .callbacks = {LearningRateScheduler(zero)}});
  const std::vector<NamedTensor> after = f.model.weights();
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(before[i].values == after[i].values);
  const auto bad = [](int, double) { return std::nan(""); };
  CHECK_THROWS_AS(f.model.fit(f.data, {.epochs = 1, .callbacks = {LearningRateScheduler(bad)}}), UsageError);
}

TEST_CASE("ModelCheckpoint names files after epoch and metrics and keeps the best model") {
  Fixture f;
  const std::string pattern = (f.directory.path() / "m-{epoch:02d}-{val_loss:.1f}.h5").string();
  f.model.fit(
      f.data,
      {.epochs = 3, .callbacks = {Script("val_loss", {2, 3, 1}), ModelCheckpoint(pattern, {.save_best_only = true})}});
  CHECK(fs::exists(f.directory.path() / "m-01-2.0.h5"));
  CHECK_FALSE(fs::exists(f.directory.path() / "m-02-3.0.h5"));
  CHECK(fs::exists(f.directory.path() / "m-03-1.0.h5"));

  const std::string often = (f.directory.path() / "b-{epoch}-{batch}.h5").string();
  f.model.fit(f.data, {.epochs = 2, .callbacks = {ModelCheckpoint(often, {.save_freq = 4})}});
  CHECK(fs::exists(f.directory.path() / "b-2-1.h5"));  // the fourth batch is the first of the second epoch
  const std::string unknown = (f.directory.path() / "{top_k_categorical_accuracy}.h5").string();
  CHECK_THROWS_AS(f.model.fit(f.data, {.callbacks = {ModelCheckpoint(unknown, {.save_freq = 1})}}), UsageError);

  CHECK(format_path("{epoch}-{loss:.3f}.h5", {{"epoch", 12}, {"loss", 0.5}}) == "12-0.500.h5");
  CHECK_THROWS_AS(format_path("{speed}.h5", {{"loss", 0.5}}), UsageError);
  CHECK_THROWS_AS(format_path("{loss:%n}.h5", {{"loss", 0.5}}), UsageError);
  CHECK_THROWS_AS(format_path("{loss", {{"loss", 0.5}}), UsageError);
  CHECK(format_path("{epoch:03d}-{loss}-{loss:8.2e}", {{"epoch", 12}, {"loss", 0.5}}) == "012-0.5-5.00e-01");
  CHECK_THROWS_AS(format_path("{epoch:.2f}", {{"epoch", 12}}), UsageError);
  CHECK_THROWS_AS(format_path("{loss:1.2.3f}", {{"loss", 0.5}}), UsageError);
}

TEST_CASE("TerminateOnNaN stops training where fit would throw") {
  Fixture f;
  f.model.set_learning_rate(1e30);
  CHECK_THROWS_AS(f.model.fit(f.data, {.epochs = 3}), DataError);
  Model fresh = f.make_model();
  fresh.set_learning_rate(1e30);
  const History history = fresh.fit(f.data, {.epochs = 3, .callbacks = {TerminateOnNaN()}});
  CHECK(history.epochs.size() == 1);
}

// The header and the NAs are those of Keras 3.15's CSVLogger.
TEST_CASE("CSVLogger has columns for validation of later epochs") {
  Fixture f;
  const fs::path file = f.directory.path() / "log.csv";
  f.model.fit(f.data, {.epochs = 2, .validation_data = &f.data, .validation_freq = 2, .callbacks = {CSVLogger(file)}});
  const std::string text = read(file);
  CHECK(text.starts_with("epoch,accuracy,loss,val_accuracy,val_loss\r\n0,"));
  CHECK(text.find("NA,NA\r\n1,") != std::string::npos);
  CHECK(!text.ends_with("NA\r\n"));
}

TEST_CASE("CSVLogger matches Keras") {
  Fixture f;
  const fs::path file = f.directory.path() / "log.csv";
  f.model.fit(f.data, {.epochs = 2, .callbacks = {Script("zeta", {1, 2.5}), CSVLogger(file)}});
  const std::string text = read(file);
  CHECK(text.starts_with("epoch,accuracy,loss,zeta,val_accuracy,val_loss,val_zeta\r\n0,"));
  CHECK(text.ends_with(",2.5,NA,NA,NA\r\n"));
  f.model.fit(f.data, {.epochs = 1, .callbacks = {Script("zeta", {3}), CSVLogger(file, {.append = true})}});
  CHECK(read(file).ends_with(",3,NA,NA,NA\r\n"));
  CHECK(read(file).size() > text.size());
  CHECK(read(file).find("epoch", 5) == std::string::npos);
  f.model.fit(f.data, {.epochs = 1, .callbacks = {Script("zeta", {3}), CSVLogger(file, {.separator = ';'})}});
  CHECK(read(file).starts_with("epoch;accuracy;loss;zeta;val_accuracy;val_loss;val_zeta\r\n0;"));
  CHECK_THROWS_AS(f.model.fit(f.data, {.callbacks = {CSVLogger("/nonexistent/log.csv")}}), IoError);
}
