// Lowers one call of a layer after another. LayerTraits<L>::lower describes a call by the functions below: each appends
// an operation, modifies the one that computes the call's input, or reinterprets the input's shape.
#pragma once

#include "core/range.hpp"
#include "graph/autodiff.hpp"
#include "graph/call_uses.hpp"
#include "graph/graph.hpp"

#include <lockstep/layers/activation.hpp>
#include <lockstep/layers/architecture.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// An activation of an output that turns the loss' logits into probabilities. As Keras on TensorFlow does, the loss is
/// computed from its input, which has not been rounded to 0 or 1.
struct HiddenLogits {
  int logits = -1;
  int output = -1;
};

class CallLowering {
 public:
  /// The architecture has no nested models. `first_parameters` are the indices of each layer's first parameter in the
  /// graph, which has layers, parameters and outputs before the first call is lowered. All must outlive this object.
  CallLowering(const Architecture& architecture, const std::vector<int>& first_parameters, Graph& graph);

  /// Lowers the next call, and the penalty of its output if its layer has one. Throws UsageError if the layer cannot be
  /// in this place.
  void lower_next();

  /// The tensor through which the next operation reads the output of a call: an alias if there are other readers.
  int read(int call);

  /// The activation that the tensor's producer fused.
  [[nodiscard]] ActivationFunction fused_activation(int tensor) const { return activations_[tensor]; }
  /// By output of the model.
  [[nodiscard]] const std::vector<HiddenLogits>& hidden_logits() const noexcept { return hidden_logits_; }
  /// Of the outputs of layers: what the loss adds.
  [[nodiscard]] const std::vector<Operand>& penalties() const noexcept { return penalties_; }
  /// The tensors with several readers.
  [[nodiscard]] const std::vector<Fork>& forks() const noexcept { return forks_; }
  [[nodiscard]] const CallUses& uses() const noexcept { return uses_; }

  // The functions that LayerTraits<L>::lower calls. "The last tensor" is the call's input, and then the output of what
  // they append.
  using Kind = OperationKind;

  /// Of this call; the calls of a shared layer may have different ones.
  [[nodiscard]] const Shape& output_shape() const;
  /// Of the last tensor.
  [[nodiscard]] std::int64_t channels() const;

  /// Appends an operation from the last tensor to a new one of the call's output shape.
  Operation& append(OperationKind kind);
  /// The same for an operation that needs channels last.
  Operation& append_channels_last(OperationKind kind);
  /// The same for an operation that has the layer's parameters.
  void append_weighted(OperationKind kind);

  /// Appends a convolution to `filters` channels that has the layer's parameters; of several, those in the range.
  void append_convolution(const Windows& windows, std::int64_t filters, std::int64_t groups);
  void append_convolution(const Windows& windows, std::int64_t filters, std::int64_t groups,
                          const BasicRange<int>& parameters);
  /// The same for a transposed convolution.
  void append_transposed_convolution(const Windows& windows, std::int64_t filters);

  /// Appends a pooling with windows, and one of whole images.
  void append_pooling(OperationKind kind, const Windows& windows);
  void append_global_pooling(OperationKind kind);

  /// Appends an elementwise operation, whose tensor has the shape of the last one: that keeps the layout across a
  /// Flatten that was lowered to nothing.
  Operation& append_elementwise(OperationKind kind);

  /// Appends a merge of all inputs of the call. `scaled`: the index of an input that the layer's constants scale first.
  void append_merge(MergeFunction function, std::optional<std::size_t> scaled = {});
  /// Appends a concatenation of all inputs of the call along an axis.
  void append_concatenate(std::size_t axis);
  /// Appends the dot product of the call's two inputs.
  void append_dot(DotAxes axes);

  /// Multiplies by the layer's constants, then adds others. They derive from its weights, if it has some.
  void append_affine();

  /// Gathers rows of the layer's weights, and encodes indices or numbers. They are an input of the model, or encoded.
  void append_embedding();
  void append_encoding();

  /// Fuses the function into the operation that computes the last tensor if both support it; otherwise appends an
  /// operation.
  void activate(ActivationFunction function);

  /// Adds an alias of the last tensor with the layer's output shape. Requires channels last.
  void view();

  /// Whether the call's output goes, through elementwise layers alone, to a layer that accepts any order of elements
  /// (ElementOrder::absorbed).
  [[nodiscard]] bool is_order_absorbed_later() const;

  /// y = scale x + offset: computed by gather if only this layer reads an input of the model, else by an operation.
  void rescale(double scale, double offset);

 private:
  [[nodiscard]] const LayerCall& call() const { return architecture_.calls()[call_]; }
  [[nodiscard]] const LayerInfo& info() const { return graph_.layers[call().layer]; }
  [[nodiscard]] int num_parameters() const { return static_cast<int>(info().parameters.size()); }
  [[nodiscard]] Windows over_last_tensor(const Windows& windows) const;

  /// `parameters`: a range of the layer's parameters.
  void use_parameters(Operation& operation, const BasicRange<int>& parameters) const;
  void append_of_data(OperationKind kind);
  Operation& append_windows(OperationKind kind, const Windows& windows, std::int64_t channels);
  Operation& append(OperationKind kind, TensorSpec output);
  void add_input();
  void add_penalty();

  /// Whether only this call, and views before it, read an input of the model.
  [[nodiscard]] bool reads_input_alone() const;
  /// Whether the last tensor is an input of the model, or the direct encoding of one.
  [[nodiscard]] bool reads_data() const;
  /// The tensors that the call reads.
  std::vector<Operand> read_operands(std::optional<std::size_t> scaled = {});

  /// If the function, applied by this call, turns an output's logits into what its loss takes: where the output records
  /// its logits. Null if not.
  HiddenLogits* logits_that_hides(ActivationFunction function);
  /// Whether the output is what this call returns, perhaps through layers that return their input itself. In mixed
  /// precision Keras may convert between them. Throws UsageError if it is so in inference only.
  [[nodiscard]] bool is_output(int output, const Loss& loss) const;

  /// A call's output, and the number of operations when it was lowered.
  struct CallOutput {
    int tensor = -1;
    std::size_t position = 0;
  };

  const Architecture& architecture_;
  const std::vector<int>& first_parameters_;  ///< by layer
  Graph& graph_;
  CallUses uses_;
  int call_ = 0;                                 ///< the call being lowered
  std::vector<CallOutput> outputs_;              ///< of the calls before it
  int current_ = 0;                              ///< the last tensor
  std::vector<ActivationFunction> activations_;  ///< the one that each tensor's producer fused
  std::vector<Fork> forks_;
  std::vector<Operand> penalties_;
  std::vector<HiddenLogits> hidden_logits_;
};

}  // namespace lockstep
