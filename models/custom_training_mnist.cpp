// custom_training_mnist: a training loop of one's own, after TensorFlow's "Custom training with tf.distribute".
// Reaches 99.0 % test accuracy on MNIST in ten epochs.
//
//   mpirun -np 2 custom_training_mnist --epochs 10
#include <lockstep/lockstep.hpp>

#include <cstdio>

using namespace lockstep;

int main(int argc, char** argv) {
  const auto options = Options::parse(argc, argv, {.epochs = 10, .global_batch_size = 128});
  MultiWorkerMirroredStrategy strategy{options};

  const auto mnist = load_mnist(options.data_dir);
  auto model = strategy.build(Sequential{
      Input({28, 28, 1}),
      Conv2D(32, 3, {.activation = relu}),
      MaxPooling2D(),
      Conv2D(64, 3, {.activation = relu}),
      MaxPooling2D(),
      Flatten(),
      Dense(64, {.activation = relu}),
      Dense(10),
  });
  model.compile(
      {.optimizer = Adam(), .loss = SparseCategoricalCrossentropy({.from_logits = true}), .metrics = {accuracy}});

  // What a backup shall keep of this loop: it then goes on in the middle of an epoch as if it had not stopped.
  double& total_loss = model.kept("total_loss");
  double& num_batches = model.kept("num_batches");

  for (const int epoch : model.epochs(options.epochs)) {
    for (const Batch& batch : model.batches(mnist.train)) {
      total_loss += model.train_step(batch).loss();
      ++num_batches;
    }

    StepMetrics test;
    for (const Batch& batch : strategy.batches(mnist.test, 0, false)) test += model.test_step(batch);
    const Logs logs = model.end_epoch(epoch, {{"val_loss", test.loss()}, {"val_accuracy", test.accuracy()}});

    if (epoch % 2 == 0) model.save_later(options.model_dir / "model.h5");
    char line[200];
    std::snprintf(line, sizeof line, "Epoch %d, Loss: %.4f, Accuracy: %.2f, Test Loss: %.4f, Test Accuracy: %.2f",
                  epoch + 1, total_loss / num_batches, 100 * logs.at("accuracy"), test.loss(), 100 * test.accuracy());
    strategy.print(line);
    total_loss = num_batches = 0;
  }
  model.save(options.model_dir / "model.h5");
}
