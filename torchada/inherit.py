"""Children of a program in which torchada was switched on by hand are switched on too.

A ``.pth`` file reaches every process of its environment by itself. ``import torchada`` and
``python -m torchada`` do not, so they put ``torchada/_site`` on the ``PYTHONPATH`` of child processes: the
sitecustomize there switches a child of the same Python on and leaves every other Python alone. This covers
``subprocess``, ``multiprocessing`` with spawn and forkserver, torchrun and DataLoader workers; not children
started with ``-S``, ``-E`` or ``-I`` or with an environment of their own.
"""

import os
import sys

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")


def inherit() -> None:
    """Let child processes of this Python start with torchada active; harmless when they do already."""
    entries = os.environ.get("PYTHONPATH", "")
    if SITE in entries.split(os.pathsep):
        return
    os.environ["PYTHONPATH"] = SITE + (os.pathsep + entries if entries else "")
    os.environ["TORCHADA_INHERIT"] = sys.prefix


def disinherit() -> None:
    """Undo ``inherit()``, whether this process or a parent did it; a PYTHONPATH that a user wrote stays."""
    if os.environ.pop("TORCHADA_INHERIT", None) is None:
        return
    rest = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry != SITE]
    if any(rest):
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    else:
        os.environ.pop("PYTHONPATH", None)
