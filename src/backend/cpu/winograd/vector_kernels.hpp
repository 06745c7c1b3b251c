// The kernels of kernels.hpp for vectors of `lanes` floats. A file for each instruction set includes this one, and is
// compiled with the options of that set. Everything here is a template over the lanes, so that the linker cannot take a
// function of one file for that of another.
#pragma once

#include "backend/cpu/winograd/kernels.hpp"
#include "backend/cpu/winograd/transforms.hpp"

#include <cstring>
#include <limits>

namespace lockstep::winograd {

template <int lanes>
struct Vector;
template <>
struct Vector<16> {
  using Floats = float __attribute__((vector_size(64)));
};
template <>
struct Vector<8> {
  using Floats = float __attribute__((vector_size(32)));
};

template <int lanes>
struct VectorKernels {
  using Floats = typename Vector<lanes>::Floats;
  static_assert(sizeof(Floats) == lanes * sizeof(float));

  /// The results that multiply() keeps in registers: rows x two vectors.
  static constexpr int max_rows = lanes == 16 ? 8 : 6;
  static constexpr int max_vectors = 2;

  LOCKSTEP_INLINE static Floats load(const float* from) {
    Floats values;
    std::memcpy(&values, from, sizeof values);
    return values;
  }
  LOCKSTEP_INLINE static void store(const Floats& values, float* to) { std::memcpy(to, &values, sizeof values); }

  LOCKSTEP_INLINE static Floats load(const BFloat16* from) {
    static_assert(lanes == simd::lanes);
    Floats values;
    simd::load(from, values);
    return values;
  }
  LOCKSTEP_INLINE static void store(const Floats& values, BFloat16* to) {
    static_assert(lanes == simd::lanes);
    simd::store(values, to);
  }

  /// Calls function.operator()<rows, columns>() with the size of a tile.
  template <typename Function>
  LOCKSTEP_INLINE static void with_size(const Tile& tile, const Function& function) {
    const auto with_rows = [&]<int rows>() {
      if (tile.columns == 4) {
        function.template operator()<rows, 4>();
      } else if (tile.columns == 3) {
        function.template operator()<rows, 3>();
      } else {
        function.template operator()<rows, 2>();
      }
    };
    if (tile.rows == 4) {
      with_rows.template operator()<4>();
    } else if (tile.rows == 3) {
      with_rows.template operator()<3>();
    } else {
      with_rows.template operator()<2>();
    }
  }

  /// Where a tile's components are, for its first channels. `width`: channels of a tile.
  template <int rows, int columns>
  struct Components {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the loops set all
    LOCKSTEP_INLINE Components(const ComponentMatrices& matrices, const Tile& tile, std::int64_t width) {
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
          const std::int64_t matrix_row = tile.matrix_rows[class_of(i)][class_of(j)];
          at[i][j] = matrices.data + matrix_row * width + (i * points + j) * matrices.stride;
        }
      }
    }

    float* at[rows][columns];
  };

  // Transforms of weights

  static void transform_weights(const Geometry& g, std::int64_t output, const float* weights, float* transformed) {
    const std::int64_t stride = g.weight_stride();
    const std::int64_t tap = g.channels * g.out_channels;
    for (std::int64_t c = 0; c < g.channels; ++c) {
      const float* const from = weights + c * g.out_channels + output;
      float* const to = transformed + output * g.channels + c * lanes;
      transform<Floats, WeightTransform, WeightTransform>(
          [&](int i, int j) { return load(from + (i * 3 + j) * tap); },
          [&](int i, int j, const Floats& v) { store(v, to + (i * points + j) * stride); });
    }
  }

  static void transform_flipped_weights(const Geometry& g, std::int64_t output, const float* weights,
                                        float* transformed) {
    const std::int64_t stride = g.weight_stride();
    alignas(64) float flipped[lanes][9][lanes];  // [channel][tap][output channel]
    for (std::int64_t c = 0; c < g.channels; c += lanes) {
      for (int tap = 0; tap < 9; ++tap) {
        for (int lane = 0; lane < lanes; ++lane) {
          const float* const from = weights + ((8 - tap) * g.out_channels + output + lane) * g.channels + c;
          for (int channel = 0; channel < lanes; ++channel) flipped[channel][tap][lane] = from[channel];
        }
      }
      for (int channel = 0; channel < lanes; ++channel) {
        float* const to = transformed + output * g.channels + (c + channel) * lanes;
        transform<Floats, WeightTransform, WeightTransform>(
            [&](int i, int j) { return load(flipped[channel][i * 3 + j]); },
            [&](int i, int j, const Floats& v) { store(v, to + (i * points + j) * stride); });
      }
    }
  }

  static void transform_weight_gradients(const Geometry& g, std::int64_t output, const float* sums, float* gradients) {
    const std::int64_t stride = g.weight_stride();
    const std::int64_t tap = g.channels * g.out_channels;
    for (std::int64_t c = 0; c < g.channels; ++c) {
      const float* const from = sums + output * g.channels + c * lanes;
      float* const to = gradients + c * g.out_channels + output;
      transform<Floats, WeightGradientTransform, WeightGradientTransform>(
          [&](int i, int j) { return load(from + (i * points + j) * stride); },
          [&](int i, int j, const Floats& v) { store(v, to + (i * 3 + j) * tap); });
    }
  }

  // Transforms of images

  /// Some pixels of an image's planes of `lanes` channels, and zeros outside of the image.
  template <int rows, int columns>
  class Patch {
   public:
    LOCKSTEP_INLINE Patch(std::int64_t height, std::int64_t width, std::int64_t row, std::int64_t column)
        : offset_((row * width + column) * lanes),
          stride_(width * lanes),
          row_begin_(-row),
          row_end_(height - row),
          column_begin_(-column),
          column_end_(width - column) {}

    /// Calls use(load), where load(row, column) is a pixel of the patch.
    template <typename T, typename Use>
    LOCKSTEP_INLINE void of(const T* plane, const Use& use) const {
      static constexpr T zeros[columns * lanes] = {};
      const T* pixels[rows];
      for (int i = 0; i < rows; ++i)
        pixels[i] = i >= row_begin_ && i < row_end_ ? plane + offset_ + i * stride_ : zeros;
      use([&](int i, int j) {
        return j >= column_begin_ && j < column_end_ ? load(pixels[i] + std::int64_t{j} * lanes) : Floats{};
      });
    }

   private:
    std::int64_t offset_, stride_, row_begin_, row_end_, column_begin_, column_end_;
  };

  template <typename T>
  static void transform_inputs(const Geometry& g, std::span<const Tile> tiles, const void* x,
                               ComponentMatrices inputs) {
    for (const Tile& tile : tiles) {
      const T* const image = static_cast<const T*>(x) + tile.image * g.elements();
      with_size(tile, [&]<int rows, int columns>() {
        const Components<rows + 2, columns + 2> components(inputs, tile, g.channels);
        const Patch<rows + 2, columns + 2> patch(g.height, g.width, tile.row - g.top, tile.column - g.left);
        for (std::int64_t c = 0; c < g.channels; c += lanes) {
          patch.of(image + c * g.height * g.width, [&](const auto& pixel) {
            transform<Floats, InputTransform<rows>, InputTransform<columns>>(
                pixel, [&](int i, int j, const Floats& v) { store(v, components.at[i][j] + c); });
          });
        }
      });
    }
  }

  template <typename T>
  static void transform_output_gradients(const Geometry& g, std::span<const Tile> tiles, const void* y_gradient,
                                         ComponentMatrices gradients) {
    for (const Tile& tile : tiles) {
      const T* const image = static_cast<const T*>(y_gradient) + tile.image * g.out_elements();
      with_size(tile, [&]<int rows, int columns>() {
        const Components<rows + 2, columns + 2> components(gradients, tile, g.out_channels);
        const Patch<rows, columns> patch(g.out_height, g.out_width, tile.row, tile.column);
        for (std::int64_t k = 0; k < g.out_channels; k += lanes) {
          patch.of(image + k * g.out_height * g.out_width, [&](const auto& pixel) {
            transform<Floats, OutputGradientTransform<rows>, OutputGradientTransform<columns>>(
                pixel, [&](int i, int j, const Floats& v) { store(v, components.at[i][j] + k); });
          });
        }
      });
    }
  }

  template <typename T>
  static void transform_outputs(const Geometry& g, std::span<const Tile> tiles, ComponentMatrices products,
                                const Epilogue& epilogue, void* y) {
    if (epilogue.relu_output.data != nullptr) {
      transform_outputs_with<true>(g, tiles, products, epilogue, static_cast<T*>(y));
    } else {
      transform_outputs_with<false>(g, tiles, products, epilogue, static_cast<T*>(y));
    }
  }

  template <bool masks, typename T>
  LOCKSTEP_INLINE static void transform_outputs_with(const Geometry& g, std::span<const Tile> tiles,
                                                     ComponentMatrices products, const Epilogue& epilogue, T* y) {
    const T* const relu_output = static_cast<const T*>(epilogue.relu_output.data);
    const float infinity = std::numeric_limits<float>::infinity();
    const Floats smallest = Floats{} + (epilogue.relu ? 0.0F : -infinity);
    const std::int64_t stride = g.out_width * lanes;
    for (const Tile& tile : tiles) {
      const bool has_two_rows = tile.row + 2 <= g.out_height;
      const bool has_two_columns = tile.column + 2 <= g.out_width;
      with_size(tile, [&]<int rows, int columns>() {
        const Components<rows + 2, columns + 2> components(products, tile, g.out_channels);
        for (std::int64_t k = 0; k < g.out_channels; k += lanes) {
          const Floats bias = epilogue.bias != nullptr ? load(epilogue.bias + k) : Floats{};
          const std::int64_t plane = tile.image * g.out_elements() + k * g.out_height * g.out_width;
          const std::int64_t origin = plane + (tile.row * g.out_width + tile.column) * lanes;
          transform<Floats, OutputTransform<rows>, OutputTransform<columns>>(
              [&](int i, int j) { return load(components.at[i][j] + k); },
              [&](int i, int j, const Floats& v) {
                if (rows == 2 && i == 1 && !has_two_rows) return;
                if (columns == 2 && j == 1 && !has_two_columns) return;
                const std::int64_t at = origin + i * stride + std::int64_t{j} * lanes;
                Floats result = v + bias;
                result = result < smallest ? smallest : result;  // NaN passes
                if constexpr (masks) result = load(relu_output + at) > 0.0F ? result : Floats{};
                store(result, y + at);
              });
        }
      });
    }
  }

  // Products

  /// A matrix product as strides: left[row][depth] * right[depth][vector], added to or written to result[row][vector].
  struct Product {
    const float* left;
    std::int64_t left_row;
    std::int64_t left_depth;
    const float* right;
    std::int64_t right_depth;
    std::int64_t right_vector;
    float* result;
    std::int64_t result_row;
    std::int64_t result_vector;
    std::int64_t depth;
  };

  template <int rows, int vectors, bool adds>
  LOCKSTEP_INLINE static void multiply_block(const Product& p) {
    Floats sums[rows][vectors];
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v)
        sums[r][v] = adds ? load(p.result + r * p.result_row + v * p.result_vector) : Floats{};
    }
    const float* left = p.left;
    const float* right = p.right;
    for (std::int64_t d = 0; d < p.depth; ++d, left += p.left_depth, right += p.right_depth) {
      Floats factors[vectors];
      for (int v = 0; v < vectors; ++v) factors[v] = load(right + v * p.right_vector);
      for (int r = 0; r < rows; ++r) {
        const float factor = left[r * p.left_row];
        for (int v = 0; v < vectors; ++v) sums[r][v] += factors[v] * factor;
      }
    }
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) store(sums[r][v], p.result + r * p.result_row + v * p.result_vector);
    }
  }

  template <int rows, int vectors, bool adds>
  LOCKSTEP_INLINE static void multiply_remainder(const Product& p, std::int64_t remaining) {
    if (remaining == rows) {
      multiply_block<rows, vectors, adds>(p);
    } else if constexpr (rows > 1) {
      multiply_remainder<rows - 1, vectors, adds>(p, remaining);
    }
  }

  template <int vectors, bool adds>
  LOCKSTEP_INLINE static void multiply_rows(Product p, std::int64_t rows) {
    for (; rows >= max_rows; rows -= max_rows) {
      multiply_block<max_rows, vectors, adds>(p);
      p.left += max_rows * p.left_row;
      p.result += max_rows * p.result_row;
    }
    if (rows > 0) multiply_remainder<max_rows - 1, vectors, adds>(p, rows);
  }

  template <bool adds>
  LOCKSTEP_INLINE static void multiply_all(Product p, std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t step = std::int64_t{max_vectors} * lanes;
    for (; columns >= step; columns -= step) {
      multiply_rows<max_vectors, adds>(p, rows);
      p.right += max_vectors * p.right_vector;
      p.result += max_vectors * p.result_vector;
    }
    if (columns > 0) multiply_rows<1, adds>(p, rows);
  }

  // NOLINTNEXTLINE(readability-non-const-parameter): Product writes it
  static void multiply(const Geometry& g, std::int64_t tiles, const float* inputs, const float* weights,
                       float* products) {  // NOLINT(readability-non-const-parameter): templates write to it
    multiply_all<false>({.left = inputs,
                         .left_row = g.channels,
                         .left_depth = 1,
                         .right = weights,
                         .right_depth = lanes,
                         .right_vector = g.channels * lanes,
                         .result = products,
                         .result_row = g.out_channels,
                         .result_vector = lanes,
                         .depth = g.channels},
                        tiles, g.out_channels);
  }

  // NOLINTNEXTLINE(readability-non-const-parameter): Product writes it
  static void multiply_over_tiles(const Geometry& g, std::int64_t tiles, const float* inputs, const float* gradients,
                                  float* sums) {  // NOLINT(readability-non-const-parameter): templates write to it
    multiply_all<true>({.left = inputs,
                        .left_row = 1,
                        .left_depth = g.channels,
                        .right = gradients,
                        .right_depth = g.out_channels,
                        .right_vector = lanes,
                        .result = sums,
                        .result_row = lanes,
                        .result_vector = g.channels * lanes,
                        .depth = tiles},
                       g.channels, g.out_channels);
  }

  template <typename T>
  static constexpr ImageTransforms transforms{.inputs = transform_inputs<T>,
                                              .output_gradients = transform_output_gradients<T>,
                                              .outputs = transform_outputs<T>};

  static constexpr ImageTransforms bfloat16_transforms() {
    if constexpr (lanes == simd::lanes) {
      return transforms<BFloat16>;
    } else {
      return {};
    }
  }

  static constexpr KernelTable kernels{.lanes = lanes,
                                       .float32 = transforms<float>,
                                       .bfloat16 = bfloat16_transforms(),
                                       .transform_weights = transform_weights,
                                       .transform_flipped_weights = transform_flipped_weights,
                                       .multiply = multiply,
                                       .multiply_over_tiles = multiply_over_tiles,
                                       .transform_weight_gradients = transform_weight_gradients};
};

}  // namespace lockstep::winograd
