"""Graph executable rotation: torch_musa's calls of the MUSA runtime, followed in its import tables."""

from typing import TypedDict

class State(TypedDict):
    following: bool
    rotating: bool
    graphs: int
    live: int
    cap: int
    evictions: int
    reinstantiations: int
    overruns: int

def start(library: str, folders: tuple[str, ...], cap: int, /) -> None:
    """Follow the graphs of the libraries in *folders*; *library* is loaded and leads to the runtime.

    RuntimeError or OSError where that is not possible; nothing is changed then.
    """

def stop() -> bool:
    """Take everything back; False, and nothing is, while graphs are alive."""

def set_cap(cap: int, /) -> None:
    """How many executables may be alive."""

def probe(limit: int, /) -> int:
    """How many executables the driver allows, or -1 if there is no bound below *limit*."""

def state() -> State:
    """Numbers of now and of so far."""
