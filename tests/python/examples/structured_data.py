"""Classification of structured data: numbers and categories, each an input with its own preprocessing."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
draw = np.random.default_rng(0)
table = {
    "age": draw.uniform(20, 80, (64, 1)).astype("float32"),
    "pressure": draw.normal(130, 15, (64, 1)).astype("float32"),
    "kind": draw.integers(0, 4, (64, 1)),
}
target = (table["age"][:, 0] + 10 * table["kind"][:, 0] > 65).astype("float32")

inputs = {name: keras.Input((1,), name=name, dtype=values.dtype.name) for name, values in table.items()}
features = []
for name in ("age", "pressure"):
    normalizer = layers.Normalization()
    normalizer.adapt(table[name])
    features.append(normalizer(inputs[name]))
features.append(layers.CategoryEncoding(4, output_mode="one_hot")(inputs["kind"]))
x = layers.Dense(16, activation="relu")(layers.Concatenate()(features))
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
losses = model.fit(table, target, batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"]
