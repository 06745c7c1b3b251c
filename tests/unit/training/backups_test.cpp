// A run that is killed anywhere and restarted ends with the same bits as an uninterrupted run. Backups of other jobs
// and damaged ones are rejected. This is one file because all tests run variants of one program.
#include "checkpoint/backup/backup_directory.hpp"
#include "checkpoint/keras/keras_h5.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/scoped_variable.hpp"
#include "support/scratch_directory.hpp"
#include "training/model_parts.hpp"

#include <lockstep/lockstep.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
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

/// Dropout and BatchNormalization have special state: counters and moving statistics.
Sequential network_with(double dropout) {
  return Sequential{Input({6, 6, 1}),
                    Conv2D(16, 3, {.activation = relu}),
                    BatchNormalization(),
                    Flatten(),
                    Dropout(dropout),
                    Dense(12, {.activation = relu}),
                    Dense(4)};
}
const Sequential network = network_with(0.4);

class Killed : public std::exception {};

/// Ends the run as a signal would: nothing is cleaned up.
class Killer : public Callback {
 public:
  explicit Killer(std::int64_t at) : at_(at) {}
  void on_train_batch_end(Model& model, std::int64_t /*batch*/, const MetricSums& /*so_far*/) override {
    if (model.iterations() == at_) throw Killed();
  }

 private:
  std::int64_t at_;
};

/// Counts the steps that a run trains.
class StepCounter : public Callback {
 public:
  explicit StepCounter(int& steps) : steps_(&steps) {}
  void on_train_batch_end(Model& /*model*/, std::int64_t /*batch*/, const MetricSums& /*so_far*/) override {
    ++*steps_;
  }

 private:
  int* steps_;
};

/// Waits for each epoch's backup, because a backup is skipped while another one is being written. Saving a model waits
/// for the backup in progress.
class AwaitBackups : public Callback {
 public:
  explicit AwaitBackups(fs::path directory) : directory_(std::move(directory)) {}
  void on_epoch_begin(Model& model, int /*epoch*/) override { model.save(directory_ / "awaited.h5"); }

 private:
  fs::path directory_;
};

/// Waits for the backup of the step before, so that the one of this step is not skipped.
class AwaitWriter : public Callback {
 public:
  void on_train_batch_end(Model& model, std::int64_t /*batch*/, const MetricSums& /*so_far*/) override {
    parts_of(model).run_context->writer().wait();
  }
};

struct ScratchModelDirectory : ScratchDirectory {
  [[nodiscard]] fs::path backups() const { return path() / "backup"; }
};

/// A job with all features of a program. `run` is one run of its process.
struct Program {
  fs::path directory;
  Optimizer optimizer = Adam({.learning_rate = 0.01});
  std::int64_t save_freq = BackupOptions::every_epoch;
  int epochs = 4;
  int batch = 8;
  int batch_of_fit = 0;
  std::uint64_t seed = 7;
  Resume resume = Resume::automatic;
  std::size_t examples = 29;
  double min_delta = 0;
  int patience = 50;
  bool awaits_backups = false;
  bool swaps_callbacks = false;
  bool shuffle = true;
  int validation_freq = 1;
  double dropout = 0.4;

  struct Result {
    std::vector<NamedTensor> weights;
    std::vector<Logs> logs;
    double learning_rate = 0;
    std::string csv;
    int steps = 0;  ///< trained by this run, without those before the backup
  };

  [[nodiscard]] Result run(std::int64_t killed_at = no_step) const {
    Options options{.model_dir = directory, .global_batch_size = batch, .seed = seed, .verbose = 0};
    options.resume = resume;
    MultiWorkerMirroredStrategy strategy(options);
    const Examples data = make_examples(network, logits, static_cast<int>(examples), 3);
    const Examples validation = make_examples(network, logits, 11, 5);
    Model model = strategy.build(network_with(dropout));
    model.compile({.optimizer = optimizer, .loss = logits, .metrics = {accuracy}});
    int steps = 0;
    std::vector<AnyCallback> callbacks{
        EarlyStopping({.min_delta = min_delta, .patience = patience, .restore_best_weights = true}),
        BackupAndRestore(directory / "backup", {.save_freq = save_freq}),
        ReduceLROnPlateau({.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 0.3}),
        CSVLogger(directory / "log.csv"),
        StepCounter(steps),
        Killer(killed_at)};
    if (swaps_callbacks) std::swap(callbacks[0], callbacks[2]);
    if (awaits_backups) callbacks.emplace_back(AwaitBackups(directory));
    const History history = model.fit(data.data, {.batch_size = batch_of_fit,
                                                  .epochs = epochs,
                                                  .validation_data = &validation.data,
                                                  .validation_freq = validation_freq,
                                                  .callbacks = callbacks,
                                                  .shuffle = shuffle});
    Result result{model.weights(), {}, model.learning_rate(), {}, steps};
    for (const EpochRecord& epoch : history.epochs) result.logs.push_back(epoch.logs);
    std::ostringstream text;
    text << std::ifstream(directory / "log.csv").rdbuf();
    result.csv = text.str();
    return result;
  }

  /// Runs that are killed at each of these steps, followed by one that completes.
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

/// Also that `resumed` did not train everything again.
void check_resumed(const Program::Result& whole, const Program::Result& resumed) {
  check_same(whole, resumed);
  CHECK(resumed.steps < whole.steps);
}

/// The files whose names do not begin with a dot, as the lock's does.
std::vector<fs::path> files_of(const fs::path& directory) {
  std::vector<fs::path> files;
  if (!fs::exists(directory)) return files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (!entry.path().filename().string().starts_with('.')) files.push_back(entry.path());
  }
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

TEST_CASE("a killed and restarted run ends with the same bits as an uninterrupted one") {
  const std::vector<Optimizer> optimizers{
      SGD({.learning_rate = 0.05}), SGD({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true}),
      Adam({.learning_rate = 0.01}), RMSprop({.learning_rate = 0.003, .momentum = 0.5, .centered = true}),
      AdamW({.learning_rate = 0.01})};
  for (const Optimizer& optimizer : optimizers) {
    for (const std::int64_t save_freq : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{4}}) {
      INFO(keras_name(optimizer) << ", save_freq " << save_freq);
      const ScratchModelDirectory whole_directory;
      const ScratchModelDirectory directory;
      // 29 examples in batches of 8 are four steps per epoch.
      const Program whole{.directory = whole_directory.path(), .optimizer = optimizer, .save_freq = save_freq};
      Program broken = whole;
      broken.directory = directory.path();
      check_resumed(whole.run(), broken.run_with_deaths({1, 3, 4, 5, 9, 14}));
    }
  }
}

TEST_CASE("a fit with a batch size of its own resumes with the same bits") {
  for (const int batch : {5, 12}) {
    const ScratchModelDirectory whole_directory;
    const ScratchModelDirectory directory;
    const Program whole{.directory = whole_directory.path(), .save_freq = 1, .batch_of_fit = batch};
    Program broken = whole;
    broken.directory = directory.path();
    check_resumed(whole.run(), broken.run_with_deaths({1, 4, 7}));
  }
}

TEST_CASE("training stopped by a callback is not resumed") {
  const ScratchModelDirectory whole_directory;
  const ScratchModelDirectory directory;
  Program program{.directory = whole_directory.path(), .epochs = 12, .min_delta = 100, .patience = 2};
  const Program::Result whole = program.run();
  REQUIRE(whole.logs.size() == 3);  // the first epoch is the best; training stops after two without improvement
  program.directory = directory.path();
  check_resumed(whole, program.run_with_deaths({9}));
}

TEST_CASE("two backups are kept during training and none after it") {
  const ScratchModelDirectory directory;
  const Program program{.directory = directory.path(), .awaits_backups = true};
  CHECK_THROWS_AS(program.run(15), Killed);
  const std::vector<fs::path> files = files_of(directory.backups());
  REQUIRE(files.size() == 2);
  CHECK(files[0].filename() == "fit-1-step-0000000008.h5");
  CHECK(files[1].filename() == "fit-1-step-0000000012.h5");
  const ModelData backup = load_keras_h5(files[1]);  // a model like any other
  CHECK(backup.compile_state->iteration == 12);
  CHECK(backup.architecture.layers().size() == network.layers().size());
  std::ofstream(directory.backups() / ".fit-1-step-0000000016.h5.0000471a.tmp") << "half a backup";
  static_cast<void>(program.run());
  CHECK(!fs::exists(directory.backups()));
}

TEST_CASE("a backup waits for a model that is being written") {
  const ScratchModelDirectory directory;
  const Examples data = make_examples(network, logits, 29, 3);
  Options options{.model_dir = directory.path(), .global_batch_size = 8, .verbose = 0};
  MultiWorkerMirroredStrategy strategy(options);
  Model model = strategy.build(network);
  model.compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
  const ModelCheckpoint checkpoint(directory / "checkpoint.h5");
  const BackupAndRestore backup(directory.backups());
  model.fit(data.data, {.epochs = 6, .callbacks = {checkpoint, backup}});
  CHECK(parts_of(model).session.log().skipped_backups() == 0);
}

TEST_CASE("a damaged backup is skipped and kept under another name") {
  const ScratchModelDirectory whole_directory;
  const ScratchModelDirectory directory;
  Program program{.directory = whole_directory.path(), .awaits_backups = true};
  const Program::Result whole = program.run();
  program.directory = directory.path();
  CHECK_THROWS_AS(program.run(14), Killed);
  REQUIRE(!files_of(directory.backups()).empty());
  damage(files_of(directory.backups()).back());
  check_resumed(whole, program.run());
  const std::vector<fs::path> files = files_of(directory.backups());
  REQUIRE(files.size() == 1);
  CHECK(files[0].filename() == "fit-1-step-0000000012.h5.damaged");
}

TEST_CASE("what has a backup's name and is no file does not stand before an older backup") {
  const ScratchModelDirectory whole_directory;
  const ScratchModelDirectory directory;
  Program program{.directory = whole_directory.path(), .awaits_backups = true};
  const Program::Result whole = program.run();
  program.directory = directory.path();
  CHECK_THROWS_AS(program.run(14), Killed);
  fs::create_directory(directory.backups() / "fit-1-step-0000000099.h5");
  fs::create_symlink("nowhere", directory.backups() / "fit-1-step-0000000098.h5");
  check_resumed(whole, program.run());
}

TEST_CASE("training does not restart silently if all backups are damaged") {
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

TEST_CASE("--resume require demands a backup and --resume never removes them") {
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

TEST_CASE("a backup of another job is rejected with both values") {
  const ScratchModelDirectory directory;
  const Program first{.directory = directory.path()};
  CHECK_THROWS_AS(first.run(6), Killed);
  const auto refusal_of = [](const Program& program) {
    return message_of<UsageError>([&program] { static_cast<void>(program.run()); });
  };
  Program other = first;
  other.seed = 8;
  CHECK(contains(refusal_of(other), "another job: --seed was 7 in the backup and is 8 now"));
  other = first;
  other.batch = 10;
  CHECK(contains(refusal_of(other), "--global-batch-size was 8 in the backup and is 10 now"));
  other.batch_of_fit = 5;
  CHECK(contains(refusal_of(other), "--global-batch-size was 8 in the backup and is 5 now"));
  other = first;
  other.optimizer = SGD();
  CHECK(contains(refusal_of(other), "how the model is compiled"));
  other = first;
  other.examples = 30;
  CHECK(contains(refusal_of(other), "the data was 29 examples"));
  other = first;
  other.dropout = 0.25;
  const std::string dropout = refusal_of(other);
  CHECK(contains(dropout, "the layers' options was"));
  CHECK(contains(dropout, "\"rate\":0.4"));
  CHECK(contains(dropout, "\"rate\":0.25"));
  other = first;
  other.swaps_callbacks = true;
  CHECK(contains(refusal_of(other), "the list of callbacks was EarlyStopping("));
  other = first;
  other.patience = 51;
  const std::string patience = refusal_of(other);
  CHECK(contains(patience, "patience=50"));
  CHECK(contains(patience, "patience=51"));
  other = first;
  other.shuffle = false;
  CHECK(contains(refusal_of(other), "shuffle of fit() was true in the backup and is false now"));
  other = first;
  other.validation_freq = 3;
  CHECK(contains(refusal_of(other), "validation_freq of fit() was 1 in the backup and is 3 now"));
  Program longer = first;
  longer.epochs = 6;  // a different number of epochs is still the same job
  CHECK(longer.run().logs.size() == 6);
}

TEST_CASE("a backup of a job that began otherwise is rejected") {
  const ScratchModelDirectory directory;
  struct Beginning {
    float first_weight = 0;
    int epochs_without_backups = 1;
    double learning_rate = 0.05;
    int initial_epoch = 0;
  };
  const auto run = [&](const Beginning& beginning, std::int64_t killed_at) {
    static int jobs = 0;
    (void)setenv("LOCKSTEP_JOB_ID", std::to_string(++jobs).c_str(), 1);  // each run is a job, as of another process
    MultiWorkerMirroredStrategy strategy(Options{.model_dir = directory.path(), .global_batch_size = 8, .verbose = 0});
    (void)unsetenv("LOCKSTEP_JOB_ID");
    const Examples data = make_examples(network, logits, 29, 3);
    Model model = strategy.build(network);
    std::vector<NamedTensor> weights = model.weights();
    weights[0].values[0] = beginning.first_weight;
    model.set_weights(weights);
    model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = logits, .metrics = {}});
    model.fit(data.data, {.epochs = beginning.epochs_without_backups});
    model.set_learning_rate(beginning.learning_rate);
    model.fit(data.data, {.epochs = 6,
                          .initial_epoch = beginning.initial_epoch,
                          .callbacks = {BackupAndRestore(directory.backups(), {.save_freq = 1}), Killer(killed_at)}});
    return model.iterations();
  };
  CHECK_THROWS_AS(run({}, 14), Killed);
  const auto refusal_of = [&](const Beginning& beginning) {
    return message_of<UsageError>([&] { static_cast<void>(run(beginning, no_step)); });
  };
  CHECK(contains(refusal_of({.first_weight = 1}), "the digest of the initial weights"));
  CHECK(contains(refusal_of({.epochs_without_backups = 2}), "the digest of the initial weights"));
  CHECK(contains(refusal_of({.learning_rate = 0.01}), "\"learning_rate\":0.01"));
  CHECK(contains(refusal_of({.initial_epoch = 2}), "initial_epoch of fit() was 0 in the backup and is 2 now"));
  CHECK(run({}, no_step) == 28);
}

TEST_CASE("a custom training loop resumes with its tracked values") {
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
      double& total = model.tracked("total");
      double& minus_total = model.tracked("a minus total");
      double& epochs_seen = model.tracked("epochs");
      double& test_total = model.tracked("test total");
      std::vector<double> seen;
      for (const int epoch : model.epochs(3)) {
        for (const Batch& batch : model.batches(data.data)) {
          total += model.train_step(batch).loss();
          minus_total = -total;
          if (model.iterations() == killed_at) throw Killed();
        }
        MetricSums test;
        for (const Batch& batch : model.batches(data.data, {.shuffle = false})) test += model.test_step(batch);
        CHECK(test.num_examples == 29);
        test_total += test.loss();
        model.end_epoch(epoch);
        ++epochs_seen;
      }
      CHECK(&total == &model.tracked("total"));  // the reference stays valid after a backup is restored
      CHECK(&minus_total == &model.tracked("a minus total"));
      CHECK(&epochs_seen == &model.tracked("epochs"));
      seen = {total, epochs_seen, minus_total, test_total};
      for (const NamedTensor& variable : model.weights())
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

TEST_CASE("a custom training loop refuses to resume with other data or another batch size") {
  struct Loop {
    fs::path directory;
    std::size_t examples = 29;
    int batch_size = 8;
    void run(std::int64_t killed_at = no_step) const {
      Options options{.model_dir = directory, .verbose = 0};
      options.backup_dir = directory / "backup";
      options.backup_save_freq = 1;
      MultiWorkerMirroredStrategy strategy(options);
      const Examples data = make_examples(network, logits, examples, 3);
      const Examples more = make_examples(network, logits, 2 * examples, 3);
      Model model = strategy.build(network);
      model.compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
      for (const int epoch : model.epochs(2)) {
        for (const Examples* each : {&data, &more}) {
          for (const Batch& batch : model.batches(each->data, {.batch_size = batch_size})) {
            model.train_step(batch);
            if (model.iterations() == killed_at) throw Killed();
          }
        }
        model.end_epoch(epoch);
      }
    }
    std::string refusal() const {
      return message_of<UsageError>([this] { run(); });
    }
  };
  const ScratchModelDirectory directory;
  const Loop loop{directory.path()};
  CHECK_THROWS_AS(loop.run(7), Killed);
  CHECK(contains(Loop{directory.path(), 30}.refusal(), "another job: the data was 29 examples"));
  CHECK(contains(Loop{directory.path(), 29, 5}.refusal(), "--global-batch-size was 8 in the backup and is 5 now"));
  CHECK_NOTHROW(loop.run());  // each of its two datasets is compared with itself
}

TEST_CASE("a loop whose backups hold one model trains no other") {
  const ScratchModelDirectory directory;
  const Examples data = make_examples(network, logits, 8, 3);
  Options options{.model_dir = directory.path(), .global_batch_size = 8, .verbose = 0};
  options.backup_dir = directory / "backup";
  const auto train_two = [&] {
    MultiWorkerMirroredStrategy strategy(options);
    Model first = strategy.build(network);
    Model second = strategy.build(network);
    for (Model* model : {&first, &second}) model->compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
    for (const int epoch : first.epochs(2)) {
      for (const Batch& batch : first.batches(data.data)) {
        first.train_step(batch);
        second.train_step(batch);
      }
      first.end_epoch(epoch);
    }
    for (const Batch& batch : second.batches(data.data, {.shuffle = false})) second.train_step(batch);
  };
  CHECK(contains(message_of<UsageError>(train_two), "the loop trains another model too; set --backup-save-freq never"));
  options.backup_save_freq = BackupOptions::never;
  CHECK_NOTHROW(train_two());
}

TEST_CASE("a loop that is left ends") {
  const ScratchModelDirectory directory;
  const Examples data = make_examples(network, logits, 8, 3);
  Options options{.model_dir = directory.path(), .global_batch_size = 8, .verbose = 0};
  options.backup_dir = directory / "backup";
  MultiWorkerMirroredStrategy strategy(options);
  Model first = strategy.build(network);
  Model second = strategy.build(network);
  for (Model* model : {&first, &second}) model->compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
  const auto leave = [&](bool by_exception) {
    for (const int epoch : first.epochs(3)) {
      for (const Batch& batch : first.batches(data.data)) first.train_step(batch);
      first.end_epoch(epoch);
      if (by_exception) throw Killed();
      break;
    }
  };
  leave(false);
  CHECK_NOTHROW(second.train_step({.data = &data.data, .size = 8}));
  CHECK_THROWS_AS(leave(true), Killed);
  CHECK_NOTHROW(second.train_step({.data = &data.data, .size = 8}));
  CHECK_THROWS_AS(first.batches(data.data), UsageError);  // outside a loop again
}

TEST_CASE("nothing with NaN is saved, however well the loss looks") {
  const ScratchModelDirectory directory;
  const Options options{.model_dir = directory.path(), .verbose = 0};
  MultiWorkerMirroredStrategy strategy(options);
  Model model = strategy.build(network);
  model.compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
  std::vector<NamedTensor> weights = model.weights();
  weights[2].values[1] = std::numeric_limits<float>::quiet_NaN();
  model.set_weights(weights);
  const fs::path file = directory / "model.h5";
  const std::string problem = message_of<DataError>([&] { model.save(file); });
  CHECK(contains(problem, "holds NaN or infinite values (the first at index 1) after optimizer step 0"));
  CHECK(!fs::exists(file));
}

/// Runs `work` in another process. Returns its exit code.
int exit_code_of(const std::function<void()>& work) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    (void)setenv("OMP_NUM_THREADS", "1", 1);  // OpenMP's threads do not survive a fork
    work();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a program whose last model could not be written ends with an error and keeps its backups") {
  const auto on_failure = GENERATE(CheckpointFailure::stop, CheckpointFailure::proceed);
  const ScratchModelDirectory directory;
  std::ofstream(directory / "file") << "not a directory";
  const auto program = [&](const std::vector<std::string>& saves) {
    Options options{.model_dir = directory.path(), .global_batch_size = 8, .verbose = 0};
    options.on_checkpoint_failure = on_failure;
    MultiWorkerMirroredStrategy strategy(options);
    const Examples data = make_examples(network, logits, 8, 3);
    Model model = strategy.build(network);
    model.compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
    model.fit(data.data, {.callbacks = {BackupAndRestore(directory.backups())}});
    for (const std::string& name : saves) model.save_async(directory / name);
  };
  CHECK(exit_code_of([&] { program({"file/model.h5"}); }) == static_cast<int>(ExitCode::io));
  CHECK(files_of(directory.backups()).size() == 1);
  if (on_failure == CheckpointFailure::proceed) {
    CHECK(exit_code_of([&] { program({"model.h5", "file/model.h5"}); }) == static_cast<int>(ExitCode::io));
    CHECK(exit_code_of([&] { program({"file/model.h5", "model.h5"}); }) == 0);
  } else {
    CHECK(exit_code_of([&] { program({"model.h5"}); }) == 0);
  }
  CHECK(!fs::exists(directory.backups()));
}

/// Puts a file in the place of the directory of backups.
class Obstruct : public Callback {
 public:
  explicit Obstruct(fs::path backups) : backups_(std::move(backups)) {}
  void on_epoch_begin(Model& /*model*/, int epoch) override {
    if (epoch != 1) return;
    fs::rename(backups_, backups_.string() + "-away");
    std::ofstream(backups_) << "not a directory";
  }

 private:
  fs::path backups_;
};

TEST_CASE("a backup that could not be written is no missing model") {
  const ScratchModelDirectory directory;
  const auto program = [&] {
    Options options{.model_dir = directory.path(), .global_batch_size = 8, .verbose = 0};
    options.on_checkpoint_failure = CheckpointFailure::proceed;
    MultiWorkerMirroredStrategy strategy(options);
    const Examples data = make_examples(network, logits, 8, 3);
    Model model = strategy.build(network);
    model.compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
    model.fit(data.data,
              {.epochs = 3, .callbacks = {Obstruct(directory.backups()), BackupAndRestore(directory.backups())}});
  };
  CHECK(exit_code_of(program) == 0);
}

TEST_CASE("batches are requested inside a loop over epochs") {
  const Examples data = make_examples(network, logits, 8, 3);
  Options options{
      .model_dir = fs::temp_directory_path() / "lockstep-backups-test", .global_batch_size = 8, .verbose = 0};
  MultiWorkerMirroredStrategy strategy(options);
  Model model = strategy.build(network);
  model.compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
  CHECK_THROWS_AS(model.batches(data.data), UsageError);
  for (const int epoch : model.epochs(2)) {
    static_cast<void>(epoch);
    CHECK_THROWS_AS(model.fit(data.data, {}), UsageError);  // it would move the loop's position
    break;
  }
}

TEST_CASE("each of two fits finds its own backups") {
  struct Twice {
    fs::path directory;
    bool has_other_provenance = false;
    float added_after_first_fit = 0;

    std::vector<float> run(std::int64_t killed_at = no_step) const {
      Options options{.model_dir = directory, .global_batch_size = 8, .seed = 3, .verbose = 0};
      if (has_other_provenance) options.gradient_compression = GradientCompression::bfloat16;  // idle on one rank
      MultiWorkerMirroredStrategy strategy(options);
      const Examples data = make_examples(network, logits, 29, 3);
      Model model = strategy.build(network);
      const BackupAndRestore backup(directory / "backup", {.save_freq = 1});
      model.compile({.optimizer = Adam({.learning_rate = 0.01}), .loss = logits, .metrics = {accuracy}});
      model.fit(data.data, {.epochs = 2, .callbacks = {backup, AwaitWriter(), Killer(killed_at)}});
      std::vector<NamedTensor> weights = model.weights();
      weights.front().values.front() += added_after_first_fit;
      model.set_weights(weights);
      model.compile({.optimizer = SGD({.learning_rate = 0.01}), .loss = logits, .metrics = {accuracy}});
      const History second =
          model.fit(data.data, {.epochs = 2, .callbacks = {backup, AwaitWriter(), Killer(killed_at - 8)}});
      CHECK(second.epochs.size() == 2);
      std::vector<float> all;
      for (const NamedTensor& variable : model.weights())
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
  const std::vector<float> whole = Twice{whole_directory.path()}.run();
  CHECK(broken.run() == whole);
  // Without the backup of the first fit, that one trains again, and the second one goes on from its own.
  CHECK_THROWS_AS(broken.run(8 + 7), Killed);
  const std::vector<fs::path> files = files_of(directory.backups());
  REQUIRE(files.front().filename().string().starts_with("fit-1-"));
  damage(files.front());
  CHECK(broken.run(8 + 3) == whole);  // it is not killed, because the second fit begins behind that step

  // The first fit gives other weights. On the same machine that is another job; on another one it may be rounding.
  CHECK_THROWS_AS(broken.run(8 + 7), Killed);
  const ScopedVariable job("LOCKSTEP_JOB_ID", "another than this process is");
  Twice moved{directory.path(), false, 0x1p-20F};
  require_words(message_of<UsageError>([&] { static_cast<void>(moved.run()); }), {"another job", "initial weights"});
  moved.has_other_provenance = true;
  CHECK(moved.run() == whole);
}
