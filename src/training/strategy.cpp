// See strategy.hpp.
#include "checkpoint/keras_config.hpp"
#include "training/describe_options.hpp"
#include "training/epoch_batches.hpp"
#include "training/error_handler.hpp"
#include "training/model_state.hpp"
#include "training/runtime.hpp"
#include "training/saving.hpp"
#include "training/shared_read.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/strategy.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace lockstep {

namespace {

std::shared_ptr<Runtime> make_runtime(const Options& options) {
  install_error_handler();  // first: the world itself may be what fails
  return std::make_shared<Runtime>(options);
}

std::string to_text(double number) {
  if (std::isnan(number)) return "none";
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}
std::string to_text(bool flag) { return flag ? "true" : "false"; }
std::string to_text(std::int64_t number) { return std::to_string(number); }
std::string to_text(std::uint64_t number) { return std::to_string(number); }
std::string to_text(const std::string& text) { return text; }

/// Each option by its name, before anything is loaded: of two long descriptions nobody likes to find the difference.
void agree_on_options(Runtime& runtime) {
  const Record options = describe_options(runtime.options());
  for (const char* name : {"allow_tf32", "backup_save_freq", "communication", "deterministic", "division", "epochs",
                           "global_batch_size", "gradient_compression", "initial_weights", "input_scale",
                           "learning_rate", "precision", "replicas", "seed", "steps_per_epoch"}) {
    std::string option = "--";
    option += name;
    std::replace(option.begin(), option.end(), '_', '-');
    runtime.agree(option, std::visit([](const auto& value) { return to_text(value); }, options.at(name)));
  }
  std::string own;
  for (const auto& [name, value] : runtime.options().own) own += " --" + name + " " + value;
  runtime.agree("the program's own options", own.empty() ? "none" : own.substr(1));
}

/// Only the chief writes, but where it cannot, all fail alike: one sentence instead of a lost peer's many.
void check_chief_can_write(Runtime& runtime) {
  if (runtime.options().model_dir.empty()) return;
  std::string problem;
  if (runtime.world().is_chief()) {
    try {
      check_writable(runtime.options().model_dir);
    } catch (const IoError& error) {
      problem = error.what();
    }
  }
  problem = runtime.control().all_gather(problem).front();
  if (!problem.empty()) throw IoError(problem);
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const Options& options) : runtime_(make_runtime(options)) {
  agree_on_options(*runtime_);
  check_chief_can_write(*runtime_);
  if (!runtime_->speaks()) return;
  const int workers = num_workers();
  std::cout << "Lockstep " LOCKSTEP_VERSION ": "
            << (workers == 1 ? "1 worker" : std::to_string(workers) + " workers, " + runtime_->control().describe())
            << "; " << runtime_->backend().describe() << std::endl;
}

MultiWorkerMirroredStrategy::~MultiWorkerMirroredStrategy() = default;

int MultiWorkerMirroredStrategy::rank() const noexcept { return runtime_->world().rank(); }
int MultiWorkerMirroredStrategy::num_workers() const noexcept { return runtime_->world().size(); }
bool MultiWorkerMirroredStrategy::is_chief() const noexcept { return runtime_->world().is_chief(); }

Model MultiWorkerMirroredStrategy::build(Sequential architecture) {
  return Model(std::make_unique<ModelState>(runtime_, std::move(architecture)));
}

Model MultiWorkerMirroredStrategy::load_model(const std::filesystem::path& path, const ChooseCompilation& choose) {
  if (path.extension() == ".json") {
    Sequential architecture = sequential_from_json(read_text_file(*runtime_, path), path.string());
    std::optional<CompileOptions> compilation;
    if (choose) compilation = choose(architecture, {});
    Model model = build(std::move(architecture));
    if (compilation) model.compile(*compilation);
    return model;
  }
  const SharedModel file = read_model_file(*runtime_, path);
  check_weights(file, file.model.architecture);
  std::optional<CompileOptions> compilation;
  if (const auto& training = file.model.training) {
    compilation = CompileOptions{training->optimizer, training->loss, training->metrics};
  }
  if (choose) compilation = choose(file.model.architecture, compilation);
  auto state = std::make_unique<ModelState>(runtime_, file.model.architecture);
  if (compilation) state->compile(*compilation);
  if (runtime_->options().initial_weights.empty()) state->load(file.model);
  return Model(std::move(state));
}

std::vector<Batch> MultiWorkerMirroredStrategy::batches(const Dataset& data, int epoch, bool shuffle) const {
  const Options& run = runtime_->options();
  const EpochBatches epoch_batches(data, static_cast<std::uint64_t>(run.global_batch_size),
                                   shuffle ? run.steps_per_epoch : 0, shuffle);
  std::vector<Batch> all;
  for (std::uint64_t step = 0; step < epoch_batches.size(); ++step) all.push_back(epoch_batches.at(epoch, step));
  return all;
}

void MultiWorkerMirroredStrategy::print(const std::string& line) const {
  if (runtime_->speaks()) std::cout << line << std::endl;
}

}  // namespace lockstep
