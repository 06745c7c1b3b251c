"""A generative adversarial network, trained by a loop of its own on PyTorch or TensorFlow."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(1)
draw = np.random.default_rng(0)
images = draw.normal(size=(48, 6)).astype("float32")
noises = draw.normal(size=(48, 4)).astype("float32")
discriminator = keras.Sequential([keras.Input((6,)), layers.Dense(8), layers.LeakyReLU(0.2), layers.Dense(1)])
generator = keras.Sequential([keras.Input((4,)), layers.Dense(8), layers.LeakyReLU(0.2), layers.Dense(6)])
optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01)]
loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)


def minimize(compute, variables, optimizer):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = compute()
        optimizer.apply(tape.gradient(loss, variables), variables)
    else:
        import torch

        for model in (discriminator, generator):
            model.zero_grad()
        loss = compute()
        loss.backward()
        with torch.no_grad():
            optimizer.apply([variable.value.grad for variable in variables], variables)
    return float(loss)


def train_step(real, noise):
    fake = ops.convert_to_tensor(ops.convert_to_numpy(generator(noise)))  # no gradient
    both, labels = ops.concatenate([fake, real]), np.repeat([[1.0], [0.0]], len(real), 0)
    first = minimize(lambda: loss_fn(labels, discriminator(both)), discriminator.trainable_weights, optimizers[0])
    truth = np.zeros((len(noise), 1))
    second = minimize(
        lambda: loss_fn(truth, discriminator(generator(noise))), generator.trainable_weights, optimizers[1]
    )
    return first, second


losses = []
for _ in range(3):
    for batch in np.split(np.arange(48), 3):
        losses.append(train_step(images[batch], noises[batch]))
losses = np.mean(losses, 1).tolist()
