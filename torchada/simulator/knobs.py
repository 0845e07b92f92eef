"""The environment variables of the simulated device: name -> what is meant, and what holds without it."""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["KNOBS", "Knob", "values"]


class Knob(NamedTuple):
    """An environment variable; `default` is text for people."""

    meaning: str
    default: str


KNOBS = {
    "TORCHADA_SIM_ASYNC": Knob("1: each stream works on a thread of its own, so that missing waits show", "0"),
    "TORCHADA_SIM_CACHE": Knob("where the built device is kept", "the user's cache directory"),
    "TORCHADA_SIM_CXXFLAGS": Knob("more flags for compiling and linking, for example of a sanitizer", "none"),
    "TORCHADA_SIM_DEFECTS": Knob(
        "known defects of torch_musa switched on and off: +name,-name (-all: none)", "those of its version"
    ),
    "TORCHADA_SIM_DEVICE": Knob("S80, S3000, S4000 or S5000: name, architecture, memory, multiprocessors", "S5000"),
    "TORCHADA_SIM_DEVICES": Knob("number of devices, 0 to 16; 0 is a build container", "2"),
    "TORCHADA_SIM_GRAPH_EXECS": Knob("how many executable graphs may live at once", "2048"),
    "TORCHADA_SIM_MEMORY": Knob("bytes per device, with K, M, G (also MiB ...)", "an eighth of the card's"),
    "TORCHADA_SIM_TORCH_MUSA": Knob("which version of torch_musa it is", "2.7.1"),
}


def values() -> dict[str, str | None]:
    """What the environment says; None for a variable that is not set."""
    return {name: os.environ.get(name) for name in KNOBS}
