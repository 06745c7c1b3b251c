"""Image segmentation by a small U-Net: each pixel of a picture has a class."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
images = np.random.default_rng(0).normal(size=(32, 16, 16, 3)).astype("float32")
classes = (images.mean(-1) > 0).astype("int64") + (images[..., 0] > 1)
masks = keras.utils.to_categorical(classes, 3)  # torch has no backward pass of sparse classes of pixels

inputs = keras.Input((16, 16, 3))
x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(inputs)
previous = x
x = layers.SeparableConv2D(12, 3, padding="same")(x)
x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
x = layers.add([x, layers.Conv2D(12, 1, strides=2, padding="same")(previous)])
x = layers.Activation("relu")(x)
x = layers.Conv2DTranspose(8, 3, padding="same")(x)
x = layers.UpSampling2D(2)(x)
x = layers.add([x, previous])
x = layers.UpSampling2D(2)(layers.Conv2DTranspose(8, 3, padding="same")(x))
model = keras.Model(inputs, layers.Conv2D(3, 3, activation="softmax", padding="same")(x))
model.compile(keras.optimizers.Adam(0.01), loss="categorical_crossentropy")
losses = model.fit(images, masks, batch_size=8, epochs=3, shuffle=False, verbose=0).history["loss"]
