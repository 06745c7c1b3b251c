// A run that ends somewhere and is started again ends with the bits of one that never did; and what is refused.
#include "checkpoint/backup_directory.hpp"
#include "checkpoint/keras_h5.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/lockstep.hpp>

#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

constexpr int no_step = std::numeric_limits<int>::max();
const SparseCategoricalCrossentropy logits({.from_logits = true});

/// Dropout and BatchNormalization have state of their own kind.
const Sequential network{Input({6, 6, 1}),
                         Conv2D(16, 3, {.activation = relu}),
                         BatchNormalization(),
                         Flatten(),
                         Dropout(0.4),
                         Dense(12, {.activation = relu}),
                         Dense(4)};

class Killed : public std::exception {};

/// Ends the run as a signal would, as far as the process can tell: nothing of it is tidied up.
class Killer : public Callback {
 public:
  explicit Killer(std::int64_t at) : at_(at) {}
  void on_train_batch_end(Model& model, std::int64_t /*batch*/, const StepMetrics& /*so_far*/) override {
    if (model.iterations() == at_) throw Killed();
  }

 private:
  std::int64_t at_;
};

/// A backup that comes due while another is being written is left out. Whoever saves waits for that one: here each
/// epoch's is.
class AwaitBackups : public Callback {
 public:
  explicit AwaitBackups(fs::path directory) : directory_(std::move(directory)) {}
  void on_epoch_begin(Model& model, int /*epoch*/) override { model.save(directory_ / "awaited.h5"); }

 private:
  fs::path directory_;
};

struct ScratchModelDirectory : ScratchDirectory {
  [[nodiscard]] fs::path backups() const { return path() / "backup"; }
};

/// A job with everything a program may have; `run` is one life of its process.
struct Program {
  fs::path directory;
  Optimizer optimizer = Adam({.learning_rate = 0.01});
  std::int64_t save_freq = BackupOptions::every_epoch;
  int epochs = 4;
  int batch = 8;
  std::uint64_t seed = 7;
  Resume resume = Resume::automatic;
  std::size_t examples = 29;
  double min_delta = 0;
  int patience = 50;
  bool awaits_backups = false;

  struct Result {
    std::vector<Variable> weights;
    std::vector<Logs> logs;
    double learning_rate = 0;
    std::string csv;
  };

  [[nodiscard]] Result run(std::int64_t killed_at = no_step) const {
    Options options{.model_dir = directory, .global_batch_size = batch, .seed = seed, .verbose = 0};
    options.resume = resume;
    MultiWorkerMirroredStrategy strategy(options);
    const Examples data = make_examples(network, logits, static_cast<int>(examples), 3);
    const Examples validation = make_examples(network, logits, 11, 5);
    Model model = strategy.build(network);
    model.compile({.optimizer = optimizer, .loss = logits, .metrics = {accuracy}});
    std::vector<AnyCallback> callbacks{
        EarlyStopping({.min_delta = min_delta, .patience = patience, .restore_best_weights = true}),
        BackupAndRestore(directory / "backup", {.save_freq = save_freq}),
        ReduceLROnPlateau({.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 0.3}),
        CSVLogger(directory / "log.csv"), Killer(killed_at)};
    if (awaits_backups) callbacks.emplace_back(AwaitBackups(directory));
    const History history =
        model.fit(data.data, {.epochs = epochs, .validation_data = &validation.data, .callbacks = callbacks});
    Result result{model.weights(), {}, model.learning_rate(), {}};
    for (const EpochRecord& epoch : history.epochs) result.logs.push_back(epoch.logs);
    std::ostringstream text;
    text << std::ifstream(directory / "log.csv").rdbuf();
    result.csv = text.str();
    return result;
  }

  /// Killed at each of these steps, and then left alone.
  [[nodiscard]] Result run_with_deaths(const std::vector<std::int64_t>& steps) const {
    for (const std::int64_t step : steps) CHECK_THROWS_AS(run(step), Killed);
    return run();
  }
};

void check_same(const Program::Result& a, const Program::Result& b) {
  REQUIRE(a.weights.size() == b.weights.size());
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    INFO(a.weights[i].name);
    CHECK(a.weights[i].values == b.weights[i].values);
  }
  CHECK(a.logs == b.logs);
  CHECK(a.learning_rate == b.learning_rate);
  CHECK(a.csv == b.csv);
}

std::vector<fs::path> files_of(const fs::path& directory) {
  std::vector<fs::path> files;
  if (!fs::exists(directory)) return files;
  for (const auto& entry : fs::directory_iterator(directory)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

void damage(const fs::path& file) {
  REQUIRE(fs::file_size(file) > 100);
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(fs::file_size(file) / 2));
  stream.write("garbage", 7);
}

}  // namespace

TEST_CASE("A run that is killed and started again ends with the bits of one that never was") {
  const std::vector<Optimizer> optimizers{
      SGD({.learning_rate = 0.05}), SGD({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true}),
      Adam({.learning_rate = 0.01}), RMSprop({.learning_rate = 0.003, .momentum = 0.5, .centered = true}),
      AdamW({.learning_rate = 0.01})};
  for (const Optimizer& optimizer : optimizers) {
    for (const std::int64_t save_freq : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{4}}) {
      INFO(name_of(optimizer) << ", save_freq " << save_freq);
      const ScratchModelDirectory whole_directory;
      const ScratchModelDirectory directory;
      // 29 examples in batches of 8 are four steps an epoch
      const Program whole{.directory = whole_directory.path(), .optimizer = optimizer, .save_freq = save_freq};
      Program broken = whole;
      broken.directory = directory.path();
      check_same(whole.run(), broken.run_with_deaths({1, 3, 4, 5, 9, 14}));
    }
  }
}

TEST_CASE("Training that a callback has ended is not taken up again") {
  const ScratchModelDirectory whole_directory;
  const ScratchModelDirectory directory;
  Program program{.directory = whole_directory.path(), .epochs = 12, .min_delta = 100, .patience = 2};
  const Program::Result whole = program.run();
  REQUIRE(whole.logs.size() == 3);  // the first epoch is the best, two more have no better one
  program.directory = directory.path();
  check_same(whole, program.run_with_deaths({9}));
}

TEST_CASE("Backups: the newest two stay while training, none after its end") {
  const ScratchModelDirectory directory;
  const Program program{.directory = directory.path(), .awaits_backups = true};
  CHECK_THROWS_AS(program.run(15), Killed);
  const std::vector<fs::path> files = files_of(directory.backups());
  REQUIRE(files.size() == 2);
  CHECK(files[0].filename() == "fit-1-step-0000000008.h5");
  CHECK(files[1].filename() == "fit-1-step-0000000012.h5");
  const SavedModel backup = load_keras_h5(files[1]);  // a model like any other
  CHECK(backup.training->iteration == 12);
  CHECK(backup.architecture.layers().size() == network.layers().size());
  std::ofstream(directory.backups() / ".fit-1-step-0000000016.h5.4711.tmp") << "half a backup";
  static_cast<void>(program.run());
  CHECK(!fs::exists(directory.backups()));
}

TEST_CASE("A damaged backup is passed over, and kept aside") {
  const ScratchModelDirectory whole_directory;
  const ScratchModelDirectory directory;
  Program program{.directory = whole_directory.path(), .awaits_backups = true};
  const Program::Result whole = program.run();
  program.directory = directory.path();
  CHECK_THROWS_AS(program.run(14), Killed);
  REQUIRE(!files_of(directory.backups()).empty());
  damage(files_of(directory.backups()).back());
  check_same(whole, program.run());
  const std::vector<fs::path> files = files_of(directory.backups());
  REQUIRE(files.size() == 1);
  CHECK(files[0].filename() == "fit-1-step-0000000012.h5.damaged");
}

TEST_CASE("Where all backups are damaged nobody begins anew unasked") {
  const ScratchModelDirectory directory;
  Program program{.directory = directory.path()};
  CHECK_THROWS_AS(program.run(14), Killed);
  for (const fs::path& file : files_of(directory.backups())) damage(file);
  const std::string message = message_of<DataError>([&] { static_cast<void>(program.run()); });
  CHECK(contains(message, directory.backups().string()));
  CHECK(contains(message, "--resume never"));
  program.resume = Resume::never;
  const ScratchModelDirectory whole_directory;
  const Program::Result anew = program.run();
  program.directory = whole_directory.path();
  check_same(program.run(), anew);
}

TEST_CASE("--resume require wants a backup, never removes them") {
  const ScratchModelDirectory directory;
  Program program{.directory = directory.path(), .resume = Resume::require};
  CHECK(contains(message_of<UsageError>([&] { static_cast<void>(program.run()); }),
                 "there is no backup in " + directory.backups().string()));
  program.resume = Resume::automatic;
  CHECK_THROWS_AS(program.run(14), Killed);
  program.resume = Resume::never;
  CHECK_THROWS_AS(program.run(2), Killed);
  CHECK(files_of(directory.backups()).empty());
}

TEST_CASE("A backup of another job is refused, with both values") {
  const ScratchModelDirectory directory;
  const Program first{.directory = directory.path()};
  CHECK_THROWS_AS(first.run(6), Killed);
  const auto refusal_of = [](const Program& program) {
    return message_of<UsageError>([&program] { static_cast<void>(program.run()); });
  };
  Program other = first;
  other.seed = 8;
  CHECK(contains(refusal_of(other), "another job: --seed was 7 then, and is 8 now"));
  other = first;
  other.batch = 10;
  CHECK(contains(refusal_of(other), "--global-batch-size was 8 then, and is 10 now"));
  other = first;
  other.optimizer = SGD();
  CHECK(contains(refusal_of(other), "how the model is compiled"));
  other = first;
  other.examples = 30;
  CHECK(contains(refusal_of(other), "the data was 29 examples"));
  Program longer = first;
  longer.epochs = 6;  // more epochs are no other job
  CHECK(longer.run().logs.size() == 6);
}

TEST_CASE("A loop of one's own goes on where it was, with the numbers it keeps") {
  struct Loop {
    fs::path directory;
    std::int64_t save_freq;
    std::vector<double> run(std::int64_t killed_at = no_step) const {
      Options options{.model_dir = directory, .global_batch_size = 8, .seed = 3, .verbose = 0};
      options.backup_dir = directory / "backup";
      options.backup_save_freq = save_freq;
      MultiWorkerMirroredStrategy strategy(options);
      const Examples data = make_examples(network, logits, 29, 3);
      Model model = strategy.build(network);
      model.compile({.optimizer = Adam(), .loss = logits, .metrics = {accuracy}});
      double& total = model.kept("total");
      double& minus_total = model.kept("a minus total");
      double& epochs_seen = model.kept("epochs");
      std::vector<double> seen;
      for (const int epoch : model.epochs(3)) {
        for (const Batch& batch : model.batches(data.data)) {
          total += model.train_step(batch).loss();
          minus_total = -total;
          if (model.iterations() == killed_at) throw Killed();
        }
        model.end_epoch(epoch);
        ++epochs_seen;
      }
      CHECK(&total == &model.kept("total"));  // whether or not a backup has brought other values
      CHECK(&minus_total == &model.kept("a minus total"));
      CHECK(&epochs_seen == &model.kept("epochs"));
      seen = {total, epochs_seen, minus_total};
      for (const Variable& variable : model.weights())
        seen.insert(seen.end(), variable.values.begin(), variable.values.end());
      return seen;
    }
  };
  for (const std::int64_t save_freq : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}}) {
    INFO("save_freq " << save_freq);
    const ScratchModelDirectory whole_directory;
    const ScratchModelDirectory directory;
    const std::vector<double> whole = Loop{whole_directory.path(), save_freq}.run();
    CHECK(whole[1] == 3);
    const Loop loop{directory.path(), save_freq};
    for (const std::int64_t step : {1, 4, 6, 11}) CHECK_THROWS_AS(loop.run(step), Killed);
    CHECK(loop.run() == whole);
    CHECK(!fs::exists(directory.backups()));
  }
}

TEST_CASE("Batches are asked for inside of a loop over epochs") {
  const Examples data = make_examples(network, logits, 8, 3);
  Options options{
      .model_dir = fs::temp_directory_path() / "lockstep-backups-test", .global_batch_size = 8, .verbose = 0};
  MultiWorkerMirroredStrategy strategy(options);
  Model model = strategy.build(network);
  model.compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
  CHECK_THROWS_AS(model.batches(data.data), UsageError);
}

TEST_CASE("Of two fits each finds its own backups") {
  struct Twice {
    fs::path directory;
    std::vector<float> run(std::int64_t killed_at = no_step) const {
      Options options{.model_dir = directory, .global_batch_size = 8, .seed = 3, .verbose = 0};
      MultiWorkerMirroredStrategy strategy(options);
      const Examples data = make_examples(network, logits, 29, 3);
      Model model = strategy.build(network);
      const BackupAndRestore backup(directory / "backup", {.save_freq = 1});
      model.compile({.optimizer = Adam({.learning_rate = 0.01}), .loss = logits, .metrics = {accuracy}});
      model.fit(data.data, {.epochs = 2, .callbacks = {backup, Killer(killed_at)}});
      model.compile({.optimizer = SGD({.learning_rate = 0.01}), .loss = logits, .metrics = {accuracy}});
      const History second = model.fit(data.data, {.epochs = 2, .callbacks = {backup, Killer(killed_at - 8)}});
      CHECK(second.epochs.size() == 2);
      std::vector<float> all;
      for (const Variable& variable : model.weights())
        all.insert(all.end(), variable.values.begin(), variable.values.end());
      return all;
    }
  };
  const ScratchModelDirectory whole_directory;
  const ScratchModelDirectory directory;
  const Twice broken{directory.path()};
  CHECK_THROWS_AS(broken.run(5), Killed);
  CHECK_THROWS_AS(broken.run(8 + 3), Killed);
  CHECK_THROWS_AS(broken.run(8 + 7), Killed);
  CHECK(broken.run() == Twice{whole_directory.path()}.run());
}
