"""The caller's side of a training: runs its Keras callbacks at the workers' events, and takes the state back."""

from __future__ import annotations

import math
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras

from lockstep._arrays import numbers
from lockstep._history import History
from lockstep._interrupts import LostInterrupts
from lockstep._job import Job, Message
from lockstep._memory import MemoryFile
from lockstep._native import DataError, UsageError
from lockstep._start import Owned
from lockstep._state import to_array
from lockstep._transfer import inner_optimizer

_BATCH_METHODS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
_TEST_BATCH_METHODS = ("on_test_batch_begin", "on_test_batch_end")
# Keras' callbacks whose methods look at the logs and the optimizer, never at the weights.
_BLIND = (
    keras.callbacks.CSVLogger,
    keras.callbacks.EarlyStopping,
    keras.callbacks.History,
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.ReduceLROnPlateau,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TerminateOnNaN,
)


# These change nothing but the learning rate, unless they stop the training.
_CHANGES_NOTHING = (*_BLIND, keras.callbacks.ModelCheckpoint, keras.callbacks.TensorBoard)


def _overrides(callback: Any, methods: Sequence[str]) -> bool:
    return any(getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name) for name in methods)


def is_progress(callback: Any) -> bool:
    """Return whether a callback only prints progress, so that no batch must wait for it."""
    return type(callback) in (keras.callbacks.ProgbarLogger, keras.callbacks.History)


def waits_for_batches(callbacks: Sequence[Any]) -> bool:
    """Return whether a callback acts before or after each batch."""
    if any(isinstance(each, keras.callbacks.LambdaCallback) for each in callbacks):
        return True  # it may have set such a method on the object
    return any(_overrides(each, _BATCH_METHODS) and not is_progress(each) for each in callbacks)


def looks_at_weights(callbacks: Sequence[Any]) -> bool:
    """Return whether a callback may look at the weights at the end of an epoch."""
    return any(type(each) not in _BLIND or getattr(each, "restore_best_weights", False) for each in callbacks)


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Raise `UsageError` for a callback that would not do here what it does in Keras' ``fit``."""
    for each in callbacks:
        name = type(each).__name__
        if not isinstance(each, keras.callbacks.Callback):
            raise UsageError(f"callbacks holds {each!r}; give objects of classes below keras.callbacks.Callback")
        if isinstance(each, keras.callbacks.BackupAndRestore):
            raise UsageError(f"{name} cannot see the workers' state; give lockstep.fit backup_dir= and resume=True")
        if isinstance(each, keras.callbacks.SwapEMAWeights):
            raise UsageError(f"{name} changes weights, which does not reach the workers; train with Keras' own fit")
        if getattr(each, "save_freq", "epoch") != "epoch":
            raise UsageError(
                f"{name} has save_freq={each.save_freq}, but the weights are here at the ends of epochs only"
            )
        if _overrides(each, _TEST_BATCH_METHODS):
            raise UsageError(
                f"{name} has a method on_test_batch_..., but validation runs without callbacks for batches"
            )


def _describe(callback: Any) -> str:
    return f"{type(callback).__module__}.{type(callback).__qualname__}"


def describe(callbacks: Sequence[Any]) -> str:
    """Return the callbacks' names, by which a backup knows its job."""
    return " ".join(map(_describe, callbacks)) or "none"


class Data:
    """What gives the workers the batches of the caller's sources. This one has none."""

    def work(self) -> bool:
        """Read a batch, if there is room for it. Return whether there may be more to do."""
        return False

    def handle(self, message: Message) -> bool:
        """Do what a worker's message says; return whether it is about data."""
        return False

    def prepare(self, epoch: int) -> None:
        """Prepare the data of an epoch. The workers wait while it begins."""

    def stop(self) -> None:
        """Let no worker wait for data any more."""


class Training:
    """One ``fit``: what has been seen of it, and what the callbacks decided."""

    def __init__(self, model: Any, callbacks: Any, epochs: int, steps: int | None, verbose: int, engine: str) -> None:
        self._model = model
        self._history = History(engine)
        self._callbacks = keras.callbacks.CallbackList(
            [*callbacks, self._history], add_history=True, add_progbar=verbose != 0, verbose=verbose, epochs=epochs,
            steps=steps, model=model,
        )  # fmt: skip
        self._steps = steps
        self._seen: tuple[float, float] = (-1, -1)  # (epoch, step) of the last event that callbacks have seen
        self._answers: dict[tuple[float, float], Message] = {}  # those that changed something
        self._state_of = -1  # iterations of the state that the model holds
        self._logs: dict[str, Any] = {}
        self._may_change = any(type(each) not in _CHANGES_NOTHING for each in callbacks)
        self._held: dict[int, tuple[str, int]] = {}  # what the model held when its state was last read
        self._options: dict[str, str] = {}  # of the model's layers and the optimizer, when the training began
        self._generation: int | None = None
        self._directory: Path | None = None  # of the backups

    def begin(self, owned: Owned, goes_on: bool) -> None:
        """Call the callbacks' on_train_begin. `goes_on`: it resumes the directory's interrupted training."""
        self._history.keep_in(owned, goes_on)
        self._directory = owned.directory
        self._model.stop_training = False
        self._callbacks.on_train_begin()

    def run(self, job: Job, load_state: Callable[[], None], data: Data | None = None) -> None:
        """Handle the workers' messages until they have ended.

        Ctrl-C, or an exception of a callback, ends the workers after the next step; the model then holds their state.

        Parameters
        ----------
        job
            Has started.
        load_state
            Reads the state that the workers wrote into the model.
        data
            Gives the workers the batches of the caller's sources.
        """
        data = data or Data()
        is_done = False
        if self._may_change:
            self._held = self._digest_variables()
            self._options = self._describe_options()
        try:
            with LostInterrupts() as interrupts:
                for message in job.messages(data.work):
                    event = message["event"]
                    if data.handle(message):
                        continue
                    if event == "hello":
                        self._meet(job, message)
                    elif event == "done":
                        is_done = True
                        self._take_last_state(message, load_state)
                    else:
                        self._answer(job, message, load_state, data)
                    interrupts.raise_again()
        except BaseException as error:
            if job.is_own():
                data.stop()
                self._interrupt(job, load_state)
                if isinstance(error, KeyboardInterrupt):
                    self._tell_of_interrupt()
            raise
        if not is_done:
            raise job.error()
        self._callbacks.on_train_end(self._logs)

    def _interrupt(self, job: Job, load_state: Callable[[], None]) -> None:
        job.send({"interrupt": True})
        for message in job.messages():
            if message["event"] in ("interrupted", "done"):
                self._take_last_state(message, load_state)
                return
            if message.get("wait") or message["event"] == "hello":
                job.send({"interrupt": True})

    def _tell_of_interrupt(self) -> None:
        kept = (
            "" if self._directory is None else f"; with resume=True, fit goes on from the backups in {self._directory}"
        )
        print(f"Lockstep: interrupted; the model has the weights of the last step{kept}", file=sys.stderr, flush=True)

    def _meet(self, job: Job, message: Message) -> None:
        lines = job.new_lines()
        cause = ""
        if self._generation is not None:
            ends = [line.split(" ended: ", 1)[1] for line in lines if " ended: " in line]
            cause = ends[-1].split("; ")[0] if ends else "a worker was lost"
            print(f"Lockstep: {cause}; training goes on from the last backup", file=sys.stderr, flush=True)
        self._generation = message["generation"]
        self._history.begin_generation(message["generation"], message["workers"], cause)

    def _take_last_state(self, message: Message, load_state: Callable[[], None]) -> None:
        self._history.take_profile(message.get("profile_ms_per_step", {}))
        if message["state"] is False:
            print("Lockstep: the weights became NaN or infinite; the model keeps those it had", file=sys.stderr)
        # With use_ema, Keras replaces the weights after the last step, so the same iteration has other weights.
        elif message["iterations"] != self._state_of or inner_optimizer(self._model.optimizer).use_ema:
            load_state()
            self._state_of = message["iterations"]

    def _answer(self, job: Job, message: Message, load_state: Callable[[], None], data: Data) -> None:
        event, epoch, step = message["event"], message["epoch"], message["step"]
        position = (epoch, {"epoch_begin": -1, "batch": step, "epoch_end": math.inf}[event])
        if position > self._seen:
            decided = self._call(message, load_state)
            self._seen = position
            if decided:
                self._answers[position] = decided
        data.prepare(epoch)
        if message["wait"]:
            answer = self._answers.get(position, {})
            job.send({"event": event, "epoch": epoch, "step": step, **answer})

    def _call(self, message: Message, load_state: Callable[[], None]) -> Message:
        """Call the callbacks, and return what they decided."""
        model = self._model
        optimizer = model.optimizer
        logs = {name: numbers(value) for name, value in message["logs"].items()}
        optimizer._iterations.assign(message["iterations"])  # `iterations` counts whole accumulations
        is_schedule = isinstance(optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule)
        if not is_schedule:
            optimizer.learning_rate = message["learning_rate"]
        before = float(optimizer.learning_rate)
        event, epoch, step = message["event"], message["epoch"], message["step"]
        if event == "epoch_end":
            self._require_unchanged()  # since the last epoch's end
        if message.get("state"):
            load_state()
            self._state_of = message["iterations"]
            if self._may_change:
                self._held = self._digest_variables()
        iterations = int(to_array(optimizer._iterations))
        if self._seen[0] < epoch:
            self._begin_epoch(epoch, step)
        if event == "batch":
            if self._steps is None and step > 0:
                self._callbacks.on_train_batch_begin(step)
            self._callbacks.on_train_batch_end(step, logs)
            if step + 1 < (self._steps or 0) and not model.stop_training:
                self._callbacks.on_train_batch_begin(step + 1)
        elif event == "epoch_end":
            self._end_epoch(epoch, logs)
            self._require_unchanged()
        if int(to_array(optimizer._iterations)) != iterations:
            raise _unsent("the optimizer's iterations")
        decided: Message = {}
        after = float(optimizer.learning_rate)
        if after != before:
            decided["learning_rate"] = after
        if model.stop_training:
            decided["stop"] = True
        return decided

    def _begin_epoch(self, epoch: int, step: int) -> None:
        self._callbacks.on_epoch_begin(epoch)
        self._callbacks.on_train_batch_begin(step)

    def _end_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        validation = {name.removeprefix("val_"): value for name, value in logs.items() if name.startswith("val_")}
        self._logs = logs
        if validation:
            self._callbacks.on_test_begin()
            self._callbacks.on_test_end(validation)
        self._callbacks.on_epoch_end(epoch, logs)

    def _digest_variables(self) -> dict[int, tuple[str, int]]:
        """Return path and digest of each variable but those that the workers are told: iterations and learning rate."""
        optimizer = self._model.optimizer
        told = {
            id(each)
            for owner in (optimizer, inner_optimizer(optimizer))
            for each in (owner._iterations, owner._learning_rate)
        }
        variables = [*self._model.weights, *optimizer.variables]
        return {
            id(each): (each.path, zlib.crc32(to_array(each).tobytes())) for each in variables if id(each) not in told
        }

    def _require_unchanged(self) -> None:
        if not self._may_change or self._model.stop_training:  # a callback that stops may restore the best weights
            return
        after = self._digest_variables()
        changed = next((path for each, (path, digest) in self._held.items() if after[each][1] != digest), None)
        if changed is not None:
            raise _unsent(f"the variable {changed}")
        options = self._describe_options()
        differing = next((name for name in options if options[name] != self._options.get(name)), None)
        if differing is not None:
            raise _unsent(differing)

    def _describe_options(self) -> dict[str, str]:
        """Return the options of the optimizer and of each layer, by name, but the learning rate."""
        described = {}
        for layer in self._model._flatten_layers():
            described[f"trainable of {layer.name}"] = str(layer.trainable)
            if not layer._layers:  # those have descriptions of their own
                described[f"trainable of {layer.name}"] += str([each.trainable for each in layer.weights])
                described |= {
                    f"the {name} of {layer.name}": _text_of(value) for name, value in _config_of(layer).items()
                }
        optimizer = inner_optimizer(self._model.optimizer)
        options = {f"the optimizer's {name}": _text_of(value) for name, value in _config_of(optimizer).items()}
        options.pop("the optimizer's learning_rate", None)
        return described | options


def _config_of(item: Any) -> dict[str, Any]:
    try:
        return dict(item.get_config())
    except Exception:  # a class of the user's own, which need not have one
        return {}


def _text_of(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # equal for equal objects that are made anew each time


def _unsent(what: str) -> UsageError:
    return UsageError(
        f"a callback changed {what} during training, which does not reach the workers; change it before lockstep.fit "
        "or in on_train_begin, or train with Keras' own fit"
    )


def load_state(model: Any, job: Job, state: MemoryFile) -> None:
    """Read weights and optimizer from a file of Keras' own format, .weights.h5, in memory."""
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    # HDF5 opens no file without a name on a disk, but Keras reads the same bytes from an archive.
    with MemoryFile("archive") as archive:
        path = job.link("state.keras", archive)
        with zipfile.ZipFile(archive.path, "w") as writer:
            writer.write(state.path, "model.weights.h5")
        try:
            model.load_weights(str(path))
        except (ValueError, OSError, KeyError) as error:
            raise DataError(f"the workers' state does not fit the model: {error}") from error
