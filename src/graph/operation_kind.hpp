// The kinds of operations and their traits. Code outside the kernels queries traits instead of listing kinds. A new
// kind is a line of the list and a row of the table in this file, and a kernel in each backend. One that CUDA lacks is
// refused by name in backend/cuda/refused_layers.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace lockstep {

/// X(kind, kernel) for each kind. Its factory in each backend is make_<kernel>. A backend without it does not link.
#define LOCKSTEP_OPERATION_KINDS(X)                    \
  X(gather, gather)                                    \
  X(convolution, convolution)                          \
  X(dense, dense)                                      \
  X(max_pooling, max_pooling)                          \
  X(average_pooling, average_pooling)                  \
  X(global_max_pooling, global_max_pooling)            \
  X(dropout, dropout)                                  \
  X(batch_statistics, batch_normalization)             \
  X(batch_normalization, batch_normalization)          \
  X(activation, activation)                            \
  X(softmax, softmax)                                  \
  X(merge, merge)                                      \
  X(pad, pad)                                          \
  X(upsample, upsample)                                \
  X(transpose, transpose)                              \
  X(concatenate, concatenate)                          \
  X(dot, dot)                                          \
  X(activity_penalty, activity_penalty)                \
  X(augment, augment)                                  \
  X(encode, encode)                                    \
  X(affine, affine)                                    \
  X(prelu, prelu)                                      \
  X(layer_scale, layer_scale)                          \
  X(layer_normalization, layer_normalization)          \
  X(noise, noise)                                      \
  X(embedding, embedding)                              \
  X(finish_partial_sum, finish_partial_sum)            \
  X(loss, loss)                                        \
  X(convolution_backward, convolution_backward)        \
  X(dense_backward, dense_backward)                    \
  X(max_pooling_backward, max_pooling)                 \
  X(average_pooling_backward, average_pooling)         \
  X(global_max_pooling_backward, global_max_pooling)   \
  X(dropout_backward, dropout)                         \
  X(batch_gradient_sums, batch_normalization)          \
  X(batch_normalization_backward, batch_normalization) \
  X(activation_backward, activation)                   \
  X(softmax_backward, softmax)                         \
  X(merge_backward, merge)                             \
  X(pad_backward, pad)                                 \
  X(upsample_backward, upsample)                       \
  X(transpose_backward, transpose)                     \
  X(concatenate_backward, concatenate)                 \
  X(dot_backward, dot)                                 \
  X(activity_penalty_backward, activity_penalty)       \
  X(affine_backward, affine)                           \
  X(prelu_backward, prelu)                             \
  X(layer_scale_backward, layer_scale)                 \
  X(layer_normalization_backward, layer_normalization) \
  X(noise_backward, noise)                             \
  X(embedding_backward, embedding)                     \
  X(sum_gradients, sum_gradients)                      \
  X(start_partial_gradient_sum, partial_gradient_sum)  \
  X(finish_partial_gradient_sum, partial_gradient_sum) \
  X(pack_all_to_all, all_to_all)                       \
  X(unpack_all_to_all, all_to_all)

enum class OperationKind {
#define LOCKSTEP_KIND(kind, kernel) kind,
  LOCKSTEP_OPERATION_KINDS(LOCKSTEP_KIND)
#undef LOCKSTEP_KIND
};

/// The names of the kinds in plans and messages: "batch_normalization".
inline constexpr std::array operation_names{
#define LOCKSTEP_NAME(kind, kernel) std::string_view(#kind),
    LOCKSTEP_OPERATION_KINDS(LOCKSTEP_NAME)
#undef LOCKSTEP_NAME
};

inline constexpr std::size_t num_operation_kinds = operation_names.size();

/// Whether operations of this kind read numbers as indices, of which only some are valid, or as bins.
[[nodiscard]] constexpr bool reads_indices(OperationKind kind) noexcept {
  return kind == OperationKind::embedding || kind == OperationKind::encode;
}

/// The kind of work as which the step profile counts an operation.
enum class WorkKind { input, forward, loss, backward, communication };

/// The part of the input that one value of an operation's output depends on.
enum class Reach {
  element,  ///< the same element
  example,  ///< the same example
  batch,    ///< all examples of the batch
};

/// The data that forward saves for backward besides the values of tensors.
enum class SavedForBackward {
  nothing,
  argmaxes,    ///< max pooling: the index of each window's maximum, one byte per output
  mask,        ///< Dropout: which elements were kept, one byte per element; GPUs recompute it instead
  statistics,  ///< BatchNormalization: per channel and replica
};

/// Whether backward reads the values of the input, or of the operands, beyond the derivative of an activation that is
/// fused into them.
enum class BackwardReadsInput {
  always,
  if_trained,   ///< for the gradient of a kernel
  by_function,  ///< of a merge
  never,
};

struct OperationTraits {  // NOLINT(cppcoreguidelines-pro-type-member-init): a row without one does not compile
  OperationKind kind;
  WorkKind work;
  std::optional<OperationKind> backward = std::nullopt;  ///< the kind that computes its gradients
  Reach reach = Reach::example;
  bool is_per_channel = false;         ///< a channel of the output depends only on the same channel of the input
  bool has_kernel = false;             ///< multiplies by a trainable kernel, the layer's first parameter
  bool fuses_activation = false;       ///< applies an activation to its output in the same pass
  bool is_microbatchable = false;      ///< faster on a few examples at a time, because its weights stay in the cache
  bool reads_partial_sum = false;      ///< if the operation has one, ranks have all-reduced it before
  bool backward_reads_output = false;  ///< beyond the derivative of a fused activation
  BackwardReadsInput backward_reads_input = BackwardReadsInput::always;
  SavedForBackward saved = SavedForBackward::nothing;
};

// Dense is not microbatchable, because its kernel exceeds the cache and should be read once for all examples. Softmax
// is not, because tensors at a model's end are small.
// clang-format off
inline constexpr auto operation_traits = [] {
  using Kind = OperationKind;
  using Saved = SavedForBackward;
  using Reads = BackwardReadsInput;
  return std::array<OperationTraits, num_operation_kinds>{{
      {.kind = Kind::gather, .work = WorkKind::input},
      {.kind = Kind::convolution, .work = WorkKind::forward,
       .backward = Kind::convolution_backward, .has_kernel = true, .fuses_activation = true, .is_microbatchable = true,
       .backward_reads_input = Reads::if_trained},
      {.kind = Kind::dense, .work = WorkKind::forward,
       .backward = Kind::dense_backward, .has_kernel = true, .fuses_activation = true,
       .backward_reads_input = Reads::if_trained},
      {.kind = Kind::max_pooling, .work = WorkKind::forward,
       .backward = Kind::max_pooling_backward, .is_per_channel = true, .is_microbatchable = true,
       .backward_reads_input = Reads::never, .saved = Saved::argmaxes},
      {.kind = Kind::average_pooling, .work = WorkKind::forward,
       .backward = Kind::average_pooling_backward, .is_per_channel = true, .is_microbatchable = true,
       .backward_reads_input = Reads::never},
      // Equal largest values share the gradient, so backward compares all of them with the output.
      {.kind = Kind::global_max_pooling, .work = WorkKind::forward,
       .backward = Kind::global_max_pooling_backward, .is_per_channel = true, .is_microbatchable = true,
       .backward_reads_output = true},
      {.kind = Kind::dropout, .work = WorkKind::forward,
       .backward = Kind::dropout_backward, .reach = Reach::element, .is_per_channel = true, .is_microbatchable = true,
       .backward_reads_input = Reads::never, .saved = Saved::mask},
      // In training, this rank's sums for the statistics of the whole batch, of BatchNormalization(synchronized=True).
      {.kind = Kind::batch_statistics, .work = WorkKind::forward, .reach = Reach::batch, .is_per_channel = true},
      {.kind = Kind::batch_normalization, .work = WorkKind::forward,
       .backward = Kind::batch_normalization_backward, .reach = Reach::batch, .is_per_channel = true,
       .fuses_activation = true, .reads_partial_sum = true, .saved = Saved::statistics},
      {.kind = Kind::activation, .work = WorkKind::forward,
       .backward = Kind::activation_backward, .reach = Reach::element, .is_per_channel = true,
       .is_microbatchable = true},
      {.kind = Kind::softmax, .work = WorkKind::forward, .backward = Kind::softmax_backward,
       .backward_reads_output = true},
      // Combines several tensors element by element.
      {.kind = Kind::merge, .work = WorkKind::forward, .backward = Kind::merge_backward, .reach = Reach::element,
       .is_per_channel = true, .fuses_activation = true, .backward_reads_input = Reads::by_function},
      // Adds or removes pixels at the edges of an image.
      {.kind = Kind::pad, .work = WorkKind::forward, .backward = Kind::pad_backward, .is_per_channel = true,
       .is_microbatchable = true, .backward_reads_input = Reads::never},
      // Repeats or skips rows and columns, or interpolates between them.
      {.kind = Kind::upsample, .work = WorkKind::forward, .backward = Kind::upsample_backward, .is_per_channel = true,
       .is_microbatchable = true, .backward_reads_input = Reads::never},
      {.kind = Kind::transpose, .work = WorkKind::forward, .backward = Kind::transpose_backward,
       .backward_reads_input = Reads::never},
      {.kind = Kind::concatenate, .work = WorkKind::forward, .backward = Kind::concatenate_backward,
       .backward_reads_input = Reads::never},
      // Products of two tensors, summed along an axis of each.
      {.kind = Kind::dot, .work = WorkKind::forward, .backward = Kind::dot_backward},
      // A number for each example, which the loss adds up.
      {.kind = Kind::activity_penalty, .work = WorkKind::forward, .backward = Kind::activity_penalty_backward},
      // Changes each image at random.
      {.kind = Kind::augment, .work = WorkKind::forward, .is_microbatchable = true},
      // Bins of numbers, and vectors of indices. Nothing needs the gradient of what they are made of.
      {.kind = Kind::encode, .work = WorkKind::forward},
      // y = scale x + shift, with constants.
      {.kind = Kind::affine, .work = WorkKind::forward, .backward = Kind::affine_backward, .reach = Reach::element,
       .is_per_channel = true, .is_microbatchable = true, .backward_reads_input = Reads::never},
      {.kind = Kind::prelu, .work = WorkKind::forward, .backward = Kind::prelu_backward},
      {.kind = Kind::layer_scale, .work = WorkKind::forward, .backward = Kind::layer_scale_backward},
      // Normalizes within each example: LayerNormalization, GroupNormalization, RMSNormalization,
      // UnitNormalization.
      {.kind = Kind::layer_normalization, .work = WorkKind::forward,
       .backward = Kind::layer_normalization_backward},
      {.kind = Kind::noise, .work = WorkKind::forward, .backward = Kind::noise_backward, .reach = Reach::element,
       .is_per_channel = true, .is_microbatchable = true, .backward_reads_input = Reads::never},
      {.kind = Kind::embedding, .work = WorkKind::forward, .backward = Kind::embedding_backward},
      // Applies bias and activation to the all-reduced outputs of a row-parallel layer.
      {.kind = Kind::finish_partial_sum, .work = WorkKind::forward, .fuses_activation = true,
       .reads_partial_sum = true},
      // Writes the metric sums and, in training, the gradient of its input.
      {.kind = Kind::loss, .work = WorkKind::loss, .reach = Reach::batch},
      {.kind = Kind::convolution_backward, .work = WorkKind::backward, .has_kernel = true},
      {.kind = Kind::dense_backward, .work = WorkKind::backward, .has_kernel = true},
      {.kind = Kind::max_pooling_backward, .work = WorkKind::backward},
      {.kind = Kind::average_pooling_backward, .work = WorkKind::backward},
      {.kind = Kind::global_max_pooling_backward, .work = WorkKind::backward},
      {.kind = Kind::dropout_backward, .work = WorkKind::backward, .reach = Reach::element},
      // This rank's sums of the gradients, for the derivative by the statistics of the whole batch.
      {.kind = Kind::batch_gradient_sums, .work = WorkKind::backward, .reach = Reach::batch},
      {.kind = Kind::batch_normalization_backward, .work = WorkKind::backward, .reach = Reach::batch,
       .reads_partial_sum = true},
      {.kind = Kind::activation_backward, .work = WorkKind::backward, .reach = Reach::element},
      {.kind = Kind::softmax_backward, .work = WorkKind::backward},
      {.kind = Kind::merge_backward, .work = WorkKind::backward, .reach = Reach::element},
      {.kind = Kind::pad_backward, .work = WorkKind::backward},
      {.kind = Kind::upsample_backward, .work = WorkKind::backward},
      {.kind = Kind::transpose_backward, .work = WorkKind::backward},
      {.kind = Kind::concatenate_backward, .work = WorkKind::backward},
      {.kind = Kind::dot_backward, .work = WorkKind::backward},
      {.kind = Kind::activity_penalty_backward, .work = WorkKind::backward},
      {.kind = Kind::affine_backward, .work = WorkKind::backward, .reach = Reach::element},
      {.kind = Kind::prelu_backward, .work = WorkKind::backward},
      {.kind = Kind::layer_scale_backward, .work = WorkKind::backward},
      {.kind = Kind::layer_normalization_backward, .work = WorkKind::backward},
      {.kind = Kind::noise_backward, .work = WorkKind::backward, .reach = Reach::element},
      {.kind = Kind::embedding_backward, .work = WorkKind::backward},
      // Adds the gradients of a tensor's uses to the gradient of the tensor.
      {.kind = Kind::sum_gradients, .work = WorkKind::backward, .reach = Reach::element,
       .backward_reads_input = Reads::never},
      // Copies the partial gradient of `output` to the arena, where it is all-reduced.
      {.kind = Kind::start_partial_gradient_sum, .work = WorkKind::backward, .backward_reads_input = Reads::never},
      // Copies the all-reduced gradient back.
      {.kind = Kind::finish_partial_gradient_sum, .work = WorkKind::backward, .reads_partial_sum = true,
       .backward_reads_input = Reads::never},
      // Copies a tensor into one block for each receiving rank.
      {.kind = Kind::pack_all_to_all, .work = WorkKind::communication},
      // Copies the blocks of the sending ranks into a tensor.
      {.kind = Kind::unpack_all_to_all, .work = WorkKind::communication},
  }};
}();
// clang-format on

namespace detail {

/// A missing row leaves an empty row at the end, with the wrong kind.
constexpr bool is_complete() {
  for (std::size_t i = 0; i < operation_traits.size(); ++i) {
    if (static_cast<std::size_t>(operation_traits[i].kind) != i) return false;
  }
  return true;
}
static_assert(is_complete(), "the table needs one row for each OperationKind, in the order of the enum");

constexpr bool is_consistent(const OperationTraits& traits) {
  const bool microbatch_needs_no_batch = !traits.is_microbatchable || traits.reach != Reach::batch;
  const bool backward_is_backward =
      !traits.backward || operation_traits[static_cast<std::size_t>(*traits.backward)].work == WorkKind::backward;
  return microbatch_needs_no_batch && backward_is_backward;
}
static_assert(std::all_of(operation_traits.begin(), operation_traits.end(), is_consistent));

}  // namespace detail

[[nodiscard]] constexpr const OperationTraits& traits_of(OperationKind kind) noexcept {
  return operation_traits[static_cast<std::size_t>(kind)];
}

[[nodiscard]] constexpr std::string_view to_string(OperationKind kind) noexcept {
  return operation_names[static_cast<std::size_t>(kind)];
}

[[nodiscard]] constexpr bool is_backward(OperationKind kind) noexcept {
  return traits_of(kind).work == WorkKind::backward;
}

}  // namespace lockstep
