"""``python child.py native|cuda OUT [NAME...]``: compile every program and write what happened, as JSON.

``native`` is torch and torch_musa alone with the programs spelled for MUSA; ``cuda`` is torchada with CUDA's spelling.
"""

from __future__ import annotations

import json
import linecache
import re
import sys
import textwrap
import traceback
import types
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
MODE = sys.argv[1]
DEVICE = "musa" if MODE == "native" else "cuda"

import torchada

if MODE == "native":
    import torchada.simulator

    torchada.simulator.install()
import torch
import torch_musa  # noqa: F401
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from tests.compile.programs import PROGRAMS, native

assert torchada.is_active() is (MODE == "cuda")
GPU = getattr(torch, DEVICE)


def plain(value: Any) -> Any:
    """A result as JSON: values, dtype and where it is."""
    if isinstance(value, torch.Tensor):
        place = "cpu" if value.device.type == "cpu" else f"gpu:{value.device.index}"
        return [value.detach().cpu().tolist(), str(value.dtype), place, value.requires_grad]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


def guards(function: Callable[..., Any]) -> list[str]:
    """The guards of every compiled version, without what differs from one object to the next."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    found = []
    for entry in _debug_get_cache_entry_list(function.__code__):
        for line in str(entry.guard_manager).splitlines():
            line = re.sub(r"\s+#.*| type=\S+| framelocals_idx=\d+", "", line).replace("musa", "cuda")
            found.append(re.sub(r"0x[0-9a-f]+|\b_?\d{6,}(_c\d+)?\b|(?<=builtins_dict___)\d+", "N", line).strip())
    return sorted(found)


def run(source: str, backend: str, fullgraph: bool) -> dict[str, Any]:
    torch._dynamo.reset()
    counters.clear()
    counter = CompileCounterWithBackend(backend)
    x = torch.arange(1.0, 5.0, device=DEVICE)

    def at(index: int, *args: Any) -> Any:
        with GPU.device(index):
            return names["f2"](*args)

    def cast(*args: Any) -> Any:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return names["f2"](*args)

    def gradient(f: Callable[..., Any], x: torch.Tensor) -> Any:
        leaf = x.clone().requires_grad_()
        f(leaf).backward()
        return leaf.grad

    # Dynamo looks functions up by their module, and an older one keeps the first module of a name.
    program = types.ModuleType(f"compiled_program_{zlib.crc32(source.encode())}_{fullgraph}")
    sys.modules[program.__name__] = program
    names = vars(program)
    names |= {"torch": torch, "x": x, "at": at, "cast": cast, "gradient": gradient}
    names["AVAILABLE"] = GPU.is_available()
    text = textwrap.dedent(source)
    text = native(text) if MODE == "native" else text
    # an older Dynamo compiles a function that has no file inside of one of its own, which then has the guards
    linecache.cache["<program>"] = (len(text), None, text.splitlines(True), "<program>")
    exec(compile(text, "<program>", "exec"), names)
    function = names["f"]
    calls = names.get("calls", [(x,), (x,)])

    def series() -> list[Any]:
        results = []
        for call in calls:
            names.get("before", lambda: None)()
            results.append(plain(call() if callable(call) else names["f2"](*call)))
        return [*results, plain(names["check"]())] if "check" in names else results

    try:
        names["f2"] = function
        eager = series()
        names["f2"] = torch.compile(function, backend=counter, fullgraph=fullgraph)
        compiled = series()
    finally:
        names.get("finish", lambda: None)()
    return {
        "same": "check" in names or compiled == eager,
        "values": compiled,
        "breaks": sorted(
            re.sub(" at 0x[0-9a-f]+", "", reason.splitlines()[0])
            for reason, n in counters["graph_break"].items()
            for _ in range(n)
        ),
        "graphs": counter.frame_count,
        "operators": counter.op_count,
        "frames": dict(counters["frames"]),
        "guards": guards(function),
    }


def attempt(source: str, fullgraph: bool) -> dict[str, Any]:
    try:
        return run(source, "aot_eager", fullgraph)
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error), "trace": traceback.format_exc()}


def both(source: str) -> dict[str, Any]:
    """As a whole graph, and with breaks where that fails: a whole graph has none, so that nothing is compiled twice."""
    whole = attempt(source, True)
    return {"fullgraph": whole, "broken": attempt(source, False) if "error" in whole else whole}


def main() -> None:
    names = sys.argv[3:] or list(PROGRAMS)
    Path(sys.argv[2]).write_text(json.dumps({name: both(PROGRAMS[name]) for name in names}))


if __name__ == "__main__":
    main()
