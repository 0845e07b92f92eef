"""Data parallel training: every process has a GPU and a part of the data, gradients are averaged.

torchrun --standalone --nproc-per-node 2 ddp.py
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(512, 16, generator=generator)
    targets = (inputs @ torch.randn(16, 1, generator=generator)).tanh()
    data = TensorDataset(inputs, targets)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, pin_memory=True)

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1)).cuda()
    model = DistributedDataParallel(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        total = torch.zeros(1, device="cuda")
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")

    # Every process has the same model.
    checksum = sum(parameter.double().sum() for parameter in model.parameters()).reshape(1)
    checksums = [torch.empty_like(checksum) for _ in range(dist.get_world_size())]
    dist.all_gather(checksums, checksum)
    assert all(torch.equal(other, checksum) for other in checksums)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
