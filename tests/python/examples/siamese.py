"""A Siamese network: one model embeds both images, and a contrastive loss of this program compares them."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(1)
draw = np.random.default_rng(0)
left, right = draw.normal(size=(2, 48, 10, 10, 1)).astype("float32")
labels = draw.integers(0, 2, (48, 1)).astype("float32")


def euclidean_distance(vects):
    x, y = vects
    return ops.sqrt(ops.maximum(ops.sum(ops.square(x - y), axis=1, keepdims=True), keras.backend.epsilon()))


def contrastive_loss(y_true, y_pred, margin=1):
    return ops.mean((1 - y_true) * ops.square(y_pred) + y_true * ops.square(ops.maximum(margin - y_pred, 0)))


image = keras.Input((10, 10, 1))
x = layers.Conv2D(4, 3, activation="tanh")(image)
x = layers.AveragePooling2D(2)(x)
embedding_network = keras.Model(image, layers.Dense(5, activation="tanh")(layers.Flatten()(x)))
input_1, input_2 = keras.Input((10, 10, 1)), keras.Input((10, 10, 1))
towers = [embedding_network(input_1), embedding_network(input_2)]
distance = layers.Lambda(euclidean_distance, output_shape=(1,))(towers)
siamese = keras.Model([input_1, input_2], layers.Dense(1, activation="sigmoid")(distance))
siamese.compile(loss=contrastive_loss, optimizer=keras.optimizers.RMSprop(0.01), metrics=["accuracy"])
losses = siamese.fit([left, right], labels, batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"]
