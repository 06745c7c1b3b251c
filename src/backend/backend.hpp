// What a device does: the vocabulary of operations a plan is written in, and the interface every device implements.
//
// A plan is a list of operations over numbered tensors (one a materialised layer output; Reshape and Flatten cost
// nothing and have none). Conventions that make backward short:
//   - The gradient of tensor t is the gradient before the activation that its producer fused: whoever writes t's
//     gradient multiplies by that activation's derivative, which relu, sigmoid and tanh give from t itself.
//   - softmax is no such activation: it runs as an operation of its own.
//   - Losses are summed over the slice and divided by the global batch, so summed gradients are the step's gradient.
#pragma once

#include "core/aligned_buffer.hpp"
#include "core/request.hpp"
#include "core/slice.hpp"

#include <lockstep/nn/losses.hpp>
#include <lockstep/nn/optimizers.hpp>
#include <lockstep/nn/sequential.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

enum class ElementType { float32, bfloat16 };

/// How the examples of a tensor lie: [channels / block][height][width][block]. block == channels is Keras' own order.
struct TensorSpec {
  std::string name;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  std::int64_t block = 1;           ///< chosen by the backend; divides channels
  bool blocked = false;             ///< told to libraries as blocks even where one block holds all channels
  bool keras_order = false;         ///< demanded: block must be channels
  std::int64_t first_channel = 0;   ///< of a tensor divided by features: where this rank's channels begin
  std::int64_t whole_channels = 0;  ///< and how many all ranks have together; 0: the tensor is whole
  /// Not 0: values and gradients are of use within one slice of the examples only, of at most so many, so that all
  /// slices may share their memory.
  std::size_t passing_rows = 0;
  int alias = -1;  ///< the tensor whose memory this one is, seen in another shape
  ElementType type = ElementType::float32;

  [[nodiscard]] std::int64_t elements() const noexcept { return height * width * channels; }

  /// Where the backend keeps the element that Keras counts as number `index` (row-major over height, width, channel).
  [[nodiscard]] std::int64_t place_of(std::int64_t index) const noexcept {
    const std::int64_t channel = index % channels;
    const std::int64_t pixel = index / channels;
    return ((channel / block) * height * width + pixel) * block + channel % block;
  }

  /// As which number Keras counts this tensor's element `index` in the whole tensor.
  [[nodiscard]] std::int64_t place_in_whole(std::int64_t index) const noexcept {
    if (whole_channels == 0) return index;
    return index / channels * whole_channels + first_channel + index % channels;
  }
};

/// What an update does with a parameter's summed gradient.
enum class UpdateRule {
  optimizer,       ///< a trainable weight
  moving_average,  ///< BatchNormalization's statistics: the "gradient" is the step's statistic, averaged over replicas
  assign,          ///< the step's metric sums, and what ranks sum up within a step
};

/// A variable and its place in the arenas (weights, gradients and slots share offsets).
struct ParameterSpec {
  std::string name;  ///< "conv2d/kernel"
  ParameterInfo info;
  std::size_t storage = 0;  ///< elements in the backend's layout, padding included
  std::size_t offset = 0;   ///< first element in the arenas; a multiple of 16
  UpdateRule rule = UpdateRule::optimizer;
  float momentum = 0;    ///< of a moving average
  bool own = false;      ///< in this rank's own arenas: its part of a variable, or one that every rank computes whole
  bool divided = false;  ///< where own: a part, and other ranks hold the others
};

enum class OperationKind {
  // forward
  gather,
  convolution,
  dense,
  max_pooling,
  average_pooling,
  dropout,
  batch_normalization,
  activation,
  softmax,
  finish_sum,  ///< takes what the ranks have summed up (Operation::sum), adds the bias and activates
  loss,        ///< metric sums and, in training, the first gradient
  // backward
  convolution_backward,
  dense_backward,
  max_pooling_backward,
  average_pooling_backward,
  dropout_backward,
  batch_normalization_backward,
  activation_backward,
  softmax_backward,
  offer_gradient,  ///< puts output's gradient, a part of it, where the ranks sum it up (Operation::sum)
  take_gradient,   ///< takes the sum for output's gradient
  // between ranks
  contribute,
  update,  ///< reduce, update this rank's share, publish
  await,
  update_own,  ///< a range of this rank's own arenas, which concerns nobody else
  pack,        ///< lays side by side, by rank, what this one gives of a tensor (Operation::exchange)
  give,        ///< sends it
  take,        ///< waits for what the others give
  unpack,      ///< lays that where it belongs
};

[[nodiscard]] std::string_view name_of(OperationKind kind) noexcept;

struct Operation {
  int id = -1;  ///< place among the plan's compute operations; -1 for those between ranks
  OperationKind kind = OperationKind::gather;
  int layer = -1;      ///< place in Graph::layers
  int input = -1;      ///< tensor
  int output = -1;     ///< tensor; of a backward operation the forward's, whose gradient it reads
  int parameter = -1;  ///< first of the layer's parameters
  ActivationFunction activation = ActivationFunction::linear;        ///< fused into the output
  ActivationFunction input_activation = ActivationFunction::linear;  ///< backward: what input's producer fused
  bool input_gradient = false;                                       ///< backward: whether input's gradient is wanted
  std::int64_t rows_begin = 0;  ///< dense_backward: input features [rows_begin, rows_end), as the backend orders them
  std::int64_t rows_end = 0;
  int slice = 0;  ///< which of `slices` contiguous parts of this rank's examples it computes
  int slices = 1;
  bool by_examples = false;  ///< not of all the examples, but of this rank's rows (Graph::rows_of)
  int bucket = -1;           ///< contribute, update, await; update_own: place in Plan::own_ranges
  int exchange = -1;         ///< pack, give, take, unpack: place in Graph::exchanges
  int sum = -1;  ///< the parameter through which ranks sum up this operation's result, which is a part of the whole
};

/// What gather makes of the data set's numbers: x scale + offset, where x of a byte is byte * byte_scale.
struct InputScaling {
  double byte_scale = 1.0 / 255;  ///< 1 for a model that rescales bytes itself
  double scale = 1;               ///< of the model's Rescaling layers
  double offset = 0;

  /// Bytes are divided by this: pixels / 255 is what Keras programs write, and a product differs in the last bit.
  [[nodiscard]] float byte_divisor() const noexcept { return static_cast<float>(1 / byte_scale); }
};

/// What ranks hand each other within a step where a model that is divided by examples goes on by features: for each two
/// of them a block, the examples of one times the channels of the other. By rank.
struct ExchangeSpec {
  std::vector<std::int64_t> channels;  ///< so many, one after the other, are a rank's
  std::vector<std::size_t> given;      ///< floats to it
  std::vector<std::size_t> taken;      ///< floats from it
};

/// A model lowered to tensors, parameters and operations, layouts chosen: what a backend compiles.
struct Graph {
  std::vector<LayerInfo> layers;
  Loss loss;
  std::vector<TensorSpec> tensors;
  std::vector<ParameterSpec> parameters;  ///< Keras' order; then the metric sums; then what ranks sum up within a step
  int sums = 0;                           ///< how many of the last kind there are
  std::vector<Operation> forward;         ///< gather ... loss
  std::vector<Operation> backward;
  std::vector<ExchangeSpec> exchanges;  ///< of values; of their gradients, where these are wanted
  int rank = 0;                         ///< of a divided model: whose part it is,
  int ranks = 1;                        ///< and of how many
  double work = 0;                      ///< of the whole model in a step: see work_of() in plan/division.hpp
  std::size_t replicas = 0;             ///< of the job; 0: one a rank
  InputScaling input;
  bool mixed_bfloat16 = false;
  bool plain = false;  ///< tensors shall lie in Keras' order, whatever is faster
  /// How much the backend likes to keep at hand from one operation to the next (its caches); 0: it does not care.
  std::size_t cache_bytes = 0;
  std::size_t capacity = 0;  ///< examples of the largest slice a rank is given

  /// The rows of a batch of so many that a rank has, where it computes by examples.
  [[nodiscard]] Slice rows_of(std::size_t batch, int of_rank) const {
    return rows_of_rank(batch, of_rank, ranks, replicas > 0 ? replicas : static_cast<std::size_t>(ranks));
  }

  [[nodiscard]] int metrics_parameter() const noexcept { return static_cast<int>(parameters.size()) - 1 - sums; }
};

/// Metric sums as `loss` writes them into the metrics parameter's gradient.
enum MetricPlace : std::size_t {
  metric_loss = 0,
  metric_correct = 1,
  metric_count = 2,
  metric_leave = 3,              ///< ranks with Request::leave
  metric_leave_with_backup = 4,  ///< ranks with Request::leave_with_backup
  metric_places = 16
};

/// The resident data set that steps gather from.
struct DataView {
  std::variant<const std::uint8_t*, const float*> inputs;   ///< scaled as Graph::input says
  std::variant<const std::int32_t*, const float*> targets;  ///< class indices, or dense rows
  std::size_t examples = 0;
  bool lasting = false;  ///< the same bytes at the same place as long as the program trains: worth a copy on the device
};

/// Rows [begin, end) of the local slice that belong to one replica.
struct ReplicaRows {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// What changes from step to step.
struct StepContext {
  DataView data;
  std::span<const std::uint32_t> examples;  ///< this rank's slice of the global batch; may be empty
  std::size_t first_place = 0;              ///< place of examples[0] in the global batch
  std::span<const ReplicaRows> replicas;    ///< those computed here; cover the slice
  ReplicaRows counted{0, ~std::size_t{0}};  ///< rows of the slice whose metrics this rank counts
  std::size_t total_replicas = 1;           ///< with at least one example, over all ranks
  double gradient_scale = 1;                ///< 1 / global batch
  std::uint64_t step = 0;
  std::uint64_t seed = 0;
  Request request = Request::none;  ///< of this rank's launcher
  bool training = false;
};

/// Elements [begin, end) of the arenas to update; the gradient of i is the sum of sources[k][i] in the order of k.
struct UpdateShare {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::span<const float* const> sources;
  bool own = false;  ///< of this rank's own arenas, whose gradients are whole
  /// By parameter: what the gradients of trainable weights are multiplied by, since their norm is clipped. None: by 1.
  std::span<const float> scales = {};
};

/// The memory of an exchange: blocks side by side, in the order of ranks.
struct ExchangeBuffers {
  std::span<float> given;
  std::span<float> taken;
};

/// The arenas: `elements` floats each. Slots follow one another; low_precision is empty unless mixed_bfloat16.
struct Arenas {
  std::span<float> gradients;
  std::span<float> weights;
  std::span<float> slots;
  std::span<std::uint16_t> low_precision;
  std::size_t elements = 0;
  std::span<const ExchangeBuffers> exchanges = {};  ///< one for each of Graph::exchanges
  const Arenas* own = nullptr;  ///< where ParameterSpec::own says so; offsets count from these arenas' beginning

  [[nodiscard]] const Arenas& of(const ParameterSpec& parameter) const noexcept { return parameter.own ? *own : *this; }
};

/// A graph bound to memory on a device, for slices of up to the capacity it was compiled for.
class Executable {
 public:
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  virtual ~Executable() = default;

  /// Enqueues one compute operation. The first step of a new slice size may allocate, no later one does.
  virtual void run(const Operation& operation, const StepContext& context) = 0;

  /// Updates a share of the weights. `iteration` counts optimizer steps from 1.
  virtual void update(const UpdateShare& share, const Optimizer& optimizer, std::uint64_t iteration) = 0;

  /// Adds the squares of what a share has of each trainable weight's gradient to that parameter's sum, or to the
  /// device's own.
  virtual void add_squares(const UpdateShare& share, std::span<double> sums) const = 0;

  /// Devices whose shares are whole gradients on every rank need not ask the others for a norm, nor the host: such a
  /// one makes scales of the squares added since the last time, and applies them to the updates that follow. False:
  /// that is for the caller to do.
  [[nodiscard]] virtual bool find_scales(const Clipping& /*clipping*/) const { return false; }

  /// Devices that record a step and replay it: true if the whole training step has been enqueued from a recording. Else
  /// the caller enqueues the operations and updates, and then calls end_step. `recordable` tells whether the
  /// communicator can take part in a recording.
  [[nodiscard]] virtual bool begin_step(const StepContext& /*context*/, const Optimizer& /*optimizer*/,
                                        std::uint64_t /*iteration*/, bool /*recordable*/) {
    return false;
  }
  virtual void end_step() {}

  /// How many training steps may be under way before their metrics are taken.
  [[nodiscard]] virtual std::size_t steps_ahead() const noexcept { return 1; }

  /// The metric sums of the oldest training step whose metrics were not taken; waits for it.
  virtual void take_metrics(std::span<float, metric_places> sums) = 0;

  /// Copies floats of the arenas, as they are after all that was enqueued.
  virtual void read(std::span<const float> arena, std::span<float> values) const = 0;

  /// Values in Keras' layout <-> the arenas. `arena` is weights or one slot, `elements` long.
  virtual void read_parameter(std::size_t parameter, std::span<const float> arena, std::span<float> values) const = 0;
  virtual void write_parameter(std::size_t parameter, std::span<const float> values, std::span<float> arena) const = 0;

  /// Turns what `read` copied of a parameter (ParameterSpec::storage floats) into Keras' layout. Touches neither device
  /// nor arenas, so that another thread may call it while this one trains.
  virtual void unpack_parameter(std::size_t parameter, std::span<const float> stored,
                                std::span<float> values) const = 0;

  /// Recomputes what is derived from weights (low-precision copies) after write_parameter.
  virtual void refresh() = 0;

  /// The model's outputs of the last forward pass: rows x output elements, Keras' order, float32.
  [[nodiscard]] virtual std::span<const float> outputs() const = 0;

  /// One line for each operation: what implements it ("jit:avx512_core"). For the plan's print and tests.
  [[nodiscard]] virtual std::string implementation(const Operation& operation) = 0;
};

/// How a plan is cut.
struct PlanOptions {
  /// A Dense kernel is cut into chunks of about this many bytes: small enough that a chunk's gradient is still in the
  /// second-level cache when it is reduced and its weights are updated, large enough for the matrix product.
  std::size_t chunk_bytes = std::size_t{416} << 10U;
  /// Parameters share a bucket until it has this many bytes.
  std::size_t bucket_bytes = std::size_t{64} << 10U;
  /// How many buckets backward goes on for before it turns back to reduce and update one: the time peers have to
  /// contribute before anybody waits for them.
  std::size_t update_lag = 1;
};

namespace cuda {
class DeviceQueue;
}

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// "AMD EPYC, 1 thread, oneDNN 2.6.3".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// How this device likes its plans cut in a world of so many ranks.
  [[nodiscard]] virtual PlanOptions plan_options(int /*ranks*/) const { return {}; }

  /// Where work for the device is enqueued; null where the host itself computes.
  [[nodiscard]] virtual cuda::DeviceQueue* queue() const noexcept { return nullptr; }

  /// What computes, for the record of a run: {"onednn", "2.6.3"}.
  [[nodiscard]] virtual std::map<std::string, std::string> libraries() const = 0;

  /// Throws UsageError where the device cannot compute in bfloat16.
  virtual void require_bfloat16() const = 0;

  /// Chooses layouts for slices of up to `capacity` examples: fills TensorSpec::block and ParameterSpec::storage.
  virtual void lay_out(Graph& graph, std::size_t capacity) const = 0;

  /// `graph` and the arenas must outlive the executable.
  /// `operations` are the plan's compute operations, each at the place its id says.
  [[nodiscard]] virtual std::unique_ptr<Executable> compile(const Graph& graph, std::vector<Operation> operations,
                                                            const Arenas& arenas, std::size_t capacity) const = 0;
};

}  // namespace lockstep
