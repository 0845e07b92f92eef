"""The whole test process runs as a user's would: simulated devices, torchada before torch."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ["TORCHADA_SIMULATE"] = "1"
os.environ["TORCHADA_SIM_DEVICES"] = "2"
os.environ.setdefault("OMP_NUM_THREADS", "1")
for _name in ("TORCHADA", "TORCHADA_PLATFORM", "TORCHADA_STRICT", "TORCHADA_FORCE_CUDA_AVAILABLE"):
    os.environ.pop(_name, None)

import torchada  # isort: skip
import torch  # isort: skip

assert torchada.is_active(), torchada.status()
assert torch.device("cuda").type == "musa"

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run code in a fresh interpreter: ``run_python("print(1)", env={"NAME": "value" or None}, ok=True)``.

    The child sees the simulated devices but does not import torchada by itself.
    """

    def run(
        code: str, *args: str, env: dict[str, str | None] | None = None, ok: bool = True, options: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environ["PYTHONPATH"] = str(ROOT)
        for key, value in (env or {}).items():
            if value is None:
                environ.pop(key, None)
            else:
                environ[key] = value
        done = subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(code), *args],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
        if ok and done.returncode != 0:
            pytest.fail(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run
