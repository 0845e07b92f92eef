"""``python -m torchada script.py``: run a program with torchada active, otherwise exactly as python runs it.

The interpreter replaces itself (``exec``) by a plain ``python script.py`` whose environment switches torchada
on. So ``__main__``, tracebacks, exit codes, signals, pickling, debuggers, profilers, zip files and standard
input are python's own and need no imitation; the price is a second interpreter start of some milliseconds.
"""

from __future__ import annotations

import os
import re
import sys
from typing import NoReturn

from . import startup
from .inherit import inherit

OPTION = re.compile(r"-[bBdEiIOPqRsSuvx]*(?P<with_value>[WX](?P<value>.*))?", re.DOTALL)


class UsageError(Exception):
    """The command line cannot be carried out; the text says what to write instead."""


def interpreter_options(orig_argv: list[str], argv: list[str]) -> list[str]:
    """The options python itself was given in front of ``-m torchada`` (or of the ``torchada`` script).

    Raises:
        UsageError: torchada was started by another program (a debugger, a profiler) inside its process.
    """
    head = orig_argv[1 : len(orig_argv) - len(argv) + 1]
    if head and head[-1] == argv[0]:
        del head[-1]  # the console script
    elif head and head[-1].endswith("torchada"):
        last = head.pop().removesuffix("torchada") or head.pop()
        head += [last[:-1]] if last != "-m" else []  # -Im torchada, -Imtorchada
    position = 0
    while position < len(head):
        match = OPTION.fullmatch(head[position])
        separate = match is not None and match["with_value"] is not None and not match["value"]
        if separate or head[position] == "--check-hash-based-pycs":
            position += 2
        elif match:
            position += 1
        else:
            raise UsageError(
                "torchada has to come first: python -m torchada -m pdb script.py "
                "(not python -m pdb -m torchada script.py); likewise for coverage, cProfile and other tools"
            )
    return head


def run(program: list[str], extra: tuple[str, ...] = ()) -> NoReturn:
    """Become ``python *program*`` with torchada active; *extra* are interpreter options. Does not return.

    Raises:
        UsageError: the way this Python was started rules it out.
    """
    options = interpreter_options(sys.orig_argv, sys.argv)
    if not startup.switched_off():
        if not (sys.flags.ignore_environment or sys.flags.no_site):
            os.environ["TORCHADA_VIA"] = "python -m torchada"
            inherit()
        elif startup.state["via"] not in ("pth", "start"):
            raise UsageError(
                "python's options -I, -E and -S shut out the environment through which a program gets "
                "torchada: leave them away, or run 'python -m torchada enable' once (works with -I and -E), "
                "or write 'import torchada' into the program"
            )
    if not sys.executable:
        raise UsageError("this Python does not know its own executable (sys.executable is empty)")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *options, *extra, *program])
