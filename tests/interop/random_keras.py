"""Random models, Sequential and Functional, of the features that Lockstep supports, built by the given module, Keras 3 or Keras 2.

The same seed yields the same layers, values and compile options in both.
"""

from types import ModuleType
from typing import Any

import numpy as np

ACTIVATIONS = (None, "linear", "relu", "sigmoid", "tanh", "softmax", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu",
               "softplus", "softsign", "hard_sigmoid", "mish", "exponential", "log_softmax")
INITIALIZERS = ("random_uniform", "random_normal", "truncated_normal", "lecun_uniform", "lecun_normal", "glorot_uniform", "glorot_normal", "he_uniform", "he_normal", "zeros", "ones")
Random = np.random.Generator


def any_of(random: Random, choices: tuple) -> Any:
    return choices[random.integers(len(choices))]


def extent(random: Random, most: int) -> Any:
    """One number for both dimensions, or one for each."""
    if random.random() < 0.5:
        return int(random.integers(1, most + 1))
    return tuple(int(side) for side in random.integers(1, most + 1, size=2))


def weights(random: Random) -> dict[str, Any]:
    """How a kernel and a bias begin, and what penalty they and the output add to the loss. An output that is 0 has a
    derivative of L1 on JAX, and none on other backends."""
    regularizers = (None, None, "l1", "l2")
    constraints = (None, None, None, "max_norm", "non_neg", "unit_norm")
    return {"kernel_constraint": any_of(random, constraints), "bias_constraint": any_of(random, constraints),
            "kernel_initializer": any_of(random, INITIALIZERS), "bias_initializer": any_of(random, INITIALIZERS),
            "kernel_regularizer": any_of(random, regularizers), "bias_regularizer": any_of(random, regularizers),
            "activity_regularizer": any_of(random, (None, None, None, "l2"))}


def convolution(layers: ModuleType, random: Random, channels: int, **common: Any) -> Any:
    """A convolution of images of any kind."""
    steps = {any_of(random, ("strides", "dilation_rate")): extent(random, 2)}
    common |= {"padding": any_of(random, ("valid", "same")), "activation": any_of(random, ACTIVATIONS),
               "use_bias": bool(random.integers(2))}
    filters, size = int(random.integers(1, 7)), extent(random, 3)
    kind = random.integers(8)
    depthwise = {"depthwise_initializer": any_of(random, INITIALIZERS), "depth_multiplier": int(random.integers(1, 3))}
    if kind == 0:
        return layers.DepthwiseConv2D(size, **depthwise, **steps, **common)
    if kind == 1:
        return layers.SeparableConv2D(filters, size, pointwise_initializer=any_of(random, INITIALIZERS), **depthwise,
                                      **steps, **common)
    if kind == 2:
        return layers.Conv2DTranspose(filters, size, strides=extent(random, 2), **weights(random), **common)
    groups = any_of(random, (1, channels))
    return layers.Conv2D(filters * groups, size, groups=groups, **steps, **weights(random), **common)


def convolution_1d(layers: ModuleType, random: Random, channels: int, **common: Any) -> Any:
    """A convolution of sequences of any kind."""
    steps = {any_of(random, ("strides", "dilation_rate")): int(random.integers(1, 3))}
    common |= {"activation": any_of(random, ACTIVATIONS), "use_bias": bool(random.integers(2))}
    filters, size = int(random.integers(1, 7)), int(random.integers(1, 4))
    kind = random.integers(6)
    if kind == 2:
        return layers.DepthwiseConv1D(size, padding=any_of(random, ("valid", "same")), **steps, **common)
    if kind == 3:
        return layers.Conv1DTranspose(filters, size, strides=int(random.integers(1, 3)),
                                      padding=any_of(random, ("valid", "same")), **weights(random), **common)
    if kind <= 1:
        return layers.SeparableConv1D(filters, size, padding=any_of(random, ("valid", "same")), **steps, **common)
    groups = any_of(random, (1, channels))
    return layers.Conv1D(filters * groups, size, padding=any_of(random, ("valid", "same", "causal")), groups=groups,
                         **steps, **weights(random), **common)


def dense(layers: ModuleType, random: Random, **common: Any) -> Any:
    return layers.Dense(int(random.integers(1, 20)), activation=any_of(random, ACTIVATIONS),
                        use_bias=bool(random.integers(2)), **weights(random), **common)


def pooling(layers: ModuleType, random: Random, **common: Any) -> Any:
    kind = any_of(random, (layers.MaxPooling2D, layers.AveragePooling2D))
    return kind(extent(random, 3), strides=any_of(random, (None, extent(random, 3))),
                padding=any_of(random, ("valid", "same")), **common)


def pooling_1d(layers: ModuleType, random: Random, **common: Any) -> Any:
    kind = any_of(random, (layers.MaxPooling1D, layers.AveragePooling1D))
    return kind(int(random.integers(1, 4)), strides=any_of(random, (None, 1, 2)),
                padding=any_of(random, ("valid", "same")), **common)


def global_pooling(layers: ModuleType, random: Random, dimensions: int, **common: Any) -> Any:
    name = any_of(random, ("GlobalMaxPooling", "GlobalAveragePooling"))
    return getattr(layers, f"{name}{dimensions}D")(keepdims=bool(random.integers(2)), **common)


def normalization(layers: ModuleType, random: Random, **common: Any) -> Any:
    return layers.BatchNormalization(momentum=float(random.random()), epsilon=float(10 ** random.uniform(-4, -1)),
                                     center=bool(random.integers(2)), scale=bool(random.integers(2)), **common)


def reshape(layers: ModuleType, random: Random, shape: tuple[int, ...], **common: Any) -> Any:
    """Reshapes to an image whose height and width divide the number of elements."""
    elements = int(np.prod(shape))
    height = any_of(random, tuple(one for one in (1, 2, 3, 4, 6) if elements % one == 0))
    width = any_of(random, tuple(one for one in (1, 2, 3, 4, 6) if elements // height % one == 0))
    return layers.Reshape((height, width, -1), **common)


def shape_layer(layers: ModuleType, random: Random, shape: tuple[int, ...], **common: Any) -> Any:
    """A layer that moves, scales or drops elements."""
    margins = tuple(tuple(int(side) for side in random.integers(0, 3, size=2)) for _ in range(2))
    makers = [
        lambda: layers.LeakyReLU(float(random.random()), **common),
        lambda: layers.ELU(float(random.random()), **common),
        lambda: layers.ReLU(**common),
        lambda: layers.Softmax(**common),
        lambda: layers.PReLU(alpha_initializer="random_normal", **common),
        lambda: layers.LayerNormalization(epsilon=0.01, center=bool(random.integers(2)), **common),
        lambda: layers.GroupNormalization(any_of(random, (1, -1)), scale=bool(random.integers(2)), **common),
        lambda: layers.UnitNormalization(**common),
        lambda: layers.AlphaDropout(0.5, **common),
        lambda: layers.Identity(**common),
        lambda: layers.ActivityRegularization(l2=0.01 * float(random.random()), **common),
        lambda: layers.Rescaling(float(random.random()), float(random.random()), **common),
        lambda: layers.GaussianNoise(0.5, **common),
        lambda: layers.GaussianDropout(0.5, **common),
        lambda: layers.Permute(tuple(int(axis) for axis in 1 + random.permutation(len(shape))), **common),
        lambda: dense(layers, random, **common),
    ]
    if hasattr(layers, "RMSNormalization"):  # Keras 2 has none
        makers.append(lambda: layers.RMSNormalization(epsilon=0.01, **common))
    if len(shape) == 3:
        # SpatialDropout2D has no argument `trainable`.
        untrainable = {key: value for key, value in common.items() if key != "trainable"}
        makers += [
            lambda: layers.ZeroPadding2D(margins, **common),
            lambda: layers.Cropping2D(margins, **common),
            lambda: layers.CenterCrop(*(int(random.integers(1, side + 1)) for side in shape[:2]), **common),
            lambda: layers.Resizing(*(int(side) for side in random.integers(1, 9, size=2)),
                                    interpolation=any_of(random, ("nearest", "bilinear")), **common),
            lambda: layers.UpSampling2D(2, interpolation=any_of(random, ("nearest", "bilinear")), **common),
            lambda: layers.SpatialDropout2D(0.5, **untrainable),
            lambda: layers.Dropout(0.5, noise_shape=(None, 1, 1, shape[-1]), **common),
        ]
    return any_of(random, tuple(makers))()


def any_layer(layers: ModuleType, random: Random, shape: tuple[int, ...], **common: Any) -> Any:
    """A layer that can follow an output of `shape`, except that windows may be too large for it."""
    kinds = ["activation", "dropout", "normalization", "reshape", "flatten"]
    kinds += ["shape"] * 3
    if len(shape) == 3:
        kinds += ["convolution"] * 5 + ["pooling"] * 3 + ["global"]
    if len(shape) == 2:
        kinds += ["convolution_1d"] * 5 + ["pooling_1d"] * 3 + ["global"]
    if len(shape) == 1:
        kinds += ["dense"] * 5
    kind = any_of(random, tuple(kinds))
    if kind == "convolution":
        return convolution(layers, random, shape[-1], **common)
    if kind == "convolution_1d":
        return convolution_1d(layers, random, shape[-1], **common)
    if kind == "shape":
        return shape_layer(layers, random, shape, **common)
    if kind == "pooling":
        return pooling(layers, random, **common)
    if kind == "pooling_1d":
        return pooling_1d(layers, random, **common)
    if kind == "dense":
        return dense(layers, random, **common)
    if kind == "normalization":
        return normalization(layers, random, **common)
    if kind == "activation":
        return layers.Activation(any_of(random, ACTIVATIONS[1:]), **common)
    if kind == "dropout":
        return layers.Dropout(float(random.uniform(0, 0.9)), **common)
    if kind == "reshape":
        return reshape(layers, random, shape, **common)
    if kind == "global":
        return global_pooling(layers, random, len(shape) - 1, **common)
    return layers.Flatten(**common)


def architecture(keras: ModuleType, random: Random) -> Any:
    """Tracks the output shape, because Keras 2 and 3 report it differently."""
    layers = keras.layers
    shape = tuple(int(side) for side in random.integers((5, 5, 1), (13, 13, 4)))
    if random.random() < 0.25:
        shape = (int(random.integers(12, 40)), shape[-1])
    chain = [layers.Input(shape)]
    count = int(random.integers(3, 11))
    while len(chain) < count:
        common: dict[str, Any] = {"name": f"my_{len(chain)}"} if random.random() < 0.25 else {}
        if random.random() < 0.2:
            common["trainable"] = False
        layer = any_layer(layers, random, shape, **common)
        try:
            after = tuple(int(side) for side in layer.compute_output_shape((None, *shape))[1:])
        except ValueError:  # the window is larger than the image
            continue
        if min(after) < 1:
            continue
        chain.append(layer)
        shape = after
    return keras.Sequential(chain, name="mine" if random.random() < 0.25 else "sequential")


def same_size(layers: ModuleType, random: Random, shape: tuple[int, ...], **common: Any) -> Any:
    """A layer that keeps the shape of its input."""
    kind = random.integers(4)
    if kind == 0:
        return normalization(layers, random, **common)
    if kind == 1:
        return layers.Activation(any_of(random, ACTIVATIONS[1:]), **common)
    if len(shape) == 1:
        return layers.Dense(shape[-1], activation=any_of(random, ACTIVATIONS), **weights(random), **common)
    return layers.Conv2D(shape[-1], extent(random, 3), padding="same", activation=any_of(random, ACTIVATIONS),
                         **weights(random), **common)


def nested(keras: ModuleType, random: Random, shape: tuple[int, ...], depth: int) -> Any:
    """A model that keeps the shape of its input."""
    name = {"name": f"inner_{random.integers(10 ** 6)}"}
    if random.random() < 0.5:
        chain = [same_size(keras.layers, random, shape) for _ in range(random.integers(1, 4))]
        return keras.Sequential([keras.layers.Input(shape), *chain], **name)
    return graph(keras, random, shape, depth + 1, **name)


def graph(keras: ModuleType, random: Random, shape: tuple[int, ...], depth: int = 0, **name: Any) -> Any:
    """Branches, merges, layers and models that are called several times. All tensors have one shape."""
    layers = keras.layers
    inputs = layers.Input(shape)
    tensors, called = [inputs], []
    for _ in range(random.integers(2, 8)):
        read = any_of(random, tuple(tensors))
        kind = random.integers(6)
        if kind == 0 and len(shape) == 1 and random.random() < 0.5:  # scales a vector by its likeness to another one
            dot = layers.Dot(any_of(random, (1, -1)), normalize=bool(random.integers(2)))
            tensors.append(layers.Multiply()([read, dot([read, any_of(random, tuple(tensors))])]))
            continue
        if kind <= 1:
            merge = any_of(random, (layers.Add, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum))
            tensors.append(merge()([read, any_of(random, tuple(tensors))]))
            continue
        if kind == 2 and called:
            layer = any_of(random, tuple(called))
        elif kind == 3 and depth < 2:
            layer = nested(keras, random, shape, depth)
        else:
            layer = same_size(layers, random, shape)
        if layer not in called:
            called.append(layer)
        tensors.append(layer(read))
    return keras.Model(inputs, tensors[-1] if len(tensors) == 2 else layers.Add()(tensors[-2:]), **name)


def any_model(keras: ModuleType, random: Random) -> Any:
    if random.random() < 0.5:
        return architecture(keras, random)
    shape = tuple(int(side) for side in random.integers((3, 3, 1), (7, 7, 4)))
    return graph(keras, random, shape if random.random() < 0.7 else shape[2:])


def any_optimizer(keras: ModuleType, random: Random) -> Any:
    optimizers = keras.optimizers
    rate = float(10 ** random.uniform(-4, 0))
    momentum = any_of(random, (0.0, float(random.random())))
    clip = {any_of(random, ("clipnorm", "clipvalue", "global_clipnorm")): any_of(random, (None, 0.5 + random.random()))}
    kind = random.integers(4)
    if kind == 0:
        return optimizers.SGD(rate, momentum=momentum, nesterov=bool(random.integers(2)), **clip)
    if kind == 1:
        return optimizers.Adam(rate, beta_1=float(random.random()), beta_2=float(random.random()), **clip)
    if kind == 2:
        return optimizers.AdamW(rate, weight_decay=float(random.random()), epsilon=1e-3, **clip)
    return optimizers.RMSprop(
        rate, rho=float(random.random()), momentum=momentum, centered=bool(random.integers(2)), **clip)


def any_loss(keras: ModuleType, random: Random, classes: bool) -> Any:
    from_logits = bool(random.integers(2))
    kind = random.integers(3) if classes else 2
    if kind == 0:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    if kind == 1:
        return keras.losses.CategoricalCrossentropy(from_logits=from_logits)
    return keras.losses.MeanSquaredError()


def weights_in_order(model: Any) -> list[Any]:
    return [weight for layer in model.layers for weight in layer.weights]


def slots_of(optimizer: Any) -> list[Any]:
    """The optimizer's variables without iteration and learning rate."""
    return [variable for variable in optimizer.variables if len(variable.shape) > 0]


def fill(model: Any, random: Random) -> None:
    """Draws realistic values, with which outputs neither vanish nor overflow."""
    for weight in weights_in_order(model):
        shape = tuple(weight.shape)
        kind = weight.name.split("/")[-1].split(":")[0]
        if kind == "moving_variance":
            values = random.uniform(0.5, 1.5, shape)
        elif kind.endswith("kernel"):
            values = random.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))
        else:
            values = (kind == "gamma") + 0.1 * random.normal(size=shape)
        weight.assign(values.astype(np.float32))


def build(keras: ModuleType, seed: int) -> Any:
    """The model; in three of four cases it is compiled with an optimizer that has state."""
    random = np.random.default_rng(seed)
    model = any_model(keras, random)
    fill(model, random)
    if random.random() < 0.25:
        return model
    optimizer = any_optimizer(keras, random)
    model.compile(optimizer, loss=any_loss(keras, random, len(model.output_shape) == 2),
                  metrics=any_of(random, (None, ["accuracy"])))
    optimizer.build(model.trainable_variables)
    optimizer.iterations.assign(int(random.integers(1, 100000)))
    for slot in slots_of(optimizer):
        slot.assign(np.abs(random.normal(size=tuple(slot.shape))).astype(np.float32))
    return model


def inputs_of(shape: tuple[int | None, ...], seed: int, count: int = 7) -> np.ndarray:
    """Random inputs for a model with the input shape `shape`."""
    return np.random.default_rng(seed).normal(size=(count, *shape[1:])).astype(np.float32)
