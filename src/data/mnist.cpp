// See mnist.hpp.
#include <lockstep/core/error.hpp>
#include <lockstep/data/mnist.hpp>

#include <fmt/format.h>

namespace lockstep {

TrainTestSplit load_mnist(const std::filesystem::path& path) {
  if (path.empty()) return synthetic_digits();
  TrainTestSplit data = load_dataset(path);
  const Shape& shape = data.train.input().shape;
  if (shape != Shape{28, 28} && shape != Shape{28, 28, 1}) {
    throw DataError(
        fmt::format("{} has examples of shape {}, but MNIST's are (28, 28) or (28, 28, 1); lockstep train takes other "
                    "data, and so does load_dataset() in C++",
                    data.train.source, shape.to_string()));
  }
  for (const Dataset* part : {&data.train, &data.test}) part->validate(10);
  return data;
}

}  // namespace lockstep
