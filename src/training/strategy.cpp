// See strategy.hpp.
#include "training/model_state.hpp"
#include "training/runtime.hpp"
#include "training/saving.hpp"

#include <lockstep/training/strategy.hpp>

#include <algorithm>
#include <iostream>
#include <utility>

namespace lockstep {

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const Options& options)
    : runtime_(std::make_shared<Runtime>(options)) {
  if (is_chief()) check_writable(options.model_dir);
  if (!runtime_->speaks()) return;
  const int workers = num_workers();
  std::cout << "Lockstep " LOCKSTEP_VERSION ": " << workers << (workers == 1 ? " worker" : " workers") << ", "
            << runtime_->control().describe() << "; " << runtime_->backend().describe() << std::endl;
}

MultiWorkerMirroredStrategy::~MultiWorkerMirroredStrategy() = default;

int MultiWorkerMirroredStrategy::rank() const noexcept { return runtime_->world().rank(); }
int MultiWorkerMirroredStrategy::num_workers() const noexcept { return runtime_->world().size(); }
bool MultiWorkerMirroredStrategy::is_chief() const noexcept { return runtime_->world().is_chief(); }

Model MultiWorkerMirroredStrategy::build(Sequential architecture) {
  return Model(std::make_unique<ModelState>(runtime_, std::move(architecture)));
}

std::vector<Batch> MultiWorkerMirroredStrategy::batches(const Dataset& data, int epoch, bool shuffle) const {
  const auto batch = static_cast<std::size_t>(runtime_->options().global_batch_size);
  std::vector<Batch> all;
  const std::uint64_t first = static_cast<std::uint64_t>(epoch) * data.size();
  for (std::size_t begin = 0; begin < data.size(); begin += batch) {
    all.push_back({&data, first + begin, std::min(batch, data.size() - begin), shuffle});
  }
  return all;
}

void MultiWorkerMirroredStrategy::print(const std::string& line) const {
  if (runtime_->speaks()) std::cout << line << std::endl;
}

}  // namespace lockstep
