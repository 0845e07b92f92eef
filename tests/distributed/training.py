"""One of two ranks that train, in every way torch.distributed has, and compare with DDP over gloo on the CPU.

`training.py musa` uses MUSA names and no torchada; `training.py cuda` is the same program with CUDA names.
"""

import datetime
import faulthandler
import json
import os
import sys
import traceback
from pathlib import Path

TYPE = sys.argv[1]
if TYPE == "musa":
    os.environ["TORCHADA"] = "0"
    import torchada.simulator

    torchada.simulator.install()
else:
    os.environ["TORCHADA_SIMULATE"] = "1"
    import torchada

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch_musa  # noqa: F401
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device(TYPE, RANK)
BACKEND = {"musa": "mccl", "cuda": "nccl"}[TYPE]
CHECKS = {}
GLOO = None


def check(function):
    CHECKS[function.__name__] = function
    return function


def new_model(device="cpu"):
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)).to(device)


def batches(steps=3, rank=RANK):
    generator = torch.Generator().manual_seed(50 + rank)
    return [(torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)) for _ in range(steps)]


def train(model, device, optimizer=None, steps=3):
    """The losses of a few steps."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for x, y in batches(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(device)).float(), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def reference():
    """DDP over gloo: losses and parameters."""
    model = DDP(new_model(), process_group=GLOO)
    losses = train(model, "cpu")
    return losses, {name: value.detach() for name, value in model.module.named_parameters()}


def full(value):
    """A parameter as a whole, on the CPU."""
    value = value.full_tensor() if hasattr(value, "full_tensor") else value
    return value.detach().cpu()


def assert_same(losses, parameters, tolerance=1e-5):
    expected_losses, expected = reference()
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected_losses), atol=tolerance, rtol=tolerance)
    for name, value in parameters.items():
        torch.testing.assert_close(
            full(value), expected[name], atol=tolerance, rtol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@check
def ddp():
    model = DDP(new_model(DEVICE), device_ids=[RANK], gradient_as_bucket_view=True)
    assert_same(train(model, DEVICE), dict(model.module.named_parameters()))
    assert next(model.parameters()).device == torch.device(TYPE, RANK)


@check
def ddp_without_sync_joined_and_with_a_hook():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    model = DDP(new_model(DEVICE), device_ids=[RANK])
    (x, y), (x2, y2) = batches(2)
    with model.no_sync():
        F.mse_loss(model(x.to(DEVICE)), y.to(DEVICE)).backward()
    F.mse_loss(model(x2.to(DEVICE)), y2.to(DEVICE)).backward()
    other = DDP(new_model(), process_group=GLOO)
    with other.no_sync():
        F.mse_loss(other(x), y).backward()
    F.mse_loss(other(x2), y2).backward()
    for mine, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), expected.grad)
    with model.join():  # ranks with different numbers of batches
        train(model, DEVICE, steps=2 + RANK)

    model = DDP(new_model(DEVICE), device_ids=[RANK])
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    assert_same(train(model, DEVICE), dict(model.module.named_parameters()), tolerance=0.1)
    model = DDP(new_model(DEVICE), device_ids=[RANK])
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.5)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    assert all(loss == loss for loss in train(model, DEVICE, steps=5))


@check
def fsdp1():
    from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        model = FSDP(new_model(), device_id=RANK, sharding_strategy=strategy, use_orig_params=True)
        assert next(model.parameters()).device.type == torch.device(TYPE).type
        losses = train(model, DEVICE)
        with FSDP.summon_full_params(model):
            assert_same(losses, {name: value.clone() for name, value in model.module.named_parameters()})
    mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = FSDP(new_model(), device_id=DEVICE, mixed_precision=mixed)
    losses = train(model, DEVICE)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(reference()[0]), atol=0.1, rtol=0.1)
    model = FSDP(new_model(), device_id=DEVICE, cpu_offload=CPUOffload(offload_params=True))
    assert next(model.parameters()).device.type == "cpu"
    losses = train(model, DEVICE)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(reference()[0]), atol=1e-5, rtol=1e-5)


def scaler_for(kind):
    """The vendor's scaler takes no device; a CUDA program may name it."""
    return kind(init_scale=1024.0) if TYPE == "musa" else kind("cuda", init_scale=1024.0)


@check
def fsdp1_with_a_scaler():
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    model = FSDP(new_model(), device_id=DEVICE)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), scaler_for(ShardedGradScaler)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for x, y in batches(2):
        with torch.autocast(TYPE, torch.float16):
            loss = F.mse_loss(model(x.to(DEVICE)).float(), y.to(DEVICE))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert scaler.get_scale() == 1024.0 and any((a != b).any() for a, b in zip(before, model.parameters(), strict=True))
    # An overflow on one rank makes every rank leave the step out.
    before = [parameter.detach().clone() for parameter in model.parameters()]
    (model(batches(1)[0][0].to(DEVICE)).sum() * (float("inf") if RANK == 0 else 1.0)).mul(scaler.get_scale()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@check
def fsdp2():
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(TYPE, (SIZE,))
    model = new_model(DEVICE)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model)
    assert_same(train(model, DEVICE), dict(model.named_parameters()))
    model = fully_shard(
        new_model(DEVICE), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    )
    losses = train(model, DEVICE)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(reference()[0]), atol=0.1, rtol=0.1)
    model = fully_shard(new_model(), offload_policy=CPUOffloadPolicy())
    assert_same(train(model, DEVICE), dict(model.named_parameters()))


@check
def dtensor():
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(TYPE, (SIZE,), mesh_dim_names=("tp",))
    assert mesh.device_type == torch.device(TYPE).type
    whole = torch.arange(24.0).reshape(6, 4)
    by_rows = distribute_tensor(whole.to(DEVICE), mesh, [Shard(0)])
    by_columns = distribute_tensor(whole.t().contiguous().to(DEVICE), mesh, [Shard(1)])
    product = by_rows @ by_columns
    torch.testing.assert_close(full(product), whole @ whole.t())
    assert by_rows.redistribute(mesh, [Shard(1)]).to_local().shape == (6, 4 // SIZE)
    summed = DTensor.from_local(torch.ones(3, device=DEVICE), mesh, [Partial()]).redistribute(mesh, [Replicate()])
    assert summed.to_local().tolist() == [SIZE] * 3
    from torch.distributed.tensor import rand

    assert rand(4, 4, device_mesh=mesh, placements=[Shard(0)]).full_tensor().shape == (4, 4)


@check
def tensor_parallel():
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )
    from torch.distributed.tensor.placement_types import Replicate, Shard

    mesh = init_device_mesh(TYPE, (SIZE,))
    torch.manual_seed(3)
    plain = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    model.load_state_dict(plain.state_dict())
    plan = {
        "0": SequenceParallel(),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Replicate()),
    }
    model = parallelize_module(model.to(DEVICE), mesh, plan)
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))
    expected = plain(x)
    expected.square().mean().backward()
    local = x.chunk(SIZE, dim=1)[RANK].to(DEVICE)
    actual = model(local)
    torch.testing.assert_close(full(actual), expected.detach(), atol=1e-5, rtol=1e-5)
    actual.square().mean().backward()
    for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(full(mine.grad), other.grad, atol=1e-5, rtol=1e-5)


@check
def zero_redundancy_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(new_model(DEVICE), device_ids=[RANK])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.05)
    assert_same(train(model, DEVICE, optimizer), dict(model.module.named_parameters()))
    optimizer.consolidate_state_dict(to=0)
    if RANK == 0:
        assert len(optimizer.state_dict()["state"]) == 6


@check
def distributed_checkpoint():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    folder = os.environ["STORE"] + "-checkpoint"
    model = fully_shard(new_model(DEVICE))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    train(model, DEVICE, optimizer)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)

    again = fully_shard(new_model(DEVICE))
    again_optimizer = torch.optim.Adam(again.parameters(), lr=0.05)
    weights, state = get_state_dict(again, again_optimizer)
    loaded = {"model": weights, "optimizer": state}
    dcp.load(loaded, checkpoint_id=folder)
    set_state_dict(again, again_optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    for mine, other in zip(again.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(full(mine), full(other), atol=0, rtol=0)
    # A program without devices reads it, with all parameters whole.
    plain = {"model": new_model().state_dict()}
    dcp.load(plain, checkpoint_id=folder, process_group=GLOO)
    for (name, value), other in zip(plain["model"].items(), model.parameters(), strict=True):
        torch.testing.assert_close(value, full(other), atol=0, rtol=0, msg=name)


@check
def pipeline():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.manual_seed(5)
    parts = [nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 4))]
    plain = nn.Sequential(*parts)
    x, y = torch.randn(4, 8), torch.randn(4, 4)
    expected = F.mse_loss(plain(x), y)
    stage = PipelineStage(parts[RANK].to(DEVICE), RANK, SIZE, DEVICE)
    losses = []
    schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=F.mse_loss)
    if RANK == 0:
        schedule.step(x.to(DEVICE))
    else:
        schedule.step(target=y.to(DEVICE), losses=losses)
        torch.testing.assert_close(torch.stack(losses).mean().cpu(), expected.detach())


def main() -> None:
    global GLOO
    faulthandler.dump_traceback_later(150, exit=True)  # before the launcher gives up
    torch.get_device_module(TYPE).set_device(RANK)
    store = dist.FileStore(os.environ["STORE"], SIZE)
    minute = datetime.timedelta(seconds=60)
    dist.init_process_group(f"cpu:gloo,{TYPE}:{BACKEND}", store=store, rank=RANK, world_size=SIZE, timeout=minute)
    GLOO = dist.new_group(backend="gloo")
    report = {}
    for name in sys.argv[2:] or CHECKS:
        try:
            CHECKS[name]()
            report[name] = "ok"
        except Exception:
            report[name] = traceback.format_exc()
            break  # the ranks are no longer in step
    Path(os.environ["REPORT"]).write_text(json.dumps(report))
    if all(value == "ok" for value in report.values()):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
