// The transforms of Winograd's minimal filtering F(m, 3) along one axis, for m of 2 to 4, and their application along
// both axes.
//
// Evaluation points are 0, a, -a, infinity, b, -b, in this order; a tile of m results uses the first m + 2. With a =
// 3/4 and b = 3/2, rounding errors are about half of those of the usual points 1 and 2. The factors that depend on the
// number of points, the inverse products of a point's distances to the others, belong to the transforms of results and
// of their gradients, so that transformed weights and inputs are the same for all tile sizes.
#pragma once

#include "backend/cpu/simd.hpp"

namespace lockstep::winograd {

inline constexpr float a = 0.75F;
inline constexpr float b = 1.5F;
inline constexpr float a2 = a * a;
inline constexpr float b2 = b * b;

/// The factors of 0, a, -a and +-b.
template <int results>
struct Factors;
template <>
struct Factors<4> {
  static constexpr float zero = 1 / (a2 * b2);
  static constexpr float plus = 1 / (2 * a2 * (a2 - b2));
  static constexpr float minus = plus;
  static constexpr float outer = 1 / (2 * b2 * (b2 - a2));
};
template <>
struct Factors<3> {
  static constexpr float zero = 1 / (a2 * b);
  static constexpr float plus = 1 / (2 * a2 * (a - b));
  static constexpr float minus = -1 / (2 * a2 * (a + b));
  static constexpr float outer = 1 / (b * (b2 - a2));
};
template <>
struct Factors<2> {
  static constexpr float zero = -1 / a2;
  static constexpr float plus = 1 / (2 * a2);
  static constexpr float minus = plus;
};

/// Inputs of a tile to its components.
template <int tile>
struct InputTransform {
  static constexpr int from = tile + 2;
  static constexpr int to = tile + 2;

  template <typename V>
  LOCKSTEP_INLINE static void apply(const V* d, V* component) {
    if constexpr (tile == 4) {
      const V even_a = d[4] - b2 * d[2];
      const V odd_a = d[3] - b2 * d[1];
      const V even_b = d[4] - a2 * d[2];
      const V odd_b = d[3] - a2 * d[1];
      component[0] = even_a - a2 * (d[2] - b2 * d[0]);
      component[1] = even_a + a * odd_a;
      component[2] = even_a - a * odd_a;
      component[3] = (d[5] - b2 * d[3]) - a2 * odd_a;
      component[4] = even_b + b * odd_b;
      component[5] = even_b - b * odd_b;
    } else if constexpr (tile == 3) {
      const V even = d[3] - b * d[2];
      const V odd = d[2] - b * d[1];
      component[4] = d[3] - a2 * d[1];
      component[0] = component[4] - b * (d[2] - a2 * d[0]);
      component[1] = even + a * odd;
      component[2] = even - a * odd;
      component[3] = (d[4] - a2 * d[2]) - b * component[4];
    } else {
      component[0] = d[2] - a2 * d[0];
      component[1] = d[2] + a * d[1];
      component[2] = d[2] - a * d[1];
      component[3] = d[3] - a2 * d[1];
    }
  }
};

/// Components of a tile to its results.
template <int tile>
struct OutputTransform {
  static constexpr int from = tile + 2;
  static constexpr int to = tile;
  using F = Factors<tile>;

  template <typename V>
  LOCKSTEP_INLINE static void apply(const V* component, V* y) {
    if constexpr (tile == 4) {
      const V even_a = component[1] + component[2];
      const V odd_a = component[1] - component[2];
      const V even_b = component[4] + component[5];
      const V odd_b = component[4] - component[5];
      y[0] = F::zero * component[0] + F::plus * even_a + F::outer * even_b;
      y[1] = F::plus * a * odd_a + F::outer * b * odd_b;
      y[2] = F::plus * a2 * even_a + F::outer * b2 * even_b;
      y[3] = component[3] + F::plus * a2 * a * odd_a + F::outer * b2 * b * odd_b;
    } else {
      const V even = F::plus * component[1] + F::minus * component[2];
      const V odd = F::plus * component[1] - F::minus * component[2];
      y[0] = F::zero * component[0] + even;
      y[1] = a * odd;
      if constexpr (tile == 3) {
        const V outer = F::outer * component[4];
        y[0] += outer;
        y[1] += b * outer;
        y[2] = component[3] + a2 * even + b2 * outer;
      } else {
        y[1] += component[3];
      }
    }
  }
};

/// Gradients of a tile's results to gradients of its components: the transpose of OutputTransform.
template <int tile>
struct OutputGradientTransform {
  static constexpr int from = tile;
  static constexpr int to = tile + 2;
  using F = Factors<tile>;

  template <typename V>
  LOCKSTEP_INLINE static void apply(const V* y, V* component) {
    component[0] = F::zero * y[0];
    component[3] = y[tile - 1];
    if constexpr (tile == 4) {
      const V even_a = F::plus * y[0] + F::plus * a2 * y[2];
      const V odd_a = F::plus * a * y[1] + F::plus * a2 * a * y[3];
      const V even_b = F::outer * y[0] + F::outer * b2 * y[2];
      const V odd_b = F::outer * b * y[1] + F::outer * b2 * b * y[3];
      component[1] = even_a + odd_a;
      component[2] = even_a - odd_a;
      component[4] = even_b + odd_b;
      component[5] = even_b - odd_b;
    } else {
      V even = y[0];
      if constexpr (tile == 3) {
        even += a2 * y[2];
        component[4] = F::outer * y[0] + F::outer * b * y[1] + F::outer * b2 * y[2];
      }
      component[1] = F::plus * even + F::plus * a * y[1];
      component[2] = F::minus * even - F::minus * a * y[1];
    }
  }
};

/// The three weights along an axis to the components of the largest tile.
struct WeightTransform {
  static constexpr int from = 3;
  static constexpr int to = 6;

  template <typename V>
  LOCKSTEP_INLINE static void apply(const V* w, V* component) {
    const V even_a = w[0] + a2 * w[2];
    const V even_b = w[0] + b2 * w[2];
    component[0] = w[0];
    component[1] = even_a + a * w[1];
    component[2] = even_a - a * w[1];
    component[3] = w[2];
    component[4] = even_b + b * w[1];
    component[5] = even_b - b * w[1];
  }
};

/// Gradients of components to gradients of weights: the transpose of WeightTransform.
struct WeightGradientTransform {
  static constexpr int from = 6;
  static constexpr int to = 3;

  template <typename V>
  LOCKSTEP_INLINE static void apply(const V* component, V* w) {
    const V even_a = component[1] + component[2];
    const V even_b = component[4] + component[5];
    w[0] = component[0] + even_a + even_b;
    w[1] = a * (component[1] - component[2]) + b * (component[4] - component[5]);
    w[2] = component[3] + a2 * even_a + b2 * even_b;
  }
};

/// Transforms a matrix along both axes: reads load(row, column) and calls store(row, column, value).
template <typename V, typename Rows, typename Columns, typename Load, typename Store>
LOCKSTEP_INLINE void transform(const Load& load, const Store& store) {
  V half[Rows::to][Columns::from];
  for (int j = 0; j < Columns::from; ++j) {
    V values[Rows::from];
    V results[Rows::to];
    for (int i = 0; i < Rows::from; ++i) values[i] = load(i, j);
    Rows::apply(values, results);
    for (int i = 0; i < Rows::to; ++i) half[i][j] = results[i];
  }
  for (int i = 0; i < Rows::to; ++i) {
    V results[Columns::to];
    Columns::apply(half[i], results);
    for (int j = 0; j < Columns::to; ++j) store(i, j, results[j]);
  }
}

}  // namespace lockstep::winograd
