// The layers of the reference: textbook implementations of forward and backward in double precision, not optimized.
// They share no code with the backends.
#pragma once

#include <lockstep/layers/architecture.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace lockstep::reference {

using Values = std::vector<double>;

/// The key of one element that Dropout keeps or drops.
struct DropoutElement {
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;  ///< index in Architecture::layers()
  std::uint64_t step = 0;   ///< from 0
  std::uint32_t place = 0;  ///< index of the example in the global batch
  std::uint32_t index = 0;  ///< of the element in the example, in Keras' order
  double rate = 0;
};
using KeepElement = std::function<bool(const DropoutElement&)>;

/// The context of one forward and backward pass of a replica.
struct Pass {
  std::int64_t examples = 0;  ///< of the replica
  bool training = false;
  std::uint32_t batch_offset = 0;  ///< index of the replica's first example in the global batch
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  const KeepElement* keep = nullptr;
};

/// One layer. Parameters, gradients and statistics are in the order of LayerInfo::parameters.
class Layer {
 public:
  virtual ~Layer() = default;

  /// A merge has its inputs one after another in `input`, and their gradients in what backward returns.
  virtual Values forward(const Pass& pass, std::span<const Values> parameters, const Values& input) = 0;

  /// Call after forward. Returns the loss's gradient with respect to the input. Adds the gradients of trainable
  /// parameters, and the replica's values of moving statistics, to `gradients`.
  virtual Values backward(std::span<const Values> parameters, std::span<Values> gradients, const Values& gradient) = 0;
};

/// The shapes that one call of a layer reads and writes.
struct CallShapes {
  std::vector<Shape> inputs;
  Shape output;
};

std::unique_ptr<Layer> make_layer(const LayerInfo& info, std::uint32_t ordinal, const CallShapes& shapes);

/// A layer that slides a window, in reference_windows.cpp: convolutions and poolings.
std::unique_ptr<Layer> make_window_layer(const LayerInfo& info);

// Layers that move elements or have weights by element, in reference_shapes.cpp.
std::unique_ptr<Layer> make_shape_layer(const ZeroPadding1D& pad, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const ZeroPadding2D& pad, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const Cropping1D& crop, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const Cropping2D& crop, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const CenterCrop& crop, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const Resizing& resizing, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const UpSampling1D& upsampling, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const UpSampling2D& upsampling, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const RepeatVector& repeat, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const Permute& permute, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const Concatenate& merge, const CallShapes& shapes);
std::unique_ptr<Layer> make_dot(const Dot& dot, const CallShapes& shapes);
std::unique_ptr<Layer> make_shape_layer(const CustomScaleLayer& merge, const CallShapes& shapes);
std::unique_ptr<Layer> make_weighted_layer(const PReLU& layer, const LayerInfo& info, const CallShapes& shapes);
std::unique_ptr<Layer> make_weighted_layer(const LayerScale& layer, const LayerInfo& info, const CallShapes& shapes);
std::unique_ptr<Layer> make_normalization(const LayerNormalization& layer, const Shape& shape);
std::unique_ptr<Layer> make_normalization(const RMSNormalization& layer, const Shape& shape);
std::unique_ptr<Layer> make_normalization(const GroupNormalization& layer, const Shape& shape);
std::unique_ptr<Layer> make_normalization(const UnitNormalization& layer, const Shape& shape);
std::unique_ptr<Layer> make_noise(const GaussianNoise& noise, std::int64_t elements, std::uint32_t ordinal);
std::unique_ptr<Layer> make_noise(const GaussianDropout& noise, std::int64_t elements, std::uint32_t ordinal);
/// An AlphaDropout whose elements a Dropout of this rate keeps.
std::unique_ptr<Layer> make_alpha_dropout(std::unique_ptr<Layer> dropout, double rate);
std::unique_ptr<Layer> make_embedding(const Embedding& embedding);
std::unique_ptr<Layer> make_encoding(const CategoryEncoding& encoding, const CallShapes& shapes);
std::unique_ptr<Layer> make_encoding(const Discretization& bins, const CallShapes& shapes);

// In reference_augmentation.cpp.
std::unique_ptr<Layer> make_augmentation(const RandomFlip& layer, const Shape& shape, std::uint32_t ordinal);
std::unique_ptr<Layer> make_augmentation(const RandomTranslation& layer, const Shape& shape, std::uint32_t ordinal);
std::unique_ptr<Layer> make_augmentation(const RandomRotation& layer, const Shape& shape, std::uint32_t ordinal);
std::unique_ptr<Layer> make_augmentation(const RandomZoom& layer, const Shape& shape, std::uint32_t ordinal);
std::unique_ptr<Layer> make_augmentation(const RandomContrast& layer, const Shape& shape, std::uint32_t ordinal);
std::unique_ptr<Layer> make_augmentation(const RandomBrightness& layer, const Shape& shape, std::uint32_t ordinal);

std::unique_ptr<Layer> make_affine(const Rescaling& rescaling);
std::unique_ptr<Layer> make_affine(const Normalization& normalization, const Shape& shape);

}  // namespace lockstep::reference
