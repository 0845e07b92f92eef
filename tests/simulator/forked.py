"""A process that has torch, and forks a child without torch_musa for every piece of code: a fresh start in 0.1 s."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MARK = "\x01done"
SERVER = f"""
import json, os, sys, traceback
import torchada.simulator
torchada.simulator.install()
import torch
for module in json.loads(sys.stdin.readline()):
    __import__(module)
for line in sys.stdin:
    code, env = json.loads(line)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.environ.update(env)
        status, error = 0, None
        try:
            exec(compile(code, "<test>", "exec"), {{"torch": torch}})
        except BaseException:
            status, error = 1, traceback.format_exc()
        print(("" if error is None else {MARK!r} + json.dumps(error) + "\\n"), end="", flush=True)
        os._exit(status)
    status = os.waitpid(child, 0)[1]
    print({MARK!r} + json.dumps(status), flush=True)
"""


class Forked:
    """Run code without torchada's translation: ``run(code, TORCHADA_SIM_DEVICE="S80")`` gives what it printed."""

    def __init__(self, *modules: str, **env: str) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("TORCHADA", "PYTHONPATH"))}
        fixed = {"TORCHADA": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env=kept | fixed | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._send(list(modules))

    def _send(self, value: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def run(self, code: str, **env: str) -> str:
        """What the code printed. Fails with its traceback when it raises."""
        self._send([textwrap.dedent(code), env])
        printed: list[str] = []
        error = None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith(MARK):
                printed.append(line)
                continue
            value = json.loads(line[len(MARK) :])
            if isinstance(value, str):
                error = value
            elif value == 0:
                return "".join(printed)
            else:
                raise AssertionError(error or f"the child ended with status {value}\n{''.join(printed)}")
        raise AssertionError("the process died")

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0
