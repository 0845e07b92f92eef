"""One of two ranks of a CUDA program that uses "nccl": names, backends and groups. torchada is on."""

import datetime
import faulthandler
import inspect
import json
import os
import pickle
import traceback
from pathlib import Path

os.environ["TORCHADA_SIMULATE"] = "1"

import torchada  # isort: skip
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", RANK)
MINUTE = datetime.timedelta(seconds=60)
CHECKS, KEPT = {}, []


def check(function):
    CHECKS[function.__name__] = function
    return function


def start(name, *arguments, **keywords):
    store = dist.FileStore(f"{os.environ['STORE']}-{name}", SIZE)
    dist.init_process_group(*arguments, store=store, rank=RANK, world_size=SIZE, timeout=MINUTE, **keywords)


def add_up(device=DEVICE, group=None):
    tensor = torch.full((3,), RANK + 1.0, device=device)
    # torch 2.7 hangs where a group of gloo's ends while its thread gives back the last reference to a tensor.
    KEPT.append(tensor)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [SIZE * (SIZE + 1) / 2] * 3 and tensor.device == torch.device(device)


@check
def every_form_of_init():
    takes_index = "int" in str(inspect.signature(dist.init_process_group).parameters["device_id"].annotation)
    forms = {
        "nccl": {},
        "NCCL": {"device_id": DEVICE},
        "cuda:nccl,cpu:gloo": {},
        "cpu:gloo,cuda:nccl": {"device_id": RANK if takes_index else DEVICE},
        "cuda:nccl": {},
    }
    for number, (backend, keywords) in enumerate(forms.items()):
        start(f"form{number}", backend=backend, **keywords)
        add_up()
        if "cpu" in backend:
            add_up("cpu")
        assert dist.get_backend() == backend.lower(), dist.get_backend()
        expected = backend.lower() if ":" in backend else "cuda:nccl"
        assert dist.get_backend_config() == expected, dist.get_backend_config()
        dist.barrier(device_ids=[RANK])
        dist.destroy_process_group()
    start("positional", "nccl")
    add_up()
    dist.destroy_process_group()
    dist.init_process_group("nccl", f"file://{os.environ['STORE']}-file", MINUTE, SIZE, RANK)
    add_up()
    dist.destroy_process_group()
    store, options = dist.FileStore(f"{os.environ['STORE']}-all", SIZE), dist.ProcessGroupNCCL.Options()
    dist.init_process_group("cuda:nccl", None, MINUTE, SIZE, RANK, store, "", options, DEVICE)
    add_up()
    assert dist.group.WORLD.bound_device_id == DEVICE
    dist.destroy_process_group()
    try:
        start("text", "nccl", device_id=f"cuda:{RANK}")
    except AttributeError:
        pass  # torch takes a device or an index
    else:
        raise AssertionError
    start("by_device", device_id=DEVICE)
    assert dist.get_backend() == "nccl"
    add_up()
    dist.destroy_process_group()
    start("undefined")
    add_up()
    add_up(group=dist.new_group())
    assert dist.get_backend() == "undefined" and dist.get_backend_config() == "cuda:nccl"  # CUDA's answers
    dist.destroy_process_group()
    start("gloo", "gloo")
    add_up("cpu")
    assert dist.get_backend() == "gloo"
    dist.destroy_process_group()
    start("mccl", "mccl")  # the vendor's own name is left alone
    add_up()
    assert dist.get_backend() == "mccl"
    dist.destroy_process_group()


def functions():
    """How each function of torch.distributed looks from outside."""
    return {
        name: (id(value), str(inspect.signature(value)), value.__qualname__, value.__module__, value.__doc__)
        for name, value in vars(dist).items()
        if inspect.isfunction(value)
    }


@check
def names():
    assert dist.is_nccl_available() and dist.is_backend_available("nccl")
    knows_lists = dist.is_backend_available("cpu:gloo")  # an older torch does not
    assert dist.is_backend_available("cuda:nccl,cpu:gloo") is knows_lists
    assert dist.Backend.NCCL == "nccl" and dist.Backend("NCCL") == "nccl"
    assert dist.get_default_backend_for_device("cuda") == "nccl" == dist.get_default_backend_for_device(DEVICE)
    assert torch.cuda.nccl.version() >= (2,)
    from torch.distributed.distributed_c10d import ProcessGroupNCCL

    assert dist.ProcessGroupNCCL is ProcessGroupNCCL
    for function in (dist.init_process_group, dist.new_group, dist.is_nccl_available, init_device_mesh):
        assert pickle.loads(pickle.dumps(function)) is function
    looks = functions()
    with torchada.disabled():
        assert functions() == looks
    assert len(looks) > 60
    assert "device_type" in inspect.signature(init_device_mesh).parameters


@check
def groups():
    start("groups", "nccl", device_id=DEVICE)
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    assert isinstance(backend, dist.ProcessGroupNCCL) and not isinstance(dist.HashStore(), dist.ProcessGroupNCCL)
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    assert isinstance(options, dist.ProcessGroupNCCL.Options)
    for keywords in (
        {},
        {"backend": "nccl"},
        {"backend": "nccl", "pg_options": options},
        {"backend": dist.Backend.NCCL},
    ):
        group = dist.new_group(list(range(SIZE)), **keywords)
        add_up(group=group)
        assert dist.get_backend(group) == "nccl"
    assert group._get_backend(DEVICE).options._timeout
    on_cpu = dist.new_group(backend="gloo")
    add_up("cpu", on_cpu)
    assert dist.get_backend(on_cpu) == "gloo"
    half = dist.split_group(split_ranks=[list(range(SIZE))])
    add_up(group=half)
    assert dist.get_backend(half) == "nccl"
    mine, _ = dist.new_subgroups(SIZE)
    add_up(group=mine)
    mine, all_of_them = dist.new_subgroups()  # one for the devices of each machine
    assert len(all_of_them) == SIZE // torch.cuda.device_count()
    add_up(group=mine)
    alone, _ = dist.new_subgroups_by_enumeration([[rank] for rank in range(SIZE)], backend="nccl")
    assert dist.get_backend(alone) == "nccl" and dist.get_world_size(alone) == 1
    everything = [None] * SIZE
    dist.all_gather_object(everything, {"device": DEVICE, "tensor": torch.ones(1, device=DEVICE)})
    assert everything[1]["device"] == torch.device("cuda", 1)
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=50))
    assert backend.options._timeout == datetime.timedelta(seconds=50)
    store = dist.PrefixStore("direct", dist.distributed_c10d._get_default_store())
    direct = dist.ProcessGroupNCCL(store, RANK, SIZE, MINUTE)
    tensor = torch.ones(2, device=DEVICE)
    direct.allreduce([tensor]).wait()
    assert tensor.tolist() == [SIZE, SIZE]
    direct.shutdown()
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError as error:
        assert "No backend type associated with device type cpu" in str(error)
    else:
        raise AssertionError
    dist.destroy_process_group()


@check
def meshes():
    start("meshes", "nccl")
    for mesh in (
        init_device_mesh("cuda", (SIZE,)),
        DeviceMesh("cuda", list(range(SIZE))),
        init_device_mesh(device_type="cuda", mesh_shape=(1, SIZE)),
    ):
        assert mesh.device_type == "musa"
    assert DeviceMesh.from_group(dist.group.WORLD, "cuda").device_type == "musa"
    mesh = init_device_mesh("cuda", (SIZE,), mesh_dim_names=("dp",))
    add_up(group=mesh.get_group("dp"))
    assert dist.get_backend(mesh.get_group()) == "nccl"
    dist.destroy_process_group()


@check
def debug_mode():
    """Collectives are checked by a wrapper around the group, as TORCH_DISTRIBUTED_DEBUG=DETAIL asks for."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    start("debug", "nccl", device_id=DEVICE)
    add_up()
    everything = [None] * SIZE
    dist.all_gather_object(everything, RANK)
    assert everything == list(range(SIZE)) and dist.get_backend() == "nccl"
    try:
        dist.all_reduce(torch.ones(2 + RANK, device=DEVICE))
    except RuntimeError as error:
        assert "Detected mismatch between collectives on ranks" in str(error), error
    else:
        raise AssertionError
    dist.destroy_process_group()
    dist.set_debug_level(dist.DebugLevel.OFF)


@check
def environment():
    os.environ["TORCH_NCCL_NAN_CHECK"], os.environ["NCCL_DEBUG"], os.environ["MCCL_DEBUG"] = "0", "INFO", "WARN"
    os.environ["TORCH_NCCL_CUDA_EVENT_CACHE"] = "0"
    start("environment", "nccl")
    assert os.environ["TORCH_MCCL_NAN_CHECK"] == "0" and os.environ["MCCL_DEBUG"] == "WARN"
    assert os.environ["TORCH_MCCL_MUSA_EVENT_CACHE"] == "0"
    dist.barrier()  # the other may still be connecting
    dist.destroy_process_group()


def main() -> None:
    faulthandler.dump_traceback_later(200, exit=True)
    torch.cuda.set_device(RANK)
    report = {}
    for name, run in CHECKS.items():
        try:
            run()
            report[name] = "ok"
        except Exception:
            report[name] = traceback.format_exc()
            break
    Path(os.environ["REPORT"]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
