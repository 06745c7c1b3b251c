// CUDA's functors that reduce rows (softmax, losses, BatchNormalization), against double precision.
#include "backend/cuda/channel_reduction_functors.hpp"
#include "backend/cuda/loss_functors.hpp"
#include "cuda_functors.hpp"

#include <numeric>

using namespace lockstep;
using namespace lockstep::cuda;

TEST_CASE("CUDA: softmax and its gradient match double precision") {
  constexpr Index channels = 6;
  RandomStream random = stream_of(2);
  const std::vector<float> x = random_floats(random, 2 * channels);
  const std::vector<float> dy = random_floats(random, 2 * channels);
  std::vector<float> y(x.size());
  std::vector<float> dx(x.size());
  for_each(2, SoftmaxRow<float>{x.data(), y.data(), channels});
  for_each(2,
           SoftmaxRowBackward<float>{x.data(), y.data(), dy.data(), dx.data(), channels, ActivationFunction::linear});
  const auto objective = [&](std::vector<double> z, std::size_t row) {
    double sum = 0;
    double weighted = 0;
    for (Index c = 0; c < channels; ++c) sum += std::exp(z[row * channels + c]);
    for (Index c = 0; c < channels; ++c) {
      weighted += std::exp(z[row * channels + c]) / sum * dy[row * channels + c];
    }
    return weighted;
  };
  std::vector<double> expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::vector<double> above(x.begin(), x.end());
    std::vector<double> below(x.begin(), x.end());
    above[i] += 1e-5;
    below[i] -= 1e-5;
    expected[i] = (objective(above, i / channels) - objective(below, i / channels)) / 2e-5;
  }
  CHECK(std::accumulate(y.begin(), y.begin() + channels, 0.0) == Approx(1.0));
  CHECK(error_of(dx, expected) < 1e-5);
}

TEST_CASE("CUDA: losses, correct predictions and gradients match double precision") {
  constexpr Index count = 5;
  constexpr std::size_t rows = 7;
  RandomStream random = stream_of(3);
  std::vector<float> shares(rows * count);
  std::vector<std::int32_t> classes(rows);
  std::vector<std::uint32_t> examples(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    classes[r] = static_cast<std::int32_t>(random.below(count));
    examples[r] = random.below(rows);
    float sum = 0;
    for (Index k = 0; k < count; ++k) sum += shares[r * count + k] = random.uniform();
    for (Index k = 0; k < count; ++k) shares[r * count + k] /= sum;
  }
  for (const Loss& kind : {Loss(SparseCategoricalCrossentropy()), Loss(CategoricalCrossentropy()),
                           Loss(SparseCategoricalCrossentropy({.from_logits = true})),
                           Loss(CategoricalCrossentropy({.from_logits = true})), Loss(MeanSquaredError())}) {
    const bool squared = std::holds_alternative<MeanSquaredError>(kind);
    with_loss_rule(kind, [&]<bool sparse, typename Rule>(const Rule& rule) {
      bool from_logits = false;
      if constexpr (std::is_same_v<Rule, CrossentropyRule>) from_logits = rule.from_logits;
      std::vector<float> outputs = random_floats(random, rows * count);
      if (!from_logits) {
        for (float& output : outputs) output = 0.5F + 0.4F * output;
      }
      const StepArguments arguments{
          .targets = sparse ? static_cast<const void*>(classes.data()) : static_cast<const void*>(shares.data()),
          .examples = examples.data(),
          .gradient_scale = 0.125F};
      const auto target = [&](std::size_t row, Index k) -> double {
        if (sparse) return classes[examples[row]] == static_cast<std::int32_t>(k) ? 1 : 0;
        return shares[examples[row] * count + k];
      };
      const auto loss_of = [&](const std::vector<double>& z, std::size_t row) {
        double loss = 0;
        double sum = 0;
        for (Index k = 0; k < count; ++k) sum += from_logits ? std::exp(z[row * count + k]) : z[row * count + k];
        for (Index k = 0; k < count; ++k) {
          const double output = z[row * count + k];
          if (squared) {
            loss += (output - target(row, k)) * (output - target(row, k)) / count;
          } else {
            loss -= target(row, k) * ((from_logits ? output : std::log(output)) - std::log(sum));
          }
        }
        return loss;
      };
      std::vector<float> gradients(outputs.size());
      constexpr Vectors one_vector{.count = count, .per_example = 1};
      const ExampleLoss<sparse, Rule> example_loss{&arguments,       rule,       outputs.data(),
                                                   gradients.data(), one_vector, ActivationFunction::linear};
      const ExampleMetric<sparse, AccuracyRule> example_accuracy{&arguments, {}, outputs.data(), one_vector, false};
      const std::vector<double> z(outputs.begin(), outputs.end());
      std::vector<double> expected(outputs.size());
      for (std::size_t r = 0; r < rows; ++r) {
        CHECK(example_loss(static_cast<Index>(r)) == Approx(loss_of(z, r)).epsilon(1e-5));
        const auto largest = std::max_element(outputs.begin() + static_cast<std::ptrdiff_t>(r * count),
                                              outputs.begin() + static_cast<std::ptrdiff_t>((r + 1) * count));
        Index wanted = 0;
        for (Index k = 1; k < count; ++k) wanted = target(r, k) > target(r, wanted) ? k : wanted;
        const auto place = static_cast<Index>(largest - outputs.begin()) - static_cast<Index>(r) * count;
        double correct = 0;
        example_accuracy(static_cast<Index>(r), &correct);
        CHECK(correct == (place == wanted ? 1.0 : 0.0));
        for (Index k = 0; k < count; ++k) {
          std::vector<double> above = z;
          std::vector<double> below = z;
          above[r * count + k] += 1e-5;
          below[r * count + k] -= 1e-5;
          expected[r * count + k] = 0.125 * (loss_of(above, r) - loss_of(below, r)) / 2e-5;
        }
      }
      INFO(keras_name(kind) << (from_logits ? ", from logits" : ""));
      CHECK(error_of(gradients, expected) < 1e-5);
    });
  }
}

TEST_CASE("CUDA: the loss of an example is the mean over its vectors") {
  constexpr Vectors pairs{.count = 3, .per_example = 2};
  const std::vector<float> outputs{0.2F, 0.3F, 0.5F, 0.6F, 0.3F, 0.1F, 0.1F, 0.1F, 0.8F, 0.4F, 0.5F, 0.1F};
  const std::vector<std::int32_t> classes{2, 1, 0, 0};
  const std::vector<std::uint32_t> examples{1, 0};  // the rows of `outputs` stand for these
  const StepArguments arguments{.targets = classes.data(), .examples = examples.data(), .gradient_scale = 0.5F};
  const auto rule = LossTraits<SparseCategoricalCrossentropy>::rule({});
  std::vector<float> gradients(outputs.size());
  const ExampleLoss<true, CrossentropyRule> loss{&arguments,       rule,  outputs.data(),
                                                 gradients.data(), pairs, ActivationFunction::linear};
  const ExampleMetric<true, AccuracyRule> accuracy{&arguments, {}, outputs.data(), pairs, false};
  CHECK(loss(0) == Approx(-(std::log(0.2) + std::log(0.6)) / 2));
  CHECK(loss(1) == Approx(-(std::log(0.8) + std::log(0.5)) / 2));
  CHECK(gradients[9] == Approx(0.5 / 2));
  CHECK(gradients[10] == Approx(0.5 / 2 * (1 - 1 / 0.5)));
  double correct = 0;
  accuracy(0, &correct);
  CHECK(correct == 1);
  accuracy(1, &correct);
  CHECK(correct == 3);
}

TEST_CASE("CUDA: BatchNormalization matches double precision") {
  constexpr Index channels = 3;
  constexpr std::size_t pixels = 50;
  constexpr float epsilon = 1e-3F;
  RandomStream random = stream_of(4);
  std::vector<float> x = random_floats(random, pixels * channels);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.0F * x[i] + 100.0F * static_cast<float>(i % channels);
  const std::vector<float> dy = random_floats(random, pixels * channels);
  const std::vector<float> gamma = random_floats(random, channels);
  const std::vector<float> beta = random_floats(random, channels);
  const auto reduce = [&](const auto& terms, const auto& finish) {  // as reduce_channels does on the device
    for (Index c = 0; c < channels; ++c) {
      Pair sum;
      for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
        const Pair term = terms(pixel * channels + c, c);
        sum.first += term.first;
        sum.second += term.second;
      }
      finish(c, sum);
    }
  };

  std::vector<float> mean(channels), inverse(channels), moving_mean(channels, 5.0F), moving_variance(channels, 5.0F);
  const StepArguments arguments{.replica_weight = 0.5F};
  const Statistics statistics{mean.data(), inverse.data()};
  FinishMoments finish{pixels, epsilon, statistics, &arguments, moving_mean.data(), moving_variance.data(), true};
  reduce(MomentTerms<float>{x.data()}, finish);
  finish.first_replica = false;
  reduce(MomentTerms<float>{x.data()}, finish);  // as if there were a second, equal replica

  std::vector<float> y(x.size()), dx(x.size()), d_gamma(channels), d_beta(channels), means(channels),
      projected(channels);
  for_each(x.size(), Normalize<float>{x.data(), y.data(), mean.data(), inverse.data(), nullptr, gamma.data(),
                                      beta.data(), epsilon, channels, ActivationFunction::linear});
  reduce(ProjectionTerms<float>{x.data(), dy.data(), statistics},
         FinishProjection{pixels, d_gamma.data(), d_beta.data(), means.data(), projected.data(), true});
  for_each(x.size(), BatchNormalizationInputGradient<float>{x.data(), dy.data(), dx.data(), statistics, gamma.data(),
                                                            means.data(), projected.data(), channels,
                                                            ActivationFunction::linear});

  std::vector<double> expected_y(x.size()), expected_dx(x.size());
  for (Index c = 0; c < channels; ++c) {
    double m = 0;
    double v = 0;
    double g = 0;
    double p = 0;
    for (std::size_t i = c; i < x.size(); i += channels) m += x[i] / static_cast<double>(pixels);
    for (std::size_t i = c; i < x.size(); i += channels) v += (x[i] - m) * (x[i] - m) / static_cast<double>(pixels);
    const double s = 1 / std::sqrt(v + epsilon);
    for (std::size_t i = c; i < x.size(); i += channels) {
      g += dy[i];
      p += dy[i] * (x[i] - m) * s;
      expected_y[i] = (x[i] - m) * s * gamma[c] + beta[c];
    }
    for (std::size_t i = c; i < x.size(); i += channels) {
      expected_dx[i] = gamma[c] * s * (dy[i] - g / pixels - (x[i] - m) * s * p / pixels);
    }
    CHECK(moving_mean[c] == Approx(m).epsilon(1e-5).margin(1e-5));
    CHECK(moving_variance[c] == Approx(v).epsilon(1e-5));
    CHECK(d_gamma[c] == Approx(p).epsilon(1e-4));
    CHECK(d_beta[c] == Approx(g).epsilon(1e-5));
  }
  CHECK(error_of(y, expected_y) < 1e-4);  // inputs around 200 have this rounding error before normalization
  CHECK(error_of(dx, expected_dx) < 1e-4);

  std::vector<float> inferred(x.size());
  for_each(x.size(), Normalize<float>{x.data(), inferred.data(), mean.data(), nullptr, moving_variance.data(),
                                      gamma.data(), beta.data(), epsilon, channels, ActivationFunction::linear});
  CHECK(error_of(inferred, expected_y) < 1e-4);
}
