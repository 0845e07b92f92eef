"""Eight threads that allocate, compute, copy and hand tensors over at random, and check every number.

`python -m torchada --simulate -m tests.simulator.hammer [seconds] [seed]` runs it by hand, for a minute by default.
"""

from __future__ import annotations

import queue
import random
import sys
import threading
import time
import traceback
from collections import Counter

import torch
import torch_musa

THREADS = 8
Parcel = tuple[int, torch.Tensor, torch_musa.Event]


class Worker:
    """One thread: `count` says how often it did what, `errors` holds the text of what went wrong."""

    def __init__(self, seed: int, parcels: queue.Queue[Parcel], until: float) -> None:
        self.random = random.Random(seed)
        self.parcels = parcels
        self.until = until
        self.count: Counter[str] = Counter()
        self.errors: list[str] = []

    def run(self) -> None:
        steps = (self.allocate, self.across_streams, self.multiply, self.backward, self.copy, self.send, self.receive)
        try:
            while time.monotonic() < self.until or self.count.total() < 40:  # on a slow machine too
                step = self.random.choice(steps)
                with torch_musa.device(self.random.randrange(torch_musa.device_count())):
                    step(self.random.randrange(1, 100))
                self.count[step.__name__] += 1
                if self.random.random() < 0.01:
                    torch_musa.empty_cache()
                    torch_musa.memory_stats()
        except BaseException:
            self.errors.append(traceback.format_exc())

    def size(self) -> int:
        return 2 ** self.random.randrange(16) + self.random.randrange(3)

    def allocate(self, value: int) -> None:
        kept = [torch.full((self.size(),), value + i, device="musa") for i in range(4)]
        del kept[self.random.randrange(4)]
        again = torch.zeros(self.size(), device="musa")
        assert not again.any()
        for tensor in kept:
            first = tensor[0].item()
            assert value <= first < value + 4 and bool((tensor == first).all())

    def across_streams(self, value: int) -> None:
        one, two = torch_musa.Stream(), torch_musa.Stream()
        with torch_musa.stream(one):
            a = torch.full((self.size(),), float(value), device="musa")
            b = a * 2
            ready = one.record_event()
        del a
        two.wait_event(ready)
        with torch_musa.stream(two):
            c = b + 1
            b.record_stream(two)
        del b
        two.synchronize()
        assert bool((c == 2 * value + 1).all())

    def multiply(self, value: int) -> None:
        left = torch.arange(value * 3, dtype=torch.float32).reshape(value, 3)
        right = torch.arange(3 * 5, dtype=torch.float32).reshape(3, 5)
        assert torch.equal((left.to("musa") @ right.to("musa")).cpu(), left @ right)

    def backward(self, value: int) -> None:
        x = torch.full((self.size(),), float(value), device="musa", requires_grad=True)
        (x * x).sum().backward()
        assert x.grad is not None and x.grad.device == x.device
        assert bool((x.grad == 2 * value).all())

    def copy(self, value: int) -> None:
        host = torch.full((self.size(),), value).pin_memory("musa")
        there = host.to("musa", non_blocking=True)
        back = torch.empty_like(host, pin_memory=True)
        back.copy_(there, non_blocking=True)
        torch_musa.current_stream().synchronize()
        assert bool((back == value).all())

    def send(self, value: int) -> None:
        tensor = torch.full((self.size(),), value, device="musa")
        try:
            self.parcels.put_nowait((value, tensor, torch_musa.current_stream().record_event()))
        except queue.Full:
            self.receive(value)

    def receive(self, _: int) -> None:
        try:
            value, tensor, event = self.parcels.get_nowait()
        except queue.Empty:
            return
        event.synchronize()
        assert bool((tensor == value).all())


def hammer(seconds: float, seed: int = 0) -> Counter[str]:
    """Run the threads and return how often each thing was done. Raises AssertionError with every wrong result."""
    parcels: queue.Queue[Parcel] = queue.Queue(32)
    until = time.monotonic() + seconds
    workers = [Worker(seed * THREADS + i, parcels, until) for i in range(THREADS)]
    threads = [threading.Thread(target=worker.run, name=f"hammer-{i}") for i, worker in enumerate(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [error for worker in workers for error in worker.errors]
    assert not errors, "\n".join(errors)
    return sum((worker.count for worker in workers), Counter())


if __name__ == "__main__":
    for what, times in sorted(hammer(*map(int, sys.argv[1:3] or ["60"])).items()):
        print(f"{what:16} {times:8}")
