// Models and backups that cannot be written, or must not be.
#include "unit/training/killed_runs.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <cstdlib>
#include <functional>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

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

}  // namespace

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

TEST_CASE("a program whose last model could not be written ends with an error and keeps its backups") {
  const auto on_failure = GENERATE(CheckpointFailure::stop, CheckpointFailure::proceed);
  const ScratchModelDirectory directory;
  const auto program = [&](const std::vector<std::string>& saves) {
    fs::remove_all(directory / "file");
    std::ofstream(directory / "file") << "not a directory";
    Options options{.model_dir = directory.path(), .global_batch_size = 8, .verbose = 0};
    options.on_checkpoint_failure = on_failure;
    MultiWorkerMirroredStrategy strategy(options);
    const Examples data = make_examples(network, logits, 8, 3);
    Model model = strategy.build(network);
    model.compile({.optimizer = SGD(), .loss = logits, .metrics = {}});
    model.fit(data.data, {.callbacks = {BackupAndRestore(directory.backups())}});
    for (const std::string& name : saves) {
      if (name == "file/late.h5") fs::remove(directory / "file");  // the save before has waited for the one in it
      model.save_async(directory / name);
    }
  };
  CHECK(exit_code_of([&] { program({"file/model.h5"}); }) == static_cast<int>(ExitCode::io));
  CHECK(files_of(directory.backups()).size() == 1);
  if (on_failure == CheckpointFailure::proceed) {
    CHECK(exit_code_of([&] { program({"model.h5", "file/model.h5"}); }) == static_cast<int>(ExitCode::io));
    CHECK(exit_code_of([&] { program({"file/model.h5", "model.h5"}); }) == static_cast<int>(ExitCode::io));
    CHECK(exit_code_of([&] { program({"file/model.h5", "model.h5", "file/late.h5"}); }) == 0);
  } else {
    CHECK(exit_code_of([&] { program({"model.h5"}); }) == 0);
  }
  CHECK(!fs::exists(directory.backups()));
}

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
