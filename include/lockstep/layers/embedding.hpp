// Layers that read indices, or make them of numbers. They read a model's input, or each other.
#pragma once

#include <lockstep/layers/callable.hpp>
#include <lockstep/layers/constraint.hpp>
#include <lockstep/layers/initializer.hpp>
#include <lockstep/layers/regularizer.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct EmbeddingOptions {
  Initializer embeddings_initializer = Initializer::random_uniform;
  Regularizer embeddings_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint embeddings_constraint = {};
  std::string name = {};
};

/// Replaces each index in the input by a trained vector of output_dim numbers. Indices are below input_dim.
struct Embedding : EmbeddingOptions, CallableLayer<Embedding> {
  Embedding(int input_dim_, int output_dim_, EmbeddingOptions options = {})
      : EmbeddingOptions(std::move(options)), input_dim(input_dim_), output_dim(output_dim_) {}
  int input_dim;
  int output_dim;
};

/// What CategoryEncoding and Discretization make of indices below a number of categories.
enum class OutputMode : std::uint8_t {
  integer,    ///< the indices themselves
  one_hot,    ///< for each index, a vector that is 1 there and 0 elsewhere; it replaces a last axis of 1
  multi_hot,  ///< for all indices of an example, one vector that is 1 at each
  count,      ///< the same with the number of times that each index occurs
};

struct CategoryEncodingOptions {
  OutputMode output_mode = OutputMode::multi_hot;  ///< not integer
  std::string name = {};
};

/// Makes vectors of num_tokens elements of indices below num_tokens.
struct CategoryEncoding : CategoryEncodingOptions, CallableLayer<CategoryEncoding> {
  explicit CategoryEncoding(int num_tokens_, CategoryEncodingOptions options = {})
      : CategoryEncodingOptions(std::move(options)), num_tokens(num_tokens_) {}
  int num_tokens;
};

struct DiscretizationOptions {
  OutputMode output_mode = OutputMode::integer;
  std::string name = {};
};

/// Replaces each number by the index of its bin: how many of the increasing boundaries are not above it.
struct Discretization : DiscretizationOptions, CallableLayer<Discretization> {
  explicit Discretization(std::vector<double> bin_boundaries_, DiscretizationOptions options = {})
      : DiscretizationOptions(std::move(options)), bin_boundaries(std::move(bin_boundaries_)) {}
  std::vector<double> bin_boundaries;
};

}  // namespace lockstep
