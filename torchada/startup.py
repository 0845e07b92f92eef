"""Stage one: what a ``.pth``, ``.start`` or sitecustomize file runs. Imports nothing that is not loaded anyway.

It puts a sentinel on ``sys.meta_path`` that waits for ``torch`` or ``torch_musa``; only then the engine is loaded.
"""

import sys
from os import environ, getpid

from .inherit import disinherit, inherit

OFF_WORDS = ("0", "false", "no", "off")
ON_WORDS = ("", "1", "true", "yes", "on")
# What the engine has to know of before anything else: torch, and modules that a MUSA package may answer.
AWAITED = ("torch", "torch_musa", "pynvml", "sgl_kernel")
state: dict = {"via": None, "error": None}


def switched_off():
    """Whether ``TORCHADA`` says no. Raises ValueError for a word it does not know."""
    word = environ.get("TORCHADA", "").lower()
    if word in OFF_WORDS:
        return True
    if word in ON_WORDS:
        return False
    raise ValueError(f"TORCHADA={word!r} is not understood: use 0 (off) or 1 (on), or unset it")


class Sentinel:
    """Waits for what is ``AWAITED``; then takes itself off ``sys.meta_path``; the finder answers this very look-up."""

    def find_spec(self, name, path=None, target=None):
        if name not in AWAITED:
            return None
        finder = engage()
        return None if finder is None else finder.find_spec(name, path, target)


SENTINEL = Sentinel()


def start(via):
    """Switch torchada on in this process (*via* is what status() tells). Does nothing when switched off."""
    if switched_off():
        return
    state["via"] = state["via"] or via
    inherit()
    if environ.get("TORCHADA_SUMMARY") == str(getpid()):  # this process, not its children
        import atexit

        atexit.register(summarise)
    if not sys.modules.keys().isdisjoint(("torch", "torch_musa", "torchada.engine")):
        engage(raising=True)
    elif SENTINEL not in sys.meta_path:
        place(SENTINEL)


def place(finder):
    """Put a finder right before the interpreter's own, so that finders which wrap what they find see our modules."""
    standard = (at for at, other in enumerate(sys.meta_path) if getattr(other, "__module__", "") == "_frozen_importlib")
    sys.meta_path.insert(next(standard, 0), finder)


def via(name="start"):
    """Tell how this process was switched on, where the importer knows better than the import."""
    if state["via"] == "import":
        state["via"] = name
    if name in ("pth", "start", "sitecustomize"):
        disinherit()  # these reach the children by themselves


def engage(raising=False):
    """Load the engine and let it decide; the finder, or None where there is nothing to do.

    A failure here must not break ``import torch``: it is told once and torchada stays off.
    """
    retire()
    try:
        from torchada.engine import ENGINE

        finder = ENGINE.engage()
    except Exception as error:
        state["error"] = error
        if raising:
            raise
        sys.stderr.write(f"torchada: not active: {type(error).__name__}: {error}\n")
        return None
    if finder is None:
        disinherit()  # inert here, so in the children too
    return finder


def summarise():
    """What ``--summary`` asks for: one line on stderr when the program ends."""
    from torchada.report import summary_line

    sys.stderr.write(summary_line() + "\n")


def retire():
    """Take the sentinel away, if it is there."""
    if SENTINEL in sys.meta_path:
        sys.meta_path.remove(SENTINEL)
