// What the tests of backups share: a program that is killed at a step and run again, and its files.
#pragma once

#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"
#include "training/model_parts.hpp"

#include <lockstep/lockstep.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

namespace fs = std::filesystem;

inline constexpr int no_step = std::numeric_limits<int>::max();
inline const SparseCategoricalCrossentropy logits({.from_logits = true});

/// Dropout and BatchNormalization have special state: counters and moving statistics.
inline Sequential network_with(double dropout) {
  return Sequential{Input({6, 6, 1}),
                    Conv2D(16, 3, {.activation = relu}),
                    BatchNormalization(),
                    Flatten(),
                    Dropout(dropout),
                    Dense(12, {.activation = relu}),
                    Dense(4)};
}
inline const Sequential network = network_with(0.4);

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
  bool clips_probabilities = false;

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
    const SparseCategoricalCrossentropy loss{.from_logits = true, .clips_probabilities = clips_probabilities};
    model.compile({.optimizer = optimizer, .loss = loss, .metrics = {accuracy}});
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

inline void check_same(const Program::Result& a, const Program::Result& b) {
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
inline void check_resumed(const Program::Result& whole, const Program::Result& resumed) {
  check_same(whole, resumed);
  CHECK(resumed.steps < whole.steps);
}

/// The files whose names do not begin with a dot, as the lock's does.
inline std::vector<fs::path> files_of(const fs::path& directory) {
  std::vector<fs::path> files;
  if (!fs::exists(directory)) return files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (!entry.path().filename().string().starts_with('.')) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline void damage(const fs::path& file) {
  REQUIRE(fs::file_size(file) > 100);
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(fs::file_size(file) / 2));
  stream.write("garbage", 7);
}

}  // namespace lockstep::testing
