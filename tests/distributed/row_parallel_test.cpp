// Row-parallel convolutions, whose ranks compute partial sums from slices of the input channels, must train like data
// parallelism.
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/ranks.hpp"
#include "support/scoped_variable.hpp"
#include "support/sharded_models.hpp"
#include "support/shardings.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/options.hpp>

#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("row-parallel convolutions match the reference") {
  std::size_t turn = 0;
  for (const ShardedModel& sharded : row_parallel_models) {
    const Optimizer& optimizer = optimizers[turn++ % optimizers.size()];
    const ParallelismComparison steps(sharded.model, optimizer);
    for (const std::string& code : {sharded.code, sharded.after_data_parallel}) {
      const ScopedVariable scoped(splits_variable, code);
      INFO(describe_layers(sharded.model) << ", " << keras_name(optimizer) << ", " << code);
      const Outcome once = steps.check_tensor_parallel();
      CHECK(equal(once.weights, steps.run(Parallelism::tensor, ParallelismComparison::many_epochs).weights));
    }
  }
}

TEST_CASE("mixed precision sums partial convolutions in float32") {
  for (const auto& [model, code] : {std::pair(row_parallel_models[0].model, row_parallel_models[0].code),
                                    std::pair(row_parallel_models[0].model, row_parallel_models[0].after_data_parallel),
                                    std::pair(row_parallel_models[3].model, row_parallel_models[3].code)}) {
    const ScopedVariable scoped(splits_variable, code);
    const Examples examples = make_examples(model, loss_of(model), 32, 3);
    const auto run = [&model = model, &examples](Parallelism parallelism) {
      Options options = options_for(parallelism, 16);
      options.precision = Precision::mixed_bfloat16;
      return train(model, SGD({.learning_rate = 0.1}), examples, options, 2);
    };
    Outcome data_parallel;
    try {
      data_parallel = run(Parallelism::data);
    } catch (const UsageError&) {
      return;  // the CPU has no bfloat16
    }
    INFO(describe_layers(model));
    const Outcome tensor_parallel = run(Parallelism::tensor);
    check_near(tensor_parallel, data_parallel, 0.1);  // loose, because of small biases
    CHECK(equal_on_all_ranks(tensor_parallel.weights));
  }
}
