"""A variational autoencoder with a train_step of its own. Its noise is a function of the image, for equal runs."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(1)
images = np.random.default_rng(0).uniform(size=(48, 8, 8, 1)).astype("float32")


class VAE(keras.Model):
    def __init__(self):
        super().__init__()
        conv = layers.Conv2D(4, 3, activation="relu", strides=2, padding="same")
        self.encoder = keras.Sequential([keras.Input((8, 8, 1)), conv, layers.Flatten(), layers.Dense(4)])
        grow = layers.Conv2DTranspose(1, 3, activation="sigmoid", strides=2, padding="same")
        self.decoder = keras.Sequential([keras.Input((2,)), layers.Dense(16), layers.Reshape((4, 4, 1)), grow])
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def call(self, x):
        code = self.encoder(x)
        mean, log_var = code[:, :2], code[:, 2:]
        return self.decoder(mean + ops.exp(0.5 * log_var) * ops.sin(50 * x[:, 0, :2, 0])), mean, log_var

    def loss_of(self, x, result):
        decoded, mean, log_var = result
        kl = -0.5 * (1 + log_var - ops.square(mean) - ops.exp(log_var))
        return ops.mean(ops.sum(keras.losses.binary_crossentropy(x, decoded), (1, 2)) + ops.sum(kl, 1))

    def train_step(self, *arguments):
        if keras.backend.backend() == "jax":
            return self.train_step_of_jax(*arguments)
        x = arguments[0]
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = self.loss_of(x, self(x))
            self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        else:
            import torch

            self.zero_grad()
            loss = self.loss_of(x, self(x))
            loss.backward()
            with torch.no_grad():
                self.optimizer.apply([v.value.grad for v in self.trainable_weights], self.trainable_weights)
        self.loss_tracker.update_state(loss, sample_weight=ops.shape(x)[0])
        return {"loss": self.loss_tracker.result()}

    def train_step_of_jax(self, state, x):
        import jax

        trainable, others, optimizer, metrics = state

        def compute(trainable):
            result, updated = self.stateless_call(trainable, others, x)
            return self.loss_of(x, result), updated

        (loss, others), gradients = jax.value_and_grad(compute, has_aux=True)(trainable)
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        metrics = self.loss_tracker.stateless_update_state(metrics, loss, sample_weight=ops.shape(x)[0])
        return {"loss": self.loss_tracker.stateless_result(metrics)}, (trainable, others, optimizer, metrics)


vae = VAE()
vae.build((None, 8, 8, 1))
vae.compile(optimizer=keras.optimizers.Adam(0.01))
losses = vae.fit(images, batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"]
