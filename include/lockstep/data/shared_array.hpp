// A constant array whose copies and slices share its memory: a vector's, or memory that others map too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

template <typename Element>
class SharedArray {
 public:
  SharedArray() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): implicit, so that a dataset takes a vector
  SharedArray(std::vector<Element> values) {
    auto owner = std::make_shared<const std::vector<Element>>(std::move(values));
    values_ = *owner;
    owner_ = std::move(owner);
  }
  /// Elements in memory that `owner` keeps valid.
  SharedArray(std::shared_ptr<const void> owner, std::span<const Element> values)
      : owner_(std::move(owner)), values_(values) {}

  [[nodiscard]] const Element* data() const noexcept { return values_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }
  [[nodiscard]] auto begin() const noexcept { return values_.begin(); }
  [[nodiscard]] auto end() const noexcept { return values_.end(); }
  [[nodiscard]] const Element& operator[](std::size_t index) const noexcept { return values_[index]; }

  /// The elements [begin, end), which must lie within the array.
  [[nodiscard]] SharedArray slice(std::size_t begin, std::size_t end) const {
    return {owner_, values_.subspan(begin, end - begin)};
  }

  [[nodiscard]] friend bool operator==(const SharedArray& a, const SharedArray& b) {
    return std::ranges::equal(a.values_, b.values_);
  }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const Element> values_;
};

}  // namespace lockstep
