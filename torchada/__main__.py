"""The command line: ``python -m torchada``, also installed as ``torchada``."""

from __future__ import annotations

import os
import sys

from . import __version__

USAGE = """\
usage: python -m torchada [options] script.py [args]    run a script
       python -m torchada [options] -m module [args]    run a module
       python -m torchada [options] -c code [args]      run code
       python -m torchada [options] - [args]            run what standard input says
       python -m torchada command [command's options]

Runs the program exactly as python does, with CUDA names answered by the MUSA device.

options:
  --simulate      use the simulated MUSA device (no hardware needed); children inherit it
  --devices N     how many simulated devices (0 to 16); implies --simulate
  --masquerade    inside the program (the script and the code beside it, or the package) a device
                  answers as a CUDA device: device.type == "cuda", torch.cuda.is_available() ...
  --masquerade=A,B  the same inside the modules A and B (names, or paths of scripts and folders)
  --summary       print one line on stderr at the end: device, versions, rules at work
  -i              python's own -i: go interactive after the program, or with no program
  --version       print the version
  -h, --help      print this text
Options of python itself go in front: python -u -O -m torchada script.py

commands (a program with such a name: python -m torchada ./doctor):
  doctor          check this machine and environment, and say what to do
  docs            the page of every CUDA name and what happens to it
  report          every rule with its outcome, gate and reason
  enable          switch this environment on: every python started in it is active
  disable         switch it off again
  status          how torchada is switched on here
  simulate        run a program on the simulated device, or tell about it (--info)
  port            port C++ and CUDA sources to MUSA, or check what porting would do
Each takes --json and --help where it makes sense.
"""

PROGRAM = ","  # no name of a module
COMMANDS = {
    "doctor": "torchada.report",
    "docs": "torchada.coverage",
    "report": "torchada.report",
    "enable": "torchada.enable",
    "disable": "torchada.enable",
    "status": "torchada.enable",
    "simulate": "torchada.simulator.command",
    "port": "torchada.porting.command",
}


def main(argv: list[str] | None = None) -> int:
    """Carry out the command line *argv* (default: the process's) and return the exit status."""
    from .errors import ConfigError
    from .run import UsageError

    try:
        return dispatch(sys.argv[1:] if argv is None else argv)
    except ConfigError as error:
        print(f"torchada: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name not in ("packaging", "rich", "wrapt"):
            raise
        print(f"torchada: {error.name}, which torchada needs, is missing: pip install {error.name}", file=sys.stderr)
        return 1
    except UsageError as error:
        print(f"{USAGE}\ntorchada: {error}", file=sys.stderr)
        return 2


def dispatch(argv: list[str]) -> int:
    """The options, then a command or a program."""
    from .run import UsageError, run

    rest = list(argv)
    extra: list[str] = []
    hidden = ""
    while rest and rest[0].startswith("-") and rest[0] != "-" and rest[0][:2] not in ("-m", "-c"):
        option, equals, value = rest.pop(0).partition("=")
        if equals and option not in ("--devices", "--masquerade"):
            raise UsageError(f"option {option} takes no value")
        if option in ("-h", "--help"):
            print(USAGE, end="")
            return 0
        if option == "--version":
            print(f"torchada {__version__}")
            return 0
        if option == "-i":
            extra.append("-i")
        elif option == "--masquerade":
            if equals and not value.strip(", "):
                raise UsageError("--masquerade= needs names of modules, or paths of scripts or folders")
            hidden = value if equals else PROGRAM
        elif option == "--simulate":
            os.environ["TORCHADA_SIMULATE"] = "1"
        elif option == "--summary":
            os.environ["TORCHADA_SUMMARY"] = str(os.getpid())  # the program keeps this process id
        elif option == "--devices":
            value = value if equals else (rest.pop(0) if rest else "")
            if not (value.isascii() and value.isdigit() and int(value) <= 16):
                raise UsageError(f"--devices takes a whole number from 0 to 16, not {value!r}")
            os.environ["TORCHADA_SIMULATE"] = "1"
            os.environ["TORCHADA_SIM_DEVICES"] = value
        else:
            raise UsageError(f"unknown option {option} (options of python itself go in front of -m torchada)")
    if hidden:
        from .packages import program_names, remember, split

        if hidden == PROGRAM and (rest[:1] or ["doctor"])[0] in COMMANDS and not extra:
            raise UsageError("--masquerade needs a program, or names: --masquerade=package")
        remember(program_names(rest) if hidden == PROGRAM else split(hidden))
    if rest and rest[0] in COMMANDS:
        from importlib import import_module

        return int(import_module(COMMANDS[rest[0]]).main(rest[0], rest[1:]))
    if not rest and not extra:
        print(USAGE, end="")
        return 0
    run(rest, tuple(extra))


if __name__ == "__main__":
    sys.exit(main())
