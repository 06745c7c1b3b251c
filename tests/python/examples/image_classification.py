"""Image classification from scratch: separable convolutions with residuals, on batches of a PyDataset."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
draw = np.random.default_rng(0)
labels = draw.integers(0, 2, 48)
images = draw.integers(0, 128, (48, 12, 12, 3)) + 64 * labels[:, None, None, None]


class Images(keras.utils.PyDataset):
    num_batches = 3

    def __getitem__(self, index):
        own = slice(16 * index, 16 * index + 16)
        return images[own].astype("float32"), labels[own].astype("float32")


inputs = keras.Input((12, 12, 3))
x = layers.Rescaling(1.0 / 255)(inputs)
x = layers.Conv2D(8, 3, strides=2, padding="same")(x)
x = layers.Activation("relu")(layers.LayerNormalization()(x))
residual = layers.Conv2D(12, 1, strides=2, padding="same")(x)
x = layers.SeparableConv2D(12, 3, padding="same")(x)
x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
x = layers.GlobalAveragePooling2D()(layers.add([x, residual]))
model = keras.Model(inputs, layers.Dense(1)(x))
model.compile(
    optimizer=keras.optimizers.Adam(3e-3),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy(name="acc")],
)
losses = model.fit(Images(), epochs=3, shuffle=False, verbose=0).history["loss"]
