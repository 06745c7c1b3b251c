"""Forecasting of a time series by an LSTM, on windows of `timeseries_dataset_from_array`, a tf.data.Dataset."""

import keras
import numpy as np

keras.utils.set_random_seed(1)
series = np.sin(np.arange(90)[:, None] * np.array([0.1, 0.2, 0.5])).astype("float32")


def windows(values):
    return keras.utils.timeseries_dataset_from_array(values[:-6], values[6:, 0], sequence_length=6, batch_size=16)


dataset_train, dataset_val = windows(series[:70]), windows(series[70:])
inputs = keras.layers.Input((6, 3))
lstm_out = keras.layers.LSTM(8)(inputs)
model = keras.Model(inputs, keras.layers.Dense(1)(lstm_out))
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
history = model.fit(dataset_train, epochs=3, validation_data=dataset_val, verbose=0)
losses = history.history["loss"] + history.history["val_loss"]
