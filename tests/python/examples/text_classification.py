"""Text classification from scratch: an Embedding and one-dimensional convolutions."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
draw = np.random.default_rng(0)
words = draw.integers(0, 50, (64, 20))
labels = (words < 10).any(1).astype("float32")

inputs = keras.Input((None,), dtype="int64")
x = layers.Embedding(50, 8)(inputs)
x = layers.Conv1D(8, 3, padding="valid", activation="relu", strides=2)(x)
x = layers.GlobalMaxPooling1D()(x)
x = layers.Dense(8, activation="relu")(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile(loss="binary_crossentropy", optimizer=keras.optimizers.Adam(0.01), metrics=["accuracy"])
losses = model.fit(words, labels, batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"]
