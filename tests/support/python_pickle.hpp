// Writes the pickles of CIFAR's Python version as Python 2 with NumPy wrote them: protocol 2, text as strings of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::testing {

class PythonPickle {
 public:
  /// {labels_key: labels, "data": array of bytes (rows, bytes / rows), "filenames": ["a.png"]}
  static std::string of_cifar(const std::string& labels_key, const std::vector<std::uint8_t>& labels,
                              const std::string& bytes) {
    PythonPickle pickle;
    pickle.add("\x80\x02}");
    pickle.put();
    pickle.add("(");
    pickle.string(labels_key);
    pickle.add("]");
    pickle.put();
    pickle.add("(");
    for (const std::uint8_t label : labels) pickle.integer(label);
    pickle.add("e");
    pickle.string("data");
    pickle.array(labels.size(), bytes);
    pickle.string("filenames");
    pickle.add("]");
    pickle.put();
    pickle.string("a.png");
    pickle.add("au.");
    return pickle.text_;
  }

 private:
  void add(const std::string& code) { text_ += code; }

  /// Python memoizes each value that may occur again.
  void put() {
    text_ += 'q';
    text_ += static_cast<char>(memo_++);
  }

  void bytes_of(std::uint32_t value, int count) {
    for (int i = 0; i < count; ++i) text_ += static_cast<char>(value >> (8 * i));
  }

  void integer(std::uint32_t value) {
    text_ += value < 256 ? 'K' : value < 65536 ? 'M' : 'J';
    bytes_of(value, value < 256 ? 1 : value < 65536 ? 2 : 4);
  }

  void string(const std::string& value) {
    text_ += value.size() < 256 ? 'U' : 'T';
    bytes_of(static_cast<std::uint32_t>(value.size()), value.size() < 256 ? 1 : 4);
    text_ += value;
    put();
  }

  void array(std::size_t rows, const std::string& bytes) {
    add("cnumpy.core.multiarray\n_reconstruct\n");
    put();
    add("cnumpy\nndarray\n");
    put();
    integer(0);
    add("\x85");
    put();
    string("b");
    add("\x87");
    put();
    add("R");
    put();
    add("(");
    integer(1);
    integer(static_cast<std::uint32_t>(rows));
    integer(static_cast<std::uint32_t>(bytes.size() / rows));
    add("\x86");
    put();
    add("cnumpy\ndtype\n");
    put();
    string("u1");
    integer(0);
    integer(1);
    add("\x87");
    put();
    add("R");
    put();
    add("(");
    integer(3);
    string("|");
    add("NNN");
    for (int i = 0; i < 2; ++i) {
      text_ += 'J';
      bytes_of(0xFFFFFFFF, 4);
    }
    integer(0);
    add("t");
    put();
    add("b\x89");
    string(bytes);
    add("t");
    put();
    add("b");
  }

  std::string text_;
  int memo_ = 1;
};

}  // namespace lockstep::testing
