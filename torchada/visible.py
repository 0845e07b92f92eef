"""Which devices a program wants to see.

The MUSA runtime reads ``MUSA_VISIBLE_DEVICES`` when it is asked for the first device; CUDA programs write
``CUDA_VISIBLE_DEVICES``, also late and for their children. Both are kept equal, and what they were made is left in a
third variable: so a later choice in one of them is told from what torchada wrote, in children as well.
"""

from __future__ import annotations

import os

from .ledger import Undo

MUSA, CUDA = VISIBLE = ("MUSA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
LEFT = "TORCHADA_VISIBLE"
_own: dict[str, str | None] = {}  # what the program or its parent has written, for the way back


def follow_visible_devices() -> None:
    """Make both variables what was chosen last: MUSA's, unless only CUDA's was changed since or is set at all."""
    left = os.environ.get(LEFT)
    now = {name: os.environ.get(name) for name in VISIBLE}
    _own.update({name: value for name, value in now.items() if name not in _own or value != left})
    chosen = now[CUDA] if now[MUSA] in (None, left) else now[MUSA]
    for name in (*VISIBLE, LEFT):
        write(name, chosen)


def mirror_visible_devices() -> Undo:
    """``follow_visible_devices()`` for the start; what it returns puts back what the program wrote."""
    _own.clear()
    before = os.environ.get(LEFT)
    follow_visible_devices()

    def undo() -> None:
        left = os.environ.get(LEFT)
        for name, value in _own.items():
            if os.environ.get(name) == left:  # else somebody else's since
                write(name, value)
        write(LEFT, before)

    return undo


def write(name: str, value: str | None) -> None:
    """Set an environment variable, or remove it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
