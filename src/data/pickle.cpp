// See pickle.hpp.
#include "data/pickle.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <utility>

namespace lockstep {

namespace {

/// A byte of a pickle becomes one value at most, which takes fifty times its memory.
constexpr std::size_t max_values = 1'000'000;
constexpr int newest_protocol = 2;

}  // namespace

class Pickle::Machine {
 public:
  Machine(std::span<const std::uint8_t> bytes, const std::string& source, std::deque<std::vector<Value>>& items)
      : bytes_(bytes), source_(source), items_(items) {}

  Value run() {
    while (true) {
      const std::size_t place = at_;
      const auto code = number<std::uint8_t>();
      if (code == '.') return pop();
      if (!run(code)) fail(place, fmt::format("an instruction of code {}, which the files of CIFAR do not have", code));
    }
  }

 private:
  /// Returns whether the instruction is known. The comments are the names of pickletools.
  bool run(std::uint8_t code) {
    // clang-format off
    switch (code) {
      case 0x80: read_protocol(); return true;                                // PROTO
      case '(': push({.kind = Kind::mark}); return true;                      // MARK
      case 'N': push({}); return true;                                        // NONE
      case 0x88: push({.kind = Kind::boolean, .number = 1}); return true;     // NEWTRUE
      case 0x89: push({.kind = Kind::boolean}); return true;                  // NEWFALSE
      case 'K': push_integer(number<std::uint8_t>()); return true;            // BININT1
      case 'M': push_integer(number<std::uint16_t>()); return true;           // BININT2
      case 'J': push_integer(number<std::int32_t>()); return true;            // BININT
      case 'U': push_bytes(number<std::uint8_t>()); return true;              // SHORT_BINSTRING
      case 'T':                                                               // BINSTRING
      case 'X': push_bytes(number<std::uint32_t>()); return true;             // BINUNICODE
      case 'c': push_global(); return true;                                   // GLOBAL
      case ']': push_items(Kind::list, {}); return true;                      // EMPTY_LIST
      case '}': push_items(Kind::dictionary, {}); return true;                // EMPTY_DICT
      case ')': push_items(Kind::tuple, {}); return true;                     // EMPTY_TUPLE
      case 't': push_items(Kind::tuple, pop_to_mark()); return true;          // TUPLE
      case 0x85: push_items(Kind::tuple, pop(1)); return true;                // TUPLE1
      case 0x86: push_items(Kind::tuple, pop(2)); return true;                // TUPLE2
      case 0x87: push_items(Kind::tuple, pop(3)); return true;                // TUPLE3
      case 'a': append(Kind::list, pop(1)); return true;                      // APPEND
      case 'e': append(Kind::list, pop_to_mark()); return true;               // APPENDS
      case 's': append(Kind::dictionary, pop(2)); return true;                // SETITEM
      case 'u': append(Kind::dictionary, pop_to_mark()); return true;         // SETITEMS
      case 'R': push_items(Kind::call, pop(2)); return true;                  // REDUCE
      case 'b': append(Kind::call, pop(1)); return true;                      // BUILD
      case 'q': memo_[number<std::uint8_t>()] = top(); return true;           // BINPUT
      case 'r': memo_[number<std::uint32_t>()] = top(); return true;          // LONG_BINPUT
      case 'h': push_memo(number<std::uint8_t>()); return true;               // BINGET
      case 'j': push_memo(number<std::uint32_t>()); return true;              // LONG_BINGET
      default: return false;
    }
    // clang-format on
  }

  void read_protocol() {
    const std::size_t place = at_;
    const auto protocol = number<std::uint8_t>();
    if (protocol > newest_protocol)
      fail(place, fmt::format("protocol {}; the files of CIFAR have {}", protocol, newest_protocol));
  }

  /// A number with the lowest byte first.
  template <typename T>
  T number() {
    std::uint32_t bits = 0;
    const std::string_view bytes = take(sizeof(T));
    for (std::size_t i = 0; i < sizeof(T); ++i) bits |= std::uint32_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
    return static_cast<T>(bits);
  }

  std::string_view take(std::size_t count) {
    if (bytes_.size() - at_ < count) fail(at_, fmt::format("the end, where {} more bytes belong", count));
    const std::span<const std::uint8_t> taken = bytes_.subspan(at_, count);
    at_ += count;
    return {reinterpret_cast<const char*>(taken.data()), count};
  }

  void push(const Value& value) {
    if (++values_ > max_values) fail(at_, fmt::format("more than {} values", max_values));
    stack_.push_back(value);
  }
  void push_integer(std::int64_t value) { push({.kind = Kind::integer, .number = value}); }
  void push_bytes(std::size_t count) { push({.kind = Kind::bytes, .bytes = take(count)}); }
  void push_items(Kind kind, std::vector<Value> items) {
    push({.kind = kind, .items = &items_.emplace_back(std::move(items))});
  }

  /// Two lines: the module and the name.
  void push_global() {
    const std::size_t begin = at_;
    for (int lines = 0; lines < 2;) lines += take(1) == "\n" ? 1 : 0;
    const std::span<const std::uint8_t> both = bytes_.subspan(begin, at_ - begin - 1);
    push({.kind = Kind::global, .bytes = {reinterpret_cast<const char*>(both.data()), both.size()}});
  }

  void push_memo(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail(at_, fmt::format("a reference to value {}, which does not exist", index));
    push(found->second);
  }

  [[nodiscard]] const Value& top() const {
    if (stack_.empty() || stack_.back().kind == Kind::mark) fail(at_, "an instruction without its operands");
    return stack_.back();
  }

  Value pop() {
    const Value value = top();
    stack_.pop_back();
    return value;
  }

  std::vector<Value> pop(std::size_t count) {
    std::vector<Value> values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }

  std::vector<Value> pop_to_mark() {
    const auto is_mark = [](const Value& value) { return value.kind == Kind::mark; };
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(), is_mark);
    if (mark == stack_.rend()) fail(at_, "an instruction without its operands");
    std::vector<Value> values(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    return values;
  }

  /// To the list, dictionary or call on the stack.
  void append(Kind kind, const std::vector<Value>& more) {
    const Value& value = top();
    if (value.kind != kind || (kind == Kind::dictionary && more.size() % 2 != 0))
      fail(at_, "an instruction for a value of another kind");
    value.items->insert(value.items->end(), more.begin(), more.end());
  }

  [[noreturn]] void fail(std::size_t place, const std::string& what) const {
    throw DataError(
        fmt::format("{}: byte {} has {}; fetch the file again, or fetch the binary version", source_, place, what));
  }

  std::span<const std::uint8_t> bytes_;
  const std::string& source_;
  std::deque<std::vector<Value>>& items_;
  std::size_t at_ = 0;
  std::size_t values_ = 0;
  std::vector<Value> stack_;
  std::map<std::uint32_t, Value> memo_;
};

Pickle::Pickle(std::span<const std::uint8_t> bytes, std::string source) : source_(std::move(source)) {
  dictionary_ = Machine(bytes, source_, items_).run();
  if (dictionary_.kind != Kind::dictionary)
    throw DataError(source_ + " is a pickle of something else than a dictionary");
}

/// The last one, as in Python.
const Pickle::Value* Pickle::find(std::string_view key) const {
  const std::vector<Value>& items = *dictionary_.items;
  for (std::size_t i = items.size(); i >= 2; i -= 2) {
    if (items[i - 2].kind == Kind::bytes && items[i - 2].bytes == key) return &items[i - 1];
  }
  return nullptr;
}

std::vector<std::int64_t> Pickle::integers(std::string_view key) const {
  const Value* const value = find(key);
  const auto is_integer = [](const Value& each) { return each.kind == Kind::integer; };
  if (value == nullptr || value->kind != Kind::list || !std::ranges::all_of(*value->items, is_integer))
    throw DataError(fmt::format("{} has no list of integers '{}'", source_, key));
  std::vector<std::int64_t> numbers;
  for (const Value& each : *value->items) numbers.push_back(each.number);
  return numbers;
}

/// dtype("u1", False, True), which NumPy makes of numpy.uint8.
bool Pickle::is_byte_type(const Value& value) {
  if (!value.has(Kind::call, 2) || !value.items->front().is_global("numpy\ndtype")) return false;
  const Value& arguments = value.items->at(1);
  return arguments.has(Kind::tuple, 1) && arguments.items->front().kind == Kind::bytes &&
         arguments.items->front().bytes == "u1";
}

/// A call of NumPy's _reconstruct and the state (version, shape, type, whether it has Fortran's order, bytes).
PickledArray Pickle::byte_array(std::string_view key) const {
  const Value* const value = find(key);
  const bool is_array = value != nullptr && value->has(Kind::call, 3) &&
                        value->items->front().is_global("numpy.core.multiarray\n_reconstruct") &&
                        value->items->at(2).has(Kind::tuple, 5);
  if (!is_array) throw DataError(fmt::format("{} has no array '{}'", source_, key));
  const std::vector<Value>& state = *value->items->at(2).items;
  const bool is_c_order = state[3].kind == Kind::boolean && state[3].number == 0;
  const bool has_shape = state[1].kind == Kind::tuple && state[4].kind == Kind::bytes;
  if (!has_shape || !is_c_order || !is_byte_type(state[2]))
    throw DataError(fmt::format("{}: the array '{}' is none of bytes in the order of C", source_, key));
  PickledArray array{.bytes = state[4].bytes};
  std::uint64_t left = array.bytes.size();
  for (const Value& extent : *state[1].items) {
    if (extent.kind != Kind::integer || extent.number <= 0 || left % static_cast<std::uint64_t>(extent.number) != 0)
      throw DataError(
          fmt::format("{}: the array '{}' has {} bytes, which its shape does not", source_, key, array.bytes.size()));
    left /= static_cast<std::uint64_t>(extent.number);
    array.shape.push_back(extent.number);
  }
  if (left != 1)
    throw DataError(
        fmt::format("{}: the array '{}' has {} bytes, which its shape does not", source_, key, array.bytes.size()));
  return array;
}

}  // namespace lockstep
