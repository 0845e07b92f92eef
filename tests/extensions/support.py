"""The stand-in toolkit, made once for a test session, and projects to build with it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def make_toolkit(folder):
    """A MUSA_HOME with bin/mcc, headers and libraries, whose kernels run on the host."""
    shutil.copytree(HERE / "toolkit", folder, dirs_exist_ok=True)
    (folder / "lib").mkdir()
    first = folder / "lib" / "libmusart.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", first, folder / "runtime.c"], check=True, timeout=120)
    for name in ("musa", "mtjpeg", "mublas"):
        shutil.copy(first, folder / "lib" / f"lib{name}.so")
    return folder


def environment(toolkit, tmp, **more):
    """What a process that builds on a MUSA machine has: the simulated device, and the stand-in toolkit."""
    kept = ("PATH", "HOME", "XDG_CACHE_HOME", "LANG", "TORCHADA_SIM_CACHE")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {
        "TORCHADA_SIMULATE": "1",
        "MUSA_HOME": str(toolkit),
        "LD_LIBRARY_PATH": str(Path(toolkit) / "lib"),
        "MCC_LOG": str(Path(tmp) / "mcc.log"),
        "TORCH_EXTENSIONS_DIR": str(Path(tmp) / "extensions"),
        "PYTHONPATH": f"{ROOT}/sitecustomize:{ROOT}",
        "MAX_JOBS": "2",
    }
    env |= more
    return {name: value for name, value in env.items() if value is not None}


def run(arguments, cwd, env, fails=False):
    """Run Python; what it printed. With *fails*, it must fail."""
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert bool(done.returncode) == fails, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
