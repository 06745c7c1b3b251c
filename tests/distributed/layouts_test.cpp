// Both MNIST programs in every layout, in float32 and bfloat16, data parallel and tensor parallel, must train like the
// float32 run whose layouts the backend chooses.
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/models.hpp"
#include "support/ranks.hpp"
#include "support/shardings.hpp"

#include <lockstep/core/error.hpp>

#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

Outcome run(const Sequential& model, const Examples& examples, Parallelism parallelism, Precision precision,
            const std::string& layout) {
  Options options = options_for(parallelism, 30);
  options.precision = precision;
  options.layout = layout;
  return train(model, SGD({.learning_rate = 0.02}), examples, options, 2);
}

}  // namespace

TEST_CASE("both programs train alike in every layout, precision and parallelism") {
  const MultiWorkerMirroredStrategy strategy(options_for(Parallelism::data));
  const bool has_several_workers = strategy.num_workers() > 1;
  for (const Sequential& model : {keras_mnist(), custom_training_mnist()}) {
    const Examples examples = make_examples(model, loss_of(model), 60, 3, Pixels::bytes);
    const Outcome expected = run(model, examples, Parallelism::data, Precision::float32, "");
    for (const std::string layout : {"", "nhwc", "nChw16c", "nChw8c"}) {
      for (const Precision precision : {Precision::float32, Precision::mixed_bfloat16}) {
        for (const Parallelism parallelism : {Parallelism::data, Parallelism::tensor}) {
          if (parallelism == Parallelism::tensor && !has_several_workers) continue;
          const bool is_low = precision == Precision::mixed_bfloat16;
          INFO(describe_layers(model) << (layout.empty() ? "any layout" : layout) << (is_low ? ", bfloat16" : "")
                                      << (parallelism == Parallelism::tensor ? ", tensor parallel" : ""));
          Outcome found;
          try {
            found = run(model, examples, parallelism, precision, layout);
          } catch (const UsageError&) {
            CHECK(is_low);  // the CPU has no bfloat16
            continue;
          }
          check_near(found.weights, expected.weights, is_low ? 0.02 : 1e-4);
          CHECK(equal_on_all_ranks(found.weights));
          CHECK(found.evaluation.at("loss") == Approx(expected.evaluation.at("loss")).epsilon(is_low ? 0.02 : 1e-4));
        }
      }
    }
  }
}
