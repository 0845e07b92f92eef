"""Running the programs of docs/examples as their users would, and reading what they print at the end."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.activation.support import ROOT, clean_environment

EXAMPLES = ROOT / "docs" / "examples"
# Short runs that still go through everything a program does.
SHORT = {
    "compiled.py": ("--fp32", "--steps", "20", "--depth", "1", "--backend", "aot_eager"),
    "digits.py": ("--fp32", "--epochs", "3"),
    "gpt.py": ("--fp32", "--steps", "20", "--characters", "100000", "--sample", "40"),
    "transformers_trainer.py": ("--steps", "20", "--count", "8"),
    "diffusion.py": ("--steps", "20", "--denoise", "4", "--draw", "3"),
}


class Ways:
    """The ways a user gets a CUDA program to run: each turns (program, arguments) into a command and variables."""

    def __init__(self, folder: Path, environment_python: str) -> None:
        self.folder = folder
        self.environment_python = environment_python
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        self.pool = ThreadPoolExecutor(min(2, max(1, (os.cpu_count() or 1) // workers)))

    def runner(self, program: Path) -> tuple[list[str], dict[str, str]]:
        """``python -m torchada --simulate --summary program``."""
        return [sys.executable, "-m", "torchada", "--simulate", "--summary", str(program)], {"PYTHONPATH": str(ROOT)}

    def first_line(self, program: Path) -> tuple[list[str], dict[str, str]]:
        """The same program with ``import torchada`` as its first line."""
        copy = self.folder / program.name
        copy.write_text("import torchada\n" + program.read_text())
        return [sys.executable, str(copy)], {"PYTHONPATH": str(ROOT), "TORCHADA_SIMULATE": "1"}

    def start_file(self, program: Path) -> tuple[list[str], dict[str, str]]:
        """Plain ``python program`` in an environment where the wheel, with its ``.pth``, is installed."""
        return [self.environment_python, str(program)], {"TORCHADA_SIMULATE": "1"}

    def forced(self, program: Path) -> tuple[list[str], dict[str, str]]:
        """As ``runner``, and ``torch.cuda.is_available()`` answers True."""
        command, extra = self.runner(program)
        return command, extra | {"TORCHADA_FORCE_CUDA_AVAILABLE": "1"}

    def plain(self, program: Path) -> tuple[list[str], dict[str, str]]:
        """Plain ``python program`` without torchada and without any GPU: the reference."""
        return [sys.executable, str(program)], {"TORCHADA": "0"}

    @functools.cache  # noqa: B019 - one object per session
    def start(self, way: str, name: str, *arguments: str) -> Future[Run]:
        """Begin to run a program, once per session; a few run side by side."""
        command, extra = getattr(self, way)(EXAMPLES / name)
        environment = clean_environment() | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | extra
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        if "TORCHADA_SIM_CACHE" in os.environ:  # where the device is built already
            environment["TORCHADA_SIM_CACHE"] = os.environ["TORCHADA_SIM_CACHE"]
        return self.pool.submit(self._finish, [*command, *arguments, "--json"], environment)

    def _finish(self, command: list[str], environment: dict[str, str]) -> Run:
        done = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{command} gave {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        return Run(done.stdout, done.stderr)

    def run(self, way: str, name: str, *arguments: str) -> Run:
        """What a program printed; it has to succeed."""
        return self.start(way, name, *arguments).result()

    def start_short(self, way: str, name: str) -> Future[Run]:
        """Begin the short run of a program (on the CPU for ``plain``)."""
        return self.start(way, name, *SHORT[name], *(("--device", "cpu") if way == "plain" else ()))

    def short(self, way: str, name: str) -> Run:
        """What the short run of a program printed."""
        return self.start_short(way, name).result()


class Run:
    """What a finished program printed; ``result`` is its last line, decoded."""

    def __init__(self, output: str, errors: str) -> None:
        self.output = output
        self.errors = errors
        last = output.splitlines()[-1]
        assert last.startswith("RESULT "), output
        self.result: dict[str, Any] = json.loads(last.removeprefix("RESULT "))


def worst(a: list[float], b: list[float]) -> float:
    """The largest difference between two curves, relative to the larger value."""
    assert len(a) == len(b)
    return max(abs(x - y) / max(abs(x), abs(y)) for x, y in zip(a, b, strict=True))


def has_no_vendor_name(source: str) -> bool:
    """True for a program that knows nothing of MUSA or torchada."""
    return not any(word in source.lower() for word in ("musa", "torchada", "mthreads", "simulat"))
