// keras_resnet_cifar: ResNet-56 for CIFAR-10 (K. He et al., "Deep Residual Learning for Image Recognition", 2015),
// after TensorFlow's Keras program of that name. Without --data-dir it trains on synthetic pictures, of which ResNet-20
// recognizes 97 % after two epochs.
//
//   mpirun -np 2 keras_resnet_cifar --data-dir data/cifar10
//   mpirun -np 2 keras_resnet_cifar --depth 20 --epochs 6
#include <lockstep/lockstep.hpp>

using namespace lockstep;

namespace {

Tensor convolve(const Tensor& x, int filters, int kernel_size, int strides) {
  const Conv2D convolution(filters, kernel_size,
                           {.strides = strides,
                            .padding = "same",
                            .use_bias = false,
                            .kernel_initializer = "he_normal",
                            .kernel_regularizer = L2(2e-4)});
  return BatchNormalization({.momentum = 0.9, .epsilon = 1e-5})(convolution(x));
}

/// Two convolutions with a shortcut around them.
Tensor residual_block(const Tensor& x, int filters, int strides, bool projects) {
  Tensor y = Activation(relu)(convolve(x, filters, 3, strides));
  y = convolve(y, filters, 3, 1);
  const Tensor shortcut = projects ? convolve(x, filters, 1, strides) : x;
  return Activation(relu)(Add()({y, shortcut}));
}

Functional resnet(int depth) {
  const int blocks = (depth - 2) / 6;  // of each size
  const Tensor image = Input({32, 32, 3});
  constexpr double four_pixels = 4.0 / 32;
  Tensor x = RandomTranslation(four_pixels, four_pixels,
                               {.fill_mode = FillMode::constant, .interpolation = Interpolation::nearest})(image);
  x = RandomFlip({.mode = FlipMode::horizontal})(x);
  x = Rescaling(1 / 127.5, -1)(x);
  x = Activation(relu)(convolve(x, 16, 3, 1));
  for (const int filters : {16, 32, 64}) {
    for (int block = 0; block < blocks; ++block) {
      const bool is_smaller = filters > 16 && block == 0;
      x = residual_block(x, filters, is_smaller ? 2 : 1, block == 0);
    }
  }
  x = GlobalAveragePooling2D()(x);
  x = Dense(10, {.activation = softmax, .kernel_regularizer = L2(2e-4), .bias_regularizer = L2(2e-4)})(x);
  return {image, x, "resnet" + std::to_string(depth)};
}

}  // namespace

int main(int argc, char** argv) {
  int depth = 56;
  const auto set_depth = [&depth](const OptionValue& given) {
    if (given.value != "20" && given.value != "56") {
      throw UsageError(given.source + " is " + given.value + ", but this program has networks of 20 and 56 layers");
    }
    depth = std::stoi(given.value);
  };
  const auto options = Options::parse(argc, argv, {.epochs = 182, .global_batch_size = 128},
                                      {{.name = "depth",
                                        .metavar = "20|56",
                                        .help = "layers of the network",
                                        .shown_default = "56",
                                        .set = set_depth}});
  MultiWorkerMirroredStrategy strategy{options};

  const auto cifar = load_cifar10(options.data_dir);
  strategy.print("Training on {}", cifar.train.source);
  auto model = strategy.build(resnet(depth));
  model.compile({.optimizer = SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = SparseCategoricalCrossentropy(),
                 .metrics = {accuracy}});
  model.summary();

  // 0.1, from epoch 91 on 0.01, and from epoch 136 on 0.001, of 182 epochs; in proportion of others.
  const double rate = model.learning_rate();
  const LearningRateScheduler schedule([&](int epoch, double) {
    return epoch < (options.epochs + 1) / 2 ? rate : epoch < options.epochs * 3 / 4 ? rate / 10 : rate / 100;
  });
  strategy.warn_of_replacing(options.model_dir / "model.keras");
  const BackupAndRestore backup(options);
  model.fit(cifar.train, {.epochs = options.epochs,
                          .steps_per_epoch = options.steps_per_epoch,
                          .validation_data = &cifar.test,
                          .callbacks = {schedule, backup}});
  const Logs test = model.evaluate(cifar.test);
  model.save(options.model_dir / "model.keras");

  strategy.print("Test loss: {:.4f}, test accuracy: {:.4f}. Saved {}", test.at("loss"), test.at("accuracy"),
                 (options.model_dir / "model.keras").string());
}
