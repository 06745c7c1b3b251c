// The strategy: this process's place in a world of workers that train one model in lockstep.
#pragma once

#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Runtime;  // world, communicator factory, device

/// How a loaded model is to be compiled, from its layers and from how its file says, if it does.
using ChooseCompilation =
    std::function<CompileOptions(const Sequential& model, const std::optional<CompileOptions>& saved)>;

class MultiWorkerMirroredStrategy {
 public:
  /// Joins the world of mpirun, or stands alone. The chief prints one line: who is in the world, on what.
  explicit MultiWorkerMirroredStrategy(const Options& options);
  ~MultiWorkerMirroredStrategy();
  MultiWorkerMirroredStrategy(const MultiWorkerMirroredStrategy&) = delete;
  MultiWorkerMirroredStrategy& operator=(const MultiWorkerMirroredStrategy&) = delete;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int num_workers() const noexcept;
  [[nodiscard]] bool is_chief() const noexcept;

  /// Mirrors the model on every worker: the same initial weights everywhere.
  [[nodiscard]] Model build(Sequential architecture);

  /// A model of a .keras or .h5 file, which the chief reads for all: compiled, with its optimizer's state, if the file
  /// has that. Or of a .json file, Keras' model.to_json(), with the initial weights of build(). `choose` may compile it
  /// otherwise; an optimizer of another kind begins without state. Options::initial_weights, where given, replace the
  /// file's, and its optimizer's state. Throws IoError, or DataError where it is damaged or holds what Lockstep lacks
  /// (named).
  [[nodiscard]] Model load_model(const std::filesystem::path& path, const ChooseCompilation& choose = {});

  /// The global batches of epoch `epoch` (from 0): one pass over `data`, the last batch possibly shorter, or as many
  /// whole batches as --steps-per-epoch says. Without `shuffle` always a whole pass, in order: for evaluation.
  [[nodiscard]] std::vector<Batch> batches(const Dataset& data, int epoch = 0, bool shuffle = true) const;

  /// Prints on the chief only.
  void print(const std::string& line) const;

 private:
  std::shared_ptr<Runtime> runtime_;
};

}  // namespace lockstep
