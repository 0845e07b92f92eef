"""What the environment says about graphs. Imports no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .errors import ConfigError
from .platform import env_flag

CAP, MARGIN = 1900, 128  # the MUSA driver keeps about 2,048 executables alive in a process
MOST = 10**9


@dataclass(frozen=True)
class GraphSettings:
    """How many graph executables may be alive, and where captured graphs are written to."""

    rotation: bool
    cap: int | None
    """TORCHADA_GRAPH_EXEC_CAP, or None where it is not set."""
    autoprobe: bool
    margin: int
    dump: str

    @property
    def bound(self) -> int:
        return CAP if self.cap is None else self.cap


def graph_settings() -> GraphSettings:
    """The settings of this process. Raises ConfigError for a value that is not understood."""
    margin = _number("TORCHADA_GRAPH_EXEC_MARGIN", least=0)
    return GraphSettings(
        rotation=env_flag("TORCHADA_GRAPH_ROTATION", default=True),
        cap=_number("TORCHADA_GRAPH_EXEC_CAP", least=1),
        autoprobe=env_flag("TORCHADA_GRAPH_AUTOPROBE"),
        margin=MARGIN if margin is None else margin,
        dump=os.environ.get("TORCHADA_CUDA_GRAPH_DEBUG_DUMP_PATH", ""),
    )


def _number(name: str, least: int) -> int | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MOST)) or not least <= int(text) <= MOST:
        raise ConfigError(f"{name}={os.environ[name]!r} is not understood: use a whole number from {least} to {MOST}")
    return int(text)
