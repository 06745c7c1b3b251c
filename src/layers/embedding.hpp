// Embedding, and the layers that make vectors or indices of numbers.
#pragma once

#include "core/enum_names.hpp"
#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/embedding.hpp>

#include <fmt/format.h>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

template <>
struct EnumNames<OutputMode> {
  static constexpr std::array all{std::pair{OutputMode::integer, "int"}, std::pair{OutputMode::one_hot, "one_hot"},
                                  std::pair{OutputMode::multi_hot, "multi_hot"}, std::pair{OutputMode::count, "count"}};
};

template <>
struct LayerTraits<Embedding> {
  static constexpr std::string_view class_name = "Embedding";
  static constexpr bool reads_raw_numbers = true;
  static constexpr bool takes_integers = true;
  static constexpr std::int64_t max_rows = std::int64_t{1} << 24;  ///< float32 represents every integer up to it
  static Embedding blank() { return {1, 1}; }

  static void fields(auto& visit, auto& embedding) {
    visit.required("input_dim", embedding.input_dim, at_least_one);
    visit.required("output_dim", embedding.output_dim, at_least_one);
    visit.optional("embeddings_initializer", embedding.embeddings_initializer);
    visit.optional("embeddings_regularizer", embedding.embeddings_regularizer);
    visit.optional("activity_regularizer", embedding.activity_regularizer);
    visit.optional("embeddings_constraint", embedding.embeddings_constraint);
    visit.expected("mask_zero", false);
    visit.ignored("input_length");  // Keras 2
  }

  static void infer(const Embedding& embedding, ShapeInference& shapes) {
    if (embedding.input_dim > max_rows) {
      shapes.fail(fmt::format(
          "has {} rows, but Lockstep tells at most {} apart, because a step has indices as float32; hash the indices "
          "to fewer",
          embedding.input_dim, max_rows));
    }
    std::vector<std::int64_t> extents(shapes.input().extents().begin(), shapes.input().extents().end());
    extents.push_back(embedding.output_dim);
    shapes.add_weight("embeddings", Shape{embedding.input_dim, embedding.output_dim}, embedding.embeddings_initializer,
                      embedding.embeddings_regularizer, embedding.embeddings_constraint);
    shapes.set_output(Shape(std::move(extents)));
  }

  static void lower(const Embedding& /*embedding*/, auto& to) { to.append_embedding(); }
};

/// Sets the output shape of an encoding of `depth` categories.
void infer_encoding(OutputMode mode, std::int64_t depth, ShapeInference& shapes);

template <>
struct LayerTraits<CategoryEncoding> {
  static constexpr std::string_view class_name = "CategoryEncoding";
  static constexpr bool reads_raw_numbers = true;
  static constexpr bool takes_integers = true;
  static CategoryEncoding blank() { return CategoryEncoding(1); }

  static void fields(auto& visit, auto& encoding) {
    visit.required("num_tokens", encoding.num_tokens, at_least_one);
    visit.optional("output_mode", encoding.output_mode);
  }

  static void infer(const CategoryEncoding& encoding, ShapeInference& shapes);

  static void lower(const CategoryEncoding& /*encoding*/, auto& to) { to.append_encoding(); }
};

template <>
struct LayerTraits<Discretization> {
  static constexpr std::string_view class_name = "Discretization";
  static constexpr bool reads_raw_numbers = true;
  static constexpr bool takes_integers = true;
  static constexpr bool takes_trainable = false;
  static Discretization blank() { return Discretization({0}); }

  static void fields(auto& visit, auto& layer) {
    visit.required("bin_boundaries", layer.bin_boundaries);
    visit.ignored("num_bins");  // how adapt() found the boundaries
    visit.ignored("epsilon");
    visit.optional("output_mode", layer.output_mode);
    visit.constant("sparse", false);
  }

  static void infer(const Discretization& layer, ShapeInference& shapes);

  static void lower(const Discretization& /*layer*/, auto& to) { to.append_encoding(); }
};

}  // namespace lockstep
