"""One rank of the checks in test_mccl.py.

MUSA names only, and no translation by torchada; with NAMES=cuda the same program with CUDA names, under torchada.
"""

import datetime
import faulthandler
import json
import os
import sys
import traceback

TYPE = os.environ.get("NAMES", "musa")
if TYPE == "musa":
    os.environ["TORCHADA"] = "0"
    import torchada.simulator

    torchada.simulator.install()
else:
    os.environ["TORCHADA_SIMULATE"] = "1"
    import torchada

import torch
import torch.distributed as dist

if TYPE == "musa":
    import torch_musa  # noqa: F401

BACKEND = {"musa": "mccl", "cuda": "nccl"}[TYPE]
ProcessGroup = getattr(dist, f"ProcessGroup{BACKEND.upper()}")
devices = torch.musa if TYPE == "musa" else torch.cuda
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device(TYPE, RANK)
CHECKS = {}
GLOO = None  # the group on the CPU whose results are the reference


def check(function):
    CHECKS[function.__name__] = function
    return function


def values(*shape, dtype=torch.float32, rank=RANK):
    generator = torch.Generator().manual_seed(100 + rank)
    if dtype == torch.bool or not dtype.is_floating_point:
        return torch.randint(0, 2 if dtype == torch.bool else 5, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype)


def raises(kind, text, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
    else:
        raise AssertionError(f"{kind} was not raised")


def same(actual, expected, **tolerance):
    assert actual.device == DEVICE, actual.device
    torch.testing.assert_close(actual.cpu(), expected, **tolerance)


def both(call, *shape, dtype=torch.float32, **tolerance):
    """`call(tensor, group)` on the device and on the CPU change their tensors in the same way."""
    reference = values(*shape, dtype=dtype)
    tensor = reference.to(DEVICE)
    call(reference, GLOO)
    call(tensor, None)
    same(tensor, reference, **tolerance)


# ---- collectives ------------------------------------------------------------------------------------------


@check
def all_reduce_as_gloo():
    for shape in ((7,), (3, 5), (), (0,), (40_001,)):  # the last one goes the long way: shares, padded
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
            both(lambda t, g, op=op: dist.all_reduce(t, op, group=g), *shape)
    for dtype in (torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64):
        both(lambda t, g: dist.all_reduce(t, group=g), 9, dtype=dtype)


@check
def all_reduce_beyond_gloo():
    everybody = torch.stack([values(5, rank=rank) for rank in range(SIZE)])
    tensor = values(5).to(DEVICE)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    same(tensor, everybody.mean(0))
    numbers = (torch.arange(3) * (RANK + 1)).to(DEVICE)
    dist.all_reduce(numbers, dist.ReduceOp.AVG)
    same(numbers, torch.arange(3) * sum(range(1, SIZE + 1)) // SIZE)
    for dtype in (torch.float16, torch.bfloat16):
        tensor = values(50_000, dtype=dtype).to(DEVICE)
        dist.all_reduce(tensor)
        expected = sum(values(50_000, dtype=dtype, rank=rank).float() for rank in range(SIZE)).to(dtype)
        same(tensor, expected)
    tensor = values(6, dtype=torch.bool).to(DEVICE)
    dist.all_reduce(tensor)  # a sum of truth values is "or"
    same(tensor, torch.stack([values(6, dtype=torch.bool, rank=rank) for rank in range(SIZE)]).any(0))
    tensor = values(5).to(DEVICE)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    same(tensor, (everybody * 0.5).sum(0))
    tensor = torch.complex(values(4), values(4) + 1).to(DEVICE)
    dist.all_reduce(tensor)
    same(tensor, sum(torch.complex(values(4, rank=rank), values(4, rank=rank) + 1) for rank in range(SIZE)))


@check
def layouts():
    tensor = values(2, 3, 4, 5).to(DEVICE).contiguous(memory_format=torch.channels_last)
    dist.all_reduce(tensor)
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    same(tensor, sum(values(2, 3, 4, 5, rank=rank) for rank in range(SIZE)))
    part = torch.zeros(10, device=DEVICE)
    dist.broadcast(part[2:5].fill_(RANK + 1.0), 1)  # a view: only its elements
    same(part, torch.tensor([0, 0, 2, 2, 2, 0, 0, 0, 0, 0], dtype=torch.float32))


@check
def broadcast_and_reduce():
    for root in range(SIZE):
        both(lambda t, g, root=root: dist.broadcast(t, root, group=g), 4, 3)
        reference, tensor = values(50_000), values(50_000).to(DEVICE)
        dist.reduce(reference, root, group=GLOO)
        dist.reduce(tensor, root)
        same(tensor, reference if root == RANK else values(50_000))


@check
def all_gather_of_all_kinds():
    outputs = [torch.empty(3, 2, device=DEVICE) for _ in range(SIZE)]
    dist.all_gather(outputs, values(3, 2).to(DEVICE))
    for rank, output in enumerate(outputs):
        same(output, values(3, 2, rank=rank))
    uneven = [torch.empty(rank + 1, device=DEVICE) for rank in range(SIZE)]
    dist.all_gather(uneven, values(RANK + 1).to(DEVICE))
    for rank, output in enumerate(uneven):
        same(output, values(rank + 1, rank=rank))
    for dtype in (torch.float16, torch.bool, torch.float8_e4m3fn, torch.int64):
        whole = torch.empty(SIZE * 4, dtype=dtype, device=DEVICE)
        dist.all_gather_into_tensor(whole, values(4, dtype=dtype).to(DEVICE))
        expected = torch.cat([values(4, dtype=dtype, rank=rank).float() for rank in range(SIZE)])
        same(whole.float(), expected)


@check
def reduce_scatter_of_all_kinds():
    parts = [values(4, 2, rank=RANK + 10 * piece) for piece in range(SIZE)]
    expected = sum(values(4, 2, rank=rank + 10 * RANK) for rank in range(SIZE))
    output = torch.empty(4, 2, device=DEVICE)
    dist.reduce_scatter(output, [part.to(DEVICE) for part in parts])
    same(output, expected)
    output = torch.empty(4, 2, device=DEVICE)
    dist.reduce_scatter_tensor(output, torch.cat(parts).to(DEVICE), dist.ReduceOp.AVG)
    same(output, expected / SIZE)
    uneven = [values(piece + 1, rank=RANK) for piece in range(SIZE)]
    output = torch.empty(RANK + 1, device=DEVICE)
    dist.reduce_scatter(output, [part.to(DEVICE) for part in uneven])
    same(output, sum(values(RANK + 1, rank=rank) for rank in range(SIZE)))


@check
def gather_and_scatter():
    outputs = [torch.empty(3, device=DEVICE) for _ in range(SIZE)] if RANK == 1 else None
    dist.gather(values(3).to(DEVICE), outputs, dst=1)
    for rank, output in enumerate(outputs or []):
        same(output, values(3, rank=rank))
    parts = [values(2, rank=40 + piece).to(DEVICE) for piece in range(SIZE)] if RANK == 0 else None
    output = torch.empty(2, device=DEVICE)
    dist.scatter(output, parts, src=0)
    same(output, values(2, rank=40 + RANK))


@check
def all_to_all():
    # Rank r sends r + p rows to rank p (none at all from 0 to 0).
    send = [RANK + peer for peer in range(SIZE)]
    rows = values(sum(send), 2)
    output, expected = torch.empty(sum(send), 2, device=DEVICE), torch.empty(sum(send), 2)
    dist.all_to_all_single(output, rows.to(DEVICE), send, send)
    dist.all_to_all_single(expected, rows, send, send, group=GLOO)
    same(output, expected)
    output = torch.empty(SIZE * 2, device=DEVICE)
    dist.all_to_all_single(output, values(SIZE * 2).to(DEVICE))
    same(output, torch.cat([values(SIZE * 2, rank=rank)[RANK * 2 : RANK * 2 + 2] for rank in range(SIZE)]))
    outputs = [torch.empty(rank + 1, device=DEVICE) for rank in range(SIZE)]
    dist.all_to_all(outputs, [torch.full((RANK + 1,), 10.0 * RANK + peer, device=DEVICE) for peer in range(SIZE)])
    for rank, output in enumerate(outputs):
        same(output, torch.full((rank + 1,), 10.0 * rank + RANK))


@check
def messages():
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for dtype in (torch.float32, torch.bool, torch.complex64):
        outgoing, incoming = (
            torch.full((4,), RANK + 1, device=DEVICE).to(dtype),
            torch.zeros(4, dtype=dtype, device=DEVICE),
        )
        if RANK == 0:
            dist.send(outgoing, after)
            dist.recv(incoming, before)
        else:
            dist.recv(incoming, before)
            dist.send(outgoing, after)
        same(incoming, torch.full((4,), before + 1).to(dtype))
    received = [torch.zeros(100_000, device=DEVICE) for _ in range(2)]
    requests = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.full((100_000,), 10.0 * RANK + i, device=DEVICE), after) for i in range(2)]
        + [dist.P2POp(dist.irecv, received[i], before) for i in range(2)]
    )
    for request in requests:
        request.wait()
    for i in range(2):  # two messages between the same ranks keep their order
        same(received[i], torch.full((100_000,), 10.0 * before + i))
    requests = [dist.isend(torch.full((3,), float(RANK), device=DEVICE), after), dist.irecv(received[0][:3], before)]
    for request in requests:
        request.wait()
    same(received[0][:3], torch.full((3,), float(before)))


@check
def messages_to_itself():
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    x, received = torch.arange(3.0, device=DEVICE), torch.zeros(3, 3, device=DEVICE)
    operations = [dist.P2POp(dist.irecv, received[i], RANK) for i in range(2)]
    operations += [dist.P2POp(dist.isend, x + RANK + 10 * i, RANK) for i in range(2)]
    operations += [dist.P2POp(dist.isend, x + 100 * RANK, after), dist.P2POp(dist.irecv, received[2], before)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    base = torch.arange(3.0)
    same(received, torch.stack([base + RANK, base + RANK + 10, base + 100 * before]))
    raises(ValueError, "outside of batch_isend_irecv", dist.isend, x, RANK)  # no partner can be there


@check
def objects():
    everything = [None] * SIZE
    dist.all_gather_object(everything, {"rank": RANK, "text": "x" * (RANK + 1)})
    assert everything == [{"rank": rank, "text": "x" * (rank + 1)} for rank in range(SIZE)]
    objects = [RANK, "from 1", None] if RANK == 1 else [None] * 3
    dist.broadcast_object_list(objects, src=1)
    assert objects == [1, "from 1", None]
    gathered = [None] * SIZE if RANK == 0 else None
    dist.gather_object(("rank", RANK), gathered, dst=0)
    assert gathered == ([("rank", rank) for rank in range(SIZE)] if RANK == 0 else None)
    scattered = [None]
    dist.scatter_object_list(scattered, [f"to {rank}" for rank in range(SIZE)] if RANK == 0 else None, src=0)
    assert scattered == [f"to {RANK}"]


@check
def coalesced():
    group = dist.group.WORLD
    tensors = [values(3, rank=RANK + i).to(DEVICE) for i in range(3)]
    with dist._coalescing_manager(group=group, device=DEVICE, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors):
        same(tensor, sum(values(3, rank=rank + i) for rank in range(SIZE)))
    gathered = [torch.empty(SIZE * 2, device=DEVICE) for _ in range(2)]
    with dist._coalescing_manager(group=group, async_ops=False):
        for i, output in enumerate(gathered):
            dist.all_gather_into_tensor(output, torch.full((2,), float(RANK + i), device=DEVICE))
    for i, output in enumerate(gathered):
        same(output, torch.tensor([float(rank + i) for rank in range(SIZE) for _ in range(2)]))
    reduced = [torch.empty(2, device=DEVICE) for _ in range(2)]
    with dist._coalescing_manager(group=group, async_ops=False):
        for output in reduced:
            dist.reduce_scatter_tensor(output, values(SIZE * 2).to(DEVICE))
    same(reduced[1], sum(values(SIZE * 2, rank=rank) for rank in range(SIZE))[RANK * 2 : RANK * 2 + 2])


@check
def functional_collectives():
    import torch.distributed._functional_collectives as functional

    everybody = torch.stack([values(SIZE * 2, rank=rank) for rank in range(SIZE)])
    tensor = values(SIZE * 2).to(DEVICE)
    group = dist.group.WORLD
    same(functional.all_reduce(tensor, "sum", group) + 0, everybody.sum(0))
    same(functional.all_gather_tensor(tensor, 0, group) + 0, everybody.flatten())
    same(functional.reduce_scatter_tensor(tensor, "avg", 0, group) + 0, everybody.mean(0)[RANK * 2 : RANK * 2 + 2])
    same(functional.broadcast(tensor, 0, group) + 0, everybody[0])
    exchanged = functional.all_to_all_single(tensor, None, None, group) + 0
    same(exchanged, torch.cat([everybody[rank, RANK * 2 : RANK * 2 + 2] for rank in range(SIZE)]))
    leaf = values(2).to(DEVICE).requires_grad_()
    gathered = functional.all_gather_tensor_autograd(leaf, 0, group)
    gathered.backward(torch.ones(SIZE * 2, device=DEVICE))  # torch 2.7 wants it contiguous, on the CPU too
    same(leaf.grad, torch.full((2,), float(SIZE)))


# ---- handles, futures, groups --------------------------------------------------------------------------------


@check
def handles_and_futures():
    tensor = torch.ones(100_000, device=DEVICE)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    assert work.wait() and work.is_completed() and work.is_success()
    try:
        assert work.exception() is None
    except TypeError as error:  # torch 2.7 cannot hand it out, whatever the backend
        assert "exception_ptr" in f"{error} {error.__cause__}", error
    assert work._get_op_type() if hasattr(work, "_get_op_type") else True
    same(future.wait()[0], torch.full((100_000,), float(SIZE)))
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), torch.full((100_000,), 2.0 * SIZE * SIZE))

    def another(done):  # a callback that waits for work of the same group, as PowerSGD's hook does
        return dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0]

    nested = dist.all_reduce(torch.ones(3, device=DEVICE), async_op=True).get_future().then(another)
    same(nested.wait(), torch.full((3,), float(SIZE * SIZE)))
    work = dist.barrier(device_ids=[RANK], async_op=True)
    assert work.wait(datetime.timedelta(seconds=20))
    dist.barrier()
    for _ in range(3):  # nobody waits: the memory must live until the work is done
        dist.all_reduce(torch.ones(50_000, device=DEVICE), async_op=True)
    work = dist.all_reduce(torch.zeros(1, device=DEVICE), async_op=True)
    work.synchronize()


@check
def groups():
    dist.all_reduce(torch.ones(1, device=DEVICE))
    assert dist.get_backend() == BACKEND and dist.is_backend_available(BACKEND)
    assert getattr(dist, f"is_{BACKEND}_available")() and getattr(dist.Backend, BACKEND.upper()) == BACKEND
    assert dist.get_default_backend_for_device(TYPE) == BACKEND
    backend = dist.group.WORLD._get_backend(DEVICE)
    assert isinstance(backend, ProcessGroup) and type(backend) is dist.ProcessGroupMCCL and backend.name() == "mccl"
    assert backend.supports_coalescing and backend.supports_splitting and backend._is_initialized()
    assert backend.options._timeout == datetime.timedelta(seconds=60) and backend.uid == "0", backend.uid
    assert backend.get_error().name == "SUCCESS"

    options = ProcessGroup.Options(is_high_priority_stream=True)
    pair = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=30), pg_options=options)
    tensor = torch.full((2,), RANK + 1.0, device=DEVICE)
    if RANK < 2:
        dist.all_reduce(tensor, group=pair)
        same(tensor, torch.full((2,), 3.0))
        assert pair._get_backend(DEVICE).options.is_high_priority_stream
        dist.destroy_process_group(pair)
    alone = [dist.new_group([rank]) for rank in range(SIZE)][RANK]
    dist.all_reduce(tensor, dist.ReduceOp.AVG, group=alone)
    mine, _ = dist.new_subgroups(SIZE)
    dist.all_reduce(tensor.fill_(1), group=mine)
    same(tensor, torch.full((2,), float(SIZE)))
    raises(RuntimeError, "No backend type associated with device type cpu", dist.all_reduce, torch.ones(2))
    mixed = dist.new_group(backend=f"cpu:gloo,{TYPE}:{BACKEND}")
    for device in ("cpu", DEVICE):
        tensor = torch.ones(2, device=device)
        dist.all_reduce(tensor, group=mixed)
        assert tensor.tolist() == [SIZE, SIZE]
    raises(TypeError, "ProcessGroupMCCL.Options", dist.new_group, pg_options=object())


@check
def split_group():
    backend = dist.group.WORLD._get_backend(DEVICE)
    before = backend.comm_split_count()
    try:
        half = dist.split_group(split_ranks=[[0, 1]] if SIZE == 2 else [[0, 1], list(range(2, SIZE))])
    except RuntimeError as error:  # torch 2.7 splits groups of cuda devices alone
        assert TYPE == "musa" and "No backend type associated with device type cuda" in str(error)
        return
    tensor = torch.full((2,), float(RANK), device=DEVICE)
    dist.all_reduce(tensor, group=half)
    same(tensor, torch.full((2,), float(sum([0, 1] if RANK < 2 else range(2, SIZE)))))
    assert backend.comm_split_count() == before + 1


@check
def timeouts_can_be_set():
    backend = dist.group.WORLD._get_backend(DEVICE)
    old = backend.options._timeout
    backend._set_default_timeout(datetime.timedelta(seconds=44))
    work = dist.all_reduce(torch.ones(1, device=DEVICE), async_op=True)
    assert backend._verify_work_timeout(work, datetime.timedelta(seconds=44))
    backend._set_default_timeout(old)
    backend._add_ephemeral_timeout(datetime.timedelta(seconds=5))
    work = dist.all_reduce(torch.ones(1, device=DEVICE), async_op=True)
    assert backend._verify_work_timeout(work, old + datetime.timedelta(seconds=5))
    work = dist.all_reduce(torch.ones(1, device=DEVICE), async_op=True)
    assert backend._verify_work_timeout(work, old)
    work.wait()


@check
def refused():
    reduce, gather = dist.all_reduce, dist.all_gather_into_tensor
    device = {"device": DEVICE}
    raises(TypeError, "data type is not supported", reduce, torch.ones(2, dtype=torch.int16, **device))
    raises(
        ValueError, "Cannot use ReduceOp.BAND", reduce, torch.ones(2, dtype=torch.int32, **device), dist.ReduceOp.BAND
    )
    raises(TypeError, "ReduceOp.AVG", reduce, torch.ones(2, dtype=torch.bool, **device), dist.ReduceOp.AVG)
    raises(RuntimeError, "Float8", reduce, torch.ones(2, **device).to(torch.float8_e5m2))
    raises(
        RuntimeError, "PreMulSum", reduce, torch.ones(2, dtype=torch.int32, **device), dist._make_nccl_premul_sum(2.0)
    )
    raises(ValueError, "must be contiguous", reduce, torch.ones(4, 4, **device).t()[1:])
    raises(ValueError, "world_size times", gather, torch.empty(SIZE * 3, **device), torch.ones(2, **device))
    raises(TypeError, "same type", gather, torch.empty(SIZE * 2, dtype=torch.int32, **device), torch.ones(2, **device))
    raises(RuntimeError, "recvAnysource", dist.recv, torch.ones(2, **device))
    other = torch.device(TYPE, (RANK + 1) % SIZE)
    raises(ValueError, "same device", gather, torch.empty(SIZE * 2, device=other), torch.ones(2, **device))
    raises(
        ValueError,
        "same device",
        dist.all_gather,
        [torch.empty(2, device=f"{TYPE}:{i}") for i in range(SIZE)],
        torch.ones(2, **device),
    )
    raises(
        RuntimeError,
        "Split sizes",
        dist.all_to_all_single,
        torch.empty(4, **device),
        torch.ones(4, **device),
        [9] * SIZE,
        [9] * SIZE,
    )
    raises(RuntimeError, "invalid device ordinal", dist.barrier, device_ids=[99])
    raises(ValueError, "monitored_barrier", dist.monitored_barrier)
    reduce(torch.ones(1, **device))  # and the group is still good


@check
def several_devices_in_one_process():
    other = torch.device(TYPE, (RANK + 1) % SIZE)
    tensor = torch.ones(3, device=other)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [SIZE] * 3 and tensor.device == other


@check
def synchronize_waits_for_collectives():
    tensor = torch.ones(300_000, device=DEVICE)
    works = [dist.all_reduce(tensor, async_op=True) for _ in range(3)]
    devices.synchronize()
    assert all(work.is_completed() for work in works)
    same(tensor, torch.full((300_000,), float(SIZE**3)))


def main() -> None:
    global GLOO
    faulthandler.dump_traceback_later(200, exit=True)  # well before the launcher gives up
    devices.set_device(RANK)
    store = dist.FileStore(os.environ["STORE"], SIZE)
    minute = datetime.timedelta(seconds=60)
    dist.init_process_group(BACKEND, store=store, rank=RANK, world_size=SIZE, timeout=minute, device_id=DEVICE)
    GLOO = dist.new_group(backend=f"cpu:gloo,{TYPE}:{BACKEND}")
    report = {}
    for name in sys.argv[1:] or CHECKS:
        try:
            CHECKS[name]()
            report[name] = "ok"
        except Exception:
            report[name] = traceback.format_exc()
            break  # the ranks are no longer in step
    with open(os.environ["REPORT"], "w") as file:
        json.dump(report, file)
    if all(value == "ok" for value in report.values()):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
