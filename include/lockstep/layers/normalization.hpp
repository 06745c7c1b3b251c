// Layers that normalize activations.
#pragma once

#include <lockstep/layers/callable.hpp>
#include <lockstep/layers/constraint.hpp>
#include <lockstep/layers/regularizer.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct BatchNormalizationOptions {
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  bool synchronized = false;  ///< with the statistics of the whole batch, which the workers all-reduce in each step
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  std::string name = {};
};

/// Normalizes over the last axis with the statistics of a replica's slice of the batch, or of all of it. The moving
/// statistics (biased variance) are averaged over the replicas at every step, so all workers hold the same.
struct BatchNormalization : BatchNormalizationOptions, CallableLayer<BatchNormalization> {
  explicit BatchNormalization(BatchNormalizationOptions options = {}) : BatchNormalizationOptions(std::move(options)) {}
};

struct LayerNormalizationOptions {
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  std::string name = {};
};

/// Normalizes each pixel of each example over the last axis, with its own mean and variance.
struct LayerNormalization : LayerNormalizationOptions, CallableLayer<LayerNormalization> {
  explicit LayerNormalization(LayerNormalizationOptions options = {}) : LayerNormalizationOptions(std::move(options)) {}
};

struct RMSNormalizationOptions {
  double epsilon = 1e-6;
  std::string name = {};
};

/// Divides each pixel of each example by its root mean square over the last axis, and multiplies by a trained scale.
struct RMSNormalization : RMSNormalizationOptions, CallableLayer<RMSNormalization> {
  explicit RMSNormalization(RMSNormalizationOptions options = {}) : RMSNormalizationOptions(std::move(options)) {}
};

struct GroupNormalizationOptions {
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  std::string name = {};
};

/// Normalizes each example over all pixels and a group of channels. `groups` -1: one group for each channel.
struct GroupNormalization : GroupNormalizationOptions, CallableLayer<GroupNormalization> {
  explicit GroupNormalization(int groups_ = 32, GroupNormalizationOptions options = {})
      : GroupNormalizationOptions(std::move(options)), groups(groups_) {}
  int groups;
};

/// Divides each pixel of each example by its length along the last axis.
struct UnitNormalization : CallableLayer<UnitNormalization> {
  explicit UnitNormalization(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

struct NormalizationOptions {
  std::vector<double> mean = {};      ///< one for all channels, or one for each
  std::vector<double> variance = {};  ///< as many as means
  bool invert = false;                ///< computes the inverse: x sqrt(variance) + mean
  std::string name = {};
};

/// (x - mean) / sqrt(variance), with constants for the last axis. Without constants, mean and variance are weights that
/// training does not change.
struct Normalization : NormalizationOptions, CallableLayer<Normalization> {
  explicit Normalization(NormalizationOptions options = {}) : NormalizationOptions(std::move(options)) {}
};

/// Multiplies each channel by a trained factor: a layer of keras.applications' ConvNeXt.
struct LayerScale : CallableLayer<LayerScale> {
  explicit LayerScale(double init_values_, int projection_dim_, std::string name_ = {})
      : init_values(init_values_), projection_dim(projection_dim_), name(std::move(name_)) {}
  double init_values;
  int projection_dim;  ///< the number of channels
  std::string name;
};

}  // namespace lockstep
