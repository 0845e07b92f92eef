"""Fully sharded training: parameters, gradients and optimizer state are spread over the GPUs.

torchrun --standalone --nproc-per-node 2 fsdp2.py
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def new_model() -> nn.Sequential:
    layer = nn.TransformerEncoderLayer
    blocks = [layer(32, 4, 64, dropout=0.0, batch_first=True, device="cuda") for _ in range(2)]
    return nn.Sequential(nn.Linear(8, 32, device="cuda"), *blocks, nn.Linear(32, 8, device="cuda"))


def shard(model: nn.Sequential) -> nn.Sequential:
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def main() -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("cuda:nccl,cpu:gloo", device_id=device)

    torch.manual_seed(0)
    model = shard(new_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator(device="cuda").manual_seed(dist.get_rank())
    for step in range(20):
        x = torch.randn(8, 12, 8, device="cuda", generator=generator)
        loss = nn.functional.mse_loss(model(x).float(), x.cumsum(1).tanh())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and step % 5 in (0, 4):
            print(f"step {step} loss {loss.item():.4f}")

    # The checkpoint is written by all processes and could be read by any number of them.
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder[0])
    again = shard(new_model())
    state = {"model": get_model_state_dict(again)}
    dcp.load(state, checkpoint_id=folder[0])
    set_model_state_dict(again, state["model"])
    assert all(
        torch.equal(a.to_local(), b.to_local()) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
