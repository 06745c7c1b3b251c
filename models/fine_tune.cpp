// fine_tune: trains a new head on a network of keras.applications, whose weights stay as they are: one that reads
// pixels from -1 to 1, such as MobileNetV2 or Xception, or that scales them itself, such as EfficientNetB0. The file
// comes from Keras:
//
//   base = keras.applications.MobileNetV2(input_shape=(32, 32, 3), include_top=False, pooling="avg")
//   base.save("mobilenet.keras")
//
//   mpirun -np 2 fine_tune --base mobilenet.keras --data-dir data/cifar10 --epochs 5
#include <lockstep/lockstep.hpp>

#include <algorithm>
#include <variant>

using namespace lockstep;

namespace {

/// Whether the network brings pixels from 0 to 255 to the scale of its weights itself, as EfficientNet does.
bool scales_pixels(const Architecture& base) {
  const Architecture flat = base.flattened();
  return std::ranges::any_of(flat.layers(), [](const LayerInfo& info) {
    return std::holds_alternative<Rescaling>(info.layer) || std::holds_alternative<Normalization>(info.layer);
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::filesystem::path base_file;
  const auto options = Options::parse(argc, argv, {.epochs = 5, .global_batch_size = 128},
                                      {{.name = "base",
                                        .metavar = "FILE.keras",
                                        .help = "a model of keras.applications that Keras saved, with\n"
                                                "include_top=False and pooling='avg'",
                                        .set = [&](const OptionValue& given) { base_file = given.value; }}});
  if (base_file.empty()) throw UsageError("fine_tune needs --base FILE.keras, a model that Keras saved");
  MultiWorkerMirroredStrategy strategy{options};

  const auto cifar = load_cifar10(options.data_dir);
  strategy.print("Training on {}", cifar.train.source);
  const Model pretrained = strategy.load_model(base_file);
  Architecture base = pretrained.architecture();
  if (base.output_shape().rank() != 1)
    throw UsageError(base_file.string() + " has no pooling; save it with include_top=False and pooling='avg'");
  base.set_trainable(false);

  const Tensor image = Input(base.input_shape());
  Tensor x = image;
  if (!scales_pixels(base)) x = Rescaling(1 / 127.5, -1)(x);  // as mobilenet_v2.preprocess_input
  x = base(x);
  x = Dropout(0.2)(x);
  auto model = strategy.build(Functional(image, Dense(10, {.activation = softmax})(x)));

  auto weights = model.weights();  // the base's first, then the head's
  std::ranges::copy(pretrained.weights(), weights.begin());
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
  model.save(options.model_dir / "model.keras");
}
