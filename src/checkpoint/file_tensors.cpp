// See file_tensors.hpp.
#include "checkpoint/file_tensors.hpp"

#include "checkpoint/hdf5/hdf5_reader.hpp"
#include "checkpoint/model_serialization.hpp"
#include "checkpoint/subprocess_read.hpp"

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

/// Limits for damaged files, whose groups may form cycles. Keras' files stay well below them.
constexpr int max_depth = 32;
constexpr std::size_t max_objects = 1U << 18U;

bool is_number(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

/// Sorts numbers by value ("9" before "10") and everything else as text.
bool precedes(const std::string& left, const std::string& right) {
  if (is_number(left) && is_number(right) && left.size() != right.size()) return left.size() < right.size();
  return left < right;
}

class Walk {
 public:
  explicit Walk(const Hdf5Reader& reader) : reader_(reader) {}

  void visit(const std::string& group, int depth) {
    if (depth > max_depth) reader_.fail("its groups are nested too deeply; the file is damaged");
    std::vector<std::string> names = reader_.child_names(group);
    std::sort(names.begin(), names.end(), precedes);
    for (const std::string& name : names) {
      if (++objects_ > max_objects) reader_.fail("it claims too many objects; the file is damaged");
      std::string path = group == "/" ? "" : group + "/";
      path += name;
      if (reader_.is_group(path)) {
        visit(path, depth + 1);
      } else if (const std::optional<Shape> shape = reader_.shape_of(path)) {
        tensors_.push_back({path, *shape, reader_.read_floats(path, *shape)});
      }
    }
  }

  [[nodiscard]] std::vector<NamedTensor> take() { return std::move(tensors_); }

 private:
  const Hdf5Reader& reader_;
  std::size_t objects_ = 0;
  std::vector<NamedTensor> tensors_;
};

void send(PipeWriter& output, const std::vector<NamedTensor>& tensors) {
  output.send(std::uint64_t{tensors.size()});
  for (const NamedTensor& tensor : tensors) {
    output.send(tensor.name);
    output.send(std::uint64_t{tensor.shape.rank()});
    output.send(std::as_bytes(tensor.shape.extents()));
    output.send(std::uint64_t{tensor.values.size()});
    output.send(std::as_bytes(std::span(tensor.values)));
  }
}

bool receive(const Subprocess& child, std::vector<NamedTensor>& tensors, std::uint64_t max_values) {
  std::uint64_t count = 0;
  if (!child.receive(count) || count > max_objects) return false;
  for (; count > 0; --count) {
    NamedTensor tensor;
    std::uint64_t rank = 0;
    std::uint64_t values = 0;
    if (!child.receive(tensor.name, max_text_bytes) || !child.receive(rank) || rank > max_depth) return false;
    std::vector<std::int64_t> extents(rank);
    if (!child.receive(std::as_writable_bytes(std::span(extents))) || !child.receive(values)) return false;
    if (values > max_values) return false;
    tensor.shape = Shape(std::move(extents));
    tensor.values.resize(values);
    if (!child.receive(std::as_writable_bytes(std::span(tensor.values)))) return false;
    tensors.push_back(std::move(tensor));
  }
  return true;
}

}  // namespace

FileTensors load_file_tensors(const std::filesystem::path& file) {
  constexpr std::uint64_t max_values = std::uint64_t{1} << 40U;
  constexpr std::uint64_t unknown = ~std::uint64_t{0};
  const std::string counter = "optimizer/vars/0";
  std::vector<NamedTensor> tensors;
  std::uint64_t iteration = unknown;
  const auto read = [&]() -> SendResult {
    const Hdf5Reader reader(file);
    Walk walk(reader);
    walk.visit("/", 0);
    const std::uint64_t steps =
        reader.has(counter) ? static_cast<std::uint64_t>(reader.read_integer(counter)) : unknown;
    return [found = walk.take(), steps](PipeWriter& output) {
      send(output, found);
      output.send(steps);
    };
  };
  read_in_subprocess(file, read, [&](const Subprocess& child) {
    return receive(child, tensors, max_values) && child.receive(iteration);
  });

  FileTensors result;
  for (NamedTensor& tensor : tensors) {
    const bool is_slot = tensor.name.starts_with("optimizer/") || tensor.name.starts_with("optimizer_weights/");
    (is_slot ? result.optimizer : result.weights).push_back(std::move(tensor));
  }
  if (iteration != unknown) result.iteration = static_cast<std::int64_t>(iteration);
  return result;
}

}  // namespace lockstep
