// A run that is killed anywhere and restarted ends with the same bits as an uninterrupted run. Backups of other jobs
// and damaged ones are rejected.
#include "checkpoint/keras/keras_h5.hpp"
#include "support/scoped_variable.hpp"
#include "support/stderr_of.hpp"
#include "unit/training/killed_runs.hpp"

#include <cstdlib>

using namespace lockstep;
using namespace lockstep::testing;

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

TEST_CASE("a resumed log keeps the columns of its first epoch") {
  const ScratchModelDirectory whole;
  const ScratchModelDirectory broken;
  Program program{whole.path()};
  program.validation_freq = 3;
  const auto expected = program.run();
  program.directory = broken.path();
  check_resumed(expected, program.run_with_deaths({10}));  // goes on in the epoch after the one that validates
}

TEST_CASE("a run resumes with its own log only") {
  const ScratchModelDirectory directory;
  const Program program{.directory = directory.path(), .awaits_backups = true};
  CHECK_THROWS_AS(program.run(10), Killed);
  const fs::path log = directory / "log.csv";
  std::ostringstream text;
  text << std::ifstream(log, std::ios::binary).rdbuf();
  const std::string own = text.str();
  REQUIRE(own.find("\r\n1,") != std::string::npos);
  std::string other = own;
  other[own.find("\r\n0,") + 4] = '7';
  for (const std::string& content : {other, own.substr(0, own.find("1,"))}) {
    std::ofstream(log, std::ios::binary) << content;
    const std::string message = message_of<UsageError>([&] { static_cast<void>(program.run()); });
    CHECK(contains(message, log.string()));
    CHECK(contains(message, "move it away"));
    CHECK(fs::file_size(log) == content.size());
  }
  fs::remove(log);  // the remedy
  Program::Result resumed;
  CHECK(contains(stderr_of([&] { resumed = program.run(); }), "has lost the lines of the epochs before the backup"));
  CHECK(resumed.csv.starts_with("epoch,"));
  CHECK(resumed.csv.find("\r\n2,") < resumed.csv.find("\r\n3,"));
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
  other.clips_probabilities = true;
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

TEST_CASE("a restart of a job may find its first file overwritten by the job only") {
  const ScratchModelDirectory directory;
  const fs::path first = directory / "first.h5";
  const auto run = [&](bool overwrites, std::int64_t killed_at) {
    (void)setenv("LOCKSTEP_JOB_ID", overwrites ? "overwrites" : "does not", 1);
    MultiWorkerMirroredStrategy strategy(Options{.model_dir = directory.path(), .global_batch_size = 8, .verbose = 0});
    (void)unsetenv("LOCKSTEP_JOB_ID");
    const Examples data = make_examples(network, logits, 29, 3);
    Model model = strategy.build(network);
    model.load_weights(first);
    model.compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
    std::vector<AnyCallback> callbacks{BackupAndRestore(directory.backups(), {.save_freq = 1}), AwaitWriter()};
    callbacks.emplace_back(ModelCheckpoint(overwrites ? first : directory / "other.h5"));
    callbacks.emplace_back(Killer(killed_at));
    model.fit(data.data, {.epochs = 3, .callbacks = callbacks});
    return model.iterations();
  };
  const auto save_first = [&](std::uint64_t seed) {
    MultiWorkerMirroredStrategy strategy(Options{.seed = seed, .verbose = 0});
    Model model = strategy.build(network);
    model.compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
    model.save(first);
  };
  save_first(1);
  CHECK_THROWS_AS(run(true, 6), Killed);  // after it has saved the first epoch
  CHECK(run(true, no_step) == 12);
  save_first(1);
  CHECK_THROWS_AS(run(false, 6), Killed);
  save_first(2);
  CHECK(contains(message_of<UsageError>([&] { (void)run(false, no_step); }), "the digest of the initial weights"));
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
