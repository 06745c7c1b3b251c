// Layers that read indices.
#pragma once

#include <lockstep/layers/callable.hpp>
#include <lockstep/layers/constraint.hpp>
#include <lockstep/layers/initializer.hpp>
#include <lockstep/layers/regularizer.hpp>

#include <string>
#include <utility>

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

}  // namespace lockstep
