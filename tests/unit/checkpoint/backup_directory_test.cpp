// Backup directories: which backups are kept, loaded and removed. Training states round-trip bit for bit.
#include "checkpoint/backup/backup_directory.hpp"
#include "checkpoint/backup/training_state.hpp"
#include "random_model.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
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
  state.metric_sums = {std::nextafter(2.0, 3.0), std::numeric_limits<double>::infinity()};
  state.num_examples = 5e-324;
  state.seconds = std::numeric_limits<double>::max();
  state.history.epochs.push_back({0, {{"loss", 0.1}, {"nan", std::nan("")}}, 1.5, 2.5});
  state.tracked = {{"total", -std::numeric_limits<double>::infinity()}};
  state.callbacks.push_back({{{"best", std::numeric_limits<double>::infinity()}},
                             {{"columns", "epoch,loss"}},
                             {{"w", {2, 2}, {1, 2, 3, 4}}}});
  state.callbacks.push_back({});
  state.batch_norm_replicas = 2;
  state.job = "job-1";
  state.job_settings = {{"--seed", "7"}, {"quotes", "\"and\" \\ and \xff"}};
  state.provenance = {{"plan", "0123"}};
  return state;
}

ModelData backup(std::uint64_t step) {
  for (std::uint64_t seed = step;; seed += 1000) {
    ModelData model = random_model(seed);
    if (!model.compile_state) continue;
    model.compile_state->iteration = static_cast<std::int64_t>(step);
    model.training_state = serialize_training_state(state_of(static_cast<int>(step)));
    return model;
  }
}

void any(const LoadedBackup& /*backup*/) {}

/// From now on pread() fails with EIO in this process and its children. HDF5 reads by it; read() works.
void fail_positioned_reads() {
  std::array<sock_filter, 4> program{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pread64, 0, 1),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog filter{program.size(), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    throw std::runtime_error("no seccomp filters here");
}

std::vector<BackupName> names(const BackupDirectory& directory) { return directory.list(); }

}  // namespace

TEST_CASE("a training state round-trips bit for bit, infinities included") {
  TrainingState state = state_of(4);
  GradientCounts gradients{.dropped = 3};
  gradients.add_applied(5);
  state.gradients = {gradients};
  state.history.epochs[0].gradients = {{}, gradients};
  const TrainingState again = deserialize_training_state(serialize_training_state(state), "test");
  CHECK(again.epoch == 4);
  CHECK(again.step == 3);
  CHECK(!again.stop_training);
  CHECK(again.learning_rate == state.learning_rate);
  CHECK(again.loss_sum == state.loss_sum);
  CHECK(again.metric_sums == state.metric_sums);
  CHECK(again.num_examples == state.num_examples);
  CHECK(again.seconds == state.seconds);
  CHECK(again.history.epochs[0].logs.at("loss") == 0.1);
  CHECK(std::isnan(again.history.epochs[0].logs.at("nan")));
  CHECK(again.history.epochs[0].examples_per_second == 2.5);
  for (const GradientCounts& its : {again.gradients.at(0), again.history.epochs[0].gradients.at(1)}) {
    CHECK(its.by_staleness == gradients.by_staleness);
    CHECK(its.total_staleness == 5);
    CHECK(its.dropped == 3);
  }
  CHECK(again.tracked == state.tracked);
  REQUIRE(again.callbacks.size() == 2);
  CHECK(again.callbacks[0].numbers == state.callbacks[0].numbers);
  CHECK(again.callbacks[0].texts == state.callbacks[0].texts);
  CHECK(again.callbacks[0].arrays.at(0).values == state.callbacks[0].arrays[0].values);
  CHECK(again.batch_norm_replicas == 2);
  CHECK(again.job == "job-1");
  CHECK(again.job_settings.at("--seed") == "7");
  CHECK(again.provenance == state.provenance);
}

TEST_CASE("an invalid training state is rejected with the name of its file") {
  const SerializedTrainingState good = serialize_training_state(state_of(1));
  const auto with = [&good](const std::string& from, const std::string& to) {
    SerializedTrainingState changed = good;
    const std::size_t at = changed.text.find(from);
    REQUIRE(at != std::string::npos);
    changed.text.replace(at, from.size(), to);
    return changed;
  };
  SerializedTrainingState without_arrays = good;
  without_arrays.arrays.clear();
  for (const SerializedTrainingState& bad :
       {SerializedTrainingState{"", {}}, SerializedTrainingState{"[1, 2", {}}, SerializedTrainingState{"{}", {}},
        without_arrays, with("\"epoch\":1", "\"epoch\":-1"), with("\"step\":3", "\"step\":\"3\""),
        with("\"inf\"", "\"in\"")}) {
    try {
      static_cast<void>(deserialize_training_state(bad, "FILE"));
      FAIL("accepted: " << bad.text);
    } catch (const DataError& error) {
      CHECK(std::string(error.what()).starts_with("FILE: its training state cannot be read ("));
    }
  }
  CHECK(contains(message_of<UsageError>([&] {
                   static_cast<void>(deserialize_training_state(with("\"version\":3", "\"version\":1"), "FILE"));
                 }),
                 "its format is 1, this one's is 3; finish the job with the version that began it"));
}

TEST_CASE("a directory keeps the newest backups of a fit and the last of each earlier fit") {
  const ScratchDirectory scratch;
  const BackupDirectory directory(scratch / "backup");
  const auto warn = [](const std::string& message) { FAIL(message); };
  CHECK(names(directory).empty());
  CHECK(!directory.newest(1, any, warn));
  for (const std::uint64_t step : {5, 10, 15}) directory.write({1, step}, backup(step), 2);
  CHECK(names(directory) == std::vector<BackupName>{{1, 10}, {1, 15}});
  directory.write({2, 4}, backup(4), 2);
  directory.write({2, 12}, backup(12), 2);
  directory.write({2, 100}, backup(100), 2);
  CHECK(names(directory) == std::vector<BackupName>{{1, 15}, {2, 12}, {2, 100}});

  const auto found = directory.newest(2, any, warn);
  REQUIRE(found);
  CHECK(found->path == directory.path() / "fit-2-step-0000000100.h5");
  CHECK(found->model.compile_state->iteration == 100);
  std::string why;
  CHECK(equal(found->model, backup(100), why));
  CHECK(found->model.training_state->text == backup(100).training_state->text);
  CHECK(found->model.training_state->arrays.at(0).values == std::vector<float>{1, 2, 3, 4});
  CHECK(directory.newest(1, any, warn)->model.compile_state->iteration == 15);
  CHECK(!directory.newest(3, any, warn));

  std::ofstream(directory.path() / "somebody's file") << "stays";
  CHECK(directory.clear());
  CHECK(names(directory).empty());
  CHECK(fs::exists(directory.path() / "somebody's file"));
}

TEST_CASE("to make room, a directory gives up what is older than the newest whole backup of each fit") {
  const ScratchDirectory scratch;
  const BackupDirectory directory(scratch.path());
  for (const int fit : {1, 2}) {
    for (const std::uint64_t step : {5, 10, 15, 20}) directory.write({fit, step}, backup(step), 4);
  }
  fs::resize_file(directory.file_of({2, 20}), 100);  // damaged
  CHECK(directory.remove_older() == 2);
  CHECK(names(directory) == std::vector<BackupName>{{1, 20}, {2, 15}, {2, 20}});
  CHECK(directory.remove_older() == 0);
  fs::resize_file(directory.file_of({2, 15}), 100);
  CHECK(directory.remove_older() == 0);
  CHECK(BackupDirectory(scratch / "absent").remove_older() == 0);
}

TEST_CASE("files with other names are ignored") {
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

TEST_CASE("a model file without a training state is not a backup") {
  const ScratchDirectory scratch;
  const BackupDirectory directory(scratch.path());
  ModelData model = backup(1);
  model.training_state.reset();
  directory.write({1, 1}, model, 2);
  std::vector<std::string> warnings;
  CHECK_THROWS_AS(directory.newest(1, any, [&](const std::string& message) { warnings.push_back(message); }),
                  DataError);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("no training state") != std::string::npos);
}

TEST_CASE("a backup that could not be read once keeps its name") {
  const ScratchDirectory scratch;
  const BackupDirectory directory(scratch.path());
  directory.write({1, 5}, backup(5), 3);
  const auto read_on_failing_disk = [&directory] {
    fail_positioned_reads();
    try {
      (void)directory.newest(1, any, [](const std::string&) {});
    } catch (const IoError& error) {
      return contains(error.what(), "Input/output error") ? 0 : 1;
    } catch (const std::exception&) {
      return 2;
    }
    return 3;
  };
  const pid_t child = fork();
  if (child == 0) _exit(read_on_failing_disk());
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(names(directory) == std::vector<BackupName>{{1, 5}});
  CHECK(directory.newest(1, any, [](const std::string&) {}));
}

TEST_CASE("a backup that turns out bad lets the one before it be tried") {
  const ScratchDirectory scratch;
  const BackupDirectory directory(scratch.path());
  for (const std::uint64_t step : {5, 10, 15}) directory.write({1, step}, backup(step), 3);
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& message) { warnings.push_back(message); };
  const auto file = [&](const char* step) { return scratch / (std::string("fit-1-step-00000000") + step + ".h5"); };
  const auto found = directory.newest(
      1,
      [&](const LoadedBackup& loaded) {
        if (loaded.path == file("15")) throw IoError("Input/output error");
        if (loaded.path == file("10")) throw DataError("it holds NaN");
      },
      warn);
  REQUIRE(found);
  CHECK(found->path == file("05"));
  CHECK(warnings == std::vector<std::string>{"skipping a backup that cannot be read: Input/output error",
                                             "skipping a damaged backup: it holds NaN"});
  CHECK(fs::exists(file("15")));  // it may be readable again later
  CHECK(fs::exists(file("10").string() + ".damaged"));
  const auto unreadable = [](const LoadedBackup& /*loaded*/) { throw IoError("Input/output error"); };
  CHECK_THROWS_AS(directory.newest(1, unreadable, warn), IoError);
}
