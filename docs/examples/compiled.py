"""Train a small GPT on the characters of Python's own argparse module, compiled.

Forward pass in mixed precision and loss are one graph, its backward pass another; the fused optimizer needs no
compiler. All batches have one shape, so that nothing is compiled twice.
"""

import argparse
import inspect
import json
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.outer(F.gelu(self.inner(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, symbols: int, length: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.symbols, self.places = nn.Embedding(symbols, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, symbols)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        device = "cuda" if x.is_cuda else "cpu"  # decided once, when the step is compiled
        places = self.places(torch.arange(x.shape[1], device=device))
        return self.last(self.norm(self.blocks(self.symbols(x) + places)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu (default: cuda)")
    parser.add_argument("--backend", default="inductor", help="of torch.compile; none: not compiled")
    parser.add_argument("--fp32", action="store_true", help="single precision instead of bfloat16 autocast")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", help="write a profile of one step to this file, for chrome://tracing")
    parser.add_argument("--json", action="store_true", help="end with a line of JSON for other programs to read")
    args = parser.parse_args()

    on_gpu = "cuda" in args.device
    torch.manual_seed(args.seed)
    if on_gpu:
        torch.cuda.set_device(args.device if ":" in args.device else 0)
        torch.cuda.manual_seed_all(args.seed)

    text = inspect.getsource(argparse)
    alphabet = sorted(set(text))
    data = torch.tensor([alphabet.index(c) for c in text]).to(args.device)
    window = torch.arange(args.length + 1, device=args.device)
    model = GPT(len(alphabet), args.length, args.width, args.heads, args.depth).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda" if on_gpu else "cpu", dtype=torch.bfloat16, enabled=not args.fp32):
            return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    if args.backend != "none":
        loss_of = torch.compile(loss_of, backend=args.backend, fullgraph=True, dynamic=False)

    shuffle = torch.Generator().manual_seed(args.seed)

    def step() -> torch.Tensor:
        starts = torch.randint(len(text) - args.length - 1, (args.batch, 1), generator=shuffle).to(args.device)
        rows = data[starts + window]
        loss = loss_of(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    print(f"device  {torch.cuda.get_device_name() if on_gpu else 'CPU'}, backend {args.backend}")
    losses: list[float] = []
    waiting: list[torch.Tensor] = []
    started = time.perf_counter()
    for number in range(1, args.steps + 1):
        waiting.append(step())
        if number == 1 or number % 20 == 0 or number == args.steps:  # nobody waits for the device in between
            losses.extend(torch.stack(waiting).tolist())
            waiting.clear()
            spent = time.perf_counter() - started
            print(f"step {number:4}  loss {losses[-1]:.3f}  {spent:5.1f} s{'  (compiled)' if number == 1 else ''}")
    graphs, breaks = counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
    print(f"{graphs} graph, {breaks} graph breaks")

    if args.trace:
        kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
        with profile(activities=kinds) as prof:
            step()
        prof.export_chrome_trace(args.trace)
        print(prof.key_averages().table(sort_by="cuda_time_total" if on_gpu else "cpu_time_total", row_limit=5))

    if args.json:
        name = torch.cuda.get_device_name() if on_gpu else "CPU"
        print("RESULT " + json.dumps({"device": name, "losses": losses, "graphs": graphs, "breaks": breaks}))


if __name__ == "__main__":
    main()
