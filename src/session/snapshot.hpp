// A copy of the weights and the optimizer state, taken from the arenas between two steps. Training waits only for the
// copy; another thread may convert it to Keras' layout and write it. The ranks of a tensor-parallel model send their
// shards to the chief while training continues.
#pragma once

#include "backend/backend.hpp"
#include "checkpoint/model_data.hpp"
#include "parallel/shards.hpp"
#include "plan/plan.hpp"

#include <lockstep/training/model.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

class Snapshot {
 public:
  /// All arguments must outlive the snapshot. `shards` is null unless the model is tensor parallel.
  Snapshot(const Architecture& architecture, const Plan& plan, const Executable& executable, const Shards* shards)
      : architecture_(architecture), plan_(plan), executable_(executable), shards_(shards) {}

  /// Copies the weights and the optimizer's slots. For a tensor-parallel model it is collective and starts a gather:
  /// until the communicator has finished it, the chief's snapshot is incomplete and the other ranks' memory is in use.
  /// `max_gather_steps`: see Communicator::start_gather.
  void capture(const Arenas& arenas, Communicator& communicator, const CompileOptions& options, std::uint64_t iteration,
               std::size_t max_gather_steps);

  /// As capture(), for a visit before the arenas change: copies the values in Keras' layout, and nothing else. Only for
  /// a data-parallel model.
  void read(const Arenas& arenas, const CompileOptions& options, std::uint64_t iteration);

  /// See digest_of_copy() in mirrors.hpp. Only for a data-parallel model.
  [[nodiscard]] std::uint64_t mirror_digest() const;

  /// Passes the complete snapshot to `visitor`, in Keras' layout and order. Throws DataError if a
  /// value is NaN or infinite: nobody could use the file.
  void visit(const std::function<void(ModelData&)>& visitor);

 private:
  /// The model's variables and slots, without values.
  [[nodiscard]] ModelData make_empty_model() const;
  /// For each variable of `model`, its values and, if it is trainable, its slots.
  [[nodiscard]] std::vector<std::vector<std::vector<float>*>> arrays_of(ModelData& model) const;
  void prepare_model_data();
  void unpack();
  void receive_bytes(int rank, std::size_t bytes);
  void unpack_until(int rank, std::size_t end);

  const Architecture& architecture_;
  const Plan& plan_;
  const Executable& executable_;
  const Shards* shards_;
  // All buffers are reused by the next capture: faulting in new pages would cost more than the copies.
  std::vector<float> values_;  ///< the arena of weights, then those of the slots
  /// Instead of values_ in a tensor-parallel model: each rank's packed shards. The chief unpacks them as they arrive,
  /// which delays training less than unpacking everything at the end.
  Shards::PackedShards packed_shards_;
  std::vector<std::size_t> received_bytes_;  ///< by rank
  std::vector<std::size_t> unpacked_;        ///< by rank: floats copied to full_arrays_
  std::optional<ModelData> model_data_;
  bool is_unpacked_ = false;           ///< values_ are in model_data_
  Shards::FullVariables full_arrays_;  ///< the arrays of model_data_
  CompileOptions options_;
  std::uint64_t iteration_ = 0;
};

}  // namespace lockstep
