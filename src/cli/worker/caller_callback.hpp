// What connects Model::fit with the program that called lockstep.fit: it reports epochs and batches, and applies what
// the caller's own callbacks decide on all workers.
#pragma once

#include "cli/worker/caller_channel.hpp"
#include "training/model_parts.hpp"

#include <lockstep/training/callbacks/callback.hpp>
#include <lockstep/training/model.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The caller was interrupted. Thrown on all workers after the same step.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "the caller was interrupted"; }
};

struct CallerCallbackOptions {
  std::string callbacks;           ///< the caller's, for the job's identity
  bool waits_for_batches = false;  ///< whether the caller's callbacks act after each batch
  int state_descriptor = -1;       ///< see write_state(); -1: the caller's callbacks do not look at weights
  std::vector<Dataset*> refilled;  ///< the caller writes their examples anew before each epoch
};

class CallerCallback : public Callback {
 public:
  /// `channel` is null on all ranks but the chief. Both must outlive the callback.
  CallerCallback(ModelParts& parts, CallerChannel* channel, CallerCallbackOptions options);
  void on_epoch_begin(Model& model, int epoch) override;
  void on_train_batch_end(Model& model, std::int64_t batch, const MetricSums& epoch_so_far) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;
  [[nodiscard]] std::string settings() const override { return options_.callbacks; }

 private:
  /// Sends an event and applies the caller's answer on all ranks. Collective.
  void ask(Model& model, nlohmann::json event);
  /// Sends an event. Reads no message of the caller but an interruption. Collective.
  void report(nlohmann::json event);
  [[nodiscard]] nlohmann::json wait_for_answer(const nlohmann::json& event);

  ModelParts& parts_;
  CallerChannel* channel_;
  CallerCallbackOptions options_;
  // All ranks report after the same batches: the chief chooses the next one by its clock and broadcasts it.
  std::int64_t batches_until_report_ = 1;
  std::int64_t batches_since_report_ = 0;
  double last_report_ = 0;  ///< on the chief
};

/// What the caller reads with every event.
[[nodiscard]] nlohmann::json describe(const Model& model, const Logs& logs);

/// Writes weights and optimizer as a .weights.h5 file to a memfd of the caller. Returns false on the chief, and writes
/// nothing, if a value is NaN or infinite. Collective.
bool write_state(ModelParts& parts, int descriptor);

/// Replaces the content of an inherited file. Throws IoError.
void write_descriptor(int descriptor, std::span<const std::byte> content);

}  // namespace lockstep
