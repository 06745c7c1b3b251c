// The strategies: each joins the workers that train one model in lockstep, and builds or loads models.
// MultiWorkerMirroredStrategy keeps the variables on every worker, ParameterServerStrategy on servers.
#pragma once

#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>

#include <fmt/core.h>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

class RunContext;

/// Chooses how a loaded model is compiled. `saved`: the options that its file holds, if any.
using ChooseCompileOptions =
    std::function<CompileOptions(const Architecture& model, const std::optional<SavedCompileOptions>& saved)>;

/// What all strategies have. Use one of the classes below.
class Strategy {
 public:
  ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// -1 in a `ps` task, which holds variables and does not train.
  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int num_workers() const noexcept;
  [[nodiscard]] bool is_chief() const noexcept;

  /// Mirrors the model on every worker, with the same initial weights.
  [[nodiscard]] Model build(Architecture architecture);

  /// Loads a .keras or .h5 file, which only the chief reads. If the file holds compile options and optimizer state, the
  /// model is compiled and its optimizer restored. A .json file (Keras' model.to_json()) gets initial weights as in
  /// build(). `choose` overrides the compile options; a different kind of optimizer starts without state.
  /// Options::initial_weights, if set, replaces the file's weights and drops the optimizer's state. Throws IoError, or
  /// DataError if the file is damaged or uses something that Lockstep does not support, which the message names.
  [[nodiscard]] Model load_model(const std::filesystem::path& path, const ChooseCompileOptions& choose = {});

  /// As Model::print().
  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    if (is_chief()) print_line(fmt::format(format, std::forward<Args>(args)...));
  }

  /// Tells the launcher that this process works, in a phase without steps that may last longer than --busy-timeout.
  void report_busy() const noexcept;

  /// Warns on the chief if the file exists: a program that saves its model there replaces one of an earlier run.
  void warn_of_replacing(const std::filesystem::path& file) const;

 protected:
  /// The chief prints one line with workers and device. Throws UsageError if the workers' options differ, IoError if
  /// the chief cannot write MODEL_DIR.
  explicit Strategy(const Options& options);

 private:
  void print_line(const std::string& line) const;

  std::shared_ptr<RunContext> run_context_;
};

class MultiWorkerMirroredStrategy : public Strategy {
 public:
  /// Joins the MPI world that mpirun or TF_CONFIG forms; without either, this process is the only worker. With
  /// `--strategy parameter-server` it is a ParameterServerStrategy.
  explicit MultiWorkerMirroredStrategy(const Options& options) : Strategy(options) {}
};

class ParameterServerStrategy : public Strategy {
 public:
  /// Joins the workers and servers of TF_CONFIG. In a `ps` task the program serves from its first call that trains or
  /// evaluates, which does not return: the process exits with 0 when the job is done. A program that is to run without
  /// `lockstep launch` passes `.strategy = StrategyKind::parameter_server` among its defaults to Options::parse.
  explicit ParameterServerStrategy(Options options)
      : Strategy((options.strategy = StrategyKind::parameter_server, std::move(options))) {}
};

}  // namespace lockstep
