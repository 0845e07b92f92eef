"""Inductor's tables that have entries for CUDA and none for the backend."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable
from typing import Any

import torch

from ..redirect import redirect_python
from .device import BACKEND


def fill_heuristics() -> Callable[[], None]:
    """At each look-up a template without any entry of the backend's own gets those of CUDA: by then all are there."""
    # Not imported above: whoever imported this module first would make the rule ask it half made.
    registry: Any = sys.modules["torch._inductor.template_heuristics.registry"]
    table: dict[Any, Any] = registry._TEMPLATE_HEURISTIC_REGISTRY
    filled: set[Any] = set()

    def look_up(original: Callable[..., Any], template_name: str, device_type: str, op_name: str) -> Any:
        if device_type == BACKEND and not any(key[:2] == (template_name, BACKEND) for key in table.keys() - filled):
            for key, heuristic in list(table.items()):
                ours = (template_name, BACKEND, *key[2:])
                if key[:2] == (template_name, "cuda") and ours not in table:
                    table[ours] = heuristic
                    filled.add(ours)
        return original(template_name, device_type, op_name)

    restore = redirect_python(registry.get_template_heuristic, look_up)

    def undo() -> None:
        restore()
        for key in filled:
            table.pop(key, None)
        for key in [key for key in registry._HEURISTIC_CACHE if key[1] == BACKEND]:
            del registry._HEURISTIC_CACHE[key]

    return undo


def device_context(original: Callable[..., Any], /, gm: Any) -> Any:
    """The context in which a graph is compiled: its device is the current one, if it has a single one."""
    output = next(iter(reversed(gm.graph.nodes)))
    values = (node.meta.get("val") for node in (*gm.graph.find_nodes(op="placeholder"), *output.all_input_nodes))
    devices = {value.device for value in values if isinstance(value, torch.Tensor) and value.device.type == BACKEND}
    return torch.cuda.device(devices.pop()) if len(devices) == 1 else original(gm)


def gpu_type(original: Callable[[], str], /) -> str:
    """The device type of this machine's GPUs."""
    return BACKEND if torch.accelerator.is_available() else original()


def memory_bandwidth(original: Callable[[], int], /) -> int:
    """The device's memory bandwidth in GB/s, which Triton measures. Without it there is one number for every card: what
    AOT autograd does with it is to compare the times of nodes, all by the same number."""
    return original() if importlib.util.find_spec("triton") else 768  # of an MTT S4000


_CLUTTER = frozenset({"Not enough SMs to use max_autotune_gemm mode"})


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg not in _CLUTTER


def drop_clutter() -> Callable[[], None]:
    """Lines of this one logger that measure a MUSA card by NVIDIA's."""
    logger = logging.getLogger("torch._inductor.utils")
    logger.addFilter(_is_news)
    return lambda: logger.removeFilter(_is_news)
