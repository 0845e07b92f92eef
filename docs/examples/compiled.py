"""Train a small residual network on scikit-learn's digits, compiled.

The step that is compiled is the whole step: forward pass in mixed precision, loss, backward pass and optimizer. It is
compiled once, for every batch size: the last batch of an epoch is smaller.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(F.gelu(self.inner(self.norm(x))))


class Network(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.first = nn.Linear(64, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.last = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_cuda:  # a branch that is decided when the step is compiled
            x = x + torch.zeros(64, device=x.device)
        return self.last(self.blocks(self.first(x)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu (default: cuda)")
    parser.add_argument("--backend", default="inductor", help="of torch.compile; none: not compiled")
    parser.add_argument("--fp32", action="store_true", help="single precision instead of bfloat16 autocast")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=64)
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

    images, labels = load_digits(return_X_y=True)
    data = torch.tensor(images, dtype=torch.float32) / 16
    target = torch.tensor(labels, dtype=torch.int64)
    data, target = data.to(args.device), target.to(args.device)
    cut = len(data) * 4 // 5
    model = Network(args.width, args.depth).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(args.lr, device=args.device), weight_decay=0.01)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda" if on_gpu else "cpu", dtype=torch.bfloat16, enabled=not args.fp32):
            return F.cross_entropy(model(x), y)

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    if args.backend != "none":
        loss_of = torch.compile(loss_of, backend=args.backend, fullgraph=True, dynamic=True)
        update = torch.compile(update, backend=args.backend)

    def step(rows: torch.Tensor) -> torch.Tensor:
        loss = loss_of(data[rows], target[rows])
        loss.backward()
        update()
        return loss.detach()

    print(f"device  {torch.cuda.get_device_name() if on_gpu else 'CPU'}, backend {args.backend}")
    losses: list[float] = []
    shuffle = torch.Generator().manual_seed(args.seed)
    started = time.perf_counter()
    for epoch in range(args.epochs):
        order = torch.randperm(cut, generator=shuffle).to(args.device)
        of_epoch = [step(rows) for rows in order.split(args.batch)]  # nobody waits for the device within an epoch
        losses.extend(torch.stack(of_epoch).tolist())
        spent = time.perf_counter() - started
        print(f"epoch {epoch + 1:2}  loss {losses[-1]:.3f}  {spent:5.1f} s{'  (compiled)' if epoch == 0 else ''}")
    with torch.no_grad():
        accuracy = (model(data[cut:]).argmax(-1) == target[cut:]).float().mean().item()
    print(f"test accuracy {accuracy:.1%}, {counters['stats']['unique_graphs']} graphs, ", end="")
    print(f"{sum(counters['graph_break'].values())} graph breaks")

    if args.trace:
        kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
        with profile(activities=kinds) as prof:
            step(torch.arange(args.batch, device=args.device))
        prof.export_chrome_trace(args.trace)
        print(prof.key_averages().table(sort_by="cuda_time_total" if on_gpu else "cpu_time_total", row_limit=5))

    if args.json:
        result = {
            "device": torch.cuda.get_device_name() if on_gpu else "CPU",
            "losses": losses,
            "accuracy": accuracy,
            "graphs": counters["stats"]["unique_graphs"],
            "breaks": sum(counters["graph_break"].values()),
        }
        print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
