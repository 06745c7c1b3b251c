// A user's model program: trains two steps on synthetic digits.
#include <lockstep/lockstep.hpp>

using namespace lockstep;

int main(int argc, char** argv) {
  const Options options = Options::parse(argc, argv, {.steps_per_epoch = 2, .global_batch_size = 8});
  MultiWorkerMirroredStrategy strategy{options};
  Model model = strategy.build(Sequential{Input({28, 28, 1}), Flatten(), Dense(10)});
  model.compile({.optimizer = SGD(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  strategy.print("{} parameters, learning rate {:.3f}", model.architecture().count_parameters(true),
                 model.learning_rate());
  model.fit(load_mnist(options.data_dir).train, {.epochs = options.epochs, .steps_per_epoch = options.steps_per_epoch});
}
