"""Which of the two engines takes a training, and why."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import warnings
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np

from lockstep._job import Job, error_of
from lockstep._native import UsageError
from lockstep._sources import Source, bytes_of, max_collected_bytes
from lockstep._transfer import lost_in_file, replaced_in_file, replaced_method, save
from lockstep._world import find_command

_ENGINES = ("auto", "native", "keras")
_WRONG_MODEL = (64, 65)
_EPSILON = 1e-7  # Keras' default
_SUM_TOLERANCE = 1e-3  # of float16 targets
_CATEGORICAL = ("categoricalcrossentropy", "sparsecategoricalcrossentropy", "categoricalfocalcrossentropy")
_OF_VECTORS = ("categoricalcrossentropy", "categoricalfocalcrossentropy", "categoricalhinge")
_BINARY = ("binarycrossentropy", "bce", "binaryfocalcrossentropy")
_ALONG_LAST_AXIS = (  # losses and metrics
    "categoricalaccuracy",
    "categoricalcrossentropy",
    "categoricalfocalcrossentropy",
    "categoricalhinge",
    "cosinesimilarity",
    "kldivergence",
    "topkcategoricalaccuracy",
)
_BROADCASTS = ("hinge", "squaredhinge", "categoricalhinge", "kldivergence", "poisson", "binarycrossentropy", "f1score")
_PASSES = (  # layers that return their input or its elements, at least where they do not train
    keras.layers.ActivityRegularization,
    keras.layers.AlphaDropout,
    keras.layers.Dropout,
    keras.layers.Flatten,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.Identity,
    keras.layers.Reshape,
)
_WITH = {"train": "", "evaluate": "", "predict": " with"}


@dataclass(frozen=True)
class Check:
    """Which engine takes a model, and why.

    Attributes
    ----------
    engine
        "native" or "keras".
    reason
        One sentence, which names what keeps the native engine from the model.
    """

    engine: str
    reason: str

    def __str__(self) -> str:
        return f"{self.engine} engine: {self.reason}"


def check(model: Any) -> Check:
    """Say which engine `fit` takes for a compiled Keras model, and why.

    The native engine itself is asked: the answer names what it does not know.
    """
    require_own_optimizer(model)
    problem = _native_problem(model)
    if problem is None:
        return Check("native", "it knows all layers, the loss, the metrics and the optimizer")
    return Check("keras", problem)


def require_compiled(model: Any) -> None:
    """Raise UsageError unless the model is compiled."""
    if not isinstance(model, keras.Model):
        raise UsageError(f"model is of type {type(model).__name__}; give a keras.Model")
    if not getattr(model, "compiled", False):
        raise UsageError("the model is not compiled; call model.compile(optimizer, loss) first")


def require_own_optimizer(model: Any) -> None:
    """Refuse an optimizer that Keras would refuse, or part of which no file holds."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return
    method = replaced_method(optimizer)
    if method is not None and not hasattr(optimizer, "lockstep_averager"):  # which DistributedOptimizer sets
        raise UsageError(
            f"the {method} that was set on the optimizer does not reach the workers; define it in a class below "
            f"keras.optimizers.{type(optimizer).__name__}"
        )
    known = getattr(optimizer, "_trainable_variables_indices", {})
    if optimizer.built and model.built and known:
        order = [known.get(optimizer._var_key(each)) for each in model.trainable_variables]
        if None in order:
            raise UsageError("the optimizer was built for the variables of another model; compile with a new optimizer")
        if len(known) > len(order):
            raise UsageError(
                "the optimizer was built for variables that are trainable no more; compile the model again after "
                "changing trainable"
            )
        if order != list(range(len(order))):
            raise UsageError(
                "the optimizer was built for the model's variables in another order, which Keras' file does not hold; "
                "build it with model.trainable_variables"
            )
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    if getattr(optimizer, "_exclude_from_weight_decay", None) or pattern is not None:
        raise UsageError(
            "the optimizer excludes variables from weight decay, which does not reach the workers; leave "
            "exclude_from_weight_decay out, or train with Keras' own fit"
        )


def write_model(job: Job, model: Any) -> str:
    """Write a model for the workers, and return the path."""
    path = str(job.link("model.keras", job.memory_file("model")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Keras cannot save, the native engine does not know
        save(model, path)
    return path


def _native_problem(model: Any, task: str = "train") -> str | None:
    """Return what keeps the native engine from a task with a model: "train", "evaluate" or "predict"."""
    if task != "predict":
        require_compiled(model)
    if not model.built:
        raise UsageError("the model is not built, since it does not know the shape of its inputs; give it an Input")
    trains = task == "train"
    lost = replaced_in_file(model, trains) if task == "predict" else lost_in_file(model, trains)
    lost = other_epsilon() or lost
    if lost is not None:
        return lost
    with Job() as job:
        path = job.folder / "model.keras"
        try:
            write_model(job, model)
        except Exception as unsaved:  # Keras says in many ways what it cannot save
            return f"Keras cannot save it: {unsaved}"
        described = job.describe({"kind": "check", "model": str(path), "task": task})
        command = [find_command(), "worker", "--job", str(described)]
        code, output = job.run(command)
    if code == 0:
        return None if task == "predict" else _tensorflow_differs(model) or (_repeated_rows(model) if trains else None)
    error = error_of(code, output, "")
    if code not in _WRONG_MODEL:
        raise error
    reason = re.sub(re.escape(str(path)) + r"(:[\w.]+)?: ", "", str(error)).replace(str(path), "the model")
    return with_remedy(reason, "")


def _tensorflow_differs(model: Any) -> str | None:
    """Return the crossentropy, loss or metric, that TensorFlow computes otherwise than the native engine.

    With --clip-probabilities the native engine computes all crossentropies as the other backends do.
    """
    if keras.backend.backend() != "tensorflow":
        return None
    outputs = getattr(model, "outputs", None) or []
    compiled = getattr(model, "_compile_metrics", None)
    given = [getattr(compiled, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    metrics = [("metric", metric) for metric in keras.tree.flatten(given)]
    for output, loss in zip(outputs, _losses(model, len(outputs)), strict=False):
        last, is_direct = _last_activation(output)
        is_direct &= output.dtype == (getattr(loss, "dtype", None) or keras.config.floatx())
        for role, each in [("loss", loss), *metrics]:
            crossentropy = _crossentropy_of(each)
            if crossentropy is not None and _differs(crossentropy, role, last, is_direct):
                other = f"{crossentropy.activation}, or in " if last != crossentropy.activation else ""
                return (
                    f"Keras' backends compute its {role} differently after a {last}; let the model end in "
                    f"{other}logits, with from_logits=True"
                )
    return None


def _repeated_rows(model: Any) -> str | None:
    """Return the Embedding whose rows TensorFlow trains otherwise if they occur several times in a batch.

    It clips and squares the gradient of each occurrence; the native engine and the other backends, that of their sum.
    """
    optimizer = model.optimizer
    clips = any(getattr(optimizer, name, None) for name in ("clipnorm", "clipvalue", "global_clipnorm"))
    is_additive = isinstance(optimizer, (keras.optimizers.SGD, keras.optimizers.Lion)) and not clips
    accumulates = getattr(optimizer, "gradient_accumulation_steps", None)
    if keras.backend.backend() != "tensorflow" or is_additive or accumulates:
        return None
    for layer in model._flatten_layers(include_self=False):
        if isinstance(layer, keras.layers.Embedding) and layer.trainable_variables:
            return (
                f"layer '{layer.name}' is an Embedding, and {type(optimizer).__name__} trains rows that occur several "
                "times in a batch otherwise on TensorFlow"
            )
    return None


def _tensorflow_takes_for_1(model: Any, targets: Any) -> str | None:
    """Return which sums of targets TensorFlow's gradient of a categorical crossentropy takes for 1, and are not."""
    if keras.backend.backend() != "tensorflow":
        return None
    losses = _losses(model, len(getattr(model, "outputs", None) or [None]))
    compared = [_crossentropy_of(loss) for loss in losses if not _name_of(loss).startswith("sparse")]
    if not any(each is not None and each.activation == "softmax" and not each.is_focal for each in compared):
        return None
    for array in map(np.asarray, keras.tree.flatten(targets)):
        if (
            array.ndim > 1
            and array.shape[-1] > 1
            and np.any(np.abs(array.sum(-1, dtype=np.float64) - 1) > _SUM_TOLERANCE)
        ):
            return "TensorFlow's categorical crossentropy takes the sum of targets for 1, and these do not sum to 1"
    return None


class _Crossentropy(NamedTuple):
    activation: str  # that makes its probabilities
    is_focal: bool


def _name_of(compared: Any) -> str:
    """Return the class or function of a loss or metric, in lower case without underscores."""
    name = compared if isinstance(compared, str) else getattr(compared, "__name__", type(compared).__name__)
    return str(name).lower().replace("_", "")


def _crossentropy_of(compared: Any) -> _Crossentropy | None:
    """Return what matters of a loss or metric; None if it is no crossentropy."""
    name = _name_of(compared)
    if name not in _CATEGORICAL + _BINARY:
        return None
    return _Crossentropy("softmax" if name in _CATEGORICAL else "sigmoid", "focal" in name)


def _differs(crossentropy: _Crossentropy, role: str, last: str, is_direct: bool) -> bool:
    """Whether TensorFlow computes a crossentropy after this activation otherwise than the native engine.

    TensorFlow takes what a softmax or a sigmoid reads for the logits of any crossentropy, whatever from_logits says,
    and also if what follows returns its input, unless the output is cast. The native engine does so in losses that are
    not focal, right after the activation that makes their probabilities.
    """
    own = last == crossentropy.activation
    return last in ("softmax", "sigmoid") and not (own and is_direct and role == "loss" and not crossentropy.is_focal)


def _losses(model: Any, outputs: int) -> list[Any]:
    if isinstance(model.loss, dict):
        if not hasattr(model, "output_names"):  # a Sequential model
            raise UsageError(
                "the model's loss is a dict, which Keras takes for functional models only; compile with the loss alone"
            )
        return [model.loss.get(name) for name in model.output_names]
    return list(model.loss) if isinstance(model.loss, (list, tuple)) else [model.loss] * outputs


def _last_activation(tensor: Any) -> tuple[str, bool]:
    """Return the name of the last activation function before an output, and whether it made that output itself.

    The name is empty if there is none.
    """
    is_direct = True
    while True:
        operation, node, index = tensor._keras_history
        if isinstance(operation, keras.layers.Softmax):
            return "softmax", is_direct
        if isinstance(operation, keras.Model):
            tensor = operation.outputs[index]
            continue
        activation = getattr(operation, "activation", None)
        is_linear = isinstance(operation, keras.layers.Activation) and activation is keras.activations.linear
        if activation is not None and not is_linear:
            return getattr(activation, "__name__", ""), is_direct
        if not is_linear and not isinstance(operation, _PASSES):
            return "", is_direct
        is_direct = False
        tensor = operation._inbound_nodes[node].input_tensors[0]


def with_remedy(problem: str, remedy: str) -> str:
    """Replace the advice of the command line by that of this package."""
    return re.sub(
        r"; lockstep\.fit trains .*|, or use lockstep\.fit, .*|; compile the model with one that Lockstep has, .*",
        remedy,
        problem,
    )


def other_epsilon() -> str | None:
    """Return what of Keras' epsilon the native engine does not know."""
    if keras.config.epsilon() == _EPSILON:
        return None
    return f"it computes with keras.config.epsilon() {_EPSILON:g}, which is {keras.config.epsilon():g} here"


def _compares_vectors_with_indices(model: Any, y: Any) -> bool:
    """Return whether a loss takes a vector for each example, but its targets are class indices."""
    targets = y if isinstance(y, (dict, list, tuple)) and holds_arrays(y) else [y]
    if isinstance(targets, dict):
        targets = [targets.get(name) for name in model.output_names]
    for output, loss, target in zip(model.outputs, _losses(model, len(model.outputs)), targets, strict=False):
        is_index = target is not None and np.shape(target)[1:] in ((), (1,)) and output.shape[-1] != 1
        if is_index and _name_of(loss) in _OF_VECTORS:
            return True
    return False


def _lacks_last_axis(model: Any, y: Any) -> str | None:
    """Return which loss or metric compares other numbers because targets lack a last axis of 1 that outputs have."""
    compiled = getattr(model, "_compile_metrics", None)
    given = [getattr(compiled, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    metrics = list(map(_name_of, keras.tree.flatten(given)))
    outputs = getattr(model, "outputs", None) or []
    for output, target, loss in zip(outputs, keras.tree.flatten(y), _losses(model, len(outputs)), strict=False):
        if target is None or len(np.shape(target)) + 1 != len(output.shape) or output.shape[-1] != 1:
            continue
        for name in metrics:
            if name in _BROADCASTS:
                return f"Keras' metric {name} compares targets without a last axis of 1 with all outputs"
        for name in (_name_of(loss), *metrics):
            if name in _ALONG_LAST_AXIS and len(output.shape) > 2:
                return f"Keras' {name} takes another axis for the last one if targets lack the outputs' last axis"
    return None


def _penalizes_zeros(model: Any) -> bool:
    """Return whether a weight with an L1 penalty is 0, or may become 0."""
    for variable in model.trainable_variables:
        if getattr(getattr(variable, "regularizer", None), "l1", 0) and (
            isinstance(getattr(variable, "constraint", None), keras.constraints.NonNeg)
            or not np.all(keras.ops.convert_to_numpy(variable.value))
        ):
            return True
    return False


_FLAT_WEIGHTS = "Keras applies a sample_weight for each example to the last axis of losses of several axes"


def _has_outputs_of_several_axes(model: Any) -> bool:
    return any(len(output.shape) > 2 for output in model.outputs or [])


def beyond_native(model: Any, y: Any, validation: Any, sample_weight: Any) -> str | None:
    """Return what in a training, apart from the model, only the Keras engine takes."""
    if sample_weight is not None and np.ndim(sample_weight) != 1:
        return "it takes one sample_weight for each example"
    if y is None:
        return "it needs targets"
    weights = [sample_weight, *(validation[2:] if isinstance(validation, (tuple, list)) else [])]
    if any(map(holds_arrays, weights)):
        return "it takes one sample_weight for each example"
    if any(each is not None for each in weights) and _has_outputs_of_several_axes(model):
        return _FLAT_WEIGHTS
    outputs = getattr(model, "_outputs_struct", None)
    if isinstance(outputs, dict) and sorted(outputs) != sorted(model.output_names):
        return "its outputs are a dict with other keys than the names of their layers"
    if not model.built:
        return "the model is not built before it sees data"
    if _has_own_step(model):
        return "the model has a train_step of its own"
    if _compares_vectors_with_indices(model, y):
        return "it would make one-hot vectors of class indices for the model's loss"
    problem = _lacks_last_axis(model, y)
    if problem is not None:
        return problem
    if keras.backend.backend() == "jax" and _penalizes_zeros(model):
        return "a weight with an L1 penalty is 0, where the derivative of Keras on JAX is 1"
    return _tensorflow_takes_for_1(model, y)


def tell_of_old_metrics(model: Any) -> None:
    """Say it if the model was compiled with metrics before, and without now: Keras alone goes on with them."""
    config = getattr(model, "_compile_config", None)
    given = [] if config is None else [config.config.get("metrics"), config.config.get("weighted_metrics")]
    if getattr(model, "_compile_metrics", None) is None or any(each is not None for each in given):
        return
    print(
        "Lockstep: the metrics of an earlier compile() are not computed; give metrics=[...] again",
        file=sys.stderr, flush=True,
    )  # fmt: skip


def tell_of_changed_options(model: Any) -> None:
    """Say it if options were set after the last fit: Keras alone goes on with the step that it compiled before."""
    if keras.backend.backend() == "torch" or model.run_eagerly:  # there Keras reads them in each step
        return
    options = _options(model)
    compiled, before = _options_of_last_fit.get(model, (None, {}))
    _options_of_last_fit[model] = (model._compile_config, options)
    if compiled is not model._compile_config:
        return
    changed = next((place for place, value in options.items() if before.get(place, value) != value), None)
    if changed is not None:
        print(
            f"Lockstep: {' of '.join(reversed(changed))} has changed since the last fit, and is used as it is now; "
            "Keras alone would use it after another compile()",
            file=sys.stderr, flush=True,
        )  # fmt: skip


# What a model was compiled with, and its options, when it was fitted last.
_options_of_last_fit: weakref.WeakKeyDictionary[Any, tuple[Any, dict[tuple[str, str], str]]] = (
    weakref.WeakKeyDictionary()
)


def _options(model: Any) -> dict[tuple[str, str], str]:
    """Return what each option of the layers and the optimizer is, by their names. Others tell of `trainable`."""
    owners = {layer.path: layer for layer in model._flatten_layers() if not hasattr(layer, "layers")}
    found = {}
    for name, owner in (*owners.items(), ("the optimizer", model.optimizer)):
        with contextlib.suppress(Exception):  # a class of the user's own need not have a config
            options = {key: repr(value) for key, value in owner.get_config().items()}
            found.update({(name, key): value for key, value in options.items() if key not in _READ_IN_EACH_STEP})
    return found


_READ_IN_EACH_STEP = {"trainable", "learning_rate", "name"}


def beyond_32_bits(*values: Any) -> str | None:
    """Return what Keras on JAX does with whole numbers that the native engine does not."""
    if keras.backend.backend() != "jax" or jax_has_64_bits():
        return None
    held = [
        list(each.values() if isinstance(each, dict) else each) if holds_arrays(each) else [each] for each in values
    ]
    for value in itertools.chain.from_iterable(held):
        try:
            array = np.asarray(value)
        except Exception:  # it is no array, which is said later
            continue
        if array.dtype not in (np.int64, np.uint64) or not array.size:
            continue
        limits = np.iinfo(np.int32 if array.dtype == np.int64 else np.uint32)
        if not limits.min <= array.min() <= array.max() <= limits.max:
            return "Keras on JAX cuts whole numbers to 32 bits, and these are longer; give them as float32"
    return None


def jax_has_64_bits() -> bool:
    """Return whether the caller has switched on JAX's types of 64 bits."""
    if keras.backend.backend() != "jax":
        return False
    import jax

    return bool(jax.config.jax_enable_x64)


def beyond_collecting(source: Source) -> str | None:
    """Return what in a source only the Keras engine takes: it holds no whole pass in memory."""
    size = (source.steps or 1) * bytes_of(source.first)
    if size <= max_collected_bytes():
        return None
    return f"it would collect {source.what}, of {size >> 20} MiB in each pass, in memory"


def inference_engine(model: Any, task: str, engine: str, x: Any, y: Any = None, sample_weight: Any = None) -> str:
    """Return the engine to "evaluate" or "predict" with, and say why if it is not the native one."""
    problem = None
    if not model.built:
        problem = "the model is not built before it sees data"
    elif _has_own_step(model, "test_step" if task == "evaluate" else "predict_step"):
        problem = f"the model has a step of its own to {task}"
    elif task == "evaluate" and y is None:
        problem = "it needs targets"
    elif sample_weight is not None and (holds_arrays(sample_weight) or np.ndim(sample_weight) != 1):
        problem = "it takes one sample_weight for each example"
    elif sample_weight is not None and _has_outputs_of_several_axes(model):
        problem = _FLAT_WEIGHTS
    if task == "evaluate":
        problem = problem or _lacks_last_axis(model, y)
    problem = problem or beyond_32_bits(x, y, sample_weight)
    return choose(model, engine, problem, task)


def needs_targets(model: Any) -> bool:
    """Return whether training compares outputs with targets."""
    return getattr(model, "loss", None) is not None and not _has_own_step(model)


def _has_own_step(model: Any, name: str = "train_step") -> bool:
    return getattr(getattr(model, name), "__func__", None) is not getattr(keras.Model, name)


def holds_arrays(value: Any) -> bool:
    """Return whether a value is a container of arrays."""
    values = value.values() if isinstance(value, dict) else value
    return isinstance(value, (list, tuple, dict)) and any(hasattr(each, "shape") for each in values)


def choose(model: Any, engine: str, problem: str | None, task: str = "train") -> str:
    """Return the engine, and say why if it is not the native one. `problem`: of `beyond_native`."""
    if engine not in _ENGINES:
        raise UsageError(f"engine is {engine!r}; it must be 'auto', 'native' or 'keras'")
    if engine == "keras":
        return engine
    problem = problem or _native_problem(model, task)
    if problem is None:
        return "native"
    if engine == "native":
        raise UsageError(f"the native engine does not {task} this model: {problem}; use engine='auto'")
    print(f"Lockstep {task}s{_WITH[task]} this model in the Keras engine. Why not natively: {problem}", flush=True)
    return "keras"
