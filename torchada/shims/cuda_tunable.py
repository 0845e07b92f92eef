"""torch.cuda.tunable: its settings are kept; the tuning itself is for cuBLASLt and hipBLASLt."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..errors import NotOnMusa

Function = Callable[..., Any]
# As torch starts without its environment variables.
_state: dict[str, Any] = {
    "tuning": True,
    "duration": 30,
    "iterations": 100,
    "filename": "",
    "rotating_buffer": -1,
}
_REASON = "GEMM tuning is a feature of cuBLASLt and hipBLASLt; muBLAS has none."
_INSTEAD = "leave TunableOp off; muBLAS chooses its kernels itself."


def _getter(native: Function, answer: Callable[[], Any]) -> Function:
    @functools.wraps(native)
    def getter() -> Any:
        return answer()

    return getter


def _switch(native: Function) -> Function:
    @functools.wraps(native)
    def switch(val: bool = True) -> None:
        if val:
            raise NotOnMusa(f"torch.cuda.tunable.{native.__name__}(True)", _REASON, _INSTEAD)

    return switch


def enable(native: Function, peer: None) -> Function:
    return _switch(native)


def record_untuned_enable(native: Function, peer: None) -> Function:
    return _switch(native)


def is_off(native: Function, peer: None) -> Function:
    return _getter(native, lambda: False)


def tuning_enable(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def tuning_enable(val: bool = True) -> None:
        _state["tuning"] = bool(val)

    return tuning_enable


def tuning_is_enabled(native: Function, peer: None) -> Function:
    return _getter(native, lambda: _state["tuning"])


def set_max_tuning_duration(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def set_max_tuning_duration(duration: int) -> None:
        _state["duration"] = duration

    return set_max_tuning_duration


def get_max_tuning_duration(native: Function, peer: None) -> Function:
    return _getter(native, lambda: _state["duration"])


def set_max_tuning_iterations(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def set_max_tuning_iterations(iterations: int) -> None:
        _state["iterations"] = iterations

    return set_max_tuning_iterations


def get_max_tuning_iterations(native: Function, peer: None) -> Function:
    return _getter(native, lambda: _state["iterations"])


def set_filename(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
        if insert_device_ordinal:
            stem, dot, suffix = filename.rpartition(".")
            ordinal = torch.cuda.current_device()
            filename = f"{stem}{ordinal}{dot}{suffix}" if dot else f"{filename}{ordinal}"
        _state["filename"] = filename

    return set_filename


def get_filename(native: Function, peer: None) -> Function:
    return _getter(native, lambda: _state["filename"])


def set_rotating_buffer_size(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def set_rotating_buffer_size(buffer_size: int) -> None:
        _state["rotating_buffer"] = buffer_size

    return set_rotating_buffer_size


def get_rotating_buffer_size(native: Function, peer: None) -> Function:
    return _getter(native, lambda: _state["rotating_buffer"])


def get_results(native: Function, peer: None) -> Function:
    return _getter(native, tuple)


def get_validators(native: Function, peer: None) -> Function:
    return _getter(native, lambda: (("PT_VERSION", torch.__version__.partition("+")[0]),))


def file_not_used(native: Function, peer: None) -> Function:
    """``read_file`` and ``write_file``: False is torch's answer when no result was read or written."""

    @functools.wraps(native)
    def file(filename: str | None = None) -> bool:
        return False

    return file


def nothing_to_write(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def write_file_on_exit(val: bool) -> None:
        return None

    return write_file_on_exit


def set_numerical_check_tolerances(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def set_numerical_check_tolerances(enable: bool, atol: float = 1e-5, rtol: float = 1e-5) -> None:
        return None

    return set_numerical_check_tolerances
