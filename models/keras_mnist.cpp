// keras_mnist: the MNIST CNN of the Keras multi-worker tutorial, on every worker of the cluster.
//
//   mpirun -np 2 keras_mnist --epochs 10
#include <lockstep/lockstep.hpp>

using namespace lockstep;

int main(int argc, char** argv) {
  const auto options = Options::parse(argc, argv, {.epochs = 10, .steps_per_epoch = 70, .global_batch_size = 128});
  MultiWorkerMirroredStrategy strategy{options};

  const auto mnist = load_mnist(options.data_dir);
  strategy.print("Training on {}", mnist.train.source);
  auto model = strategy.build(Sequential{
      Input({28, 28}),
      Reshape({28, 28, 1}),
      Conv2D(32, 3, {.activation = relu}),
      Flatten(),
      Dense(128, {.activation = relu}),
      Dense(10),
  });
  model.compile({.optimizer = SGD({.learning_rate = 0.001}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {accuracy}});
  model.summary();

  strategy.warn_of_replacing(options.model_dir / "model.h5");
  const BackupAndRestore backup(options);
  model.fit(mnist.train, {.epochs = options.epochs, .steps_per_epoch = options.steps_per_epoch, .callbacks = {backup}});
  const Logs test = model.evaluate(mnist.test);
  model.save(options.model_dir / "model.h5");

  strategy.print("Test loss: {:.4f}, test accuracy: {:.4f}. Saved {}", test.at("loss"), test.at("accuracy"),
                 (options.model_dir / "model.h5").string());
}
