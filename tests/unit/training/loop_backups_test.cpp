// Backups of custom training loops, which a killed program resumes from, and how such loops end.
#include "unit/training/killed_runs.hpp"

using namespace lockstep;
using namespace lockstep::testing;

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
