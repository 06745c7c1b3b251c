"""Trains the graph of a Keras model's file in plain PyTorch, eagerly, images channels last:
train_torch_graph.py FOLDER BATCH STEPS EPOCHS. Prints the epochs' times as JSON."""

import json
import os
import sys
import time

import keras
import numpy as np
import torch
from common import peak_memory_mb
from torch import nn
from torch.nn import functional as F


class Same(nn.Module):
    """Pads as Keras' padding "same" does, then applies a layer."""

    def __init__(self, layer: nn.Module, kernel: tuple[int, ...], strides: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.kernel, self.strides = layer, kernel, strides

    def forward(self, x):
        sides = []
        for size, kernel, stride in zip(reversed(x.shape[2:]), reversed(self.kernel), reversed(self.strides)):
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            sides += [total // 2, total - total // 2]
        return self.layer(F.pad(x, sides) if any(sides) else x)


ACTIVATIONS = {"linear": None, "relu": lambda x: F.relu(x, inplace=True), "relu6": lambda x: F.relu6(x, inplace=True)}


def convolution(layer, channels: int) -> nn.Module:
    config = layer.get_config()
    kind = nn.Conv1d if isinstance(layer, keras.layers.Conv1D) else nn.Conv2d
    depthwise = isinstance(layer, keras.layers.DepthwiseConv2D)
    made = kind(channels, channels if depthwise else config["filters"], config["kernel_size"], config["strides"],
                groups=channels if depthwise else 1, bias=config["use_bias"])  # fmt: skip
    is_same = config["padding"] == "same" and any(size > 1 for size in config["kernel_size"])
    return Same(made, config["kernel_size"], config["strides"]) if is_same else made


def module_of(layer) -> nn.Module | None:
    """Return the layer's counterpart; None for one that PyTorch calls as a function."""
    keras_layers = keras.layers
    if isinstance(layer, (keras_layers.Conv1D, keras_layers.Conv2D, keras_layers.DepthwiseConv2D)):
        return convolution(layer, layer.input.shape[-1])
    if isinstance(layer, keras_layers.BatchNormalization):
        return nn.BatchNorm2d(layer.input.shape[-1], eps=layer.epsilon, momentum=1 - layer.momentum)
    if isinstance(layer, keras_layers.Dense):
        return nn.Linear(layer.input.shape[-1], layer.units)
    if isinstance(layer, keras_layers.Embedding):
        return nn.Embedding(layer.input_dim, layer.output_dim)
    return None


def call(layer, module: nn.Module | None, inputs: list):
    x = inputs[0]
    kind = type(layer).__name__
    if isinstance(module, nn.Embedding):
        y = module(x).transpose(1, 2)
    elif module is not None:
        y = module(x)
    elif kind == "Add":
        y = x + inputs[1]
    elif kind == "ReLU":
        y = F.relu(x, inplace=True) if layer.max_value is None else F.hardtanh(x, 0, layer.max_value, inplace=True)
    elif kind == "ZeroPadding2D":
        (top, bottom), (left, right) = layer.padding
        y = F.pad(x, (left, right, top, bottom))
    elif kind == "MaxPooling2D":
        y = F.max_pool2d(x, layer.pool_size, layer.strides)
    elif kind == "GlobalAveragePooling2D":
        y = x.mean((2, 3))
    elif kind == "Flatten":
        y = x.flatten(1)
    elif kind == "GlobalMaxPooling1D":
        y = x.amax(2)
    elif kind == "Activation":
        y = x
    else:
        raise NotImplementedError(kind)
    activation = ACTIVATIONS[getattr(getattr(layer, "activation", None), "__name__", "linear")]
    return y if activation is None else activation(y)


class Graph(nn.Module):
    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        self.source = model
        made = {layer.name: module_of(layer) for layer in model.layers}
        self.made = nn.ModuleDict({name: module for name, module in made.items() if module is not None})

    def forward(self, x):
        values = {id(self.source.inputs[0]): x}
        for layer in self.source.layers[1:]:
            inputs = layer.input if isinstance(layer.input, list) else [layer.input]
            module = self.made[layer.name] if layer.name in self.made else None
            values[id(layer.output)] = call(layer, module, [values[id(each)] for each in inputs])
        return values[id(self.source.outputs[0])]


def main() -> None:
    folder, batch, steps, epochs = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    source = keras.models.load_model(f"{folder}/model.keras")
    data = np.load(f"{folder}/data.npz")
    x, y = torch.from_numpy(data["x_train"]), torch.from_numpy(data["y_train"])
    model = Graph(source)
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2)  # channels last in memory, as Keras' pictures are
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    seconds = []
    for _ in range(epochs):
        begun = time.perf_counter()
        order = torch.randperm(len(y))
        for step in range(steps):
            chosen = order[step * batch : (step + 1) * batch]
            optimizer.zero_grad()
            F.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        seconds.append(time.perf_counter() - begun)
    print(json.dumps({"epoch_seconds": seconds, "peak_memory_mb": peak_memory_mb()}))


if __name__ == "__main__":
    main()
