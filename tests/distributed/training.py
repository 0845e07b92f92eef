"""One of two ranks that train, in every way torch.distributed has, and compare with DDP over gloo on the CPU.

`training.py musa` uses MUSA names and no torchada; `training.py cuda` is the same program with CUDA names, and more.
"""

import datetime
import faulthandler
import json
import os
import subprocess
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


def cuda_check(function):
    """What exercises torch on top of what the other checks have shown of the backend."""
    return check(function) if TYPE == "cuda" else function


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


@cuda_check
def hooks_of_ddp():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    hooks = (
        default_hooks.allreduce_hook,
        default_hooks.bf16_compress_hook,
        default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook),
    )
    for hook in hooks:
        model = DDP(new_model(DEVICE), device_ids=[RANK], find_unused_parameters=True)
        model.register_comm_hook(None, hook)
        assert_same(train(model, DEVICE), dict(model.module.named_parameters()), tolerance=0.1)
    for kind in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
        model = DDP(new_model(DEVICE), device_ids=[RANK], static_graph=True)
        model._register_builtin_comm_hook(kind)
        assert_same(train(model, DEVICE), dict(model.module.named_parameters()), tolerance=0.1)
    model = DDP(new_model(DEVICE), device_ids=[torch.device(TYPE, RANK)])
    state = post_localSGD_hook.PostLocalSGDState(None, dist.new_group(), start_localSGD_iter=2)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05), PeriodicModelAverager(period=1, warmup_steps=2)
    )
    train(model, DEVICE, optimizer, steps=4)
    for parameter in model.parameters():  # averaged after the last step
        others = [torch.empty_like(parameter) for _ in range(SIZE)]
        dist.all_gather(others, parameter.detach())
        torch.testing.assert_close(others[0], others[1], atol=0, rtol=0)


@cuda_check
def hooks_of_ddp_and_zero():
    from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    group = dist.new_group(backend=BACKEND)  # older versions ask for one that is nothing but nccl
    model = DDP(new_model(DEVICE), device_ids=[RANK], static_graph=True, process_group=group)
    kind = torch.optim.SGD
    optimizer = ZeroRedundancyOptimizer(model.parameters(), kind, process_group=group, overlap_with_ddp=True, lr=0.1)
    model.register_comm_hook(None, hook_with_zero_step(allreduce_hook, model, optimizer))
    losses = train(model, DEVICE, optimizer, steps=8)
    assert losses[-1] < losses[0], losses


@cuda_check
def synchronized_batch_norm():
    plain = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
    model.load_state_dict(plain.state_dict())
    for parameter in (*plain.parameters(), *model.parameters()):
        dist.broadcast(parameter.data, 0, group=GLOO)
    model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model).to(DEVICE), device_ids=[RANK])
    x = torch.randn(4, 2, 6, 6, generator=torch.Generator().manual_seed(9))
    plain(x).square().mean().backward()
    model(x.chunk(SIZE)[RANK].to(DEVICE)).square().mean().backward()
    for mine, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), expected.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model.module[1].running_var.cpu(), plain[1].running_var)


@cuda_check
def two_devices_in_each_process():
    """One model over two devices of this process: DDP without device_ids."""

    class Halves(nn.Module):
        def __init__(self, first, second):
            super().__init__()
            self.first, self.second = (
                new_model().requires_grad_(True)[part].to(device) for part, device in (first, second)
            )
            self.devices = first[1], second[1]

        def forward(self, x):
            return self.second(self.first(x.to(self.devices[0])).to(self.devices[1]))

    other = torch.device(TYPE, RANK + SIZE)
    model = DDP(Halves((slice(0, 2), DEVICE), (slice(2, 5), other)))
    assert {parameter.device for parameter in model.parameters()} == {DEVICE, other}
    losses = train(model, other)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(reference()[0]), atol=1e-5, rtol=1e-5)


@cuda_check
def meshes_of_two_dimensions():
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import ShardingStrategy, fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    for shape in ((1, SIZE), (SIZE, 1)):  # replicas, shards
        mesh = init_device_mesh(TYPE, shape, mesh_dim_names=("replicate", "shard"))
        model = fully_shard(new_model(DEVICE), mesh=mesh)
        assert_same(train(model, DEVICE), dict(model.named_parameters()))
        if shape[0] == 1:  # torch's FSDP1 leaves replicas alone where there is nothing to shard
            options = {"device_mesh": mesh, "sharding_strategy": ShardingStrategy.HYBRID_SHARD}
            model = FSDP(new_model(), device_id=torch.cuda.current_device(), **options)
            losses = train(model, DEVICE)
            torch.testing.assert_close(torch.tensor(losses), torch.tensor(reference()[0]), atol=1e-5, rtol=1e-5)
        mesh = init_device_mesh(TYPE, shape, mesh_dim_names=("data", "tensor"))
        model = new_model(DEVICE)
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["data"])
        x, y = batches(rank=RANK if shape[0] > 1 else 0)[0]
        F.mse_loss(model(x.to(DEVICE)), y.to(DEVICE)).backward()
        plain = DDP(new_model(), process_group=GLOO)
        F.mse_loss(plain(x), y).backward()
        for mine, expected in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(full(mine.grad), expected.grad, atol=1e-5, rtol=1e-4)


@cuda_check
def loss_parallel():
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import loss_parallel as sharded_loss

    mesh = init_device_mesh(TYPE, (SIZE,))
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
    target = torch.tensor([0, 5, 2, 3])
    plain = logits.clone().requires_grad_()
    F.cross_entropy(plain, target).backward()
    sharded = distribute_tensor(logits.to(DEVICE), mesh, [Shard(1)]).requires_grad_()
    with sharded_loss():
        F.cross_entropy(sharded, distribute_tensor(target.to(DEVICE), mesh, [Replicate()])).backward()
    torch.testing.assert_close(full(sharded.grad), plain.grad)


@cuda_check
def collectives_with_gradients():
    from torch.distributed.nn import functional

    x = torch.full((2,), RANK + 1.0, device=DEVICE, requires_grad=True)
    total = functional.all_reduce(x * 2)
    assert total.tolist() == [6.0, 6.0]
    gathered = torch.cat(functional.all_gather(x))
    mine = functional.reduce_scatter(torch.empty(1, device=DEVICE), list(x.chunk(SIZE)))
    (gathered.sum() + total.sum() + mine.sum()).backward()
    assert x.grad.tolist() == [SIZE + 2.0 * SIZE + 1.0] * 2, x.grad


@cuda_check
def checkpoints_of_other_kinds():
    """Whole and sharded states, read by one process without any device, and read back from what that one writes."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import StateDictType, fully_shard

    folder = Path(os.environ["STORE"] + "-kinds")
    model = fully_shard(new_model(DEVICE))
    train(model, DEVICE)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert bool(whole) == (RANK == 0) and all(value.device.type == "cpu" for value in whole.values())
    old = FSDP(new_model(), device_id=DEVICE)
    train(old, DEVICE)
    with FSDP.state_dict_type(old, StateDictType.SHARDED_STATE_DICT):
        sharded = old.state_dict()
        dcp.save({"old": sharded, "device": DEVICE, "step": 3}, checkpoint_id=folder / "here")
    state = {"new": get_model_state_dict(model)}
    dcp.async_save(state, checkpoint_id=folder / "later", process_group=GLOO).result()
    if RANK == 0:
        torch.save(whole, folder / "whole.pt")
        script, other = str(Path(__file__).with_name("elsewhere.py")), {"TORCHADA": "0", "RANK": "", "WORLD_SIZE": ""}
        subprocess.run([sys.executable, script, str(folder)], env=os.environ | other, check=True, timeout=100)
    dist.barrier(group=GLOO)
    again = fully_shard(new_model(DEVICE))
    state = {"model": get_model_state_dict(again), "device": None}
    dcp.load(state, checkpoint_id=folder / "there")
    set_model_state_dict(again, state["model"])
    for mine, other in zip(again.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(full(mine), full(other) + 1, atol=0, rtol=0)
    assert state["device"] == torch.device(TYPE, 1), state["device"]
    # And from one rank's memory to all.
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(again, whole, options=options)
    for mine, other in zip(again.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(full(mine), full(other), atol=0, rtol=0)


@cuda_check
def pipelines_of_several_stages():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, ScheduleInterleaved1F1B

    def parts():
        torch.manual_seed(5)
        return [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2 * SIZE)]

    x, y = torch.randn(4, 8, generator=torch.Generator().manual_seed(1)), torch.zeros(4, 8)
    plain = nn.Sequential(*parts())
    F.mse_loss(plain(x), y).backward()

    def run(schedule, last):
        losses = []
        keywords = {"target": y.to(DEVICE), "losses": losses} if last else {}
        schedule.step(*([x.to(DEVICE)] if RANK == 0 else []), **keywords)
        assert len(losses) == (4 if last else 0)

    mine = {index: parts()[index].to(DEVICE) for index in (RANK, RANK + SIZE)}
    stages = [PipelineStage(part, index, 2 * SIZE, DEVICE) for index, part in mine.items()]
    run(ScheduleInterleaved1F1B(stages, n_microbatches=4, loss_fn=F.mse_loss), RANK == SIZE - 1)
    halves = [nn.Sequential(*parts()[SIZE * rank : SIZE * (rank + 1)]) for rank in range(SIZE)]
    half = halves[RANK].to(DEVICE)
    run(ScheduleGPipe(PipelineStage(half, RANK, SIZE, DEVICE), 4, loss_fn=F.mse_loss), RANK == SIZE - 1)
    for index, part in (*mine.items(), *((SIZE * RANK + i, part) for i, part in enumerate(half))):
        for parameter, expected in zip(part.parameters(), plain[index].parameters(), strict=True):
            torch.testing.assert_close(parameter.grad.cpu(), expected.grad, atol=1e-6, rtol=1e-4)


def main() -> None:
    global GLOO
    faulthandler.dump_traceback_later(270, exit=True)  # before the launcher gives up
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
