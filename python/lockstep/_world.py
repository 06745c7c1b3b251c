"""The world of this process: its start, its end, and who is in it."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import shutil
import stat
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from lockstep._native import Error, InternalError, IoError, PeerError, ProcessGroup, UsageError

# A program that starts again would fail again: its exit code tells the launcher so. Other exceptions may have come from
# a peer's death or from the machine.
_USAGE, _INTERNAL, _IO, _TEMPORARY = 64, 70, 74, 75
_REACTION_S = 3  # a rank that stops because another failed leaves the other's exit code to decide
_MISTAKES = (
    ValueError, TypeError, AttributeError, NameError, ImportError, LookupError, SyntaxError, NotImplementedError,
    AssertionError, ArithmeticError,
)  # fmt: skip

_MIN_JAX_THREADS = 3
_JAX_ASYNCHRONOUS = "JAX_CPU_ENABLE_ASYNC_DISPATCH"
_OWN_LAUNCHER = "LOCKSTEP_CONTROL_FD"
_LAUNCHER_VARIABLES = (_OWN_LAUNCHER, "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK")


class _World:
    """The process' group, once `init` has made it, and how the process ends."""

    def __init__(self) -> None:
        self.group: ProcessGroup | None = None
        self.owner_pid = 0
        self.exit_code: int | None = None
        self.after_close: list[Callable[[], None]] = []
        self.has_broadcast_weights = False


_world = _World()


def group() -> ProcessGroup:
    """Return the process group, or raise if there is none."""
    if _world.group is None:
        raise UsageError("call lockstep.init() before any other function of lockstep")
    return _world.group


def note_broadcast_weights() -> None:
    """Note that all ranks have the weights of one."""
    _world.has_broadcast_weights = True


def tell_of_own_weights() -> None:
    """Say it before the first step if the ranks may have begun with weights of their own."""
    if not _world.has_broadcast_weights and len(group().host_of_rank) > 1 and group().rank == 0:
        print(
            "Lockstep: warning: each worker begins with weights of its own, and workers whose weights differ train "
            "different models; give fit a callback of lockstep.callbacks, or call lockstep.broadcast(model) first",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    note_broadcast_weights()


def after_close(action: Callable[[], None]) -> None:
    """Register what is done once all ranks have ended their programs without an error."""
    _world.after_close.append(action)


def find_command() -> str:
    """Return the path of the command ``lockstep``."""
    beside = Path(sysconfig.get_path("scripts")) / "lockstep"
    if os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which("lockstep")
    if found is None:
        raise UsageError(f"the command lockstep is neither in {beside.parent} nor on PATH; reinstall the package")
    return found


def _workers_of_tf_config() -> int | None:
    """Return the number of workers in TF_CONFIG, or None if only the launcher can tell, or explain what is wrong."""
    if not os.environ.get("TF_CONFIG"):
        return None if os.environ.get("CLUSTER_CONFIG") else 0
    try:
        cluster = json.loads(os.environ["TF_CONFIG"]).get("cluster", {})
        return sum(len(cluster.get(kind, ())) for kind in ("chief", "master", "worker"))
    except (ValueError, AttributeError, TypeError):
        return None


def _has_launcher() -> bool:
    """Return whether the socket of ``lockstep launch`` is open here. What a worker starts has the variable only."""
    try:
        return stat.S_ISSOCK(os.fstat(int(os.environ.get(_OWN_LAUNCHER) or "-1")).st_mode)
    except (OSError, ValueError, OverflowError):
        return False


def _launcher_variable() -> str | None:
    """Return the variable by which a launcher shows that it started this process. An empty one is unset."""
    return next(filter(os.environ.get, _LAUNCHER_VARIABLES), None)


def _launch_if_needed() -> None:
    """Start this program again under ``lockstep launch`` if TF_CONFIG has several workers and nobody launched it."""
    if _launcher_variable() is not None:
        return
    workers = _workers_of_tf_config()
    if workers is not None and workers < 2:
        return
    if hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        raise UsageError("TF_CONFIG lists several workers, but this is an interactive session; run a script instead")
    command = [find_command(), "launch", "--", sys.executable, *sys.orig_argv[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)


def _require_world_of_tf_config(size: int, variable: str | None) -> None:
    """Refuse a world smaller than TF_CONFIG's: this process would train alone beside the others."""
    if _has_launcher():  # it read TF_CONFIG, and may go on with fewer workers
        return
    workers = _workers_of_tf_config()
    if size > 1 if workers is None else size >= workers:
        return
    name = "TF_CONFIG" if os.environ.get("TF_CONFIG") else "CLUSTER_CONFIG"
    if workers is None:
        says = "cannot be read" if name == "TF_CONFIG" else "lists several workers"
    else:
        says = f"lists {workers} workers"
    raise UsageError(
        f"{name} {says}, but this process is in a world of {size}, because "
        f"{variable}={os.environ.get(variable or '')!r} says that a launcher started it; unset that variable, or "
        f"start as many processes as {name} lists"
    )


def init(timeout: float | None = None) -> None:
    """Join the world that ``lockstep launch``, mpirun or a Kubernetes job made; without one, be a world of one.

    With a TF_CONFIG of several workers and no launcher, the program starts itself again under ``lockstep launch``. So
    call this first, before anything that takes long.

    Parameters
    ----------
    timeout
        Seconds that a rank waits for another before it raises `PeerError`; 0 means no limit. The default is the
        variable LOCKSTEP_COLLECTIVE_TIMEOUT, or 600.
    """
    if _world.group is not None:
        return
    _launch_if_needed()
    _prepare_jax()
    if timeout is None:
        timeout = float(os.environ.get("LOCKSTEP_COLLECTIVE_TIMEOUT") or "600")
    variable = _launcher_variable()  # before MPI sets PMIX_RANK
    _world.group = ProcessGroup(timeout)
    _world.owner_pid = os.getpid()
    sys.excepthook = _with_exit_code(sys.excepthook)
    atexit.register(_end)
    _require_world_of_tf_config(len(_world.group.host_of_rank), variable)
    _require_no_servers()
    if _world.group.rank == 0 and len(_world.group.host_of_rank) > 1:
        backend = os.environ.get("KERAS_BACKEND", "Keras' default") if importlib.util.find_spec("keras") else "none"
        print(
            f"Lockstep: {len(_world.group.host_of_rank)} workers, {_world.group.description}, Keras backend: {backend}",
            file=sys.stderr,
            flush=True,
        )


def _require_no_servers() -> None:
    """Refuse a launcher that gives each task a world of its own, in which it would train alone."""
    if os.environ.get(_OWN_LAUNCHER) and os.environ.get("LOCKSTEP_STRATEGY") == "parameter-server":
        raise UsageError(
            "lockstep launch was told of parameter servers (--strategy or LOCKSTEP_STRATEGY), which programs in Python "
            "do not use; leave them out, or train the model with lockstep train"
        )


def _prepare_jax() -> None:
    """Keep JAX on CPUs from waiting for itself.

    A callback waits for copies of its arguments. The threads that make them also run callbacks, so a worker with one
    core, for which JAX has one thread, may wait for ever. So it may for a copy behind a computation that is dispatched
    asynchronously: https://github.com/jax-ml/jax/issues/25861.
    """
    threads = os.environ.get("PJRT_NPROC", "")
    if (int(threads) if threads.isdecimal() else len(os.sched_getaffinity(0))) < _MIN_JAX_THREADS:
        os.environ["PJRT_NPROC"] = str(_MIN_JAX_THREADS)
    if _JAX_ASYNCHRONOUS in os.environ:
        return
    os.environ[_JAX_ASYNCHRONOUS] = "0"
    if "jax" in sys.modules:  # which has read this variable
        sys.modules["jax"].config.update(_JAX_ASYNCHRONOUS.lower(), False)


_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def exit_code_of(error: BaseException) -> int:
    """Return the exit code that tells a launcher whether a restart may help."""
    if isinstance(error, PeerError):
        return _TEMPORARY
    if isinstance(error, InternalError):
        return _INTERNAL
    if isinstance(error, (IoError, OSError)) and not isinstance(error, FileNotFoundError):
        return _IO
    if isinstance(error, (*_MISTAKES, FileNotFoundError)) or type(error).__name__ == "InvalidArgumentError":
        return _USAGE
    if isinstance(error, KeyboardInterrupt):
        return 130
    return _INTERNAL


def _with_exit_code(previous: _Hook) -> _Hook:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _world.group is not None and _world.owner_pid == os.getpid():
            _world.exit_code = exit_code_of(error)
            text = "".join(traceback.format_exception_only(kind, error)).strip()
            _world.group.report_error(text)
            if not isinstance(error, Error):
                _world.group.fail(text)
        previous(kind, error, trace)

    return hook


def _end() -> None:
    """Leave the world when the program ends. After an error the others may never come, so this does not wait."""
    if _world.group is None or _world.owner_pid != os.getpid():
        return
    if _world.exit_code is None:
        try:
            shutdown()
            return
        except Error as error:
            print(f"lockstep: error: {error}", file=sys.stderr)
            _world.exit_code = exit_code_of(error)
    sys.stdout.flush()
    sys.stderr.flush()
    if _world.exit_code == _TEMPORARY:
        time.sleep(_REACTION_S)
    os._exit(_world.exit_code)


def shutdown() -> None:
    """Leave the world: waits until every rank has called it. Programs that just end do so by themselves."""
    current = group()
    current.barrier()
    current.close()  # until then a rank may be lost, and the others need the backup
    _world.group = None
    for action in _world.after_close:
        action()
    _world.after_close.clear()


def exit_together(code: int) -> None:
    """End the program on all ranks, which all call this, with an exit code that is no error of the program."""
    group().barrier()
    group().close()
    _world.group = None
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def is_initialized() -> bool:
    """Return whether `init` was called."""
    return _world.group is not None


def rank() -> int:
    """Return this worker's number in the world, from 0."""
    return group().rank


def size() -> int:
    """Return the number of workers in the world."""
    return len(group().host_of_rank)


def local_rank() -> int:
    """Return this worker's number on its host, from 0."""
    hosts = group().host_of_rank
    return hosts[: group().rank].count(hosts[group().rank])


def local_size() -> int:
    """Return the number of workers on this host."""
    hosts = group().host_of_rank
    return hosts.count(hosts[group().rank])


def is_chief() -> bool:
    """Return whether this is the worker that writes files: rank 0."""
    return group().rank == 0
