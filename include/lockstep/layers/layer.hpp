// The layers of a model. They are descriptions and do not compute. Defaults and semantics are those of keras.layers
// with channels_last.
#pragma once

#include <lockstep/layers/activation.hpp>
#include <lockstep/layers/augmentation.hpp>
#include <lockstep/layers/convolution.hpp>
#include <lockstep/layers/dense.hpp>
#include <lockstep/layers/embedding.hpp>
#include <lockstep/layers/input.hpp>
#include <lockstep/layers/merging.hpp>
#include <lockstep/layers/nested_model.hpp>
#include <lockstep/layers/normalization.hpp>
#include <lockstep/layers/pooling.hpp>
#include <lockstep/layers/regularization.hpp>
#include <lockstep/layers/reshaping.hpp>

#include <variant>

namespace lockstep {

/// To add a layer, add its type here and its LayerTraits in src/layers. One per line, so that two additions do not
/// conflict.
// clang-format off
using LayerVariant = std::variant<
    Input,
    Reshape,
    Rescaling,
    Flatten,
    Conv2D,
    Conv1D,
    DepthwiseConv2D,
    DepthwiseConv1D,
    SeparableConv2D,
    SeparableConv1D,
    Conv2DTranspose,
    Conv1DTranspose,
    Dense,
    MaxPooling2D,
    MaxPooling1D,
    AveragePooling2D,
    AveragePooling1D,
    GlobalMaxPooling2D,
    GlobalMaxPooling1D,
    GlobalAveragePooling2D,
    GlobalAveragePooling1D,
    Dropout,
    BatchNormalization,
    Activation,
    Identity,
    Add,
    Subtract,
    Multiply,
    Average,
    Maximum,
    Minimum,
    Concatenate,
    Dot,
    ReLU,
    LeakyReLU,
    ELU,
    PReLU,
    Softmax,
    ZeroPadding1D,
    ZeroPadding2D,
    Cropping1D,
    Cropping2D,
    CenterCrop,
    Resizing,
    UpSampling1D,
    UpSampling2D,
    RepeatVector,
    Permute,
    LayerNormalization,
    GroupNormalization,
    UnitNormalization,
    Normalization,
    RMSNormalization,
    SpatialDropout1D,
    SpatialDropout2D,
    AlphaDropout,
    GaussianNoise,
    GaussianDropout,
    ActivityRegularization,
    RandomFlip,
    RandomTranslation,
    RandomRotation,
    RandomZoom,
    RandomContrast,
    RandomBrightness,
    Embedding,
    CategoryEncoding,
    Discretization,
    LayerScale,
    CustomScaleLayer,
    NestedModel>;
// clang-format on

/// One of the layers: a std::variant for std::visit and std::get. Its special members are not inline, because every
/// file that copies or destroys a variant of so many types would take seconds more to compile.
struct Layer : LayerVariant {
  using LayerVariant::variant;
  using LayerVariant::operator=;
  Layer(const Layer&);
  Layer(Layer&&) noexcept;
  Layer& operator=(const Layer&);
  Layer& operator=(Layer&&) noexcept;
  ~Layer();
};

}  // namespace lockstep
