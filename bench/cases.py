"""The measured calls, run by pyperf in worker processes: ``python bench/cases.py --mode native|active --case N``.

``native`` is torch with the simulated torch_musa and no torchada at work; ``active`` is the same with torchada.
Each case is one statement per mode, so that the two sides differ in nothing but the spelling.
"""

from __future__ import annotations

import atexit
import compileall
import importlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyperf


@dataclass(frozen=True)
class Case:
    """One row of the table. *budget* is a ratio, or seconds more than native where *absolute* is set."""

    name: str
    native: str
    active: str
    budget: float
    absolute: bool = False
    source: str = "design, section 8"
    asks: str = ""  # the module the statements belong to; "masked" is masqueraded in mode active


MM = "torch.mm(half, half, out_dtype=torch.float32)"

CASES = (
    Case("torch.cuda.X, second access", "torch.musa.device_count", "torch.cuda.device_count", 2.0),
    Case("device_count()", "torch.musa.device_count()", "torch.cuda.device_count()", 1.05),
    Case("current_device()", "torch.musa.current_device()", "torch.cuda.current_device()", 1.05),
    Case("current_stream()", "torch.musa.current_stream()", "torch.cuda.current_stream()", 1.05),
    Case("synchronize()", "torch.musa.synchronize()", "torch.cuda.synchronize()", 1.05),
    Case("memory_allocated()", "torch.musa.memory_allocated()", "torch.cuda.memory_allocated()", 1.05),
    Case('zeros(2, device="cuda")', 'torch.zeros(2, device="musa")', 'torch.zeros(2, device="cuda")', 1.03),
    Case("zeros(2)", "torch.zeros(2)", "torch.zeros(2)", 1.03),
    Case('x.to("cuda")', 'x.to("musa")', 'x.to("cuda")', 1.05),
    Case("x.to(float32)", "x.to(torch.float32)", "x.to(torch.float32)", 1.05),
    Case("x.is_cuda", "x.is_cuda", "x.is_cuda", 50e-9, absolute=True),
    Case('torch.device("cuda:0")', 'torch.device("musa:0")', 'torch.device("cuda:0")', 1.0),
    Case("operator without a device: c + c", "c + c", "c + c", 1.03),
    Case("isfinite of 2^20 numbers", "big.isfinite()", "big.isfinite()", 1.0, source="no slower than torch_musa's"),
    Case("mm with out_dtype, 256 x 256", *2 * (MM,), 1.5, source="two conversions more than a right kernel"),
    Case("device.type", "d.type", "d.type", 1.03),
    Case("device.type while others are masqueraded", "d.type", "d.type", 100e-9, True, asks="plain"),
    Case("device.type in a masqueraded module", "d.type", "d.type", 100e-9, True, asks="masked"),
    Case("str(device) in a masqueraded module", "str(d)", "str(d)", 200e-9, True, asks="masked"),
    Case("is_available() in a masqueraded module", *2 * ("torch.cuda.is_available()",), 2e-6, True, asks="masked"),
    Case("import of 1000 masqueraded modules", "load()", "load()", 1.0, True, asks="masked"),
    Case("unrelated import (a miss in the finder)", "find()", "find()", 1e-6, absolute=True),
)


MODULE = "import torch\nKIND = torch.device('cpu').type\ndef on_gpu(x):\n    return x.device.type == 'cuda'\n"


def write_modules(folder: Path) -> None:
    """A package ``masked`` of a thousand modules, compiled as an installed one is."""
    (folder / "masked").mkdir()
    for name in ("__init__", *(f"m{number}" for number in range(1000))):
        (folder / "masked" / f"{name}.py").write_text(MODULE)
    compileall.compile_dir(folder, quiet=2)
    sys.path.insert(0, str(folder))


def load() -> None:
    for name in [name for name in sys.modules if name.startswith("masked")]:
        del sys.modules[name]
    for number in range(1000):
        importlib.import_module(f"masked.m{number}")


def prepare(mode: str, case: Case) -> dict[str, object]:
    """The namespace the statements run in."""
    import torchada

    if mode == "native":
        import torchada.simulator

        torchada.simulator.install()
    import torch
    import torch_musa  # noqa: F401

    if torchada.is_active() is not (mode == "active"):
        raise SystemExit(f"torchada is {'on' if torchada.is_active() else 'off'} in mode {mode}")
    finders = [finder for finder in sys.meta_path if type(finder).__module__ == "torchada.finder"]

    def find() -> None:
        for finder in finders:
            finder.find_spec("unrelated", None, None)

    names: dict[str, object] = {"__name__": case.asks or "bench.cases", "__file__": "case.py"}
    if case.asks and mode == "active":
        torchada.masquerade("masked")
        probe = eval("torch.device('cuda').type", names | {"torch": torch})
        if probe != ("cuda" if case.asks == "masked" else "musa"):
            raise SystemExit(f"{case.asks} sees a device of type {probe}")
    if "load" in case.active:
        folder = tempfile.TemporaryDirectory()
        atexit.register(folder.cleanup)
        write_modules(Path(folder.name))
    x = torch.ones(2, device="musa")
    tensors = {
        "x": x,
        "c": torch.ones(2),
        "big": torch.ones(2**20, device="musa"),
        "half": torch.ones(256, 256).half().musa(),
    }
    return names | tensors | {"torch": torch, "d": x.device, "find": find, "load": load}


def main() -> None:
    runner = pyperf.Runner(processes=1, values=6, warmups=1, min_time=0.05)
    runner.argparser.add_argument("--mode", choices=["native", "active"], required=True)
    runner.argparser.add_argument("--case", type=int, choices=range(len(CASES)), required=True)
    runner.argparser.set_defaults(inherit_environ=sorted(os.environ))
    runner._add_cmdline_args = lambda command, args: command.extend(["--mode", args.mode, "--case", str(args.case)])
    options = runner.parse_args()
    os.environ["TORCHADA"] = "1" if options.mode == "active" else "0"
    os.environ["TORCHADA_SIMULATE"] = "1"
    os.environ["OMP_NUM_THREADS"] = "1"
    case = CASES[options.case]
    code = compile(f"for _ in loop: {getattr(case, options.mode)}", case.name, "exec")
    scope: dict[str, object] = {}

    def timed(loops: int) -> float:
        if not scope:
            scope.update(prepare(options.mode, case))
        scope["loop"] = range(loops)
        begin = time.perf_counter()
        exec(code, scope)
        return time.perf_counter() - begin

    runner.bench_time_func(case.name, timed)


if __name__ == "__main__":
    main()
