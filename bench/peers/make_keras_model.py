"""Writes a compiled Keras model and random data for it: make_keras_model.py MODEL EXAMPLES FOLDER."""

import sys
from pathlib import Path

import keras
import numpy as np
from keras import layers


def resnet20() -> keras.Model:
    """Return the network for CIFAR-10 of He et al. (2015), section 4.2."""

    def convolved(x, filters, stride=1, kernel=3):
        y = layers.Conv2D(filters, kernel, strides=stride, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(y)

    image = keras.Input((32, 32, 3))
    x = layers.ReLU()(convolved(image, 16))
    for filters in (16, 32, 64):
        for block in range(3):
            stride = 2 if filters > 16 and block == 0 else 1
            y = layers.ReLU()(convolved(x, filters, stride))
            y = convolved(y, filters)
            shortcut = convolved(x, filters, stride, 1) if stride > 1 else x
            x = layers.ReLU()(layers.Add()([y, shortcut]))
    return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def text_classifier() -> keras.Model:
    """Return the convolutional network of Keras' example "Text classification from scratch", without Dropout."""
    words = keras.Input((500,), dtype="int32")
    x = layers.Embedding(20_000, 128)(words)
    for _ in range(2):
        x = layers.Conv1D(128, 7, strides=3, activation="relu")(x)
    x = layers.Dense(128, activation="relu")(layers.GlobalMaxPooling1D()(x))
    return keras.Model(words, layers.Dense(2)(x))


def keras_mnist() -> keras.Model:
    """Return the model of the program keras_mnist, for pictures in bytes."""
    picture = keras.Input((28, 28))
    x = layers.Reshape((28, 28, 1))(layers.Rescaling(1 / 255)(picture))
    x = layers.Flatten()(layers.Conv2D(32, 3, activation="relu")(x))
    return keras.Model(picture, layers.Dense(10)(layers.Dense(128, activation="relu")(x)))


def application(constructor, size: int = 96) -> keras.Model:
    return constructor(weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None)


MODELS = {
    "resnet20": resnet20,
    "resnet50": lambda: application(keras.applications.ResNet50),
    "mobilenetv2": lambda: application(keras.applications.MobileNetV2),
    "vgg16": lambda: application(keras.applications.VGG16, 64),
    "text": text_classifier,
    "keras_mnist": keras_mnist,
}


def main() -> None:
    name, examples, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    model = MODELS[name]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if name == "keras_mnist":
        model.compile(keras.optimizers.SGD(0.001), loss, metrics=["accuracy"])
    else:
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss)
    model.save(folder / "model.keras")
    random = np.random.default_rng(0)
    shape = (examples, *model.input_shape[1:])
    if model.inputs[0].dtype == "int32":
        x = random.integers(0, 20_000, shape, dtype=np.int32)
    elif name == "keras_mnist":
        x = random.integers(0, 256, shape, dtype=np.uint8)
    else:
        x = random.random(shape, dtype=np.float32)
    y = random.integers(0, model.output_shape[-1], examples)
    np.savez(folder / "data.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])


if __name__ == "__main__":
    main()
