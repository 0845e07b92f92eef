"""One of two ranks that run into trouble with the mccl backend, scenario by scenario.

MUSA names only, and no translation by torchada; with NAMES=cuda the same program with CUDA names, under torchada.
"""

import contextlib
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
devices = torch.musa if TYPE == "musa" else torch.cuda
RANK = int(os.environ["RANK"])
DEVICE = torch.device(TYPE, RANK)
LONG, SHORT = datetime.timedelta(seconds=150), datetime.timedelta(seconds=1)
SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


@contextlib.contextmanager
def raises(kind, *texts):
    """No clock is read: an error that comes only at the group's time-out has another text."""
    try:
        yield
    except kind as error:
        for text in texts:
            assert text in str(error), f"{text!r} is not in {error}"
    else:
        raise AssertionError(f"{kind} was not raised")


def tell():
    """Rank 0 has seen what it was to see."""
    dist.distributed_c10d._get_default_store().set("seen", "")


def stay_away():
    """Until rank 0 tells, however slow the machine is."""
    dist.distributed_c10d._get_default_store().wait(["seen"], LONG)


def ones(n=3, device=DEVICE, **keywords):
    return torch.ones(n, device=device, **keywords)


@scenario
def different_collectives():
    with raises(dist.DistBackendError, "rank 0 calls all_reduce(Float, SUM), rank 1 calls broadcast(Float, root 0)"):
        dist.all_reduce(ones()) if RANK == 0 else dist.broadcast(ones(), 0)
    with raises(dist.DistBackendError, "communicator was aborted", "Original reason"):  # the group is of no use now
        dist.all_reduce(ones())
    assert dist.group.WORLD._get_backend(DEVICE).get_error().name == "COMM_ERROR"


@scenario
def different_sizes():
    with raises(dist.DistBackendError, "the sizes do not fit in all_reduce(Float, SUM): rank 0 sends 3 elements"):
        dist.all_reduce(ones(3 + RANK))


@scenario
def different_types():
    with raises(dist.DistBackendError, "rank 0 calls all_reduce(Float, SUM), rank 1 calls all_reduce(Double, SUM)"):
        dist.all_reduce(ones(dtype=torch.float64 if RANK else torch.float32))


@scenario
def one_device_for_two_ranks():
    with raises(dist.DistBackendError, "Duplicate GPU detected : rank 0 and rank 1 both on MUSA device 0"):
        dist.all_reduce(ones(device=f"{TYPE}:0"))


@scenario
def message_of_another_size():
    if RANK == 0:
        dist.isend(ones(5), 1)
    else:
        with raises(dist.DistBackendError, "rank 0 sent 5 elements of type Float, and rank 1 receives into 3"):
            dist.recv(ones(3), 0)


@scenario
def absent_rank():
    if RANK == 1:
        return stay_away()
    dist.group.WORLD._get_backend(DEVICE)._set_default_timeout(SHORT)
    with raises(dist.DistBackendError, "Watchdog caught collective operation timeout", "OpType=ALLREDUCE"):
        dist.all_reduce(ones())
    tell()
    assert dist.group.WORLD._get_backend(DEVICE).get_error().name == "TIMEOUT"


@scenario
def absent_sender():
    if RANK == 1:
        return stay_away()
    dist.group.WORLD._get_backend(DEVICE)._set_default_timeout(SHORT)
    with raises(dist.DistBackendError, "timeout", "OpType=RECV"):
        dist.recv(ones(), 1)
    tell()


@scenario
def wait_with_a_limit():
    if RANK == 1:
        stay_away()
    work = dist.all_reduce(ones(), async_op=True)
    if RANK == 0:
        with raises(dist.DistBackendError, "timed out in blocking wait"):
            work.wait(datetime.timedelta(milliseconds=100))
        tell()
    work.wait()


@scenario
def aborted():
    if RANK == 1:
        return stay_away()
    work = dist.all_reduce(ones(), async_op=True)
    dist.group.WORLD._get_backend(DEVICE).abort()
    with raises(dist.DistBackendError, "aborted"):
        work.wait()
    tell()


@scenario
def error_reaches_a_future():
    future = dist.all_reduce(ones(3 + RANK), async_op=True).get_future()
    with raises(RuntimeError, "the sizes do not fit"):
        future.wait()


@scenario
def used_after_shutdown():
    backend = dist.group.WORLD._get_backend(DEVICE)
    dist.all_reduce(ones())
    backend.shutdown()
    with raises(dist.DistBackendError, "has been shut down"):
        dist.all_reduce(ones())


@scenario
def dead_rank():  # the last one
    dist.all_reduce(ones())
    if RANK == 1:
        os._exit(0)
    with raises(dist.DistBackendError, "a rank has died or left the group"):
        dist.all_reduce(ones())


def main() -> None:
    faulthandler.dump_traceback_later(200, exit=True)
    devices.set_device(RANK)
    report = {}
    for name in sys.argv[1:] or SCENARIOS:
        store = dist.FileStore(f"{os.environ['STORE']}-{name}", 2)
        dist.init_process_group(BACKEND, store=store, rank=RANK, world_size=2, timeout=LONG)
        try:
            SCENARIOS[name]()
            report[name] = "ok"
        except Exception:
            report[name] = traceback.format_exc()
        with open(os.environ["REPORT"], "w") as file:
            json.dump(report, file)
        dist.destroy_process_group()
    # And a group that nobody destroys must not keep the process from ending.
    dist.init_process_group(BACKEND, store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(ones(), async_op=True)


if __name__ == "__main__":
    main()
