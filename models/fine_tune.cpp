// fine_tune: trains a new head on a network of keras.applications, whose weights stay as they are. The file comes from
// Keras. Images are resized to its input, and prepared as the network's own preprocess_input does: --preprocessing tf
// for MobileNet, MobileNetV2, Xception, Inception, NASNet and ResNetV2, torch for DenseNet, caffe for ResNet and VGG,
// and none for EfficientNet, ConvNeXt and MobileNetV3, which do it in the network.
//
//   base = keras.applications.MobileNetV2(input_shape=(96, 96, 3), include_top=False, pooling="avg")
//   base.save("mobilenet.keras")
//
//   mpirun -np 2 fine_tune --base mobilenet.keras --preprocessing tf --data-dir data/cifar10 --epochs 5
#include <lockstep/lockstep.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

constexpr std::array preprocessings{"tf", "torch", "caffe", "none"};

/// The functions of keras.applications.imagenet_utils.preprocess_input, for pixels from 0 to 255.
Tensor preprocess(const std::string& how, const Tensor& image) {
  if (how == "tf") return Rescaling(1 / 127.5, -1)(image);
  if (how == "torch") {
    const std::vector<double> mean{123.675, 116.28, 103.53};
    return Normalization({.mean = mean, .variance = {58.395 * 58.395, 57.12 * 57.12, 57.375 * 57.375}})(image);
  }
  if (how == "caffe") {  // blue, green, red, without their means; see set_bgr_weights()
    Conv2D to_bgr(3, 1, {.name = "to_bgr"});
    to_bgr.trainable = false;
    return to_bgr(Rescaling(1)(image));
  }
  return image;
}

void set_bgr_weights(std::vector<NamedTensor>& weights) {
  weights[0].values = {0, 0, 1, 0, 1, 0, 1, 0, 0};
  weights[1].values = {-103.939F, -116.779F, -123.68F};
}

}  // namespace

int main(int argc, char** argv) {
  std::filesystem::path base_file;
  std::string preprocessing;
  const auto options = Options::parse(argc, argv, {.epochs = 5, .global_batch_size = 128},
                                      {{.name = "base",
                                        .metavar = "FILE.keras",
                                        .help = "a model of keras.applications that Keras saved, with\n"
                                                "include_top=False and pooling='avg'",
                                        .shown_default = "required",
                                        .set = [&](const OptionValue& given) { base_file = given.value; }},
                                       {.name = "preprocessing",
                                        .metavar = "tf|torch|caffe|none",
                                        .help = "what its preprocess_input does: tf for MobileNetV2, torch\n"
                                                "for DenseNet, caffe for ResNet and VGG, none if the\n"
                                                "network does it itself, as EfficientNet",
                                        .shown_default = "required",
                                        .set = [&](const OptionValue& given) { preprocessing = given.value; }}});
  if (base_file.empty()) throw UsageError("fine_tune needs --base FILE.keras, a model that Keras saved");
  if (std::ranges::find(preprocessings, preprocessing) == preprocessings.end())
    throw UsageError(
        "fine_tune needs --preprocessing tf, torch, caffe or none, as the network's preprocess_input does");
  MultiWorkerMirroredStrategy strategy{options};

  const auto cifar = load_cifar10(options.data_dir);
  strategy.print("Training on {}", cifar.train.source);
  const Model pretrained = strategy.load_model(base_file);
  Architecture base = pretrained.architecture();
  if (base.output_shape().rank() != 1)
    throw UsageError(base_file.string() + " has no pooling; save it with include_top=False and pooling='avg'");
  base.set_trainable(false);

  const Tensor image = Input({32, 32, 3});
  const Shape& wanted = base.input_shape();
  Tensor x = image;
  if (wanted != Shape{32, 32, 3}) x = Resizing(static_cast<int>(wanted[0]), static_cast<int>(wanted[1]))(x);
  x = preprocess(preprocessing, x);
  x = base(x);
  x = Dropout(0.2)(x);
  auto model = strategy.build(Functional(image, Dense(10, {.activation = softmax})(x)));

  auto weights = model.weights();  // those of to_bgr, the base's, and the head's
  if (preprocessing == "caffe") set_bgr_weights(weights);
  std::ranges::copy(pretrained.weights(), weights.begin() + (preprocessing == "caffe" ? 2 : 0));
  model.set_weights(weights);

  model.compile(
      {.optimizer = Adam({.learning_rate = 1e-3}), .loss = SparseCategoricalCrossentropy(), .metrics = {accuracy}});
  model.summary();
  strategy.warn_of_replacing(options.model_dir / "model.keras");
  const BackupAndRestore backup(options);
  model.fit(cifar.train, {.epochs = options.epochs,
                          .steps_per_epoch = options.steps_per_epoch,
                          .validation_data = &cifar.test,
                          .callbacks = {backup}});
  const Logs test = model.evaluate(cifar.test);
  model.save(options.model_dir / "model.keras");

  strategy.print("Test loss: {:.4f}, test accuracy: {:.4f}. Saved {}", test.at("loss"), test.at("accuracy"),
                 (options.model_dir / "model.keras").string());
}
