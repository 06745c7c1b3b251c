"""Text classification with a Transformer, whose block and embedding are layers of this program."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(1)
draw = np.random.default_rng(0)
words = draw.integers(0, 20, (48, 6))
labels = draw.integers(0, 2, 48)


class TransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = keras.Sequential([layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)])
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        out1 = self.layernorm1(inputs + self.att(inputs, inputs))
        return self.layernorm2(out1 + self.ffn(out1))


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(vocab_size, embed_dim)
        self.pos_emb = layers.Embedding(maxlen, embed_dim)

    def call(self, x):
        return self.token_emb(x) + self.pos_emb(ops.arange(0, ops.shape(x)[-1]))


inputs = keras.Input((6,))
x = TokenAndPositionEmbedding(6, 20, 8)(inputs)
x = TransformerBlock(8, 2, 16)(x)
x = layers.GlobalAveragePooling1D()(x)
x = layers.Dense(8, activation="relu")(x)
model = keras.Model(inputs, layers.Dense(2, activation="softmax")(x))
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
losses = model.fit(words, labels, batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"]
