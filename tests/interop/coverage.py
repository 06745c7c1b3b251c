"""Counts by real runs which of Keras' layers and functions Lockstep reads, predicts and trains alike, and writes
docs/coverage.md.

    coverage.py BIN_DIR --ledger FILE [--only REGEX] [--write]

One file, because a case is a line of its tables: a class or function that Keras exports, in a model with random
weights. Keras saves the model; Lockstep reads it, predicts with it (within 1e-4 of the largest output) and trains it for three steps (within 1e-3 of what Keras
changes); of a metric it computes the value. Results are appended to the ledger, one JSON object a line; cases that it
holds are not run again, so the command may be interrupted. --write makes docs/coverage.md from the ledger; cases that
it lacks stay as the page has them.
"""

import dataclasses
import inspect
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import support
from support import keras, layers, options, output_of, program
from tutorials import TUTORIALS, data_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "coverage.md"
EXAMPLES, BATCH, STEPS = 32, 16, 3
PREDICTS, TRAINS = 1e-4, 1e-3
OWN_RUNS = 8  # in which Keras' own result may change
NO_CASE = "no case"  # Keras needs another model for it than these cases
BASES = {"InputSpec", "Layer", "Wrapper", "Loss", "Metric", "MeanMetricWrapper", "Optimizer", "OptimizerMap",
         "Initializer", "Constraint"}
# Layers that draw random numbers in training, which no two programs draw alike.
RANDOM = {"Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise", "SpatialDropout1D", "SpatialDropout2D"}
AUGMENTATIONS = {"RandomFlip": (), "RandomTranslation": (0.2, 0.3), "RandomRotation": (0.2,), "RandomZoom": (0.2, 0.1),
                 "RandomContrast": (0.2,), "RandomBrightness": (0.2,)}

IMAGE, SEQUENCE, VECTOR = (8, 8, 4), (8, 4), (6,)


def around(layer: Any, shape: tuple[int, ...] = IMAGE) -> keras.Model:
    """The layer between layers with weights, so that its gradient matters."""
    before = layers.Input(shape)
    first = layers.Conv2D(4, 1, activation="tanh") if len(shape) == 3 else layers.Dense(4, activation="tanh")
    x = first(before)
    return keras.Model(before, layers.Dense(3)(layers.Flatten()(layer(x))))


def merged(merge: Any) -> keras.Model:
    before = layers.Input(IMAGE)
    x, y = layers.Conv2D(4, 1, activation="tanh")(before), layers.Conv2D(4, 1)(before)
    return keras.Model(before, layers.Dense(3)(layers.Flatten()(merge([x, y]))))


def encoded(layer: Any) -> keras.Model:
    """The layer makes vectors of the model's input."""
    before = layers.Input((6,))
    return keras.Model(before, layers.Dense(3)(layers.Flatten()(layer(before))))


def augmented(layer: Any) -> keras.Model:
    before = layers.Input(IMAGE)
    return keras.Model(before, layers.Dense(3)(layers.Flatten()(layers.Conv2D(4, 3)(layer(before)))))


def embedded() -> keras.Model:
    before = layers.Input((6,))
    return keras.Model(before, layers.Dense(3)(layers.Flatten()(layers.Embedding(20, 4)(before))))


MERGES = ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")
SEQUENCES = ("Conv1D", "Conv1DTranspose", "SeparableConv1D", "DepthwiseConv1D", "MaxPooling1D", "AveragePooling1D",
             "GlobalMaxPooling1D", "GlobalAveragePooling1D", "ZeroPadding1D", "Cropping1D", "UpSampling1D",
             "SpatialDropout1D", "LSTM", "GRU", "SimpleRNN")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Activation": dict(activation="tanh"), "CenterCrop": dict(height=4, width=4), "Cropping2D": dict(cropping=1),
    "Dense": dict(units=3), "Dropout": dict(rate=0.5), "AlphaDropout": dict(rate=0.5),
    "GaussianDropout": dict(rate=0.5), "GaussianNoise": dict(stddev=0.5), "SpatialDropout1D": dict(rate=0.5), "SpatialDropout2D": dict(rate=0.5),
    "GroupNormalization": dict(groups=2), "Normalization": dict(mean=[0.1, 0.2, 0.3, 0.4], variance=[1.0, 2.0, 3.0, 4.0]),
    "Permute": dict(dims=(2, 1, 3)), "RepeatVector": dict(n=3), "Rescaling": dict(scale=0.5, offset=0.25),
    "Reshape": dict(target_shape=(4, -1)), "Resizing": dict(height=5, width=6), "ActivityRegularization": dict(l2=0.01),
    "LSTM": dict(units=3), "GRU": dict(units=3), "SimpleRNN": dict(units=3), "AdaptiveAveragePooling2D": dict(output_size=4),
    "AdaptiveMaxPooling2D": dict(output_size=4), "AveragePooling1D": dict(pool_size=2),
    "AveragePooling2D": dict(pool_size=2), "PReLU": dict(alpha_initializer="random_normal"),
}
CONVOLUTIONS = {"Conv1D", "Conv2D", "Conv1DTranspose", "Conv2DTranspose", "SeparableConv1D", "SeparableConv2D"}


def model_of_layer(name: str) -> keras.Model:
    kind = getattr(layers, name)
    if name in MERGES:
        return merged(kind())
    if name == "Dot":
        before = layers.Input(VECTOR)
        return keras.Model(before, layers.Dense(3)(kind(axes=1)([layers.Dense(4)(before), layers.Dense(4)(before)])))
    if name == "Embedding":
        return embedded()
    if name in AUGMENTATIONS:
        return augmented(kind(*AUGMENTATIONS[name]))
    if name == "CategoryEncoding":
        return encoded(kind(20, output_mode="count"))
    if name == "Discretization":
        return encoded(kind([-0.5, 0.1, 0.7], output_mode="one_hot"))
    if name == "InputLayer":
        return keras.Sequential([layers.Input(VECTOR), layers.Dense(3)])
    arguments = ARGUMENTS.get(name, {})
    if name in CONVOLUTIONS:
        arguments = dict(filters=4, kernel_size=3)
    if name in ("DepthwiseConv1D", "DepthwiseConv2D"):
        arguments = dict(kernel_size=3)
    shape = SEQUENCE if name in SEQUENCES else VECTOR if name == "RepeatVector" else IMAGE
    return around(kind(**arguments), shape)


def small(activation: Any = None, **arguments: Any) -> keras.Model:
    return keras.Sequential([layers.Input(VECTOR), layers.Dense(4, activation=activation, **arguments),
                             layers.Dense(3)])


SIZES = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71, "NASNetLarge": 331, "NASNetMobile": 224}


def model_of_application(name: str) -> keras.Model:
    side = SIZES.get(name, 32)
    return getattr(keras.applications, name)(weights=None, input_shape=(side, side, 3), classes=10)


@dataclasses.dataclass
class Case:
    model: keras.Model
    inputs: np.ndarray
    targets: np.ndarray
    optimizer: Any = dataclasses.field(default_factory=lambda: keras.optimizers.SGD(0.02))
    loss: Any = "mse"
    metrics: list[Any] = dataclasses.field(default_factory=list)
    workers: tuple[int, ...] = (1,)


Random = np.random.Generator


def regression(model: keras.Model, random: Random, **more: Any) -> Case:
    inputs = random.normal(size=(EXAMPLES, *model.input_shape[1:])).astype(np.float32)
    return Case(model, inputs, random.uniform(size=(EXAMPLES, *model.output_shape[1:])).astype(np.float32), **more)


def classification(random: Random, **more: Any) -> Case:
    """Of four classes, one-hot, with probabilities."""
    model = keras.Sequential([layers.Input(VECTOR), layers.Dense(4, activation="softmax")])
    return Case(model, random.normal(size=(EXAMPLES, *VECTOR)).astype(np.float32),
                np.eye(4, dtype=np.float32)[random.integers(0, 4, EXAMPLES)], **more)


def case_of_layer(name: str, random: Random) -> Case:
    case = regression(model_of_layer(name), random)
    if name in ("Embedding", "CategoryEncoding"):
        case.inputs = random.integers(0, 20, case.inputs.shape).astype(np.float32)
    if name == "RandomFlip":  # its randomness cannot be turned off, but these images are their own flips
        case.inputs += case.inputs[:, ::-1, ::-1]
    return case


def case_of_activation(name: str, random: Random) -> Case:
    return regression(small(getattr(keras.activations, name)), random, optimizer=keras.optimizers.SGD(0.002))


def case_of_initializer(name: str, random: Random) -> Case:
    arguments = dict(value=0.1) if name == "Constant" else {}
    return regression(small(kernel_initializer=getattr(keras.initializers, name)(**arguments)), random)


def case_of_constraint(name: str, random: Random) -> Case:
    constraint = getattr(keras.constraints, name)
    axis = {} if name == "NonNeg" else {"axis": -1}
    return regression(small("tanh", kernel_constraint=constraint(), bias_constraint=constraint(**axis)), random)


REGRESSIONS = {"CosineSimilarity", "Huber", "LogCosh", "MeanAbsoluteError", "MeanAbsolutePercentageError",
               "MeanSquaredError", "MeanSquaredLogarithmicError"}


def case_of_loss(name: str, random: Random) -> Case:
    loss = getattr(keras.losses, name)()
    if name in REGRESSIONS:
        return regression(small(), random, loss=loss)
    case = classification(random, loss=loss)
    if name.startswith("Sparse"):
        case.targets = case.targets.argmax(axis=1).astype(np.int32)
    return case


METRIC_ARGUMENTS: dict[str, dict[str, Any]] = {
    "MeanIoU": dict(num_classes=4, sparse_y_pred=False), "F1Score": dict(average="macro"),
    "IoU": dict(num_classes=4, target_class_ids=[0, 2], sparse_y_pred=False),
    "FBetaScore": dict(average="macro", beta=2.0),
    "BinaryIoU": dict(threshold=0.3), "OneHotIoU": dict(num_classes=4, target_class_ids=[1]),
    "OneHotMeanIoU": dict(num_classes=4), "PrecisionAtRecall": dict(recall=0.5),
    "RecallAtPrecision": dict(precision=0.5),
    "SensitivityAtSpecificity": dict(specificity=0.5), "SpecificityAtSensitivity": dict(sensitivity=0.5),
}


def case_of_metric(name: str, random: Random) -> Case:
    metric = getattr(keras.metrics, name)(**METRIC_ARGUMENTS.get(name, {}))
    case = classification(random, loss="categorical_crossentropy", metrics=[metric])
    if name.startswith("Sparse") or name in ("IoU", "MeanIoU"):
        case.targets, case.loss = case.targets.argmax(axis=1).astype(np.int32), "sparse_categorical_crossentropy"
    return case


def case_of_optimizer(name: str, random: Random) -> Case:
    return regression(small("tanh"), random, optimizer=getattr(keras.optimizers, name)(learning_rate=0.01))


def case_of_application(name: str, random: Random) -> Case:
    case = regression(model_of_application(name), random, optimizer=keras.optimizers.SGD(0.1), workers=(1, 2))
    if any(isinstance(layer, (layers.Rescaling, layers.Normalization)) for layer in case.model.layers):
        case.inputs = random.uniform(0, 255, case.inputs.shape).astype(np.float32)  # it expects pixels
    # Two workers' BatchNormalization sees the halves of a batch, Keras' the batch. With equal inputs, but other
    # targets, statistics and gradients are the same.
    halves = case.inputs.reshape(-1, BATCH // 2, *case.inputs.shape[1:])
    halves[1::2] = halves[::2]
    return case


def case_of_tutorial(name: str, random: Random) -> Case:
    tutorial = TUTORIALS[name]
    model = tutorial.build()
    inputs, targets = data_of(tutorial, model, EXAMPLES, random)
    return Case(model, inputs, targets, tutorial.optimizer(), tutorial.loss)


def exported(module: Any, wanted: Callable[[Any], bool], without: set[str]) -> list[str]:
    """Public names; of several names of one object the one it calls itself, or the first."""
    named: dict[int, str] = {}
    for name in sorted(dir(module)):
        found = getattr(module, name)
        if name.startswith("_") or name in without or not wanted(found):
            continue
        if id(found) not in named or name == getattr(found, "__name__", None):
            named[id(found)] = name
    return sorted(named.values())


@dataclasses.dataclass
class Kind:
    title: str
    names: list[str]
    case: Callable[[str, Random], Case]
    claims: tuple[str, ...] = ("reads", "predicts", "trains")


def classes(module: Any) -> list[str]:
    return exported(module, inspect.isclass, BASES)


def functions(module: Any) -> list[str]:
    return exported(module, inspect.isfunction, {"get", "serialize", "deserialize"})


KINDS = {
    "layer": Kind("Layers", classes(layers), case_of_layer),
    "activation": Kind("Activation functions", functions(keras.activations), case_of_activation),
    "initializer": Kind("Initializers", classes(keras.initializers), case_of_initializer),
    "constraint": Kind("Constraints", classes(keras.constraints), case_of_constraint),
    "loss": Kind("Losses", classes(keras.losses), case_of_loss),
    "metric": Kind("Metrics", classes(keras.metrics), case_of_metric, ("reads", "evaluates")),
    "optimizer": Kind("Optimizers", classes(keras.optimizers), case_of_optimizer),
    "application": Kind("keras.applications", functions(keras.applications), case_of_application,
                        ("reads", "predicts", "trains", "trains on two workers")),
    "tutorial": Kind("Models of tutorials", sorted(TUTORIALS), case_of_tutorial),
}


def still(model: keras.Model) -> bool:
    """Turns off what is random in training. Returns whether all of it could be."""
    quiet = True
    for layer in model._flatten_layers():
        name = type(layer).__name__
        if name in RANDOM:
            quiet = quiet and hasattr(layer, "rate")
            if hasattr(layer, "rate"):
                layer.rate = 0.0
            if hasattr(layer, "stddev"):
                layer.stddev, quiet = 0.0, True
        if name in AUGMENTATIONS:
            for factor in ("factor", "height_factor", "width_factor"):
                if hasattr(layer, factor):
                    setattr(layer, factor, (0.0, 0.0))
            for bound in ("height_lower", "height_upper", "width_lower", "width_upper"):
                setattr(layer, bound, 0.0)
    return quiet


def randomize(model: keras.Model, random: Random) -> None:
    """Keras' own initial kernels; other weights are drawn, because zeros and ones hide mistakes.

    Normalized values are shifted by about two deviations, so that most units behind them are active. With Keras' shift,
    0, deep networks are chaotic: Keras' own gradient of ResNet50 changes by 2 % when inputs change in their last bits.
    """
    for layer in model._flatten_layers():
        has_scale = any(weight.path.endswith("/gamma") for weight in layer._trainable_variables)
        deviation = 0.5 if has_scale else 1.0
        around = {"gamma": deviation, "beta": 2 * deviation, "bias": 0.0, "moving_mean": 0.0, "mean": 0.0}
        for weight in layer._trainable_variables + layer._non_trainable_variables:
            kind = weight.path.split("/")[-1]
            if kind in ("moving_variance", "variance"):
                weight.assign(random.uniform(0.5, 1.5, weight.shape))
            elif kind in around:
                weight.assign(around[kind] + 0.1 * random.normal(size=weight.shape))
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()  # a Normalization keeps what it computed from its weights


def relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return float("inf")
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30))


def run(kind: str, name: str, folder: Path) -> dict[str, Any]:
    """One case. What fails is noted by its message."""
    result: dict[str, Any] = {"kind": kind, "name": name} | {claim: False for claim in KINDS[kind].claims}
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(2)
    try:
        case = KINDS[kind].case(name, random)
        randomize(case.model, random)
        case.model.compile(case.optimizer, loss=case.loss, metrics=case.metrics)
        expected = np.asarray(case.model.predict(case.inputs, verbose=0)).ravel()
    except Exception as error:  # Keras cannot build it as these cases do
        return result | {"note": f"{NO_CASE}: {str(error).strip().splitlines()[0][:120]}"}
    np.savez(folder / "data.npz", inputs=case.inputs, targets=case.targets)
    start = folder / "start.keras"
    case.model.save(start)
    try:
        output_of(program("interop_read_model"), start)
        result["reads"] = True
        if case.metrics:
            return result | evaluate(case, folder)
        output_of(program("interop_train_steps"), start, folder / "data.npz", folder, BATCH, 1, 0)
        result["prediction"] = relative(np.fromfile(folder / "0.f32", np.float32), expected)
        result["predicts"] = result["prediction"] < PREDICTS
        if not still(case.model):
            return result | {"note": "random in training"}
        case.model.save(start)
        train(case, folder, result)
    except RuntimeError as error:
        result["note"] = str(error).splitlines()[0].split(" ended with ", 1)[-1][:200]
    return result


def evaluate(case: Case, folder: Path) -> dict[str, Any]:
    expected = case.model.evaluate(case.inputs, case.targets, verbose=0, return_dict=True)
    np.savez(folder / "data.npz", x_test=case.inputs, y_test=case.targets)
    lines = output_of(program("lockstep"), "evaluate", "--model", folder / "start.keras", "--data-dir",
                      folder / "data.npz", "--verbose", 0).splitlines()
    found = {key: float(value) for key, value in (line.split(": ") for line in lines)}
    return {"evaluates": found.keys() == expected.keys() and all(
        abs(found[key] - value) <= PREDICTS * max(1, abs(value)) for key, value in expected.items())}


def train_in_keras(case: Case, inputs: np.ndarray) -> None:
    for step in range(STEPS):
        chosen = np.arange(step * BATCH, (step + 1) * BATCH) % EXAMPLES
        case.model.train_on_batch(inputs[chosen], case.targets[chosen])


def shaken(values: Any, random: Random) -> np.ndarray:
    """Other numbers in the last bits of these."""
    values = np.array(values)
    if not np.issubdtype(values.dtype, np.floating):
        return values  # a layer's seed
    return (values * (1 + 1e-7 * random.normal(size=values.shape))).astype(values.dtype)


def own_change(case: Case, before: list[np.ndarray], enough: float) -> float:
    """How much Keras' own result changes when inputs and weights change in their last bits: a unit of a ReLU, or another
    element of a pooling's window, may turn active. The largest of several runs, because a tie that rounding decides
    turns only in some of them. Trains the model again, until a change is `enough`."""
    usual = [np.array(weight) for weight in case.model.weights]
    largest = 0.0
    for seed in range(OWN_RUNS):
        if largest >= enough:
            break
        random = np.random.default_rng(seed)
        start = [shaken(value, random) for value in before]
        for weight, value in zip(case.model.weights, start, strict=True):
            weight.assign(value)
        train_in_keras(case, shaken(case.inputs, random))
        found = [np.array(weight, np.float64) - value + begin
                 for weight, value, begin in zip(case.model.weights, start, before, strict=True)]
        for weight, value in zip(case.model.weights, usual, strict=True):
            weight.assign(value)
        largest = max(largest, *(difference(found, case.model.weights, before, trained) for trained in (True, False)))
    return largest


def train(case: Case, folder: Path, result: dict[str, Any]) -> None:
    model = case.model
    before = [np.array(weight) for weight in model.weights]
    train_in_keras(case, case.inputs)
    for workers in case.workers:
        launcher = (ROOT / "scripts" / "mpirun.sh", "-np", workers) if workers > 1 else ()
        output_of(*launcher, program("interop_train_steps"), folder / "start.keras", folder / "data.npz", folder, BATCH,
                  workers, STEPS)
        ours = keras.models.load_model(folder / f"{STEPS}.keras", compile=False)
        found = max(difference(ours.weights, model.weights, before, trained) for trained in (True, False))
        suffix = "" if workers == 1 else " on two workers"
        result |= {"training" + suffix: found, "trains" + suffix: found < TRAINS}
    largest = max(value for claim, value in result.items() if claim.startswith("training"))
    if largest >= TRAINS:
        result["own change"] = own_change(case, before, largest)


def difference(ours: list[Any], theirs: list[Any], before: list[np.ndarray], trained: bool) -> float:
    """The length of what differs between our and Keras' trained weights, or moving averages, relative to the length of
    what training changed. One rounding of each weight does not count."""
    differs = change = 0.0
    for our, their, begin in zip(map(np.array, ours), theirs, before, strict=True):
        if their.trainable == trained:
            their = np.array(their)
            differs += float((np.maximum(np.abs(our - their) - np.spacing(np.abs(their)), 0) ** 2).sum())
            change += float(((their - begin) ** 2).sum())
    return float(np.sqrt(differs / change)) if change > 0 else float(differs > 0)


def read_ledger(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The last result of each case."""
    lines = file.read_text().splitlines() if file.exists() else []
    results = [json.loads(line) for line in lines if line.strip()]
    return {(result["kind"], result["name"]): result for result in results}


def run_missing(ledger: Path, only: str) -> None:
    import tempfile

    known = read_ledger(ledger)
    for kind, about in KINDS.items():
        for name in about.names:
            if (kind, name) in known or not re.search(only, f"{kind} {name}"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    result = run(kind, name, Path(folder))
                except Exception as error:
                    traceback.print_exc()
                    result = {"kind": kind, "name": name, "note": f"failed: {error}"[:200]}
            with ledger.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(json.dumps(result), flush=True)


def read_page() -> dict[tuple[str, str], dict[str, Any]]:
    """What the page says of each case: the cells of its row, or that it is refused or has no case."""
    results: dict[tuple[str, str], dict[str, Any]] = {}
    for kind, about in KINDS.items():
        _, _, rest = PAGE.read_text().partition(f"## {about.title}\n")
        section = rest.split("\n## ")[0]
        for name, cells in re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.MULTILINE):
            words = (word.strip() for word in cells.split("|"))
            results[kind, name] = dict(zip(about.claims, words, strict=True))
        for word, note in (("Refused", "refused"), ("Not tried", NO_CASE)):
            for line in re.findall(rf"^{word}: .+$", section, re.MULTILINE):
                results |= {(kind, name): {"note": note} for name in re.findall(r"`([^`]+)`", line)}
    return results


def cell(result: dict[str, Any], claim: str) -> str:
    """Of the page's tables. What Keras' own result changes by is no difference."""
    if isinstance(result.get(claim), str):
        return str(result[claim])  # as the page has it
    if result.get(claim):
        return "yes"
    found = result.get(claim.replace("trains", "training").replace("predicts", "prediction"))
    if found is None:
        return "–"
    alike = claim.startswith("trains") and found < 2 * result.get("own change", 0)
    return "yes¹" if alike else f"{found:.1g}"


def families(names: Iterable[str]) -> set[str]:
    """Constructors of one module of Keras are a family."""
    return {getattr(keras.applications, name).__module__ for name in names}


def write_page(results: dict[tuple[str, str], dict[str, Any]]) -> None:
    text = ["# Keras features that run natively", "",
            "Written by `tests/interop/coverage.py`; do not edit. Each *yes* is a run beside Keras "
            f"{keras.__version__}: Lockstep reads the model that Keras saved, predicts within {PREDICTS:g} of the "
            f"largest output, and trains {STEPS} steps within {TRAINS:g} of the change that Keras makes, of trained "
            "weights and of moving averages; one rounding of each weight does not count. A metric's value is within "
            f"{PREDICTS:g}, relative where it exceeds 1. Layers that are random in training are compared with their "
            "randomness off, and RandomFlip on images that are their own flips. On two workers both halves of a batch "
            "have equal inputs, because each worker's BatchNormalization sees its half. Each layer or function was run "
            "with one set of options. *yes¹*: the difference exceeds that limit, but is at most twice the largest change "
            f"of Keras' own result in {OWN_RUNS} runs whose inputs and weights differ in their last bits. A number is a "
            "difference that is larger. –: refused, or not compared.",
            ""]
    for kind, about in KINDS.items():
        of_kind = {name: results[kind, name] for name in about.names if (kind, name) in results}
        passed = {claim: [name for name, result in of_kind.items() if cell(result, claim).startswith("yes")]
                  for claim in about.claims}
        counts = ", ".join(f"{len(names)} {claim}" for claim, names in passed.items())
        missing = [name for name, result in of_kind.items() if not result.get("reads")]
        untried = [name for name in missing if of_kind[name].get("note", "").startswith(NO_CASE)]
        refused = [name for name in missing if name not in untried]
        not_run = [name for name in about.names if name not in of_kind]
        text += [f"## {about.title}", "", f"Of {len(about.names)}: {counts}; {len(refused)} refused, "
                 f"{len(untried) + len(not_run)} not tried."]
        if kind == "initializer":
            text[-1] += " The weights come from the file, so *yes* says only that the initializer's name is read."
        if kind == "application":
            alike = set.intersection(*(set(names) for names in passed.values()))
            strictly = {name for name in alike if all(cell(of_kind[name], claim) == "yes" for claim in about.claims)}
            text += ["", f"Of {len(families(about.names))} families, {len(families(strictly))} have a constructor with "
                     f"*yes* everywhere, and {len(families(alike))} one with *yes* or *yes¹*."]
        text += ["", "| | " + " | ".join(about.claims) + " |", "| --- " * (len(about.claims) + 1) + "|"]
        text += [f"| `{name}` | " + " | ".join(cell(result, claim) for claim in about.claims) + " |"
                 for name, result in of_kind.items() if result.get("reads")]
        for word, listed in (("Refused", refused), ("Not tried", [*untried, *not_run])):
            if listed:
                text += ["", f"{word}: " + ", ".join(f"`{name}`" for name in listed) + "."]
        text.append("")
    PAGE.write_text("\n".join(text))


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", metavar="BIN_DIR", type=Path, help="the folder of Lockstep's programs")
    parser.add_argument("--ledger", type=Path, required=True, help="results of cases, one a line")
    parser.add_argument("--only", default="", help="run cases whose kind and name match this expression")
    parser.add_argument("--write", action="store_true", help="write docs/coverage.md")
    parser.parse_args(namespace=options)
    run_missing(options.ledger, options.only)
    if options.write:
        write_page(read_page() | read_ledger(options.ledger))


if __name__ == "__main__":
    sys.exit(main())
