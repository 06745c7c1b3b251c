"""Lockstep trains like real Keras: the same losses, weights and predictions, step by step.

    numerical_parity_test.py BIN_DIR [--quick]

One file, because all cases go through one comparison. Both load the same file, written by Keras, and train on the same
batches in the same order, Keras with train_on_batch, Lockstep with one worker and with two under mpirun. After step 1
and step 100 the test compares:

- losses, relative to Keras';
- weights and optimizer slots: the largest difference of any element of an array, relative to the largest change that
  training made to the array (relative to the values, a wrong small step would not show). One rounding of the array's
  largest value is subtracted first, because it dominates in the first small steps. The tolerance is 1e-5 after 1 step
  and 1e-3 after 100 steps;
- predictions, with Keras using the weights that Lockstep saved: 1e-5 of the largest.

BatchNormalization's statistics are per replica, which a single call of Keras cannot compute. For two replicas the
reference is a step in this file with Keras' layers, loss and optimizer: each replica's slice of the batch runs through
the layers separately, moving statistics are averaged over replicas, and the loss is the mean over the whole batch.

Inputs and biases are random: on constant areas pre-activations would be exactly 0, where relu's derivative depends on
rounding.
"""

import dataclasses
import re
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import support
from random_keras import slots_of
from support import SPARSE, Scratch, keras, layers, np, options, output_of, program, weights_in_order

import jax

MPIRUN = Path(__file__).resolve().parents[2] / "scripts" / "mpirun.sh"
EXAMPLES = 60
BATCH = 13  # 7 + 6 for two workers; batches span the end of the data
MARKS = (0, 1, 100)  # steps after which Lockstep saves
LOOSE = {1: 1e-5, 100: 1e-3}

CATEGORICAL = keras.losses.CategoricalCrossentropy
LOSSES = keras.losses
OPTIMIZERS = keras.optimizers
ONE_HOT = (LOSSES.Hinge, LOSSES.SquaredHinge, LOSSES.CategoricalHinge)
Arrays = list[np.ndarray]


@dataclasses.dataclass
class Trajectory:
    """Losses of all steps, and weights and slots after each of MARKS."""

    losses: list[float] = dataclasses.field(default_factory=list)
    weights: dict[int, Arrays] = dataclasses.field(default_factory=dict)
    slots: dict[int, Arrays] = dataclasses.field(default_factory=dict)

    def note(self, step: int, model: keras.Model) -> None:
        self.weights[step] = [np.array(weight) for weight in weights_in_order(model)]
        self.slots[step] = [np.array(slot) for slot in slots_of(model.optimizer)]


def convolutional(last: str | None = None) -> keras.Sequential:
    return keras.Sequential([
        layers.Input((10, 9, 2)), layers.Conv2D(6, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(5, 2, padding="same", activation="tanh"), layers.Flatten(), layers.Dense(16, activation="relu"),
        layers.Dropout(0.0), layers.Dense(5, activation=last)])


def smooth(last: str | None = None) -> keras.Sequential:
    """At kinks (relu, maximum) two values that differ by rounding may take different branches. That happens
    occasionally in 100 steps, and momentum and division by gradient norms amplify 1e-6 to 1e-3. Optimizers are
    therefore tested on a model without kinks, and kinks with plain SGD, which does not amplify them."""
    return keras.Sequential([
        layers.Input((10, 9, 2)), layers.Conv2D(6, 3, activation="tanh"), layers.AveragePooling2D(2),
        layers.Conv2D(5, 2, padding="same", activation="sigmoid"), layers.Flatten(),
        layers.Dense(16, activation="tanh"), layers.Dense(5, activation=last)])


def of_equal_outputs() -> keras.Sequential:
    model = smooth()
    model.layers[-1].kernel.assign(np.zeros((16, 5)))
    return model


def rescaled() -> keras.Sequential:
    return keras.Sequential([layers.Input((10, 9, 2)), layers.Rescaling(1.7, offset=-0.3), *convolutional().layers])


def other_layers() -> keras.Sequential:
    """The layers that `convolutional` lacks, except BatchNormalization."""
    return keras.Sequential([
        layers.Input((11, 12, 2)), layers.Conv2D(6, (3, 2), strides=(2, 1), padding="same"), layers.Activation("relu"),
        layers.Conv2D(5, 2, dilation_rate=(1, 2), use_bias=False, activation="sigmoid"),
        layers.AveragePooling2D((2, 3), strides=1, padding="same"), layers.MaxPooling2D(3, strides=2, padding="same"),
        layers.Activation("softmax"), layers.Conv2D(8, 1, activation="tanh"), layers.GlobalAveragePooling2D(),
        layers.Reshape((2, 2, 2)), layers.AveragePooling2D((2, 1)), layers.Flatten(),
        layers.Dense(7, use_bias=False, activation="softmax"), layers.Dense(5)])


def normalized() -> keras.Sequential:
    """BatchNormalization of images and of vectors. There is no bias or beta directly before it, because its gradient
    would consist of rounding errors."""
    return keras.Sequential([
        layers.Input((9, 8, 2)), layers.BatchNormalization(momentum=0.8, center=False),
        layers.Conv2D(6, 3, use_bias=False), layers.BatchNormalization(momentum=0.9, epsilon=0.01),
        layers.Activation("tanh"), layers.AveragePooling2D(2), layers.Conv2D(5, 2, use_bias=False, activation="tanh"),
        layers.Flatten(), layers.BatchNormalization(scale=False), layers.Dense(12, activation="tanh"), layers.Dense(5)])


def branching() -> keras.Model:
    """Forks of convolutions, of activations and of the input; a tensor that one merge reads twice; a fork of a view."""
    image = layers.Input((10, 9, 2))
    stem = layers.Conv2D(6, 3, activation="tanh")(image)
    first = layers.Conv2D(6, 3, padding="same", activation="tanh")(stem)
    second = layers.AveragePooling2D(3, strides=1, padding="same")(stem)
    x = layers.Activation("tanh")(layers.Add()([first, stem, second]))
    side = layers.Conv2D(6, 3, activation="sigmoid")(image)
    x = layers.Multiply()([x, side])
    x = layers.Average()([x, stem, x])
    x = layers.Conv2D(4, 3, strides=2, use_bias=False)(x)
    flat = layers.Flatten()(x)
    x = layers.Subtract()([layers.Dense(7, activation="tanh")(flat), layers.Dense(7)(flat)])
    return keras.Model(image, layers.Dense(5)(x))


def extremes() -> keras.Model:
    """The merges that have kinks."""
    image = layers.Input((10, 9, 2))
    x = layers.Conv2D(6, 3, activation="relu")(image)
    y = layers.Conv2D(6, 3)(image)
    x = layers.Maximum()([x, y, layers.Conv2D(6, 3)(image)])
    x = layers.MaxPooling2D()(layers.Minimum()([x, y]))
    return keras.Model(image, layers.Dense(5)(layers.Flatten()(x)))


def residual() -> keras.Model:
    """Two blocks of a ResNet, the second with a projection."""
    image = layers.Input((12, 12, 3))
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(image)
    x = layers.Activation("tanh")(layers.BatchNormalization(momentum=0.8)(x))
    for filters, strides in ((16, 1), (32, 2)):
        y = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(x)
        y = layers.Activation("tanh")(layers.BatchNormalization(momentum=0.8)(y))
        y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(y)
        y = layers.BatchNormalization(momentum=0.8)(y)
        if strides > 1:
            x = layers.Conv2D(filters, 1, strides=strides, use_bias=False)(x)
        x = layers.Activation("tanh")(layers.Add()([y, x]))
    return keras.Model(image, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


def penalized() -> keras.Model:
    """Outputs of layers add to the loss, also those of a frozen layer; and attention. No layer is called twice, because
    Keras on JAX then loses the penalty of all calls but the last."""
    image = layers.Input((10, 9, 2))
    x = layers.Conv2D(16, 3, activation="tanh", activity_regularizer=keras.regularizers.L1L2(1e-3, 2e-3))(image)
    x = layers.AveragePooling2D(2)(x)
    x = layers.Conv2D(16, 1, activity_regularizer="l2", trainable=False)(x)
    x = layers.SeparableConv2D(16, 1, activation="tanh", activity_regularizer=keras.regularizers.L1(1e-3))(x)
    x = layers.Reshape((12, 16))(x)
    scores = layers.Softmax()(layers.Dot(2, normalize=True)([x, layers.Dense(16)(x)]))
    x = layers.ActivityRegularization(l2=1e-3)(layers.Dot((2, 1))([scores, x]))
    return keras.Model(image, layers.Dense(5, activity_regularizer="l2")(layers.Flatten()(x)))


def fine_tuned() -> keras.Model:
    """A frozen base, and frozen layers among trainable ones."""
    model = keras.Sequential([
        layers.Input((10, 9, 2)), layers.Conv2D(6, 3, activation="tanh"), layers.BatchNormalization(),
        layers.Conv2D(6, 2, activation="tanh", name="tuned"), layers.BatchNormalization(), layers.Conv2D(5, 2),
        layers.Activation("tanh"), layers.AveragePooling2D(2), layers.Flatten(), layers.Dense(12, activation="tanh"),
        layers.Dense(8, activation="tanh", name="head"), layers.Dense(5)])
    for layer in model.layers:
        layer.trainable = layer.name in ("tuned", "head")
    return model


def convolutions() -> keras.Sequential:
    """Grouped, depthwise, separable and transposed ones."""
    return keras.Sequential([
        layers.Input((11, 10, 3)), layers.Conv2D(8, 3, strides=2, padding="same", activation="tanh"),
        layers.Conv2D(12, 2, groups=4, activation="sigmoid"),
        layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, activation="tanh"),
        layers.Conv2DTranspose(7, (3, 2), strides=2, padding="same", activation="tanh"),
        layers.DepthwiseConv2D(3, strides=2, use_bias=False), layers.Conv2DTranspose(16, 2, strides=(3, 2)),
        layers.SeparableConv2D(6, (2, 5), dilation_rate=(2, 1), activation="tanh"),
        layers.DepthwiseConv2D(5, padding="same", activation="tanh"),
        layers.GlobalAveragePooling2D(keepdims=True), layers.Flatten(), layers.Dense(5)])


def winograd() -> keras.Sequential:
    """3 x 3 convolutions of many channels, which Lockstep computes by Winograd's algorithm."""
    return keras.Sequential([
        layers.Input((13, 10, 3)), layers.Conv2D(32, 1, activation="tanh"),
        layers.Conv2D(32, 3, padding="same", activation="tanh"), layers.Conv2D(16, 3, activation="sigmoid"),
        layers.AveragePooling2D(2), layers.Flatten(), layers.Dense(5)])


def sequences() -> keras.Sequential:
    """Convolutions and poolings of sequences, with equal largest values that share their gradient."""
    return keras.Sequential([
        layers.Input((40, 3)), layers.Conv1D(8, 5, padding="causal", dilation_rate=2, activation="tanh"),
        layers.AveragePooling1D(3, strides=2, padding="same"),
        layers.SeparableConv1D(6, 3, depth_multiplier=2, padding="same", activation="tanh"),
        layers.Conv1D(12, 3, strides=2, groups=3, activation="tanh"), layers.MaxPooling1D(2, strides=1),
        layers.DepthwiseConv1D(3, depth_multiplier=2, padding="same", activation="tanh"),
        layers.Conv1DTranspose(10, 3, strides=2, padding="same", activation="tanh"),
        layers.Conv1D(9, 2, activation="relu"), layers.GlobalMaxPooling1D(), layers.Dense(5)])


def mobile() -> keras.Sequential:
    """The blocks of MobileNet."""
    model = [layers.Input((24, 24, 3)), layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False),
             layers.BatchNormalization(momentum=0.8), layers.Activation("tanh")]
    for filters, strides in ((16, 1), (32, 2), (32, 1), (48, 2)):
        model += [layers.DepthwiseConv2D(3, strides=strides, padding="same", use_bias=False),
                  layers.BatchNormalization(momentum=0.8), layers.Activation("tanh"),
                  layers.Conv2D(filters, 1, padding="same", use_bias=False), layers.BatchNormalization(momentum=0.8),
                  layers.Activation("tanh")]
    return keras.Sequential([*model, layers.GlobalAveragePooling2D(keepdims=True), layers.Conv2D(5, 1),
                             layers.Reshape((5,))])


def xception() -> keras.Model:
    """The blocks of Xception: separable convolutions, and a projection around them."""
    image = layers.Input((20, 20, 3))
    x = layers.Conv2D(16, 3, strides=2, use_bias=False)(image)
    x = layers.Activation("tanh")(layers.BatchNormalization(momentum=0.8)(x))
    for filters in (32, 48):
        side = layers.Conv2D(filters, 1, strides=2, padding="same", use_bias=False)(x)
        side = layers.BatchNormalization(momentum=0.8)(side)
        x = layers.Activation("tanh")(x)
        x = layers.SeparableConv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.Activation("tanh")(layers.BatchNormalization(momentum=0.8)(x))
        x = layers.SeparableConv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization(momentum=0.8)(x)
        x = layers.Add()([layers.AveragePooling2D(3, strides=2, padding="same")(x), side])
    return keras.Model(image, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


@dataclasses.dataclass(frozen=True)
class Case:
    build: Callable[[], keras.Model]
    optimizer: Callable[[], Any]
    loss: Callable[[], Any] = lambda: SPARSE(from_logits=True)
    quick: bool = False  # one of the few that --quick runs


schedules = keras.optimizers.schedules
SGD, Adam, AdamW, RMSprop = (
    keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW, keras.optimizers.RMSprop)
# Adam and RMSprop divide by the gradient's magnitude and amplify rounding errors where a gradient is about epsilon. One
# case has the default epsilon, the others one above the rounding errors of the gradients.
CASES = {
    "SGD": Case(convolutional, lambda: SGD(0.05)),
    "penalized outputs": Case(penalized, lambda: SGD(0.05), quick=True),
    "SGD, momentum": Case(smooth, lambda: SGD(0.02, momentum=0.9)),
    "SGD, Nesterov": Case(smooth, lambda: SGD(0.02, momentum=0.9, nesterov=True), quick=True),
    "Adam": Case(smooth, lambda: Adam(0.002)),
    "Adam, epsilon 1e-3": Case(smooth, lambda: Adam(0.005, beta_1=0.8, beta_2=0.99, epsilon=1e-3), quick=True),
    "Adam, schedule": Case(
        convolutional, lambda: Adam(schedules.ExponentialDecay(0.005, 30, 0.5), beta_2=0.99, epsilon=1e-3)),
    "SGD, schedule, Rescaling": Case(rescaled, lambda: SGD(schedules.CosineDecay(
        0.01, 60, alpha=0.1, warmup_target=0.05, warmup_steps=20), momentum=0.9), quick=True),
    "AdamW": Case(smooth, lambda: AdamW(0.005, weight_decay=0.1, epsilon=1e-3)),
    "RMSprop": Case(smooth, lambda: RMSprop(0.001, epsilon=1e-5)),
    "RMSprop, momentum": Case(smooth, lambda: RMSprop(0.0005, momentum=0.8, epsilon=1e-5)),
    "RMSprop, centered": Case(smooth, lambda: RMSprop(0.001, rho=0.8, centered=True, epsilon=1e-5)),
    "RMSprop, centered, momentum": Case(
        smooth, lambda: RMSprop(0.0005, momentum=0.5, centered=True, epsilon=1e-5), quick=True),
    "SGD, clipnorm": Case(convolutional, lambda: SGD(0.5, clipnorm=0.05)),
    "SGD, clipvalue": Case(convolutional, lambda: SGD(0.5, clipvalue=0.002)),
    "SGD, global_clipnorm": Case(convolutional, lambda: SGD(0.5, global_clipnorm=0.1), quick=True),
    "Adam, clipnorm": Case(smooth, lambda: Adam(0.005, epsilon=1e-3, clipnorm=0.05), quick=True),
    "Adam, clipvalue": Case(smooth, lambda: Adam(0.005, epsilon=1e-3, clipvalue=0.01), quick=True),
    "Adam, global_clipnorm": Case(smooth, lambda: Adam(0.005, epsilon=1e-3, global_clipnorm=0.1)),
    "AdamW, global_clipnorm": Case(smooth, lambda: AdamW(0.005, weight_decay=0.1, epsilon=1e-3, global_clipnorm=0.1)),
    "RMSprop, clipnorm": Case(smooth, lambda: RMSprop(0.001, epsilon=1e-5, clipnorm=0.05)),
    "Adam, amsgrad": Case(smooth, lambda: Adam(0.005, amsgrad=True, epsilon=1e-3, weight_decay=0.01)),
    "Lion": Case(smooth, lambda: OPTIMIZERS.Lion(0.0005)),
    "Nadam": Case(  # Keras takes beta_2 from 1 in float32, which has too few digits for 0.999
        smooth, lambda: OPTIMIZERS.Nadam(0.005, beta_2=0.99, epsilon=1e-3), quick=True),
    "Adamax": Case(smooth, lambda: OPTIMIZERS.Adamax(0.005, epsilon=1e-3)),
    "Adagrad": Case(smooth, lambda: OPTIMIZERS.Adagrad(0.02)),
    "Adadelta": Case(smooth, lambda: OPTIMIZERS.Adadelta(0.5, epsilon=1e-4)),
    "Ftrl": Case(smooth, lambda: OPTIMIZERS.Ftrl(
        0.02, l1_regularization_strength=1e-4, l2_regularization_strength=0.01,
        l2_shrinkage_regularization_strength=0.001, beta=0.1), quick=True),
    "SGD, weight decay, averages": Case(smooth, lambda: SGD(
        0.05, weight_decay=0.01, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=7), quick=True),
    "Adam, accumulation": Case(smooth, lambda: Adam(
        0.005, epsilon=1e-3, gradient_accumulation_steps=3, clipnorm=0.05, use_ema=True), quick=True),
    "RMSprop, restarts": Case(smooth, lambda: RMSprop(schedules.CosineDecayRestarts(
        0.001, 20, t_mul=1.5, m_mul=0.8, alpha=0.1), epsilon=1e-5)),
    "mean absolute error": Case(smooth, lambda: SGD(0.05), LOSSES.MeanAbsoluteError),
    "percentage error": Case(lambda: smooth("sigmoid"), lambda: SGD(0.0001), LOSSES.MeanAbsolutePercentageError),
    "logarithmic error": Case(lambda: smooth("sigmoid"), lambda: SGD(0.5), LOSSES.MeanSquaredLogarithmicError),
    "Huber": Case(smooth, lambda: SGD(0.05), LOSSES.Huber, quick=True),  # Keras does not save another delta
    "log cosh": Case(smooth, lambda: SGD(0.05), LOSSES.LogCosh),
    "cosine": Case(smooth, lambda: SGD(0.05), LOSSES.CosineSimilarity, quick=True),
    "divergence": Case(lambda: smooth("softmax"), lambda: SGD(0.05), LOSSES.KLDivergence),
    "Poisson": Case(lambda: smooth("sigmoid"), lambda: SGD(0.05), LOSSES.Poisson),
    "hinge": Case(smooth, lambda: SGD(0.05), LOSSES.Hinge),
    "squared hinge": Case(smooth, lambda: SGD(0.05), LOSSES.SquaredHinge),
    "categorical hinge": Case(smooth, lambda: SGD(0.02), LOSSES.CategoricalHinge),
    "categorical hinge, equal outputs": Case(of_equal_outputs, lambda: SGD(0.02), LOSSES.CategoricalHinge, quick=True),
    "binary, logits": Case(smooth, lambda: SGD(0.05), lambda: LOSSES.BinaryCrossentropy(
        from_logits=True, label_smoothing=0.1), quick=True),
    "binary, probabilities": Case(lambda: smooth("sigmoid"), lambda: SGD(0.05), LOSSES.BinaryCrossentropy),
    "binary focal, logits": Case(smooth, lambda: SGD(0.05), lambda: LOSSES.BinaryFocalCrossentropy(
        from_logits=True, apply_class_balancing=True, label_smoothing=0.1)),
    "binary focal": Case(lambda: smooth("sigmoid"), lambda: SGD(0.05), LOSSES.BinaryFocalCrossentropy),
    "categorical focal, logits": Case(smooth, lambda: SGD(0.05), lambda: LOSSES.CategoricalFocalCrossentropy(
        from_logits=True, label_smoothing=0.1, gamma=1.5), quick=True),
    "categorical focal": Case(lambda: smooth("softmax"), lambda: SGD(0.05), LOSSES.CategoricalFocalCrossentropy),
    "categorical, smoothed": Case(smooth, lambda: SGD(0.05), lambda: CATEGORICAL(
        from_logits=True, label_smoothing=0.2)),
    "reduction sum": Case(smooth, lambda: SGD(0.005), lambda: CATEGORICAL(from_logits=True, reduction="sum")),
    "sparse, probabilities": Case(lambda: convolutional("softmax"), lambda: SGD(0.05), SPARSE, quick=True),
    "categorical, logits": Case(convolutional, lambda: SGD(0.05), lambda: CATEGORICAL(from_logits=True)),
    "categorical, probabilities": Case(lambda: convolutional("softmax"), lambda: SGD(0.05), CATEGORICAL),
    "squared error": Case(convolutional, lambda: SGD(0.05), keras.losses.MeanSquaredError),
    "squared error, sigmoid": Case(lambda: convolutional("sigmoid"), lambda: SGD(0.5), keras.losses.MeanSquaredError),
    "other layers": Case(other_layers, lambda: SGD(0.2)),
    "BatchNormalization": Case(normalized, lambda: SGD(0.02, momentum=0.9), quick=True),
    "BatchNormalization, Adam": Case(normalized, lambda: Adam(0.002, epsilon=1e-3)),
    "branches": Case(branching, lambda: SGD(0.05), quick=True),
    "branches, Adam": Case(branching, lambda: Adam(0.002, epsilon=1e-3)),
    "maximum and minimum": Case(extremes, lambda: SGD(0.05)),
    "frozen layers": Case(fine_tuned, lambda: SGD(0.02, momentum=0.9), quick=True),
    "frozen layers, Adam": Case(fine_tuned, lambda: Adam(0.002, epsilon=1e-3, global_clipnorm=0.1)),
    "convolutions": Case(convolutions, lambda: SGD(0.05, momentum=0.9), quick=True),
    "3 x 3 convolutions": Case(winograd, lambda: SGD(0.05, momentum=0.9), quick=True),
    "sequences": Case(sequences, lambda: SGD(0.05), quick=True),
    "MobileNet's blocks": Case(mobile, lambda: SGD(0.02, momentum=0.9), quick=True),
    "Xception's blocks": Case(xception, lambda: SGD(0.02, momentum=0.9)),
    "residual blocks": Case(residual, lambda: SGD(0.02, momentum=0.9), quick=True),
}


def prepare(case: Case, folder: Path) -> tuple[keras.Sequential, np.ndarray, np.ndarray]:
    """Returns the compiled model and its data, and writes both to files."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(2)
    model = case.build()
    for weight in weights_in_order(model):
        kind = weight.path.split("/")[-1]
        if kind == "moving_variance":
            weight.assign(random.uniform(0.5, 1.5, weight.shape))
        elif not kind.endswith("kernel"):
            weight.assign((kind == "gamma") + 0.2 * random.normal(size=weight.shape))
    loss = case.loss()
    model.compile(case.optimizer(), loss=loss, metrics=["accuracy"])
    model.optimizer.build(model.trainable_variables)
    inputs = random.normal(size=(EXAMPLES,) + model.input_shape[1:]).astype(np.float32)
    if isinstance(loss, SPARSE):
        targets = random.integers(model.output_shape[1], size=EXAMPLES).astype(np.int32)
    elif isinstance(loss, ONE_HOT):
        targets = np.eye(model.output_shape[1], dtype=np.float32)[random.integers(model.output_shape[1], size=EXAMPLES)]
    else:  # class probabilities, not one-hot
        targets = random.dirichlet(np.ones(model.output_shape[1]), size=EXAMPLES).astype(np.float32)
    np.savez(folder / "data.npz", inputs=inputs, targets=targets)
    model.save(folder / "start.keras")
    return model, inputs, targets


def batches(inputs: np.ndarray, targets: np.ndarray) -> Any:
    for step in range(1, MARKS[-1] + 1):
        chosen = np.arange((step - 1) * BATCH, step * BATCH) % EXAMPLES
        yield step, inputs[chosen], targets[chosen]


def by_keras(model: keras.Sequential, inputs: np.ndarray, targets: np.ndarray) -> Trajectory:
    made = Trajectory()
    made.note(0, model)
    for step, some_inputs, some_targets in batches(inputs, targets):
        made.losses.append(float(model.train_on_batch(some_inputs, some_targets, return_dict=True)["loss"]))
        if step in MARKS:
            made.note(step, model)
    return made


def by_replicas(model: keras.Sequential, inputs: np.ndarray, targets: np.ndarray, replicas: int) -> Trajectory:
    """Like by_keras, but each of `replicas` slices of a batch has its own BatchNormalization statistics."""

    def loss_of(trainable: Any, rest: Any, inputs: Any, targets: Any) -> Any:
        outputs, moved = [], []
        for part in np.array_split(np.arange(len(targets)), replicas):
            output, new = model.stateless_call(trainable, rest, inputs[part], training=True)
            outputs.append(output)
            moved.append(new)
        averages = jax.tree.map(lambda *of_replicas: sum(of_replicas) / replicas, *moved)
        return model.loss(targets, jax.numpy.concatenate(outputs)), averages

    @jax.jit
    def step_of(trainable: Any, rest: Any, state: Any, inputs: Any, targets: Any) -> Any:
        (loss, rest), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, rest, inputs, targets)
        trainable, state = model.optimizer.stateless_apply(state, gradients, trainable)
        return loss, (trainable, rest, state)

    made = Trajectory()
    made.note(0, model)
    variables = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
    state = tuple([np.array(variable) for variable in kind] for kind in variables)
    for step, some_inputs, some_targets in batches(inputs, targets):
        loss, state = step_of(*state, some_inputs, some_targets)
        made.losses.append(float(loss))
        if step in MARKS:
            for variable, value in zip(sum(variables, []), sum(state, [])):
                variable.assign(np.array(value))
            made.note(step, model)
    return made


def by_lockstep(folder: Path, workers: int, replicas: int) -> tuple[Trajectory, dict[int, np.ndarray]]:
    """Returns Lockstep's trajectory and its predictions after each of MARKS."""
    target = folder / f"{workers}-{replicas}"
    target.mkdir()
    command = [program("interop_train_steps"), folder / "start.keras", folder / "data.npz", target, BATCH, replicas]
    if workers > 1:
        command = [MPIRUN, "-np", workers, *command]
    printed = output_of(*command, *MARKS)
    made = Trajectory([float(line) for line in printed.split()])
    for step in MARKS:
        made.note(step, keras.models.load_model(target / f"{step}.keras"))
    return made, {step: np.fromfile(target / f"{step}.f32", np.float32) for step in MARKS}


def relative_to_values(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """The largest error relative to the values, which is only reported."""
    return max(float(np.abs(our - their).max() / np.abs(their).max()) for our, their in zip(ours, theirs, strict=True))


def deviation(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], start: Sequence[np.ndarray]) -> float:
    """The largest deviation of any array, as defined at the top of this file."""
    largest = 0.0
    for our, their, begin in zip(ours, theirs, start, strict=True):
        rounding = float(np.spacing(np.abs(their).max()))
        change = float(np.abs(their - begin).max())
        beyond = max(float(np.abs(our - their).max()) - rounding, 0.0)
        largest = max(largest, beyond / change if beyond > 0 else 0.0)
    return largest


class NumericalParity(Scratch):
    def test_every_optimizer_and_loss_has_a_case(self) -> None:
        losses = {re.sub("(?<!^)(?=[A-Z][a-z])", "_", type(case.loss()).__name__).lower() for case in CASES.values()}
        tried = {"optimizer": {type(case.optimizer()).__name__.lower() for case in CASES.values()}, "loss": losses}
        for option, names in tried.items():
            with self.assertRaises(RuntimeError) as refused:
                output_of(program("lockstep"), "train", f"--{option}", "unknown")
            known = re.search("must be (.+) or ([a-z_]+)", str(refused.exception))
            self.assertEqual({*known.group(1).split(", "), known.group(2)} - names, set())

    def compare(self, folder: Path, model: keras.Sequential, inputs: np.ndarray, workers: int, replicas: int,
                judge: Trajectory) -> None:
        ours, predictions = by_lockstep(folder, workers, replicas)
        self.assertEqual(len(ours.losses), MARKS[-1])
        of_losses = [abs(our - their) / abs(their) for our, their in zip(ours.losses, judge.losses)]
        found, said = [], []
        for step, allowed in LOOSE.items():
            loss = max(of_losses[:step])
            weights = deviation(ours.weights[step], judge.weights[step], judge.weights[0])
            slots = deviation(ours.slots[step], judge.slots[step], judge.slots[0])
            found.append((step, allowed, loss, weights, slots))
            of_values = relative_to_values(ours.weights[step], judge.weights[step])
            said.append(f"step {step}: loss {loss:.1e}, weights {weights:.1e} of their change and {of_values:.1e} of "
                        f"their values, slots {slots:.1e}")
        of_predictions = 0.0
        for step in MARKS:
            for weight, value in zip(weights_in_order(model), ours.weights[step]):
                weight.assign(value)
            theirs = np.asarray(model.predict_on_batch(inputs)).ravel()
            of_predictions = max(of_predictions, np.abs(predictions[step] - theirs).max() / np.abs(theirs).max())
        print(f"{folder.name}; {workers} workers, {replicas} replicas; {'; '.join(said)}; predictions "
              f"{of_predictions:.1e}", flush=True)
        for step, allowed, *deviations in found:
            self.assertLess(max(deviations), allowed, f"after {step} steps")
        self.assertLess(of_predictions, 1e-5)
        for our, their in zip(ours.weights[0], judge.weights[0], strict=True):
            np.testing.assert_array_equal(our, their)  # weights survive loading, layout for the device, and saving

    def test_step_by_step(self) -> None:
        for name, case in CASES.items():
            if options.quick and not case.quick:
                continue
            with self.subTest(name):
                folder = self.folder / name
                folder.mkdir()
                model, inputs, targets = prepare(case, folder)
                variables = model.optimizer.variables + weights_in_order(model)
                start = [np.array(variable) for variable in variables]
                judge = by_keras(model, inputs, targets)
                self.assertLess(np.mean(judge.losses[-10:]), np.mean(judge.losses[:10]), "the loss did not decrease")
                self.compare(folder, model, inputs, 1, 1, judge)
                if any(isinstance(layer, layers.BatchNormalization) for layer in model.layers):
                    for variable, value in zip(variables, start):
                        variable.assign(value)
                    judge = by_replicas(model, inputs, targets, 2)
                    self.compare(folder, model, inputs, 1, 2, judge)
                self.compare(folder, model, inputs, 2, 2, judge)

    def test_the_replica_reference_matches_keras(self) -> None:
        """With one replica it must equal train_on_batch."""
        if options.quick:
            self.skipTest("--quick")
        model, inputs, targets = prepare(CASES["BatchNormalization"], self.folder)
        one = by_replicas(model, inputs, targets, 1)
        model, inputs, targets = prepare(CASES["BatchNormalization"], self.folder)
        other = by_keras(model, inputs, targets)
        np.testing.assert_allclose(one.losses, other.losses, rtol=1e-4)
        for step, allowed in LOOSE.items():
            self.assertLess(deviation(one.weights[step], other.weights[step], other.weights[0]), allowed)


if __name__ == "__main__":
    support.main(__doc__, quick=dict(action="store_true", help="only a few of the cases"))
