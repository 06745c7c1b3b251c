// See stored_tensors.hpp.
#include "checkpoint/stored_tensors.hpp"

#include "checkpoint/guarded_read.hpp"
#include "checkpoint/hdf5_reader.hpp"
#include "checkpoint/model_stream.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// Groups may hold each other in circles; Keras' files are less deep and hold fewer objects than this.
constexpr int deepest = 32;
constexpr std::size_t most_objects = 1U << 18U;

bool is_number(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

/// "9" before "10", all else as it is.
bool in_order(const std::string& left, const std::string& right) {
  if (is_number(left) && is_number(right) && left.size() != right.size()) return left.size() < right.size();
  return left < right;
}

class Walk {
 public:
  explicit Walk(const Hdf5Reader& reader) : reader_(reader) {}

  void visit(const std::string& group, int depth) {
    if (depth > deepest) reader_.fail("its groups lie too deep in each other; the file is damaged");
    std::vector<std::string> names = reader_.children(group);
    std::sort(names.begin(), names.end(), in_order);
    for (const std::string& name : names) {
      if (++objects_ > most_objects) reader_.fail("it claims too many objects; the file is damaged");
      std::string path = group == "/" ? "" : group + "/";
      path += name;
      if (reader_.is_group(path)) {
        visit(path, depth + 1);
      } else if (const std::optional<Shape> shape = reader_.shape_of(path)) {
        tensors_.push_back({path, *shape, reader_.floats(path, *shape)});
      }
    }
  }

  [[nodiscard]] std::vector<SavedTensor> take() { return std::move(tensors_); }

 private:
  const Hdf5Reader& reader_;
  std::size_t objects_ = 0;
  std::vector<SavedTensor> tensors_;
};

void send(ChildOutput& output, const std::vector<SavedTensor>& tensors) {
  output.send(std::uint64_t{tensors.size()});
  for (const SavedTensor& tensor : tensors) {
    output.send(tensor.name);
    output.send(std::uint64_t{tensor.shape.rank()});
    output.send(std::as_bytes(tensor.shape.extents()));
    output.send(std::uint64_t{tensor.values.size()});
    output.send(std::as_bytes(std::span(tensor.values)));
  }
}

bool receive(const ChildProcess& child, std::vector<SavedTensor>& tensors, std::uint64_t most_values) {
  std::uint64_t count = 0;
  if (!child.receive(count) || count > most_objects) return false;
  for (; count > 0; --count) {
    SavedTensor tensor;
    std::uint64_t rank = 0;
    std::uint64_t values = 0;
    if (!child.receive(tensor.name, longest_text) || !child.receive(rank) || rank > deepest) return false;
    std::vector<std::int64_t> extents(rank);
    if (!child.receive(std::as_writable_bytes(std::span(extents))) || !child.receive(values)) return false;
    if (values > most_values) return false;
    tensor.shape = Shape(std::move(extents));
    tensor.values.resize(values);
    if (!child.receive(std::as_writable_bytes(std::span(tensor.values)))) return false;
    tensors.push_back(std::move(tensor));
  }
  return true;
}

}  // namespace

StoredTensors load_stored_tensors(const std::filesystem::path& file) {
  constexpr std::uint64_t most_values = std::uint64_t{1} << 40U;
  constexpr std::uint64_t unknown = ~std::uint64_t{0};
  const std::string counter = "optimizer/vars/0";
  std::vector<SavedTensor> tensors;
  std::uint64_t iteration = unknown;
  const auto read = [&]() -> SendResult {
    const Hdf5Reader reader(file);
    Walk walk(reader);
    walk.visit("/", 0);
    const std::uint64_t steps = reader.has(counter) ? static_cast<std::uint64_t>(reader.integer(counter)) : unknown;
    return [found = walk.take(), steps](ChildOutput& output) {
      send(output, found);
      output.send(steps);
    };
  };
  read_guarded(file, read, [&](const ChildProcess& child) {
    return receive(child, tensors, most_values) && child.receive(iteration);
  });

  StoredTensors result;
  for (SavedTensor& tensor : tensors) {
    const bool of_optimizer = tensor.name.starts_with("optimizer/") || tensor.name.starts_with("optimizer_weights/");
    (of_optimizer ? result.optimizer : result.weights).push_back(std::move(tensor));
  }
  if (iteration != unknown) result.iteration = static_cast<std::int64_t>(iteration);
  return result;
}

}  // namespace lockstep
