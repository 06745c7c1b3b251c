"""Counts by real runs which of Keras' layers and functions Lockstep reads, predicts and trains alike, and writes
docs/coverage.md.

    coverage.py BIN_DIR --ledger FILE [--only REGEX] [--write]

A case is a layer, an activation function or a constructor of keras.applications: a model with random weights that
Keras saves, and that Lockstep reads, predicts with (within 1e-4 of the largest output) and trains for three steps
(within 1e-3 of what Keras changes). Results are appended to the ledger, one JSON object a line; cases that it holds are
not run again, so the command may be interrupted. --write makes docs/coverage.md from the ledger.
"""

import inspect
import json
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import support
from support import keras, layers, options, output_of, program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
EXAMPLES, BATCH, STEPS = 8, 4, 3
PREDICTS, TRAINS = 1e-4, 1e-3
NO_LAYERS = {"InputSpec", "Layer", "Wrapper"}
"""Layers that draw random numbers in training, which no two programs draw alike."""
RANDOM = {"Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise", "SpatialDropout1D", "SpatialDropout2D"}

IMAGE, SEQUENCE, VECTOR = (8, 8, 4), (8, 4), (6,)


def around(layer: Any, shape: tuple[int, ...] = IMAGE) -> keras.Model:
    """The layer between layers with weights, so that its gradient matters."""
    before = layers.Input(shape)
    x = layers.Conv2D(4, 1, activation="tanh")(before) if len(shape) == 3 else layers.Dense(4, activation="tanh")(before)
    return keras.Model(before, layers.Dense(3)(layers.Flatten()(layer(x))))


def merged(merge: Any) -> keras.Model:
    before = layers.Input(IMAGE)
    x, y = layers.Conv2D(4, 1, activation="tanh")(before), layers.Conv2D(4, 1)(before)
    return keras.Model(before, layers.Dense(3)(layers.Flatten()(merge([x, y]))))


def embedded() -> keras.Model:
    before = layers.Input((6,))
    return keras.Model(before, layers.Dense(3)(layers.Flatten()(layers.Embedding(20, 4)(before))))


MERGES = ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")
SEQUENCES = ("Conv1D", "Conv1DTranspose", "SeparableConv1D", "DepthwiseConv1D", "MaxPooling1D", "AveragePooling1D",
             "GlobalMaxPooling1D", "GlobalAveragePooling1D", "ZeroPadding1D", "Cropping1D", "UpSampling1D",
             "SpatialDropout1D", "LSTM", "GRU", "SimpleRNN")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Activation": dict(activation="tanh"), "CenterCrop": dict(height=4, width=4), "Cropping2D": dict(cropping=1),
    "Dense": dict(units=3), "Dropout": dict(rate=0.5), "AlphaDropout": dict(rate=0.5), "GaussianDropout": dict(rate=0.5),
    "GaussianNoise": dict(stddev=0.5), "SpatialDropout1D": dict(rate=0.5), "SpatialDropout2D": dict(rate=0.5),
    "GroupNormalization": dict(groups=2), "Normalization": dict(mean=[0.1, 0.2, 0.3, 0.4], variance=[1.0, 2.0, 3.0, 4.0]),
    "Permute": dict(dims=(2, 1, 3)), "RepeatVector": dict(n=3), "Rescaling": dict(scale=0.5, offset=0.25),
    "Reshape": dict(target_shape=(4, -1)), "Resizing": dict(height=5, width=6), "ActivityRegularization": dict(l2=0.01),
    "LSTM": dict(units=3), "GRU": dict(units=3), "SimpleRNN": dict(units=3), "AdaptiveAveragePooling2D": dict(output_size=4),
    "AdaptiveMaxPooling2D": dict(output_size=4), "PReLU": dict(alpha_initializer="random_normal"),
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
    if name == "InputLayer":
        return keras.Sequential([layers.Input(VECTOR), layers.Dense(3)])
    arguments = ARGUMENTS.get(name, {})
    if name in CONVOLUTIONS:
        arguments = dict(filters=4, kernel_size=3)
    if name in ("DepthwiseConv1D", "DepthwiseConv2D"):
        arguments = dict(kernel_size=3)
    shape = SEQUENCE if name in SEQUENCES else VECTOR if name == "RepeatVector" else IMAGE
    return around(kind(**arguments), shape)


def model_of_activation(name: str) -> keras.Model:
    return keras.Sequential([layers.Input(VECTOR), layers.Dense(4, activation=getattr(keras.activations, name)),
                             layers.Dense(3)])


SIZES = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71, "NASNetLarge": 331, "NASNetMobile": 224}


def model_of_application(name: str) -> keras.Model:
    side = SIZES.get(name, 32)
    return getattr(keras.applications, name)(weights=None, input_shape=(side, side, 3), classes=10)


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


KINDS: dict[str, tuple[str, list[str], Callable[[str], keras.Model]]] = {
    "layer": ("Layers", exported(layers, inspect.isclass, NO_LAYERS), model_of_layer),
    "activation": ("Activation functions",
                   exported(keras.activations, inspect.isfunction, {"get", "serialize", "deserialize"}),
                   model_of_activation),
    "application": ("keras.applications", exported(keras.applications, inspect.isfunction, set()), model_of_application),
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
    return quiet


def randomize(model: keras.Model, random: np.random.Generator) -> None:
    """Keras' own initial kernels; other weights are drawn, because zeros and ones hide mistakes."""
    for weight in model.weights:
        kind = weight.path.split("/")[-1]
        if kind in ("moving_variance", "variance"):
            weight.assign(random.uniform(0.5, 1.5, weight.shape))
        elif kind in ("gamma", "beta", "bias", "moving_mean", "mean"):
            weight.assign((kind == "gamma") + 0.1 * random.normal(size=weight.shape))


def relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return float("inf")
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30))


def run(kind: str, name: str, folder: Path) -> dict[str, Any]:
    """One case. What fails is noted by its message."""
    result: dict[str, Any] = {"kind": kind, "name": name, "reads": False, "predicts": False, "trains": False}
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(2)
    try:
        model = KINDS[kind][2](name)
        randomize(model, random)
    except Exception as error:  # Keras cannot build it as these cases do
        return result | {"note": f"no case: {str(error).strip().splitlines()[0][:120]}"}
    shape = (EXAMPLES, *model.input_shape[1:])
    inputs = random.integers(0, 20, shape).astype(np.float32) if name == "Embedding" else random.normal(
        size=shape).astype(np.float32) * (100 if kind == "application" else 1)
    targets = random.uniform(size=(EXAMPLES, *model.output_shape[1:])).astype(np.float32)
    np.savez(folder / "data.npz", inputs=inputs, targets=targets)
    expected = np.asarray(model.predict(inputs, verbose=0)).ravel()
    model.compile(keras.optimizers.SGD(0.02), loss="mse")
    start = folder / "start.keras"
    model.save(start)
    try:
        output_of(program("interop_read_model"), start)
        result["reads"] = True
        output_of(program("interop_train_steps"), start, folder / "data.npz", folder, BATCH, 1, 0)
        result["prediction"] = relative(np.fromfile(folder / "0.f32", np.float32), expected)
        result["predicts"] = result["prediction"] < PREDICTS
        if not still(model):
            return result | {"note": "random in training"}
        model.save(start)
        output_of(program("interop_train_steps"), start, folder / "data.npz", folder, BATCH, 1, STEPS)
        result |= train(model, inputs, targets, folder)
    except RuntimeError as error:
        result["note"] = str(error).splitlines()[-1].split(": ", 3)[-1][:200]
    return result


def train(model: keras.Model, inputs: np.ndarray, targets: np.ndarray, folder: Path) -> dict[str, Any]:
    before = [np.array(weight) for weight in model.weights]
    for step in range(STEPS):
        chosen = np.arange(step * BATCH, (step + 1) * BATCH) % EXAMPLES
        model.train_on_batch(inputs[chosen], targets[chosen])
    ours = keras.models.load_model(folder / f"{STEPS}.keras", compile=False)
    difference = change = 0.0
    for our, their, begin in zip(ours.weights, model.weights, before, strict=True):
        rounding = np.spacing(np.abs(np.array(their, np.float32)))
        difference += float((np.maximum(np.abs(np.array(our) - np.array(their)) - rounding, 0) ** 2).sum())
        change += float(((np.array(their) - begin) ** 2).sum())
    found = float(np.sqrt(difference / change)) if change > 0 else float(difference > 0)
    return {"training": found, "trains": found < TRAINS}


def read_ledger(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The last result of each case."""
    lines = file.read_text().splitlines() if file.exists() else []
    results = [json.loads(line) for line in lines if line.strip()]
    return {(result["kind"], result["name"]): result for result in results}


def run_missing(ledger: Path, only: str) -> None:
    import tempfile

    known = read_ledger(ledger)
    for kind, (_, names, _) in KINDS.items():
        for name in names:
            if (kind, name) in known or not re.search(only, f"{kind} {name}"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    result = run(kind, name, Path(folder))
                except Exception as error:
                    traceback.print_exc()
                    result = {"kind": kind, "name": name, "reads": False, "predicts": False, "trains": False,
                              "note": f"failed: {error}"[:200]}
            with ledger.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(json.dumps(result), flush=True)


def mark(result: dict[str, Any], key: str) -> str:
    return "yes" if result.get(key) else "–"


def write_page(results: dict[tuple[str, str], dict[str, Any]]) -> None:
    text = ["# Keras features that run natively", "",
            "Written by `tests/interop/coverage.py`; do not edit. Each *yes* is a run beside Keras "
            f"{keras.__version__}: Lockstep reads the model that Keras saved, predicts within {PREDICTS:g} of the "
            f"largest output, and trains {STEPS} steps within {TRAINS:g} of the change that Keras makes. Layers that are "
            "random in training are compared with their randomness off.", ""]
    for kind, (title, names, _) in KINDS.items():
        of_kind = {name: results[kind, name] for name in names if (kind, name) in results}
        counts = [sum(bool(result.get(key)) for result in of_kind.values()) for key in ("reads", "predicts", "trains")]
        text += [f"## {title}", "", f"Of {len(names)}: {counts[0]} read, {counts[1]} predicted alike, {counts[2]} "
                 f"trained alike; {len(names) - len(of_kind)} not run.", "",
                 "| | reads | predicts | trains |", "| --- | --- | --- | --- |"]
        for name, result in of_kind.items():
            if result["reads"]:
                text.append(f"| `{name}` | " + " | ".join(mark(result, key) for key in ("reads", "predicts", "trains"))
                            + " |")
        missing = [name for name, result in of_kind.items() if not result["reads"]]
        if missing:
            text += ["", "Refused: " + ", ".join(f"`{name}`" for name in missing) + "."]
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
        write_page(read_ledger(options.ledger))


if __name__ == "__main__":
    sys.exit(main())
