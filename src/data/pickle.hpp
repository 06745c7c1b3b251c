// Reads a pickle of Python as data. A pickle is a program for a stack machine, which may call any function; here its
// calls are values that nobody runs. Only the instructions that the files of CIFAR's Python version have are known.
// https://github.com/python/cpython/blob/main/Lib/pickletools.py
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// An array of NumPy whose elements are bytes, in the order of C.
struct PickledArray {
  std::vector<std::int64_t> shape = {};
  std::string_view bytes = {};  ///< in the pickle; as many as the shape has elements
};

/// A dictionary that was pickled.
class Pickle {
 public:
  /// `bytes` must outlive the pickle. Throws DataError, which names `source`, unless they are a pickle of known
  /// instructions that makes a dictionary.
  Pickle(std::span<const std::uint8_t> bytes, std::string source);

  /// The list of integers, or the array, under a key. Throws DataError if there is none.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;
  [[nodiscard]] PickledArray byte_array(std::string_view key) const;

 private:
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    bytes,  ///< also text
    list,
    tuple,
    dictionary,  ///< items: keys and values in turn
    global,      ///< bytes: module, line feed, name
    call,  ///< items: what is called, the tuple of its arguments and perhaps the state of the object that it makes
    mark   ///< on the stack only
  };

  struct Value {
    Kind kind = Kind::none;
    std::int64_t number = 0;              ///< of an integer or a boolean
    std::string_view bytes = {};          ///< in the pickle
    std::vector<Value>* items = nullptr;  ///< in items_

    [[nodiscard]] bool has(Kind of_kind, std::size_t at_least) const {
      return kind == of_kind && items->size() >= at_least;
    }
    [[nodiscard]] bool is_global(std::string_view name) const { return kind == Kind::global && bytes == name; }
  };

  class Machine;

  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] static bool is_byte_type(const Value& value);

  std::string source_;
  std::deque<std::vector<Value>> items_;  ///< of all lists, tuples, dictionaries and calls, which may share them
  Value dictionary_;
};

}  // namespace lockstep
