"""What happens around a capture besides it: graph executable rotation, and files of the captured graphs.

The rotation itself is C (``_rotation.c``); here is when it starts, with which bound, and what is said where it cannot.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch_musa

from ..errors import tell
from ..graph_settings import GraphSettings, graph_settings

Undo = Callable[[], None]
PROBE_LIMIT = 65536
_lock = threading.Lock()
_wanted: GraphSettings | None = None  # by the row of rotation, while it is active
_started = False
_told: set[str] = set()


def rotates() -> bool:
    return graph_settings().rotation


def writes_graphs() -> bool:
    return bool(graph_settings().dump)


def watches_captures() -> bool:
    return rotates() or writes_graphs()


def _tell_once(kind: str, text: str) -> None:
    if kind not in _told:
        _told.add(kind)
        tell(text)


# ---------------------------------------------------------------- rotation
def rotation() -> Undo:
    """Rotation starts with the first capture (with TORCHADA_GRAPH_AUTOPROBE when the device is initialised)."""
    global _wanted, _started
    settings = _wanted = graph_settings()
    if settings.autoprobe:
        torch_musa.core._lazy_init._lazy_call(_start)

    def undo() -> None:
        global _wanted, _started
        with _lock:
            _wanted = None
            if _started:
                from .. import _rotation

                # With graphs alive their executables stay followed: only that code knows which they are.
                _started = not _rotation.stop()

    return undo


def _start() -> None:
    """Follow torch_musa's executables from now on. Where that cannot be, captures work as without rotation."""
    global _started
    with _lock:
        settings = _wanted
        if _started or settings is None:
            return
        _started = True
        try:
            from .. import _rotation

            library = torch_musa._MUSAC.__file__
            folders = {os.path.dirname(os.path.realpath(path)) for path in (library, torch_musa.__file__)}
            _rotation.start(library, tuple(sorted(folders)), settings.bound)
        except (ImportError, OSError, RuntimeError) as error:
            _tell_once(
                "rotation",
                f"graph executable rotation is off: {error}. A program with more graphs than the MUSA driver keeps "
                "alive (about 2,048) fails when it captures one more. TORCHADA_GRAPH_ROTATION=0 silences this; "
                "docs/graphs.md tells more.",
            )
            return
        if settings.autoprobe:
            try:
                _rotation.set_cap(_probed(_rotation.probe(PROBE_LIMIT), settings))
            except RuntimeError as error:
                _tell_once("probe", f"TORCHADA_GRAPH_AUTOPROBE: {error}; the bound stays {settings.bound}")


def _probed(bound: int, settings: GraphSettings) -> int:
    if bound < 0:
        return settings.cap or PROBE_LIMIT
    if bound <= settings.margin:
        raise RuntimeError(
            f"the driver allows {bound} graph executables, and TORCHADA_GRAPH_EXEC_MARGIN={settings.margin} leaves none"
        )
    return min(bound - settings.margin, settings.cap or bound)


# ---------------------------------------------------------------- captures
def capture_begin(original: Callable[..., Any], /, self: Any, *args: Any, **kwargs: Any) -> Any:
    if not _started and _wanted is not None:
        _start()
    if _folder():
        self.enable_debug_mode()
    return original(self, *args, **kwargs)


def capture_end(original: Callable[..., Any], /, self: Any) -> Any:
    result = original(self)
    folder = _folder()
    if folder:
        try:
            os.makedirs(folder, exist_ok=True)
            with _new_file(folder) as path:
                self.debug_dump(path)
        except (OSError, RuntimeError) as error:
            _tell_once("dump", f"TORCHADA_CUDA_GRAPH_DEBUG_DUMP_PATH={folder}: a graph could not be written ({error})")
    return result


def _folder() -> str:
    return os.environ.get("TORCHADA_CUDA_GRAPH_DEBUG_DUMP_PATH", "")


@contextmanager
def _new_file(folder: str) -> Iterator[str]:
    """``graph_<time>.dot``, the time in nanoseconds; one that nobody has. Gone again where it could not be filled."""
    while True:
        path = os.path.join(folder, f"graph_{time.time_ns()}.dot")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            continue
        break
    try:
        yield path
    except BaseException:
        os.unlink(path)
        raise
