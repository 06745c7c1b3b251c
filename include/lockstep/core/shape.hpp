// The dimensions of a tensor without its batch dimension, e.g. {26, 26, 32}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : extents_(extents) {}
  explicit Shape(std::vector<std::int64_t> extents) : extents_(std::move(extents)) {}

  [[nodiscard]] std::size_t rank() const noexcept { return extents_.size(); }
  [[nodiscard]] std::int64_t operator[](std::size_t axis) const { return extents_.at(axis); }
  [[nodiscard]] std::span<const std::int64_t> extents() const noexcept { return extents_; }

  /// Product of the dimensions; 1 for a scalar.
  [[nodiscard]] std::int64_t elements() const noexcept;

  /// "(26, 26, 32)", as Python prints a tuple.
  [[nodiscard]] std::string to_string() const;
  /// "(None, 26, 26, 32)", as Keras prints a shape with its batch dimension.
  [[nodiscard]] std::string to_string_with_batch() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<std::int64_t> extents_;
};

}  // namespace lockstep
