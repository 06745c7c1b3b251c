// Measures how a background save slows down steps, for bench/save_cost.py. keras_mnist with Adam trains in rounds of
// --steps-per-epoch steps; every other round begins with a save.
//
//   LOCKSTEP_BENCH_FILE=FILE save_bench --parallelism tensor --epochs 20 --steps-per-epoch 60
//
// The model is saved to FILE. If FILE cannot be written, the measured cost is that of the gather.
#include <lockstep/lockstep.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace lockstep;

namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = Options::parse(argc, argv, {.epochs = 20, .steps_per_epoch = 60, .global_batch_size = 128});
  const char* const file = std::getenv("LOCKSTEP_BENCH_FILE");
  MultiWorkerMirroredStrategy strategy{options};
  const auto mnist = load_mnist(options.data_dir);
  auto model = strategy.build(Sequential{Input({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}),
                                         Flatten(), Dense(128, {.activation = relu}), Dense(10)});
  model.compile({.optimizer = Adam(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});

  const auto batch = static_cast<std::size_t>(options.global_batch_size);
  const auto steps = static_cast<std::size_t>(options.steps_per_epoch);
  std::uint64_t position = 0;
  std::vector<std::vector<double>> plain(steps);  // milliseconds of each step of a round, over all rounds
  std::vector<std::vector<double>> around(steps);
  std::vector<double> blocked;
  std::vector<double> longer;
  double plain_round = 0;
  for (int round = 0; round < 2 * options.epochs; ++round) {
    const bool saves = round % 2 == 1;
    const double begin = now_ms();
    if (saves) model.save_async(file != nullptr ? file : "save_bench.h5");
    if (saves) blocked.push_back(now_ms() - begin);
    for (std::size_t step = 0; step < steps; ++step) {
      const double step_begin = now_ms();
      model.train_step({.data = &mnist.train, .position = position, .size = batch});
      position += batch;
      if (round > 1)
        (saves ? around : plain)[step].push_back(now_ms() - step_begin);  // the first save touches cold memory
    }
    if (saves && round > 1) longer.push_back(now_ms() - begin - plain_round);
    plain_round = now_ms() - begin;
  }
  if (!model.is_chief()) return 0;
  std::vector<double> all;
  for (const std::vector<double>& times : plain) all.insert(all.end(), times.begin(), times.end());
  std::printf("{\"step_ms\": %.3f, \"blocked_ms\": %.3f, \"added_ms\": %.3f, \"step_by_step_ms\": [", median(all),
              median(blocked), median(longer));
  for (std::size_t step = 0; step < steps; ++step) {
    std::printf("%s%.3f", step == 0 ? "" : ", ", median(around[step]) - median(plain[step]));
  }
  std::printf("]}\n");
}
