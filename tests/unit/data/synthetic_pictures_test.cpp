// The synthetic pictures. Their bytes must not change, since programs, tests and benchmarks compare runs on them.
#include "support/catch.hpp"
#include "unit/data/data_files.hpp"

#include <lockstep/data/cifar.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::size_t pixels = std::size_t{32} * 32 * 3;
constexpr std::size_t classes = 10;

const SharedArray<std::uint8_t>& images_of(const Dataset& data) {
  return std::get<SharedArray<std::uint8_t>>(data.input().values);
}
const SharedArray<std::int32_t>& labels_of(const Dataset& data) {
  return std::get<SharedArray<std::int32_t>>(data.target().values);
}

std::uint64_t digest(const Dataset& data) {
  Bytes bytes(images_of(data).begin(), images_of(data).end());
  for (const std::int32_t label : labels_of(data)) bytes.push_back(static_cast<std::uint8_t>(label));
  return digest_of(bytes);
}

/// A linear model: softmax of W x + b, trained by gradient descent over batches.
class LinearModel {
 public:
  void train(const Dataset& data, int epochs) {
    constexpr std::size_t batch = 100;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const float rate = 0.01F / static_cast<float>(epoch + 1);
      for (std::size_t first = 0; first + batch <= data.size(); first += batch) step(data, first, batch, rate);
    }
  }

  [[nodiscard]] double accuracy(const Dataset& data) const {
    std::size_t correct = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto logits = evaluate(read(data, i));
      const auto best = std::ranges::max_element(logits) - logits.begin();
      correct += best == labels_of(data)[i] ? 1 : 0;
    }
    return static_cast<double>(correct) / static_cast<double>(data.size());
  }

 private:
  using Image = std::array<float, pixels>;
  using Logits = std::array<float, classes>;

  static Image read(const Dataset& data, std::size_t i) {
    Image image{};
    for (std::size_t p = 0; p < pixels; ++p)
      image[p] = static_cast<float>(images_of(data)[i * pixels + p]) / 255 - 0.5F;
    return image;
  }

  [[nodiscard]] Logits evaluate(const Image& image) const {
    Logits logits = bias_;
    for (std::size_t p = 0; p < pixels; ++p) {
      for (std::size_t c = 0; c < classes; ++c) logits[c] += weights_[p * classes + c] * image[p];
    }
    return logits;
  }

  void step(const Dataset& data, std::size_t first, std::size_t batch, float rate) {
    std::vector<float> change(weights_.size());
    for (std::size_t i = first; i < first + batch; ++i) {
      const Image image = read(data, i);
      Logits gradient = evaluate(image);
      const float highest = *std::ranges::max_element(gradient);
      float sum = 0;
      for (float& logit : gradient) sum += logit = std::exp(logit - highest);
      for (float& value : gradient) value /= sum;
      gradient[static_cast<std::size_t>(labels_of(data)[i])] -= 1;
      for (std::size_t p = 0; p < pixels; ++p) {
        for (std::size_t c = 0; c < classes; ++c) change[p * classes + c] += gradient[c] * image[p];
      }
      for (std::size_t c = 0; c < classes; ++c) bias_[c] -= rate / static_cast<float>(batch) * gradient[c];
    }
    for (std::size_t w = 0; w < weights_.size(); ++w) weights_[w] -= rate / static_cast<float>(batch) * change[w];
  }

  std::vector<float> weights_ = std::vector<float>(pixels * classes);
  Logits bias_{};
};

}  // namespace

TEST_CASE("the synthetic pictures are identical on every machine", "[pictures]") {
  const TrainTestSplit pictures = synthetic_pictures(1000, 300);
  // Other digests mean other training data for all users, and new figures in the documentation.
  CHECK(digest(pictures.train) == 0x8CC5103E319C076F);
  CHECK(digest(pictures.test) == 0xA9914C3069471863);
}

TEST_CASE("a synthetic picture depends only on its index", "[pictures]") {
  const TrainTestSplit many = synthetic_pictures(300, 200);
  const TrainTestSplit few = synthetic_pictures(40, 30);
  CHECK(images_of(few.train) == images_of(many.train.slice(0, 40)));
  CHECK(labels_of(few.train) == labels_of(many.train.slice(0, 40)));
  CHECK(images_of(few.test) == images_of(many.test.slice(0, 30)));
  CHECK(images_of(few.test) != images_of(few.train.slice(0, 30)));
  CHECK(synthetic_pictures(0, 0).train.size() == 0);
}

TEST_CASE("the synthetic pictures have ten classes, which colours and places hardly tell apart", "[pictures]") {
  const TrainTestSplit pictures = synthetic_pictures(5000, 1000);
  CHECK(pictures.train.input().shape == Shape{32, 32, 3});
  pictures.train.validate(classes);
  pictures.test.validate(classes);
  std::array<int, classes> counts{};
  for (const std::int32_t label : labels_of(pictures.train)) ++counts.at(static_cast<std::size_t>(label));
  for (const int count : counts) CHECK((count > 400 && count < 600));
  LinearModel linear;
  linear.train(pictures.train, 3);
  CHECK(linear.accuracy(pictures.test) < 0.45);
}
