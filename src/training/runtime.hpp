// What all models of a process share: its options, its world and its device.
#pragma once

#include "backend/backend.hpp"
#include "cluster/world.hpp"
#include "collective/communicator.hpp"
#include "collective/make_communicator.hpp"

#include <lockstep/training/options.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class Runtime {
 public:
  explicit Runtime(const Options& options);

  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const World& world() const noexcept { return world_; }
  [[nodiscard]] const Backend& backend() const noexcept { return *backend_; }

  /// For what is agreed outside of training steps. It has no arenas.
  [[nodiscard]] Communicator& control() noexcept { return *control_; }

  /// A communicator of its own for a model's arenas.
  [[nodiscard]] std::unique_ptr<Communicator> new_communicator() const;

  /// True where this process talks to the user.
  [[nodiscard]] bool speaks() const noexcept { return world_.is_chief() && options_.verbose > 0; }

  /// Replicas of the job: one a worker, or what --replicas says.
  [[nodiscard]] std::size_t replicas() const noexcept;

  /// Throws UsageError on all ranks, quoting both values, unless all ranks hold the same `value` of `what`.
  void agree(const std::string& what, const std::string& value);

 private:
  Options options_;
  World world_;
  std::unique_ptr<Communicator> control_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace lockstep
