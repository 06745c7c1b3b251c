"""The models of well-known tutorials of Keras (keras.io/examples) and TensorFlow (tensorflow.org/tutorials), by the
tutorial's title, on small random data."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from support import keras, layers

Random = np.random.Generator


@dataclasses.dataclass
class Tutorial:
    build: Callable[[], Any]
    loss: str | Any
    optimizer: Callable[[], Any] = keras.optimizers.Adam
    classes: int = 0  # of class indices as targets; 0: numbers from 0 to 1 of the output's shape
    words: int = 0  # inputs are indices below this; 0: normal numbers
    pixels: bool = False  # inputs are from 0 to 255


def logits_loss() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def convnet() -> Any:
    return keras.Sequential([
        layers.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.5),
        layers.Dense(10, activation="softmax")])


def multi_worker() -> Any:
    return keras.Sequential([
        layers.Input((28, 28)), layers.Reshape((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.Flatten(),
        layers.Dense(128, activation="relu"), layers.Dense(10)])


def clothing() -> Any:
    return keras.Sequential([
        layers.Input((28, 28)), layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)])


def cifar_cnn() -> Any:
    return keras.Sequential([
        layers.Input((32, 32, 3)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(64, 3, activation="relu"),
        layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)])


def text_from_scratch() -> Any:
    words = layers.Input((200,))
    x = layers.Dropout(0.5)(layers.Embedding(2000, 128)(words))
    for _ in range(2):
        x = layers.Conv1D(128, 7, strides=3, activation="relu")(x)
    x = layers.Dense(128, activation="relu")(layers.GlobalMaxPooling1D()(x))
    return keras.Model(words, layers.Dense(1, activation="sigmoid")(layers.Dropout(0.5)(x)))


def basic_text() -> Any:
    return keras.Sequential([
        layers.Input((100,)), layers.Embedding(2000, 16), layers.Dropout(0.2), layers.GlobalAveragePooling1D(),
        layers.Dropout(0.2), layers.Dense(1, activation="sigmoid")])


def fuel_efficiency() -> Any:
    return keras.Sequential([
        layers.Input((9,)), layers.Normalization(), layers.Dense(64, activation="relu"),
        layers.Dense(64, activation="relu"), layers.Dense(1)])


def overfit_and_underfit() -> Any:
    regularized = [layer for _ in range(4) for layer in (
        layers.Dense(512, activation="elu", kernel_regularizer=keras.regularizers.L2(1e-4)), layers.Dropout(0.5))]
    return keras.Sequential([layers.Input((28,)), *regularized, layers.Dense(1)])


def credit_card_fraud() -> Any:
    dense = [layers.Dense(256, activation="relu") for _ in range(3)]
    return keras.Sequential([
        layers.Input((29,)), dense[0], dense[1], layers.Dropout(0.3), dense[2], layers.Dropout(0.3),
        layers.Dense(1, activation="sigmoid")])


def time_series_classification() -> Any:
    x = series = layers.Input((100, 1))
    for _ in range(3):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv1D(64, 3, padding="same")(x)))
    return keras.Model(series, layers.Dense(2, activation="softmax")(layers.GlobalAveragePooling1D()(x)))


def denoising_autoencoder() -> Any:
    x = image = layers.Input((28, 28, 1))
    for _ in range(2):
        x = layers.MaxPooling2D(2, padding="same")(layers.Conv2D(32, 3, activation="relu", padding="same")(x))
    for _ in range(2):
        x = layers.Conv2DTranspose(32, 3, strides=2, activation="relu", padding="same")(x)
    return keras.Model(image, layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x))


def separable_block(x: Any, filters: int, starts_with_relu: bool = True) -> Any:
    for i in range(2):
        if i > 0 or starts_with_relu:
            x = layers.Activation("relu")(x)
        x = layers.BatchNormalization()(layers.SeparableConv2D(filters, 3, padding="same")(x))
    return x


def image_from_scratch() -> Any:
    image = layers.Input((64, 64, 3))
    x = layers.Conv2D(32, 3, strides=2, padding="same")(layers.Rescaling(1 / 255)(image))
    before = x = layers.Activation("relu")(layers.BatchNormalization()(x))
    for filters in (64, 128):
        x = layers.MaxPooling2D(3, strides=2, padding="same")(separable_block(x, filters))
        before = x = layers.Add()([x, layers.Conv2D(filters, 1, strides=2, padding="same")(before)])
    x = layers.BatchNormalization()(layers.SeparableConv2D(256, 3, padding="same")(x))
    x = layers.GlobalAveragePooling2D()(layers.Activation("relu")(x))
    return keras.Model(image, layers.Dense(1)(layers.Dropout(0.25)(x)))


def segmentation() -> Any:
    image = layers.Input((32, 32, 3))
    before = x = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(32, 3, strides=2, padding="same")(image)))
    x = layers.MaxPooling2D(3, strides=2, padding="same")(separable_block(x, 64))
    before = x = layers.Add()([x, layers.Conv2D(64, 1, strides=2, padding="same")(before)])
    for filters in (64, 32):
        for _ in range(2):
            x = layers.Conv2DTranspose(filters, 3, padding="same")(layers.Activation("relu")(x))
            x = layers.BatchNormalization()(x)
        x = layers.UpSampling2D(2)(x)
        residual = layers.Conv2D(filters, 1, padding="same")(layers.UpSampling2D(2)(before))
        before = x = layers.Add()([x, residual])
    return keras.Model(image, layers.Conv2D(3, 3, activation="softmax", padding="same")(x))


def transfer_learning() -> Any:
    base = keras.applications.Xception(weights=None, include_top=False, input_shape=(71, 71, 3))
    base.trainable = False
    image = layers.Input((71, 71, 3))
    x = layers.GlobalAveragePooling2D()(base(layers.Rescaling(1 / 127.5, offset=-1)(image), training=False))
    return keras.Model(image, layers.Dense(1)(layers.Dropout(0.2)(x)))


def time_series_forecasting() -> Any:
    return keras.Sequential([layers.Input((24, 19)), layers.LSTM(32, return_sequences=True), layers.Dense(1)])


BINARY_LOGITS = keras.losses.BinaryCrossentropy(from_logits=True)
TUTORIALS = {
    "Simple MNIST convnet": Tutorial(convnet, "sparse_categorical_crossentropy", classes=10),
    "Multi-worker training with Keras": Tutorial(
        multi_worker, logits_loss(), lambda: keras.optimizers.SGD(0.001), classes=10),
    "Basic classification: Classify images of clothing": Tutorial(clothing, logits_loss(), classes=10),
    "Convolutional Neural Network (CNN)": Tutorial(cifar_cnn, logits_loss(), classes=10),
    "Text classification from scratch": Tutorial(text_from_scratch, "binary_crossentropy", words=2000),
    "Basic text classification": Tutorial(basic_text, "binary_crossentropy", words=2000),
    "Basic regression: Predict fuel efficiency": Tutorial(fuel_efficiency, "mean_absolute_error"),
    "Overfit and underfit": Tutorial(overfit_and_underfit, BINARY_LOGITS),
    "Imbalanced classification: credit card fraud detection": Tutorial(
        credit_card_fraud, "binary_crossentropy", lambda: keras.optimizers.Adam(1e-2)),
    "Timeseries classification from scratch": Tutorial(
        time_series_classification, "sparse_categorical_crossentropy", classes=2),
    "Convolutional autoencoder for image denoising": Tutorial(denoising_autoencoder, "binary_crossentropy"),
    "Image classification from scratch": Tutorial(
        image_from_scratch, BINARY_LOGITS, lambda: keras.optimizers.Adam(3e-4), pixels=True),
    "Image segmentation with a U-Net-like architecture": Tutorial(
        segmentation, "sparse_categorical_crossentropy", lambda: keras.optimizers.Adam(1e-4), classes=3),
    "Transfer learning & fine-tuning": Tutorial(transfer_learning, BINARY_LOGITS, pixels=True),
    "Time series forecasting": Tutorial(time_series_forecasting, "mean_squared_error"),
}


def data_of(tutorial: Tutorial, model: Any, examples: int, random: Random) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets."""
    shape = (examples, *model.input_shape[1:])
    if tutorial.words:
        inputs = random.integers(0, tutorial.words, shape).astype(np.float32)
    elif tutorial.pixels:
        inputs = random.uniform(0, 255, shape).astype(np.float32)
    else:
        inputs = random.normal(size=shape).astype(np.float32)
    outputs = (examples, *model.output_shape[1:])
    if tutorial.classes:
        return inputs, random.integers(0, tutorial.classes, outputs[:-1]).astype(np.int32)
    return inputs, random.uniform(size=outputs).astype(np.float32)
