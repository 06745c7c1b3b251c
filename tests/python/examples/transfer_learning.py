"""Transfer learning: a new head on a frozen model with BatchNormalization, then fine-tuning of all of it."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
draw = np.random.default_rng(0)
labels = draw.integers(0, 2, 48).astype("float32")
images = (draw.normal(size=(48, 8, 8, 3)) + labels[:, None, None, None]).astype("float32")

base_model = keras.Sequential(  # stands for a model of keras.applications with its weights
    [keras.Input((8, 8, 3)), layers.Conv2D(8, 3), layers.BatchNormalization(), layers.Activation("relu")]
)
base_model.trainable = False
inputs = keras.Input((8, 8, 3))
x = layers.Rescaling(scale=1 / 2.0, offset=-0.5)(inputs)
x = base_model(x, training=False)
x = layers.GlobalAveragePooling2D()(x)
model = keras.Model(inputs, layers.Dense(1)(x))
loss = keras.losses.BinaryCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss, metrics=[keras.metrics.BinaryAccuracy()])
head = model.fit(images, labels, batch_size=16, epochs=2, shuffle=False, verbose=0)

base_model.trainable = True
base_model.layers[1].trainable = False  # else Keras normalizes by each batch, and a worker by its slice of it
model.compile(keras.optimizers.Adam(1e-3), loss, metrics=[keras.metrics.BinaryAccuracy()])
tuned = model.fit(images, labels, batch_size=16, epochs=2, shuffle=False, verbose=0)
losses = head.history["loss"] + tuned.history["loss"]
