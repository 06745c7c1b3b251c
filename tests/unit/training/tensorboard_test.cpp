// The TensorBoard callback: its files contain the right scalars, steps and values.
#include "support/catch.hpp"
#include "support/points.hpp"

#include <lockstep/lockstep.hpp>

#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

/// A minimal protobuf message: the bytes of the last value of each field, by field number.
class Message {
 public:
  explicit Message(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::uint64_t key = varint(bytes);
      std::size_t size = 8;
      switch (key & 7U) {
        case 0: fields_[key >> 3U] = std::to_string(varint(bytes)); continue;
        case 1: break;
        case 2: size = varint(bytes); break;
        default: throw std::runtime_error("unexpected wire type");
      }
      if (size > bytes.size()) throw std::runtime_error("a field longer than its message");
      fields_[key >> 3U] = bytes.substr(0, size);
      bytes.remove_prefix(size);
    }
  }

  [[nodiscard]] bool has(std::uint64_t field) const { return fields_.contains(field); }
  [[nodiscard]] const std::string& bytes(std::uint64_t field) const { return fields_.at(field); }
  [[nodiscard]] Message message(std::uint64_t field) const { return Message(fields_.at(field)); }
  [[nodiscard]] std::int64_t integer(std::uint64_t field) const { return std::stoll(fields_.at(field)); }
  template <typename Number>
  [[nodiscard]] Number number(std::uint64_t field) const {
    if (fields_.at(field).size() != sizeof(Number)) throw std::runtime_error("unexpected size of a number");
    Number value{};
    std::memcpy(&value, fields_.at(field).data(), sizeof value);
    return value;
  }

 private:
  static std::uint64_t varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      if (bytes.empty()) throw std::runtime_error("truncated varint");
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
  }

  std::map<std::uint64_t, std::string> fields_;
};

using Points = std::vector<std::pair<std::int64_t, float>>;  // step and value

/// All scalars in a run's directory, which must hold `files` files. event_file_writer_test checks the checksums.
std::map<std::string, Points> curves(const fs::path& run, int files = 1) {
  std::map<std::string, Points> found;
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(run)) {
    ++seen;
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(stream), {}};
    std::string_view rest = content;
    bool first = true;
    while (!rest.empty()) {
      std::uint64_t size = 0;
      std::memcpy(&size, rest.data(), sizeof size);
      const Message event(rest.substr(12, size));
      rest.remove_prefix(size + 16);
      if (std::exchange(first, false)) {
        CHECK(event.bytes(3) == "brain.Event:2");
        continue;
      }
      const Message point = event.message(5).message(1);
      CHECK(point.message(9).message(1).bytes(1) == "scalars");
      CHECK(event.number<double>(1) > 1.7e9);
      found[point.bytes(1)].emplace_back(event.integer(2), point.message(8).number<float>(5));
    }
  }
  CHECK(seen == files);
  return found;
}

std::vector<std::string> names(const std::map<std::string, Points>& curves) {
  std::vector<std::string> all;
  for (const auto& [name, points] : curves) all.push_back(name);
  return all;
}

/// Pairs the values with steps first, first + 1, ...
Points points(const std::vector<double>& values, std::int64_t first = 0) {
  Points made;
  for (const double value : values) made.emplace_back(first++, static_cast<float>(value));
  return made;
}

struct Fixture {
  Fixture() { fs::create_directories(directory); }
  ~Fixture() { fs::remove_all(directory); }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  [[nodiscard]] Options options() const {
    Options chosen;
    chosen.model_dir = directory / "model";
    chosen.global_batch_size = 16;
    chosen.verbose = 0;
    return chosen;
  }
  Model make_model(const std::vector<Metric>& metrics = {accuracy}) { return make_model(strategy, metrics); }
  static Model make_model(MultiWorkerMirroredStrategy& strategy, const std::vector<Metric>& metrics = {accuracy}) {
    Model made = strategy.build(Sequential{Input({2}), Dense(4, {.activation = relu}), Dense(2)});
    made.compile({.optimizer = SGD({.learning_rate = 0.125}),
                  .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                  .metrics = metrics});
    return made;
  }

  fs::path directory = fs::temp_directory_path() / ("lockstep_tensorboard_" + std::to_string(getpid()));
  fs::path logs = directory / "logs";
  Dataset data = make_points(40);  // three batches of at most sixteen
  MultiWorkerMirroredStrategy strategy{options()};
};

}  // namespace

TEST_CASE("epochs are written as training and validation scalars") {
  Fixture f;
  Model model = f.make_model();
  const History history =
      model.fit(f.data, {.epochs = 3, .validation_data = &f.data, .callbacks = {TensorBoard({.log_dir = f.logs})}});

  const auto train = curves(f.logs / "train");
  CHECK(names(train) == std::vector<std::string>{"epoch_accuracy", "epoch_learning_rate", "epoch_loss"});
  CHECK(train.at("epoch_loss") == points(history["loss"]));
  CHECK(train.at("epoch_accuracy") == points(history["accuracy"]));
  CHECK(train.at("epoch_learning_rate") == points({0.125, 0.125, 0.125}));

  const auto validation = curves(f.logs / "validation");
  CHECK(names(validation) == std::vector<std::string>{"epoch_accuracy", "epoch_loss",
                                                      "evaluation_accuracy_vs_iterations",
                                                      "evaluation_loss_vs_iterations"});
  CHECK(validation.at("epoch_loss") == points(history["val_loss"]));
  CHECK(validation.at("epoch_accuracy") == points(history["val_accuracy"]));
  const Points losses = points(history["val_loss"]);
  CHECK(validation.at("evaluation_loss_vs_iterations") ==
        Points{{3, losses[0].second}, {6, losses[1].second}, {9, losses[2].second}});
}

TEST_CASE("validation_freq writes matching points and no validation writes no directory") {
  Fixture f;
  Model model = f.make_model();
  const History history = model.fit(f.data, {.epochs = 4,
                                             .validation_data = &f.data,
                                             .validation_freq = 2,
                                             .callbacks = {TensorBoard({.log_dir = f.logs / "every other"})}});
  const Points losses = points(history["val_loss"]);
  REQUIRE(losses.size() == 2);
  const auto validation = curves(f.logs / "every other/validation");
  CHECK(validation.at("epoch_loss") == Points{{1, losses[0].second}, {3, losses[1].second}});
  CHECK(validation.at("evaluation_loss_vs_iterations") == Points{{6, losses[0].second}, {12, losses[1].second}});

  model.fit(f.data, {.callbacks = {TensorBoard({.log_dir = f.logs / "none"})}});
  CHECK(curves(f.logs / "none/train").size() == 3);
  CHECK_FALSE(fs::exists(f.logs / "none/validation"));
}

TEST_CASE("update_freq writes batch scalars") {
  Fixture f;
  struct Recorder : Callback {
    std::vector<double> losses;
    void on_train_batch_end(Model&, std::int64_t, const MetricSums& metrics) override {
      losses.push_back(metrics.loss());
    }
  };
  const auto recorder = std::make_shared<Recorder>();
  Model model = f.make_model();
  model.fit(f.data, {.epochs = 2,
                     .callbacks = {recorder, TensorBoard({.log_dir = f.logs / "1", .update_freq = "batch"}),
                                   TensorBoard({.log_dir = f.logs / "4", .update_freq = 4})}});
  const Points all = points(recorder->losses, 1);
  REQUIRE(all.size() == 6);
  const auto every = curves(f.logs / "1/train");
  CHECK(every.at("batch_loss") == all);
  CHECK(every.at("batch_accuracy").size() == 6);
  CHECK(every.at("epoch_loss").size() == 2);
  CHECK(curves(f.logs / "4/train").at("batch_loss") == Points{all[3]});
}

TEST_CASE("a model without metrics writes only its loss") {
  Fixture f;
  Model model = f.make_model({});
  model.fit(f.data, {.callbacks = {TensorBoard({.log_dir = f.logs, .update_freq = 1})}});
  CHECK(names(curves(f.logs / "train")) == std::vector<std::string>{"batch_loss", "epoch_learning_rate", "epoch_loss"});
}

TEST_CASE("the learning rate and other callbacks' logs are written") {
  Fixture f;
  struct Mine : Callback {
    void on_epoch_end(Model&, int epoch, Logs& logs) override { logs["mine"] = 0.5 * epoch; }
  };
  Model model = f.make_model();
  const LearningRateScheduler halves([](int epoch, double) { return 0.5 / (1 << epoch); });
  model.fit(f.data, {.epochs = 3, .initial_epoch = 1, .callbacks = {Mine(), halves, TensorBoard({.log_dir = f.logs})}});
  const auto train = curves(f.logs / "train");
  CHECK(train.at("epoch_mine") == Points{{1, 0.5F}, {2, 1.0F}});
  CHECK(train.at("epoch_learning_rate") == Points{{1, 0.25F}, {2, 0.125F}});
}

TEST_CASE("a second fit adds files and restarts the batch count") {
  Fixture f;
  Model model = f.make_model();
  const auto board = std::make_shared<TensorBoard>(TensorBoardOptions{.log_dir = f.logs, .update_freq = "batch"});
  model.fit(f.data, {.validation_data = &f.data, .callbacks = {board}});
  model.fit(f.data, {.epochs = 2, .validation_data = &f.data, .initial_epoch = 1, .callbacks = {board}});
  const auto train = curves(f.logs / "train", 2);
  CHECK(train.at("epoch_loss").size() == 2);
  int first_batches = 0;
  for (const auto& [step, value] : train.at("batch_loss")) first_batches += step == 1 ? 1 : 0;
  CHECK(first_batches == 2);
  CHECK(curves(f.logs / "validation", 2).at("evaluation_loss_vs_iterations").size() == 2);
}

TEST_CASE("event files are readable during training and complete after a failure") {
  Fixture f;
  struct Reader : Callback {
    fs::path logs;
    void on_epoch_begin(Model&, int epoch) override {
      if (epoch > 0) CHECK(curves(logs / "train").at("epoch_loss").size() == static_cast<std::size_t>(epoch));
      if (epoch > 0) CHECK(curves(logs / "validation").at("epoch_loss").size() == static_cast<std::size_t>(epoch));
      if (epoch == 2) throw std::runtime_error("enough");
    }
  };
  const auto reader = std::make_shared<Reader>();
  reader->logs = f.logs;
  Model model = f.make_model();
  const FitOptions options{.epochs = 3,
                           .validation_data = &f.data,
                           .callbacks = {TensorBoard({.log_dir = f.logs, .update_freq = "batch"}), reader}};
  CHECK_THROWS_AS(model.fit(f.data, options), std::runtime_error);
  CHECK(curves(f.logs / "train").at("batch_loss").size() == 6);
}

TEST_CASE("a resumed run continues its event files where the backup was taken") {
  Fixture f;
  struct Killer : Callback {
    std::int64_t at;
    explicit Killer(std::int64_t iteration) : at(iteration) {}
    void on_train_batch_end(Model& model, std::int64_t, const MetricSums&) override {
      if (model.iterations() == at) throw std::runtime_error("killed");
    }
  };
  const auto live = [&f](const AnyCallback& last) {
    MultiWorkerMirroredStrategy strategy{f.options()};
    Model model = f.make_model(strategy);
    model.fit(f.data, {.epochs = 2,
                       .callbacks = {BackupAndRestore(f.directory / "backup"),
                                     TensorBoard({.log_dir = f.logs, .update_freq = "batch"}), last}});
  };
  CHECK_THROWS_AS(live(Killer(5)), std::runtime_error);
  CHECK(curves(f.logs / "train").at("batch_loss").size() == 5);
  live(Killer(0));
  // The steps after the backup are trained again, but are in the file once.
  const auto train = curves(f.logs / "train", 1);
  const Points& losses = train.at("batch_loss");
  REQUIRE(losses.size() == 6);
  for (std::size_t i = 0; i < losses.size(); ++i) CHECK(losses[i].first == static_cast<std::int64_t>(i) + 1);
  CHECK(train.at("epoch_loss").size() == 2);
}

TEST_CASE("a resumed run whose event file was removed begins a new one") {
  Fixture f;
  const auto callback = std::make_shared<TensorBoard>(TensorBoardOptions{.log_dir = f.logs});
  Model model = f.make_model();
  callback->on_train_begin(model);
  const CallbackState state = callback->save_state();
  CHECK(state.texts.at("train").starts_with((f.logs / "train").string()));
  callback->on_train_begin(model);
  fs::remove(state.texts.at("train"));
  callback->restore_state(state);
  callback->on_train_end(model);
  CHECK(curves(f.logs / "train", 1).empty());
}

TEST_CASE("unsupported TensorBoard options are reported before training") {
  Fixture f;
  CHECK_THROWS_AS(TensorBoard({.update_freq = "step"}), UsageError);
  CHECK_THROWS_WITH(
      TensorBoard({.update_freq = "step"}),
      "TensorBoard's update_freq is 'step' but must be 'epoch', 'batch', or a number of batches that is at "
      "least 1");
  CHECK_THROWS_AS(TensorBoard({.update_freq = 0}), UsageError);
  CHECK_THROWS_AS(TensorBoard({.update_freq = -3}), UsageError);

  std::ofstream(f.logs) << "a file with the directory's name";
  Model model = f.make_model();
  CHECK_THROWS_AS(model.fit(f.data, {.callbacks = {TensorBoard({.log_dir = f.logs})}}), IoError);
  CHECK(model.iterations() == 0);
}
