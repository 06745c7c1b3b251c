"""The worker of the Keras engine: on each rank, Keras' own methods in the caller's backend.

``lockstep launch`` starts it as ``python -m lockstep._keras_worker --job FILE --channel DESCRIPTOR``. Rank 0 tells the
caller what happens, and all ranks do what the caller's callbacks decide.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import pickle
import select
import shutil
import socket
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np

import lockstep
from lockstep import _backup, _transfer
from lockstep._data import slice_of
from lockstep._job import VERSION, Message
from lockstep._keras_engine import FitJob, SharedArray, build, build_layers
from lockstep._keras_inference import InferenceJob
from lockstep._state import assign, to_array, to_json, variables_of, weights_of
from lockstep._stream import Streamed
from lockstep._streamed import StreamedData
from lockstep.callbacks import AverageMetrics, BackupAndRestore

_MAX_PACKET = 1 << 20
_USAGE = 64


class Channel:
    """Rank 0's socket to the caller."""

    def __init__(self, descriptor: int, temporary: str) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._temporary = temporary
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """End this process when the caller hangs up; the launcher ends the other ranks."""
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        poll.poll()
        shutil.rmtree(self._temporary, ignore_errors=True)
        os._exit(_USAGE)

    def send(self, message: Message) -> None:
        """Send a message to the caller."""
        self._socket.send(json.dumps(message).encode())

    def receive(self, wait: bool) -> Message:
        """Return the caller's next message; without `wait`, an empty one if there is none."""
        try:
            packet = self._socket.recv(_MAX_PACKET, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return {}
        if not packet:
            self.wait_for_end()
        message: Message = json.loads(packet)
        return message

    def wait_for_end(self) -> None:
        """Wait until the caller hangs up, which ends this process."""
        while True:
            time.sleep(1)


class CallerCallback(BackupAndRestore):
    """Backs up, and runs the caller's callbacks through the channel."""

    def __init__(self, job: FitJob, channel: Channel | None) -> None:
        super().__init__(job.backup_dir, save_freq=job.save_freq, delete_checkpoint=False)
        self._job = job
        self._channel = channel
        self._streams: list[StreamedData] = []
        self._step = 0  # the next one
        self._counters: list[tuple[Any, Any]] = []  # the optimizer's, and their values after the last step
        self.data = self._open("training", job.data, job.shuffle)
        self.validation = None if job.validation is None else self._open("validation", job.validation, False)
        self._pending: Message = {}  # what the caller decided after the last batch of an epoch

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restore the last backup."""
        super().on_train_begin(logs)
        for stream in self._streams:
            stream.is_started = True

    def _open(self, name: str, described: Any, shuffle: bool) -> Any:
        """Return this rank's part of the caller's data, for Keras' ``fit``."""
        if not isinstance(described, Streamed):
            return _shard(self._job, described, shuffle)

        def request(number: int, step: int) -> None:
            if self._channel is not None:
                self._channel.send({"event": "pass", "data": name, "pass": number, "step": step})

        def stop(step: int) -> None:
            is_new = name == "training" and step > self._first_step
            self._obey({"interrupt": True}, (self._epoch, step) if is_new else None)

        self._streams.append(StreamedData(described, request, stop))
        return self._streams[-1]

    def _save(self, epoch: int, step: int) -> None:
        """Back up. The caller keeps the batches since the last backup."""
        super()._save(epoch, step)
        if step > 0 and isinstance(self.data, StreamedData) and self._channel is not None:
            self._channel.send({"event": "backed_up", "step": step})

    def _describe(self) -> dict[str, Any]:
        """Return nothing: the caller knows with what this training began."""
        return {}

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Tell the caller, and do what its callbacks decide."""
        super().on_epoch_begin(epoch, logs)
        self._obey(self._tell("epoch_begin", self._first_step, {}, True), None)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Tell the caller. All ranks agree on what it decided, but after the last batch, of which some have no part."""
        super().on_train_batch_end(batch, logs)
        step = self._first_step + batch
        self._step = step + 1
        if self._streams and keras.backend.backend() == "tensorflow":
            counters = [each for each in self.model.optimizer.variables if "int" in str(each.dtype)]
            self._counters = [(each, to_array(each)) for each in counters]
        decided = self._tell("batch", step, logs or {}, self._job.waits_for_batches)
        if self.data.has_step(self._step):
            self._obey(decided, (self._epoch, step + 1))
        else:
            self._pending = decided

    def _end_pass(self) -> None:
        """Undo what TensorFlow counted of the step that found the end of a stream."""
        for variable, value in self._counters:
            variable.assign(value)
        self._counters = []
        super()._end_pass()

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Stop if the caller gives no more batches."""
        if isinstance(self.validation, StreamedData):
            self.validation.has_step(batch + 1)

    def _decide_next_epoch(self, epoch: int, logs: dict[str, Any]) -> int:
        """Tell the caller, and do what its callbacks decide, before the backup that holds it."""
        decided = self._pending | self._tell("epoch_end", self._step, logs, True)
        self._pending = {}
        self._obey(decided, (epoch + 1, 0))
        return self._job.epochs if self.model.stop_training else epoch + 1

    def tell_end(self, event: str) -> None:
        """Tell the caller what training ended with."""
        if self._channel is not None:
            self._show_state()
            iterations = int(self.model.optimizer.iterations)
            self._channel.send({"event": event, "state": True, "iterations": iterations})

    def _show_state(self) -> None:
        variables = [to_array(variable) for variable in variables_of(self.model)]
        state = _backup.Backup(0, 0, 0, 0, {}, {}, variables)
        Path(f"/proc/self/fd/{self._job.state}").write_bytes(state.to_bytes())

    def _tell(self, event: str, step: int, logs: dict[str, Any], wait: bool) -> Message:
        if self._channel is None:
            return {}
        optimizer = self.model.optimizer
        shows_state = event == "epoch_end" and self._job.shows_weights
        if shows_state:
            self._show_state()
        self._channel.send({
            "event": event,
            "epoch": self._epoch,
            "step": step,
            "logs": {name: keras.tree.map_structure(repr, to_json(value)) for name, value in logs.items()},
            "iterations": int(optimizer.iterations),
            "learning_rate": float(optimizer.learning_rate),
            "state": shows_state,
            "wait": wait,
        })  # fmt: skip
        return self._channel.receive(wait)

    def _obey(self, decided: Message, backup_at: tuple[int, int] | None) -> None:
        """Do on all ranks what the caller decided.

        `backup_at` is the epoch and step with which training would go on, or None if the last backup is of here.
        """
        decided = lockstep.broadcast(decided)
        if "learning_rate" in decided:
            self.model.optimizer.learning_rate = decided["learning_rate"]
        if decided.get("stop"):
            self.model.stop_training = True
        if decided.get("interrupt"):
            if backup_at is not None:
                self._save(*backup_at)
            self.tell_end("interrupted")
            if self._channel is not None:
                self._channel.wait_for_end()
            while True:
                time.sleep(1)  # the launcher ends this rank after rank 0


def _map(array: SharedArray) -> Any:
    """Return an array that all workers share."""
    kind = np.dtype(array.kind)
    if not np.prod(array.shape, dtype=int):
        return np.empty(array.shape, kind)
    memory = mmap.mmap(array.descriptor, 0, access=mmap.ACCESS_READ)
    return np.ndarray(array.shape, kind, buffer=memory)


def _shard(job: FitJob, arrays: Any, shuffle: bool) -> Any:
    mapped = keras.tree.map_structure(_map, arrays)
    data = lockstep.shard(*mapped, batch_size=job.batch_size, shuffle=shuffle, seed=job.seed)
    data.digests = {}  # the workers share the arrays, so they need not read them to compare them
    return data


def _unwrap_single(model: Any) -> None:
    """Give the model's own steps x alone, as Keras does with an array: datasets hand out (x,)."""

    def without_tuple(step: Any) -> Any:
        def unwrapped(*arguments: Any) -> Any:
            *state, batch = arguments
            return step(*state, batch[0] if isinstance(batch, (list, tuple)) and len(batch) == 1 else batch)

        return unwrapped

    for name in ("train_step", "test_step"):
        object.__setattr__(model, name, without_tuple(getattr(model, name)))


def _begin(job: FitJob | InferenceJob, channel_descriptor: int) -> Channel | None:
    """Join the other workers; return the channel on the chief."""
    lockstep.init(timeout=0)  # a callback of the caller may take any time
    channel = Channel(channel_descriptor, job.temporary) if lockstep.is_chief() else None
    if channel is not None:
        generation = int(os.environ.get("LOCKSTEP_GENERATION") or 0)
        workers = int(os.environ["WORLD_SIZE"])
        channel.send({"event": "hello", "version": VERSION, "generation": generation, "workers": workers})
    else:
        os.close(channel_descriptor)
    if job.settings.has_64_bits:
        import jax

        jax.config.update("jax_enable_x64", True)
    keras.config.set_floatx(job.settings.floatx)
    keras.config.set_epsilon(job.settings.epsilon)
    keras.config.set_image_data_format(job.settings.image_data_format)
    keras.config.set_dtype_policy(job.settings.dtype_policy)
    for limit in ("max_epochs", "max_steps_per_epoch"):  # the caller has kept its own; the environment may hold others
        if hasattr(keras.config, f"set_{limit}"):
            getattr(keras.config, f"set_{limit}")(None)
    return channel


def _infer(job: InferenceJob, channel_descriptor: int) -> None:
    channel = _begin(job, channel_descriptor)
    model = _transfer.load(Path(job.model).read_bytes())
    arrays = keras.tree.map_structure(_map, job.data)
    build_layers(model, keras.tree.map_structure(lambda array: array[:1], arrays))
    assign(weights_of(model), pickle.loads(Path(job.weights).read_bytes()))
    result: Message = {"event": "result"}
    if job.kind == "evaluate":
        result |= _evaluate(job, model, arrays)
    else:
        own = slice_of(range(len(keras.tree.flatten(arrays)[0])))
        x = keras.tree.map_structure(lambda array: array[own.start : own.stop], arrays[0])
        outputs = model.predict(x, batch_size=-(-job.batch_size // lockstep.size()), verbose=0)
        Path(f"/proc/self/fd/{job.outputs[lockstep.rank()]}").write_bytes(pickle.dumps(outputs))
        lockstep.barrier()
    if channel is not None:
        channel.send(result)


def _evaluate(job: InferenceJob, model: Any, arrays: Any) -> Message:
    """Return the metrics of all workers' examples."""
    if len(arrays) == 1 and not isinstance(arrays[0], (dict, tuple)):
        _unwrap_single(model)
    data = lockstep.shard(*arrays, batch_size=job.batch_size, shuffle=False)
    logs = model.evaluate(data, return_dict=True, verbose=0)
    metrics = AverageMetrics()
    metrics.set_model(model)
    logs |= metrics._average_metrics()
    logs = {name: keras.tree.map_structure(repr, to_json(value)) for name, value in logs.items()}
    values = model._flatten_metrics_in_order(logs)
    is_one = len(logs) == 1
    return {"logs": logs, "values": [values] if is_one else values, "is_one": is_one}


def _train(job: FitJob, channel_descriptor: int) -> None:
    channel = _begin(job, channel_descriptor)
    keras.utils.set_random_seed(job.seed)
    model = _transfer.load(Path(job.model).read_bytes())
    caller = CallerCallback(job, channel)
    data = caller.data
    is_streamed = isinstance(data, StreamedData)
    warnings.filterwarnings("ignore", message="Your input ran out of data")  # as streams do at the end of a pass
    example = data.example() if is_streamed else keras.tree.map_structure(lambda array: array[:1], data.arrays)
    build(model, example)
    assign(variables_of(model), _backup.Backup.from_bytes(Path(job.start).read_bytes()).variables)
    if not is_streamed and len(job.data) == 1 and isinstance(job.data[0], SharedArray):
        _unwrap_single(model)
    lockstep.DistributedOptimizer(model.optimizer)
    if keras.backend.backend() == "tensorflow":
        model.jit_compile = False  # XLA cannot leave the graph for the sums of gradients
    model.fit(
        data,
        epochs=job.epochs,
        initial_epoch=job.initial_epoch,
        callbacks=[caller],
        validation_data=caller.validation,
        validation_freq=job.validation_freq,
        class_weight=job.class_weight,
        shuffle=False,
        verbose=0,
    )
    caller.tell_end("done")


def main() -> None:
    """Do what a job's file says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--channel", type=int, required=True)
    arguments = parser.parse_args()
    try:
        job = pickle.loads(arguments.job.read_bytes())
        (_infer if isinstance(job, InferenceJob) else _train)(job, arguments.channel)
    except Exception as error:
        first = str(error).strip().split("\n", 1)[0]
        if not isinstance(error, lockstep.PeerError):
            print(f"lockstep: error: {type(error).__name__}: {first}", file=sys.stderr, flush=True)
        raise


if __name__ == "__main__":
    main()
