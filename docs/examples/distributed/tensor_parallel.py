"""Tensor parallel training: each GPU holds a part of every matrix.

torchrun --standalone --nproc-per-node 2 tensor_parallel.py
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.gate = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("tp",))

    torch.manual_seed(0)
    whole = FeedForward().cuda()
    model = FeedForward().cuda()
    model.load_state_dict(whole.state_dict())
    plan = {"up": ColwiseParallel(), "gate": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, mesh, plan)
    assert model.up.weight.to_local().shape == (64 // mesh.size(), 16)

    optimizers = [torch.optim.Adam(each.parameters(), lr=0.02) for each in (model, whole)]
    for step in range(10):
        x = torch.randn(32, 16, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        losses = []
        for each, optimizer in zip((model, whole), optimizers, strict=True):
            loss = (each(x) - x.flip(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) < 1e-3, losses  # as without any parallelism
        if dist.get_rank() == 0 and step in (0, 9):
            print(f"step {step} loss {losses[0]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
