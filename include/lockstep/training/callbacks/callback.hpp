// The base class of callbacks: what fit() calls between batches and epochs.
//
// Every worker runs every callback with the same all-reduced metrics, so all workers make the same decisions. Only the
// chief writes files.
#pragma once

#include <lockstep/core/callback_state.hpp>
#include <lockstep/core/history.hpp>
#include <lockstep/training/metric_sums.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace lockstep {

class BackupAndRestore;
class Model;

/// Base of all callbacks: override what you need. Epochs and batches count from 0.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_train_begin(Model& /*model*/) {}
  virtual void on_epoch_begin(Model& /*model*/, int /*epoch*/) {}
  /// Called after every optimizer step. `epoch_so_far` is the sum over the epoch's batches.
  virtual void on_train_batch_end(Model& /*model*/, std::int64_t /*batch*/, const MetricSums& /*epoch_so_far*/) {}
  /// May add to `logs`, which become the epoch's record in the history.
  virtual void on_epoch_end(Model& /*model*/, int /*epoch*/, Logs& /*logs*/) {}
  virtual void on_train_end(Model& /*model*/) {}

  /// "patience=3, min_delta=0": a run resumes only a backup of a run whose callbacks had these settings.
  [[nodiscard]] virtual std::string settings() const { return {}; }

  /// A backup holds what `save_state` returns. A resumed run passes it to `restore_state`, after on_train_begin.
  [[nodiscard]] virtual CallbackState save_state() const { return {}; }
  virtual void restore_state(const CallbackState& /*state*/) {}

  /// Not null for BackupAndRestore. fit() itself takes and restores the backups, because only it knows its position.
  [[nodiscard]] virtual const BackupAndRestore* backups() const noexcept { return nullptr; }
};

/// Holds any callback, for lists: {EarlyStopping(), CSVLogger("log.csv")}. Copies share the callback.
class AnyCallback {
 public:
  // NOLINTBEGIN(google-explicit-constructor): implicit, for lists of callbacks
  template <std::derived_from<Callback> Derived>
  AnyCallback(Derived callback) : callback_(std::make_shared<Derived>(std::move(callback))) {}
  /// The caller keeps access to the callback.
  template <std::derived_from<Callback> Derived>
  AnyCallback(std::shared_ptr<Derived> callback) : callback_(std::move(callback)) {}
  // NOLINTEND(google-explicit-constructor)
  [[nodiscard]] Callback& get() const noexcept { return *callback_; }

 private:
  std::shared_ptr<Callback> callback_;
};

}  // namespace lockstep
