"""Switching torchada on and off by hand, and what it says of itself."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

from . import startup
from .engine import ENGINE, OFF
from .errors import ConfigError, TorchadaError
from .facts import versions
from .inherit import disinherit, inherit
from .platform import Platform, detect_platform, simulated

_blocks = threading.RLock()
_open_blocks = 0
_resume: str | None = None  # how torchada was switched on before the first open block of disabled()


def activate() -> bool:
    """Switch torchada on in this process; harmless when it is on already.

    Returns:
        True when CUDA names are (or will be, once torch is imported) answered by MUSA; False where torchada is inert:
        no MUSA stack here, or ``TORCHADA=0``.

    Raises:
        ConfigError: an environment variable has a value torchada does not know.
    """
    if startup.switched_off():
        return False
    startup.state["via"] = startup.state["via"] or "activate()"
    startup.retire()
    if ENGINE.engage() is None:
        return False
    startup.state["error"] = None
    inherit()
    return True


def deactivate() -> None:
    """Undo everything torchada applied in this process; harmless when it is off. ``activate()`` turns it on again."""
    startup.retire()
    startup.state["via"] = None
    disinherit()
    ENGINE.deactivate()


def is_active() -> bool:
    """Whether torchada is at work in this process: rules are applied, or will be when torch is imported."""
    return ENGINE.state != OFF or (startup.SENTINEL in sys.meta_path and _platform()[0] is Platform.MUSA)


def _platform() -> tuple[Platform | None, ConfigError | None]:
    try:
        return detect_platform(), None
    except ConfigError as error:
        return None, error


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """A ``with`` block in which torchada is off, for the whole process (all threads), and on again after it; where
    blocks of several threads overlap, after the last of them."""
    global _open_blocks, _resume
    with _blocks:
        if is_active():
            _resume = startup.state["via"]
        _open_blocks += 1
        deactivate()
    try:
        yield
    finally:
        with _blocks:
            _open_blocks -= 1
            if not _open_blocks and _resume:
                activate()
                startup.state["via"], _resume = _resume, None


def simulate(devices: int | None = None) -> None:
    """Give this process (and its children) simulated MUSA devices; call it before torch is imported.

    Args:
        devices: how many (0 to 16); None keeps ``TORCHADA_SIM_DEVICES`` or its default of 2.

    Raises:
        TorchadaError: torch is imported already; use ``TORCHADA_SIMULATE=1`` or ``python -m torchada --simulate``.
        ValueError: *devices* is out of range.
    """
    if "torch_musa" in sys.modules and getattr(sys.modules["torch_musa"], "__simulated__", False):
        return
    if "torch" in sys.modules:
        raise TorchadaError(
            "torchada.simulate() has to be called before torch is imported; "
            "set TORCHADA_SIMULATE=1 or run: python -m torchada --simulate script.py"
        )
    if devices is not None:
        if isinstance(devices, bool) or not isinstance(devices, int) or not 0 <= devices <= 16:
            raise ValueError(f"devices must be a whole number from 0 to 16, not {devices!r}")
        os.environ["TORCHADA_SIM_DEVICES"] = str(devices)
    os.environ["TORCHADA_SIMULATE"] = "1"
    startup.start("simulate()")


def status() -> dict[str, Any]:
    """What torchada does here: active, state, via, platform, simulated, versions, counts of rule outcomes, and the
    error that keeps it off, or None. With a wrong environment variable the platform is None; it raises nothing."""
    outcomes = Counter(entry.outcome for entry in ENGINE.ledger.states().values())
    gave_up = ENGINE.ledger.state("torchada")
    platform, wrong = _platform()
    return {
        "active": is_active(),
        "state": ENGINE.state,
        "via": startup.state["via"],
        "platform": platform.value if platform else None,
        "simulated": platform is Platform.MUSA and simulated(),
        "versions": versions(),
        "rules": dict(outcomes),
        "error": startup.state["error"] or (gave_up.error if gave_up else wrong),
    }
