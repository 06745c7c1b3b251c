"""Callbacks for Keras' ``fit`` on many workers. Put `BackupAndRestore` or `AverageMetrics` first in the list."""

from __future__ import annotations

import sys
import warnings
import weakref
from pathlib import Path
from typing import Any

import keras
import numpy as np

from lockstep import _backup, _start, _world
from lockstep._collectives import broadcast, sum_arrays
from lockstep._data import feed
from lockstep._native import DataError, UsageError
from lockstep._optimizer import progress
from lockstep._state import assign, average_differing, broadcast_variables, to_array, to_json, variables_of
from lockstep._world import group, is_chief, note_broadcast_weights, rank, size

__all__ = ["AverageMetrics", "BackupAndRestore", "ModelCheckpoint"]

_TEMPORARY = 75
_AFTER_THIS_STEP = 2  # a StopRequest
_RAN_OUT = "Your input ran out of data"


class AverageMetrics(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the workers of a ``fit`` together.

    - Training begins with the chief's weights. Workers that have given `lockstep.shard` other data are refused.
    - At the end of an epoch, a worker whose data ended early takes the weights of one whose did not. State that layers
      update without gradients, such as moving statistics, is averaged.
    - The metrics in the logs of an epoch are those of all workers' data, for callbacks after this one too: what the
      metrics accumulated is summed over the workers. Logs of batches are this worker's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._averages: dict[str, Any] = {}
        self._is_fitting = False
        self._has_ended_pass = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Take the chief's weights."""
        self._require_distributed_optimizer()
        self._is_fitting = True
        _start.require_same_shards(feed.describe)
        broadcast_variables(variables_of(self.model))

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Forget the metrics of the epoch before."""
        self._averages = {}
        self._has_ended_pass = False

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Before validation, average what training accumulated: validation begins with a reset of the metrics."""
        if self._is_fitting:
            self._end_pass()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Average the metrics of validation."""
        if self._is_fitting:
            self._averages |= {f"val_{name}": value for name, value in self._average_metrics().items()}

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the averages to the epoch's logs."""
        self._end_pass()
        if logs is not None:
            logs.update({name: value for name, value in self._averages.items() if name in logs})

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """End the training."""
        self._is_fitting = False

    def _require_distributed_optimizer(self) -> None:
        """Refuse workers that would each train a model of their own. A train_step may average gradients by itself."""
        model = self.model
        optimizer = getattr(model, "optimizer", None)
        has_own_step = type(model).train_step is not keras.Model.train_step
        if size() == 1 or has_own_step or getattr(optimizer, "lockstep_averager", None) is not None:
            return
        raise UsageError(
            "the optimizer does not average gradients, so each worker would train a model of its own; compile with "
            "lockstep.DistributedOptimizer(optimizer)"
        )

    def _end_pass(self) -> None:
        if self._has_ended_pass:
            return
        self._has_ended_pass = True
        model = self.model
        _, source, is_uneven = group().join()
        if is_uneven:
            broadcast_variables(variables_of(model), source)
        average_differing(model.non_trainable_variables)
        self._averages |= self._average_metrics()

    def _average_metrics(self) -> dict[str, Any]:
        """Return the metrics of all workers; leaves the metrics' own variables as they are."""
        if size() == 1:
            return {}
        model = self.model
        metrics = [metric for metric in model.metrics if metric.variables]
        variables = [variable for metric in metrics for variable in metric.variables]
        own = [to_array(variable) for variable in variables]
        sums = sum_arrays(own)
        assign(variables, [total.astype(array.dtype) for total, array in zip(sums, own, strict=True)])
        results = {name: np.asarray(to_json(value)) for name, value in model.get_metrics_result().items()}
        assign(variables, own)
        return {name: value if value.ndim else float(value) for name, value in results.items()}


class BackupAndRestore(AverageMetrics):
    """Backs training up, and goes on where the last backup ended when the program starts again.

    A backup holds weights, optimizer, the position in the data, the epoch's metrics so far and the history. With
    data from `lockstep.shard`, training goes on in the middle of an epoch; with other data, at its beginning. The
    backup of a training with another model, compilation, learning rate or data of `lockstep.shard` is refused, and so
    is a second model of the program in one directory. A model that holds NaN or infinity is not backed up: the backup
    before it stays, and a warning says so. It also does all that `AverageMetrics` does.

    Parameters
    ----------
    backup_dir
        The chief writes here; the other workers need no access.
    save_freq
        "epoch", or the number of steps between backups.
    delete_checkpoint
        Remove the backup when all workers have ended their programs, unless the model holds NaN or infinity then.
    """

    # Fits in this program by backup directory, so that each knows its number, and with what they began.
    _fits: dict[Path, int] = {}  # noqa: RUF012
    _begun: dict[Path, dict[str, Any]] = {}  # noqa: RUF012
    _models: dict[Path, weakref.ref[Any]] = {}  # noqa: RUF012

    def __init__(self, backup_dir: str | Path, save_freq: str | int = "epoch", delete_checkpoint: bool = True) -> None:
        super().__init__()
        if not str(backup_dir):
            raise UsageError("backup_dir is empty; name a directory")
        if save_freq != "epoch" and (not isinstance(save_freq, int) or isinstance(save_freq, bool) or save_freq < 1):
            raise UsageError(f"save_freq is {save_freq!r}; use 'epoch' or a number of steps from 1")
        self.backup_dir = Path(backup_dir).absolute()  # wherever the program goes
        self.save_freq = save_freq
        self.delete_checkpoint = delete_checkpoint
        self._fit = 0
        self._epoch = 0
        self._first_step = 0  # of the epoch that was restored
        self._metrics: list[Any] | None = None
        self._history: dict[str, Any] = {"epoch": [], "history": {}}
        self._is_saved = True  # whether the last backup that was due is written

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restore the last backup, if there is one."""
        self._require_distributed_optimizer()
        self._is_fitting = True
        directory = self.backup_dir.absolute()
        first = BackupAndRestore._models.setdefault(directory, weakref.ref(self.model))
        if first() is not self.model:
            raise UsageError(
                f"{self.backup_dir} holds the backups of another model of this program; name a directory for each model"
            )
        _start.require_same_shards(feed.describe)
        self._fit = BackupAndRestore._fits[directory] = BackupAndRestore._fits.get(directory, 0) + 1
        begun = BackupAndRestore._begun.setdefault(directory, {})
        now = self._describe() if is_chief() else {}
        backup = _backup.read(self.backup_dir)
        if backup is None or backup.fit < self._fit:
            begun[str(self._fit)] = now
            broadcast_variables(variables_of(self.model))
            return
        self._require_same_training(backup, now)
        self._require_epochs(backup)
        begun.update(backup.begun)
        self._restore(backup)

    def _describe(self) -> dict[str, Any]:
        """Return with what this fit begins."""
        return {**_start.describe_model(self.model), "shards": feed.describe()}

    def _require_same_training(self, backup: _backup.Backup, now: dict[str, Any]) -> None:
        different = None
        if is_chief():
            start = backup.begun.get(str(self._fit), {})
            if bool(start) != bool(now):  # lockstep.fit keeps its facts beside the backup
                different = "lockstep.fit" if now else "lockstep.callbacks.BackupAndRestore"
            elif start:
                different = _start.other_training(start, now)
            if start and different is None:
                different = _start.other_shards(start["shards"], now["shards"], backup.position["current"])
        different = broadcast(different)
        if different is not None:
            raise UsageError(
                f"{self.backup_dir} holds the backup of a training with {different}; give what it began with, name "
                "another directory, or remove it"
            )

    def _require_epochs(self, backup: _backup.Backup) -> None:
        epochs = (self.params or {}).get("epochs")
        completed = backup.epoch
        if epochs is not None and backup.fit == self._fit and (completed, backup.step) > (epochs, 0):
            raise UsageError(
                f"the backup in {self.backup_dir} was taken after {completed} epochs, but epochs is {epochs} now; give "
                "more epochs, name another backup_dir, or remove it"
            )

    def _restore(self, backup: _backup.Backup) -> None:
        model = self.model
        own = backup.ranks[rank()] if rank() < len(backup.ranks) else _backup.RankState()
        try:
            assign(variables_of(model), backup.variables)
            if own.layers is not None:
                assign(model.non_trainable_variables, own.layers)
        except DataError as error:
            raise DataError(
                f"the backup in {self.backup_dir} is of another model: {error}; remove it to start anew"
            ) from error
        note_broadcast_weights()
        if backup.fit > self._fit:  # an earlier fit of this program, which had ended
            model._initial_epoch = sys.maxsize
            return
        model._initial_epoch = backup.epoch
        self._first_step = backup.step
        self._metrics = own.metrics if backup.step > 0 else None
        self._history = backup.history
        progress.step, progress.epoch = backup.total_steps, backup.epoch
        feed.restore(backup.position, backup.step)
        if is_chief():
            where = f"epoch {backup.epoch + 1}" + (f", step {backup.step + 1}" if backup.step else "")
            print(f"Lockstep: training goes on from the backup in {self.backup_dir}: {where}", file=sys.stderr)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Restore the metrics of an epoch that continues; Keras has just reset them."""
        super().on_epoch_begin(epoch, logs)
        self._epoch = epoch
        progress.epoch = epoch
        model = self.model
        history = getattr(model, "history", None)
        if history is not None and self._history["epoch"] and not history.epoch:
            history.epoch = list(self._history["epoch"])
            history.history.update({key: list(values) for key, values in self._history["history"].items()})
        if self._metrics is not None:
            if len(model.metrics_variables) == len(self._metrics):
                assign(model.metrics_variables, self._metrics)
                self._metrics = None
            # Keras warns that an epoch which continues has fewer batches than it counted.
            warnings.filterwarnings("ignore", message=_RAN_OUT)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Back up if it is time to, or if a worker was told to stop."""
        step = self._first_step + batch + 1
        if self._metrics is not None:
            # TensorFlow's trainer makes the metrics in the first step. They are sums.
            variables = self.model.metrics_variables
            values = [saved + to_array(variable) for saved, variable in zip(self._metrics, variables, strict=True)]
            assign(variables, values)
            self._metrics = None
        # Only sharded data can continue in the middle of an epoch. Some ranks may have no part of its last batch.
        if not feed.is_active or feed.current is None or not feed.current.has_step(step):
            return
        request = group().request
        is_due = isinstance(self.save_freq, int) and step % self.save_freq == 0
        if is_due or request >= _AFTER_THIS_STEP:
            self._save(self._epoch, step)
            if request:
                _world.exit_together(_TEMPORARY)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Average the metrics, and back up."""
        super().on_epoch_end(epoch, logs)
        self._first_step = 0
        self._history["epoch"].append(epoch)
        for key, value in (logs or {}).items():
            self._history["history"].setdefault(key, []).append(to_json(value))
        self._save(self._decide_next_epoch(epoch, logs or {}), 0)
        if group().request:
            _world.exit_together(_TEMPORARY)

    def _decide_next_epoch(self, epoch: int, logs: dict[str, Any]) -> int:
        """Return the epoch with which a restart goes on. What else is decided here is in the backup."""
        return epoch + 1

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Keep the last backup until all workers have ended: a worker may still die before it has saved the model."""
        super().on_train_end(logs)
        self.model._initial_epoch = None
        history = getattr(self.model, "history", None)
        if history is not None and not history.epoch and self._history["epoch"]:
            history.epoch = list(self._history["epoch"])
            history.history.update(self._history["history"])
        if self.delete_checkpoint and is_chief() and self._fit == 1 and self._is_saved:
            _world.after_close(lambda: _backup.remove(self.backup_dir))

    def _save(self, epoch: int, step: int) -> None:
        model = self.model
        variables = [to_array(variable) for variable in variables_of(model)] if is_chief() else []
        backup = _backup.Backup(self._fit, epoch, step, progress.step, feed.position(), self._history, variables)
        backup.begun = BackupAndRestore._begun[self.backup_dir.absolute()]
        metrics = [to_array(variable) for variable in model.metrics_variables] if step > 0 else []
        layers = [to_array(variable) for variable in model.non_trainable_variables]
        was_saved = self._is_saved
        self._is_saved = _backup.write(self.backup_dir, backup, _backup.RankState(metrics, layers))
        if was_saved and not self._is_saved:
            print(
                f"warning: the model holds NaN or infinity, so the backup in {self.backup_dir} is not replaced",
                file=sys.stderr,
            )


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Keras' ModelCheckpoint, which writes on the chief alone."""

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Save on the chief, if it is time to."""
        if is_chief():
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Save on the chief, if it is time to."""
        if is_chief():
            super().on_epoch_end(epoch, logs)
