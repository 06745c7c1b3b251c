"""The models of bench/grid.py: dense and convolutional, narrow and wide, shallow and deep, as Keras JSON."""

import json
from dataclasses import dataclass
from typing import Any

Layer = tuple[str, dict[str, Any]]


def conv(filters: int, size: int = 3, stride: int = 1, activation: str = "relu", padding: str = "same") -> Layer:
    return "Conv2D", {"filters": filters, "kernel_size": [size, size], "strides": [stride, stride],
                      "padding": padding, "activation": activation}


def dense(units: int, activation: str = "relu") -> Layer:
    return "Dense", {"units": units, "activation": activation}


def dropout(rate: float) -> Layer:
    return "Dropout", {"rate": rate}


IMAGES: Layer = ("Reshape", {"target_shape": [28, 28, 1]})
POOL: Layer = ("MaxPooling2D", {"pool_size": [2, 2]})
NORM: Layer = ("BatchNormalization", {})
RELU: Layer = ("Activation", {"activation": "relu"})
FLAT: Layer = ("Flatten", {})
MEAN: Layer = ("GlobalAveragePooling2D", {})
OUT: Layer = ("Dense", {"units": 10})


@dataclass(frozen=True)
class Model:
    layers: tuple[Layer, ...]
    batch: int = 128
    optimizer: str = "sgd"

    def to_json(self) -> str:
        """The keys of Keras' model.to_json() that Lockstep reads."""
        given: Layer = ("InputLayer", {"batch_shape": [None, 28, 28], "dtype": "float32"})
        layers = [{"class_name": kind, "config": {"name": f"layer_{i}", **config}}
                  for i, (kind, config) in enumerate((given, *self.layers))]
        return json.dumps({"class_name": "Sequential", "config": {"name": "sequential", "layers": layers}})


def perceptron(*units: int) -> tuple[Layer, ...]:
    return FLAT, *map(dense, units), OUT


def normed(filters: int) -> tuple[Layer, ...]:
    return conv(filters, activation="linear"), NORM, RELU


KERAS_MNIST = (IMAGES, conv(32, padding="valid"), FLAT, dense(128), OUT)

MODELS = {
    # dense: tiny, narrow, deep, wide
    "tiny": Model(perceptron(32)),
    "narrow": Model(perceptron(*[16] * 6), batch=1024),
    "dense_deep": Model(perceptron(*[256] * 8)),
    "dense_deep_adam": Model(perceptron(*[512] * 6), batch=32, optimizer="adam"),
    "dense_wide": Model(perceptron(2048, 2048)),
    "dense_wide_1024": Model(perceptron(2048, 2048), batch=1024),
    "dense_huge": Model(perceptron(4096), batch=512),
    "dense_funnel": Model(perceptron(1024, 256, 64), batch=256, optimizer="adam"),
    "dense_dropout": Model((FLAT, dense(512), dropout(0.2), dense(512), dropout(0.2), OUT)),
    # convolutions followed by Dense layers of various sizes
    "keras_mnist": Model(KERAS_MNIST),
    "keras_mnist_1024": Model(KERAS_MNIST, batch=1024),
    "conv_to_ten": Model((IMAGES, conv(16), POOL, FLAT, OUT)),
    "conv_wide": Model((IMAGES, conv(128, stride=2), POOL, FLAT, dense(64), OUT), batch=64),
    "conv_huge_dense": Model((IMAGES, conv(16, 5), POOL, FLAT, dense(1024), dense(1024), OUT)),
    "lenet": Model((IMAGES, conv(6, 5), POOL, conv(16, 5, padding="valid"), POOL, *perceptron(120, 84)), batch=256),
    "convnet_dropout": Model((IMAGES, conv(32), POOL, conv(64), POOL, FLAT, dropout(0.5), OUT), optimizer="adam"),
    # mostly convolutions
    "vgg": Model((IMAGES, conv(16), conv(16), POOL, conv(32), conv(32), POOL, conv(64), conv(64), POOL, FLAT,
                  dense(256), OUT)),
    "vgg_norm": Model((IMAGES, *normed(16), *normed(16), POOL, *normed(32), *normed(32), POOL, MEAN, OUT)),
    "conv_strides": Model((IMAGES, conv(32, stride=2), conv(64, stride=2), conv(128, stride=2), MEAN, OUT), batch=512),
    "conv_deep": Model((IMAGES, conv(8), POOL, *[conv(8)] * 7, MEAN, dense(32), OUT)),
}
