"""What a replay costs with and without the rotation of executables: ``python -m bench --graphs``.

The graphs hold one small operator, so that the replay itself is what is measured. Instantiating is cheap on the
simulated device; on a real one an evicted graph's next replay costs what the driver takes for that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

GRAPHS, ROUNDS, RUNS = 1000, 5, 6
CASES = (
    # (rotation, executables allowed, order)
    ("0", 1900, "in order"),
    ("1", 1900, "in order"),
    ("1", 500, "the same 400 again and again"),
    ("1", 500, "in order"),
)


def rows(env: dict[str, str]) -> list[tuple[str, str, float, int]]:
    """(what, rotation, seconds of a replay, evictions meanwhile); the smallest of alternating runs."""
    found: dict[int, list[tuple[float, int]]] = {}
    for _ in range(RUNS):
        for at, (rotation, cap, order) in enumerate(CASES):
            extra = {"TORCHADA_GRAPH_ROTATION": rotation, "TORCHADA_GRAPH_EXEC_CAP": str(cap)}
            command = [sys.executable, __file__, order]
            done = subprocess.run(command, check=True, env=env | extra, stdout=subprocess.PIPE, text=True)
            found.setdefault(at, []).append(tuple(json.loads(done.stdout)))
    return [
        (f"{GRAPHS} graphs, {cap} allowed, {order}", "on" if rotation == "1" else "off", *min(found[at]))
        for at, (rotation, cap, order) in enumerate(CASES)
    ]


def main() -> None:
    import torchada  # noqa: F401, I001
    import torch

    from torchada import _rotation

    x, graphs, pool = torch.zeros(2, device="cuda"), [], torch.cuda.graph_pool_handle()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(GRAPHS):
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=pool)
            x.add_(1)
            graph.capture_end()
            graphs.append(graph)
    replayed = graphs if sys.argv[1] == "in order" else graphs[:400]
    for graph in replayed:
        graph.replay()
    before, best = _rotation.state()["evictions"], float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for graph in replayed:
            graph.replay()
        best = min(best, (time.perf_counter() - start) / len(replayed))
    json.dump((best, _rotation.state()["evictions"] - before), sys.stdout)


if __name__ == "__main__":
    main()
