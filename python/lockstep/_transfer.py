"""How a caller's compiled Keras model reaches workers: as Keras' own file, or by value with cloudpickle.

Keras' file takes models whose classes and functions a worker can import. Classes of a notebook, of ``__main__`` or
of a function, lambdas, and models whose constructor takes other models go by value.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import pickle
import re
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from lockstep._native import UsageError
from lockstep._state import to_array

# What Keras made for this process, and makes anew in another.
_NOT_SENT = (
    "_jax_state", "_optimizer", "_torch_params", "history", "optimizer", "predict_function", "test_function",
    "train_function",
)  # fmt: skip
# Of a Keras variable, apart from its value.
_VARIABLE_STATE = (
    "_aggregation", "_autocast", "_constraint", "_overwrite_with_gradient", "_path", "_regularizer", "_synchronization",
    "_trainable",
)  # fmt: skip
# The attributes in which Keras' layers keep functions.
_FUNCTION_ATTRIBUTE = re.compile(r"(^|_)(activation|constraint|regularizer)$")  # the file has the initial weights
_ACTIVATION_ATTRIBUTE = re.compile(r"(^|_)activation$")
_OF_VARIABLES = ("regularizer", "constraint")  # what a layer names, and its variables hold
# Keras wraps these methods of each layer; `loss` is the caller's argument, although TensorFlow has such a method.
_SET_BY_KERAS = ("build", "loss", "quantize")
_PREDICTING_METHODS = ("call", "predict_step")


def dump(model: Any) -> bytes:
    """Return a compiled model, without what training changes, for `load` in another process."""
    archive, problem = _by_keras(model)
    if archive is not None:
        return pickle.dumps({"archive": archive})
    if not _has_module("cloudpickle"):
        raise UsageError(
            f"the workers cannot make this model anew from Keras' file: {problem}; install cloudpickle, which sends "
            "classes by value (pip install cloudpickle), or move the classes to a module, with get_config"
        )
    try:
        return _by_value(model)
    except Exception as error:
        raise UsageError(
            f"the model reaches the workers neither by Keras' file ({problem}) nor by cloudpickle "
            f"({type(error).__name__}: {error}); move its classes to a module, with get_config"
        ) from error


def load(data: bytes) -> Any:
    """Return the compiled model that `dump` got."""
    sent = pickle.loads(data)
    if "archive" not in sent:
        model = sent["model"]
        for layer in model._flatten_layers():
            tracker = layer._tracker  # it knows objects by their ids, which are others here
            tracker.stored_ids = {name: set(map(id, _values(held))) for name, (_, held) in tracker.config.items()}
        model.optimizer = sent["optimizer"]
        return model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        path.write_bytes(sent["archive"])
        return _load_file(path)


def save(model: Any, path: Path | str) -> None:
    """Save a model with the optimizer that it has now: Keras' file has the one that `compile` was given."""
    config = getattr(getattr(model, "_compile_config", None), "config", {})
    given = config.get("optimizer")
    if given is not None and given is not inner_optimizer(model.optimizer):
        config["optimizer"] = model.optimizer
    try:
        model.save(path)
    finally:
        if given is not None:
            config["optimizer"] = given


def inner_optimizer(optimizer: Any) -> Any:
    """Return the optimizer in a LossScaleOptimizer; any other is its own."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def replaced_in_file(model: Any, trains: bool = True) -> str | None:
    """Return which function of a layer is the caller's own. Keras' file has its name only, which may be one of Keras'.

    Registered functions are no exception: the workers have not registered them. Of methods that were replaced on a
    layer's object the file has nothing. Without `trains`, only functions that change a prediction count.
    """
    pattern = _FUNCTION_ATTRIBUTE if trains else _ACTIVATION_ATTRIBUTE
    for layer in model._flatten_layers():
        method = replaced_method(layer)
        if method is not None and (trains or method in _PREDICTING_METHODS):
            return f"Keras' file does not hold the {method} that was set on {layer.name}"
        for attribute, value in vars(layer).items():
            if pattern.search(attribute) and _is_own_function(value):
                return f"Keras' file does not hold your {attribute.lstrip('_')} {value.__name__} of layer {layer.name}"
    return None


def replaced_method(item: Any) -> str | None:
    """Return which method of an object's class was replaced on the object."""
    attributes: dict[str, Any] = vars(item)
    for name, value in attributes.items():
        if name not in _SET_BY_KERAS and callable(value) and callable(getattr(type(item), name, None)):
            return name
    return None


def lost_in_file(model: Any, trains: bool = True) -> str | None:
    """Return what of a compiled model Keras' file does not hold, although it changes the result.

    Without `trains`, only what changes an evaluation counts.
    """
    lost = replaced_in_file(model) or _lost_of_variables(model, trains)
    if lost is not None:
        return lost
    metrics = getattr(model, "_compile_metrics", None)
    given = [getattr(metrics, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    objects = [each for each in keras.tree.flatten(given) if isinstance(each, keras.metrics.Metric)]
    shared = next((each for i, each in enumerate(objects) if any(each is other for other in objects[:i])), None)
    if shared is not None:  # one state, which each place updates
        return f"Keras' file does not hold that the metric {shared.name} is one object in two places"
    compiled = [("loss", getattr(model, "loss", None)), *(("metric", tree) for tree in given)]
    for kind, each in ((kind, each) for kind, tree in compiled for each in keras.tree.flatten(tree)):
        method = None if each is None or isinstance(each, str) or inspect.isroutine(each) else replaced_method(each)
        if method is not None:
            return f"Keras' file does not hold the {method} that was set on the {kind} {type(each).__name__}"
        function = getattr(each, "fn", getattr(each, "_fn", each))
        if _is_own_function(function) and (function is each or _is_of_keras(type(each))):
            return f"Keras' file does not hold your {kind} {function.__name__}"
        option = _lost_option(each) if isinstance(each, (keras.losses.Loss, keras.metrics.Metric)) else None
        if option is not None:
            return f"Keras' file does not hold the {option} of {type(each).__name__}"
    return None


def _lost_option(item: Any) -> str | None:
    """Return an option that a loss or metric computes with, and one that is made from its config does not.

    For example, `thresholds` that were set on a Precision: its config has those that it was made with.
    """
    if not _is_of_keras(type(item)):
        return None
    try:
        made = vars(type(item).from_config(item.get_config()))
    except Exception:  # Keras says in many ways what it cannot make
        return "options"
    for name, value in vars(item).items():
        if name == "_built" or not _is_plain(value):  # state, such as variables
            continue
        other = made.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            different = next((key for key in value if repr(other.get(key)) != repr(value[key])), None)
            if different is not None:
                return str(different)
        elif repr(other) != repr(value):
            return str(name).lstrip("_")
    return None


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple, dict)):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, (bool, int, float, str, np.generic, np.ndarray))


def describe_variables(model: Any) -> list[dict[str, Any]]:
    """Return how training treats each weight of a model: what the variables say, whatever their layers say."""
    trainable = {id(each) for each in model.trainable_variables}

    def describe(variable: Any) -> dict[str, Any]:
        if id(variable) not in trainable:
            return {"trainable": False}
        return {"trainable": True} | {name: _describe(getattr(variable, name, None)) for name in _OF_VARIABLES}

    return [describe(variable) for variable in model.weights]


def _describe(value: Any) -> Any:
    """Return a regularizer or constraint as what is equal for equal ones."""
    if value is None:
        return None
    try:
        return [type(value).__module__, type(value).__qualname__, value.get_config()]
    except Exception:  # a function, or a class of the user's own, which need not have one
        return [str(getattr(value, "__module__", "")), getattr(value, "__qualname__", type(value).__qualname__)]


def _lost_of_variables(model: Any, trains: bool) -> str | None:
    """Return how a variable differs from its layer, which Keras' file describes."""
    doubted = _doubted_variable(model)
    if doubted is None:
        return None
    compared = ("trainable", *_OF_VARIABLES) if trains else ("regularizer",)
    try:
        saved = keras.saving.serialize_keras_object(model)
        made = describe_variables(keras.saving.deserialize_keras_object(saved, safe_mode=False))
        differing = [
            (variable, what)
            for variable, own, other in zip(model.weights, describe_variables(model), made, strict=True)
            for what in compared
            if own.get(what) != other.get(what)
        ]
    except Exception:  # Keras says in many ways what it cannot save or load
        differing = [doubted]
    if not differing:
        return None
    variable, what = differing[0]
    said = f"trainable={variable.trainable}" if what == "trainable" else f"the {what}"
    return f"Keras' file does not hold {said} of the variable {variable.path}"


def _doubted_variable(model: Any) -> tuple[Any, str] | None:
    """Return a variable that seems not to be as its layer says, and in what. Keras' file tells for sure, but slowly."""
    for layer in model._flatten_layers():
        for variable in layer.weights if layer._layers else layer._trainable_variables:
            is_own = any(variable is each for each in layer._trainable_variables)
            if variable.trainable != layer.trainable and (is_own or variable.trainable):
                return variable, "trainable"
        own = [*layer._trainable_variables, *layer._non_trainable_variables]
        wrong = next((each for each in layer._non_trainable_variables if each.trainable), None)
        if wrong is not None:
            return wrong, "trainable"
        for what in _OF_VARIABLES:
            said = {name: value for name, value in vars(layer).items() if name.endswith(f"_{what}") and value}
            for variable in own:
                if said.pop(f"{variable.name}_{what}", None) is not getattr(variable, what, None):
                    return variable, what
            said.pop(f"activity_{what}", None)
            if said and own:
                return own[0], what
    return None


def _is_own_function(value: Any) -> bool:
    """Return whether a value is a function of the caller's, or of another library: no class, and no object of one."""
    return callable(value) and hasattr(value, "__name__") and not inspect.isclass(value) and not _is_of_keras(value)


def _is_of_keras(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).split(".")[0] == "keras"


def _values(held: Any) -> Any:
    return held.values() if isinstance(held, dict) else held


def _load_file(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        _import_modules(json.loads(archive.read("config.json")))
    return keras.models.load_model(path, safe_mode=False)  # it is the caller's own


def _import_modules(config: Any) -> None:
    """Import the modules that register classes: Keras looks for a registered class where it is registered."""
    if isinstance(config, dict):
        name = config.get("module")
        if isinstance(name, str) and name.split(".")[0] not in ("builtins", "keras"):
            with contextlib.suppress(Exception):  # Keras says which class it misses
                importlib.import_module(name)
    if isinstance(config, (dict, list)):
        for each in config.values() if isinstance(config, dict) else config:
            _import_modules(each)


def _by_keras(model: Any) -> tuple[bytes | None, str]:
    """Return Keras' file of a model, or why a worker could not read it."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.keras"
        lost = lost_in_file(model)
        if lost is not None:
            return None, lost
        try:
            save(model, path)
            with zipfile.ZipFile(path) as archive:
                config = json.loads(archive.read("config.json"))
            problem = _not_importable(config)
            if problem is None:
                _load_file(path)
                return path.read_bytes(), ""
        except Exception as error:  # Keras says in many ways what it cannot save or load
            problem = str(error).strip().split("\n", 1)[0] or type(error).__name__
        return None, problem


def _not_importable(config: Any) -> str | None:
    """Return what in a Keras configuration another process cannot find."""
    if isinstance(config, list):
        return next(filter(None, map(_not_importable, config)), None)
    if not isinstance(config, dict):
        return None
    name, module = config.get("class_name"), config.get("module")
    if name in ("__lambda__", "Lambda"):
        return "a lambda loses the names that it uses"
    if isinstance(name, str) and module is None and isinstance(config.get("registered_name"), str):
        return f"the class {name} is registered with Keras in this process only"
    if isinstance(name, str) and isinstance(module, str):
        if name == "function":
            registered = str(config.get("registered_name"))
            if registered != "function":
                return f"the function {config.get('config')} is not one of Keras'"
        elif module.split(".")[0] not in ("keras", "builtins"):
            if module == "__main__" or not _has_module(module):
                return f"the class {name} is in {module}, which workers cannot import"
            if not hasattr(importlib.import_module(module), name):
                return f"the class {name} is not at the top of {module}"
    return next(filter(None, map(_not_importable, config.values())), None)


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _by_value(model: Any) -> bytes:
    import cloudpickle
    from keras.src.saving.keras_saveable import KerasSaveable
    from keras.src.utils import tracking

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, item: Any) -> Any:
            if isinstance(item, keras.Variable):
                state = {name: getattr(item, name) for name in _VARIABLE_STATE if hasattr(item, name)}
                return _make_variable, (to_array(item), item.name, str(item.dtype), state)
            if isinstance(item, keras.optimizers.Optimizer):
                return type(item).from_config, (item.get_config(),)
            if isinstance(item, KerasSaveable):
                state = {name: value for name, value in vars(item).items() if _is_sent(name)}
                return _make_bare, (type(item),), state, None, None, _set_state
            if isinstance(item, (tracking.TrackedList, tracking.TrackedDict, tracking.TrackedSet)):
                plain = next(each for each in (list, dict, set) if isinstance(item, each))
                return _make_bare, (type(item),), (plain(item), vars(item)), None, None, _fill
            return super().reducer_override(item)

    buffer = io.BytesIO()
    Pickler(buffer).dump({"model": model, "optimizer": getattr(model, "optimizer", None)})
    return buffer.getvalue()


def _is_sent(attribute: str) -> bool:
    """Return whether workers need an attribute. TensorFlow's hold what its checkpoints would: functions."""
    return attribute not in _NOT_SENT and not attribute.startswith("_self_")


def _make_bare(kind: Any) -> Any:
    return kind.__new__(kind)


def _set_state(item: Any, state: dict[str, Any]) -> None:
    vars(item).update(state)
    for name in ("predict_function", "test_function", "train_function"):
        if isinstance(item, keras.Model):
            vars(item)[name] = None


def _fill(container: Any, state: tuple[Any, dict[str, Any]]) -> None:
    """Fill a container of Keras that tracks what it holds, past its own methods."""
    content, attributes = state
    if isinstance(content, list):
        list.extend(container, content)
    elif isinstance(content, dict):
        dict.update(container, content)
    else:
        set.update(container, content)
    vars(container).update(attributes)


def _make_variable(value: np.ndarray[Any, Any], name: str, dtype: str, state: dict[str, Any]) -> Any:
    variable = keras.Variable(value, dtype=dtype, trainable=state["_trainable"], name=name)
    for attribute, each in state.items():
        setattr(variable, attribute, each)
    return variable
