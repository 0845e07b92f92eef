"""Programs on the simulated device for the tests of torch.compile: no translation, one cache of compiled code.

A child process imports torch's compiler once and runs one program after the other; `fresh` starts one for itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PREAMBLE = """
import torchada.simulator
torchada.simulator.install()
import torch, torch_musa
"""
_MARK = "\x01done"
_SERVER = f"""
import json, sys, traceback
{PREAMBLE}
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters
for line in sys.stdin:
    error = None
    torch._dynamo.reset()
    counters.clear()
    names = {{"torch": torch, "torch_musa": torch_musa, "CompileCounter": CompileCounter, "counters": counters}}
    try:
        exec(compile(json.loads(line), "<test>", "exec"), names)
    except BaseException:
        error = traceback.format_exc()
    print({_MARK!r} + json.dumps(error), flush=True)
"""


class Programs:
    """Runs programs; each fails the test with its traceback."""

    def __init__(self) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHADA", "PYTHONPATH", "TORCHINDUCTOR"))}
        env.update(
            TORCHADA="0",
            TORCHADA_SIM_DEVICES="2",
            OMP_NUM_THREADS="1",
            PYTHONPATH=str(ROOT),
            TORCHINDUCTOR_CACHE_DIR=os.environ["TORCHINDUCTOR_CACHE_DIR"],
        )
        self.environment = env
        self._server: subprocess.Popen[str] | None = None

    def __call__(self, code: str) -> None:
        """Run `code` in the process that programs share: with torch, torch_musa, CompileCounter and counters."""
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVER],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
        self._server.stdin.flush()
        for line in self._server.stdout:
            if line.startswith(_MARK):
                error = json.loads(line[len(_MARK) :])
                assert error is None, error
                return
        pytest.fail("the child process died")

    def fresh(self, code: str, preamble: str = PREAMBLE, cwd: Path | None = None, **changes: str) -> str:
        """Run `code` in a process of its own and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-c", preamble + textwrap.dedent(code)],
            env=self.environment | changes,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def close(self) -> None:
        """End the shared process; it must end well."""
        if self._server is not None and self._server.poll() is None:
            assert self._server.stdin is not None
            self._server.stdin.close()
            assert self._server.wait(timeout=60) == 0


def programs() -> Iterator[Programs]:
    """To make a module-wide fixture of."""
    made = Programs()
    yield made
    made.close()
