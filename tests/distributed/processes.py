"""A CUDA program with children of every start method, tensors that they share, and data loaders.

Knows nothing of torchada. Run as `processes.py FOLDER`; writes what it saw to FOLDER/result.
"""

import json
import os
import sys

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    """`touch`: uses the device in the worker, which a worker that was forked must not."""

    def __init__(self, touch=False):
        self.touch = touch

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return (torch.full((2,), float(index), device="cuda") if self.touch else torch.full((2,), float(index))) ** 2


def adder(outbox, base):
    outbox.put((torch.ones(3, device="cuda:1") * base).sum().item())


def writer(inbox, outbox):
    """Writes into what it is sent, and sends something of its own."""
    tensor, parameter, module = inbox.get(timeout=100)
    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda", 1), inbox.get(timeout=100))
    event.wait()
    seen = [tensor.is_cuda, tensor.get_device(), type(parameter).__name__, parameter.requires_grad, tensor.sum().item()]
    tensor[1] = 40.0
    with torch.no_grad():
        parameter.mul_(2)
        module.weight.fill_(0.5)
    rebuild, arguments = inbox.get(timeout=100)  # a handle, as inference engines send it
    seen.append(rebuild(*arguments).tolist())
    torch.cuda.synchronize(1)
    outbox.put(seen)
    mine = torch.arange(3.0, device="cuda:1")
    outbox.put(mine)
    inbox.get(timeout=100)  # the receiver has it: now it may go
    os._exit(0)


def share(method):
    context = mp.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=writer, args=(inbox, outbox))
    child.start()
    tensor = torch.arange(4.0, device="cuda:1")
    assert tensor.is_shared() and tensor.share_memory_() is tensor
    parameter = torch.nn.Parameter(torch.ones(2, device="cuda:1"))
    module = torch.nn.Linear(2, 1, bias=False).cuda().share_memory()
    inbox.put((tensor, parameter, module))
    event = torch.cuda.Event(interprocess=True)
    event.record(torch.cuda.current_stream(1))
    inbox.put(event.ipc_handle())
    handle = torch.full((2,), 7.0, device="cuda:1")
    inbox.put(torch.multiprocessing.reductions.reduce_tensor(handle))
    seen = outbox.get(timeout=100)
    theirs = outbox.get(timeout=100)
    result = [seen, tensor.tolist(), parameter.tolist(), module.weight.tolist(), theirs.tolist(), theirs.get_device()]
    del theirs
    torch.cuda.ipc_collect()
    inbox.put(None)
    child.join(100)
    return [*result, child.exitcode]


def loaded(workers, **options):
    batches = list(DataLoader(Squares(), batch_size=4, num_workers=workers, **options))
    on_device = [batch.cuda(non_blocking=True) for batch in batches]
    return [batch.is_pinned() for batch in batches], torch.cat(on_device)[:, 0].tolist(), on_device[0].is_cuda


def failing():
    try:
        list(DataLoader(Squares(touch=True), num_workers=1, multiprocessing_context="fork"))
    except RuntimeError as error:
        return str(error)
    return "nothing raised"


def child_error(outbox):
    messages = []
    for use in (
        lambda: torch.ones(2, device="cuda"),
        lambda: torch.ones(2).cuda(),
        torch.cuda.current_device,
        torch.cuda.synchronize,
        torch.cuda.init,
    ):
        try:
            use()
            messages.append("nothing raised")
        except RuntimeError as error:
            messages.append(str(error))
    outbox.put([messages, torch.cuda._is_in_bad_fork(), torch.ones(2).sum().item()])


def broken(rank):
    if rank == 0:
        raise ValueError(f"rank {rank} of cuda:{torch.zeros(1, device=f'cuda:{rank}').get_device()}")


def main() -> None:
    result = {}
    context = mp.get_context("fork")
    outbox = context.Queue()
    children = [context.Process(target=adder, args=(outbox, base)) for base in (1.0, 2.0)]
    result["device count"] = torch.cuda.device_count()  # does not initialise
    for child in children:
        child.start()
    result["fork before use"] = sorted(outbox.get(timeout=100) for _ in children)
    for child in children:
        child.join(100)
    result["initialised"] = torch.cuda.is_initialized()

    for method in ("spawn", "forkserver"):
        result[method] = share(method)
    result["pinned"] = loaded(2, pin_memory=True)
    result["spawned workers"] = loaded(1, pin_memory=True, multiprocessing_context="spawn", persistent_workers=True)

    child = context.Process(target=child_error, args=(outbox,))
    child.start()
    result["fork after use"] = outbox.get(timeout=100)
    child.join(100)
    result["worker after use"] = failing()
    try:
        mp.spawn(broken, nprocs=1)
    except mp.ProcessRaisedException as error:
        result["spawned error"] = str(error)
    with open(os.path.join(sys.argv[1], "result"), "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
