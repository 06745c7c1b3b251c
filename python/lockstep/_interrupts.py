"""Notices a Ctrl-C that Python loses."""

from __future__ import annotations

import sys
import threading
from types import TracebackType


class LostInterrupts:
    """A context that notices KeyboardInterrupts which nobody can catch.

    Python drops an exception that is raised in a destructor or in a callback of the garbage collector, and JAX has
    such a callback. About one Ctrl-C in a hundred is lost in this way while Keras reads weights. The context works in
    the main thread, to which Python delivers Ctrl-C.
    """

    def __init__(self) -> None:
        self._has_come = False
        self._before = sys.unraisablehook

    def raise_again(self) -> None:
        """Raise a KeyboardInterrupt if one was lost."""
        if self._has_come:
            self._has_come = False
            raise KeyboardInterrupt

    def __enter__(self) -> LostInterrupts:
        self._before = sys.unraisablehook
        if threading.current_thread() is threading.main_thread():
            sys.unraisablehook = self._take
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            sys.unraisablehook = self._before

    def _take(self, unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._has_come = True
        else:
            self._before(unraisable)
