"""torch.distributed: "nccl" means MCCL, the vendor's collective library."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import distributed_c10d

from ..errors import NotOnMusa
from ..tables.names import MCCL_VARIABLES
from .device import BACKEND, translate

NCCL, MCCL = "nccl", "mccl"
BFLOAT16_HOOKS = ("bf16_compress_hook", "bf16_compress_wrapper_hook")


def _has_mccl() -> bool:
    return MCCL.upper() in distributed_c10d.Backend._plugins


def _parts(backend: str) -> list[tuple[str, str]]:
    """("device type" or "", backend) of each part of "nccl" or "cuda:nccl,cpu:gloo", device types translated."""
    parts = []
    for part in backend.lower().split(","):
        device, colon, name = part.rpartition(":")
        parts.append((translate(device) if colon else "", name))
    return parts


def _covers_device(parts: list[tuple[str, str]]) -> bool:
    capability = distributed_c10d.Backend.backend_capability
    return any(device == BACKEND or (not device and BACKEND in capability.get(name, ())) for device, name in parts)


def copy_environment() -> None:
    """What is set for NCCL holds for MCCL, unless that is set too."""
    for theirs in MCCL_VARIABLES:
        value = os.environ.get(theirs.replace("MCCL", "NCCL").replace("MUSA", "CUDA"))
        if value is not None:
            os.environ.setdefault(theirs, value)


def new_process_group(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`_new_process_group_helper`, which every way of making a group comes to.

    torch and the vendor's plug-in see "mccl"; the group is then known by the name that it was asked for.
    """
    args_list = list(args)
    asked = args_list[3] if len(args_list) > 3 else kwargs["backend"]
    wanted = NCCL if asked == distributed_c10d.Backend.UNDEFINED else str(asked)
    parts = [(device, MCCL if name == NCCL else name) for device, name in _parts(wanted)]
    if not _has_mccl() and any(name == MCCL for _, name in parts):
        raise RuntimeError(
            "Distributed package doesn't have NCCL built in: nccl is MCCL on MUSA, and this torch_musa has not "
            "registered the backend 'mccl'. Use a torch_musa that was built with MCCL, or backend='gloo' with tensors "
            "on the CPU."
        )
    changed = parts != _parts(str(asked)) or any(device == BACKEND for device, _ in parts)
    if changed:
        backend = distributed_c10d.Backend(",".join(f"{device}:{name}" if device else name for device, name in parts))
        copy_environment()
        if len(args_list) > 3:
            args_list[3] = backend
        else:
            kwargs["backend"] = backend
    if kwargs.get("device_id") is not None and not _covers_device(parts):
        kwargs["device_id"] = None  # gloo serves CUDA tensors too, but not MUSA's: no eager connection
    group, store = original(*args_list, **kwargs)
    if changed and group in distributed_c10d._world.pg_map:
        config = distributed_c10d.BackendConfig(distributed_c10d.Backend(wanted))
        distributed_c10d._world.pg_map[group] = (distributed_c10d.Backend(str(asked)), store)
        distributed_c10d._world.pg_backend_config[group] = str(config)
        if ":" in wanted and any(name == MCCL for _, name in parts):  # torch's default among them is NCCL
            group._set_default_backend(distributed_c10d.ProcessGroup.BackendType.CUSTOM)
    return group, store


def is_nccl_available(original: Callable[..., bool]) -> bool:
    """``torch.distributed.is_nccl_available()``: whether MCCL is."""
    return original() or _has_mccl()


class _LikeMCCL(type):
    """The vendor's class may load a library when it is asked for, so it is asked for late."""

    def __instancecheck__(cls, instance: object) -> bool:
        peer = vars(torch.distributed).get("ProcessGroupMCCL")
        return peer is not None and isinstance(instance, peer)

    def __subclasscheck__(cls, subclass: type) -> bool:
        peer = vars(torch.distributed).get("ProcessGroupMCCL")
        return subclass is cls or (peer is not None and issubclass(subclass, peer))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.distributed.ProcessGroupMCCL, name)  # type: ignore[attr-defined]


class ProcessGroupNCCL(metaclass=_LikeMCCL):
    """The vendor's ProcessGroupMCCL under CUDA's name, `Options` included."""

    def __new__(cls, store: Any, rank: int, size: int, options: Any = None, timeout: Any = None) -> Any:
        """A process group of MCCL. *options* is a `ProcessGroupNCCL.Options` or, as in torch, a time-out."""
        if isinstance(options, distributed_c10d.timedelta):
            options, timeout = None, options
        plugin = distributed_c10d.Backend._plugins[MCCL.upper()]
        timeout = timeout or getattr(options, "_timeout", None) or distributed_c10d.default_pg_timeout
        if not plugin.extended_api:
            return plugin.creator_fn(store, rank, size, timeout)
        description = distributed_c10d._DistributedBackendOptions()
        description.store, description.group_rank, description.group_size = store, rank, size
        description.timeout, description.group_id, description.global_ranks_in_group = timeout, "", []
        return plugin.creator_fn(description, options)


ProcessGroupNCCL.__module__ = distributed_c10d.__name__


def _hash_tensors(tensors: list[torch.Tensor]) -> int:
    """What builds with NCCL have in C++, and object collectives log under TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    return hash(tuple(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() for tensor in tensors))


def process_group_nccl() -> Callable[[], None]:
    """Put the names where builds of torch with NCCL have them. What is there for real stays."""
    names = {
        distributed_c10d: ("ProcessGroupNCCL", ProcessGroupNCCL),
        torch.distributed: ("ProcessGroupNCCL", ProcessGroupNCCL),
        torch._C._distributed_c10d: ("_hash_tensors", _hash_tensors),
    }
    places = {module: (name, value) for module, (name, value) in names.items() if name not in vars(module)}
    for module, (name, value) in places.items():
        vars(module)[name] = value
    timeout = distributed_c10d.default_pg_nccl_timeout
    if timeout is None:  # what NCCL's process group, and MCCL's after it, waits by default
        distributed_c10d.default_pg_nccl_timeout = distributed_c10d.timedelta(minutes=10)

    def undo() -> None:
        distributed_c10d.default_pg_nccl_timeout = timeout
        for module, (name, value) in places.items():
            if vars(module).get(name) is value:
                del vars(module)[name]

    return undo


def default_backend() -> Callable[[], None]:
    """`get_default_backend_for_device("cuda")` and a group made from a device id alone answer "nccl"."""
    table = distributed_c10d.Backend.default_device_backend_map
    before = table.get(BACKEND)
    table[BACKEND] = NCCL

    def undo() -> None:
        if before is None:
            table.pop(BACKEND, None)
        else:
            table[BACKEND] = before

    return undo


def sharded_grad_scaler(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """``ShardedGradScaler(device="cuda", init_scale, ...)`` for the vendor's class, which takes no device."""
    if args and isinstance(args[0], str):
        device, args = args[0], args[1:]
    else:
        device = kwargs.pop("device", "cuda")
    if translate(device) != BACKEND:
        raise ValueError(f"ShardedGradScaler of torch_musa scales for {BACKEND!r} devices, not for {device!r}")
    original(self, *args, **kwargs)


def new_subgroups(original: Callable[..., Any], group_size: Any = None, *args: Any, **kwargs: Any) -> Any:
    """``new_subgroups()``: the default size of a group is the number of devices of the machine."""
    if group_size is None:
        group_size = torch.cuda.device_count() or None  # None: torch says that there is no device
    return original(group_size, *args, **kwargs)


def check_comm_hook(original: Callable[..., None], self: Any, hook: Any) -> None:
    """``DistributedDataParallel.register_comm_hook``: torch lets the bfloat16 hooks through for NCCL builds only, by
    their name; MCCL sums bfloat16."""
    if self.device_type == BACKEND and getattr(hook, "__name__", "") in BFLOAT16_HOOKS and _has_mccl():
        named = hook

        def hook(state: Any, bucket: Any) -> Any:
            return named(state, bucket)

        hook.__signature__ = inspect.signature(named)  # type: ignore[attr-defined]
    original(self, hook)


def rpc_devices(original: Callable[..., Any], devices: Any) -> Any:
    """The devices or device maps of ``rpc.TensorPipeRpcBackendOptions``."""
    named = [*devices, *devices.values()] if isinstance(devices, dict) else devices
    if any(torch.device(device).type == BACKEND for device in named):
        raise NotOnMusa(
            "torch.distributed.rpc with devices or device maps",
            "TensorPipe, which carries it, moves tensors between CUDA devices only.",
            "tensors on the CPU as arguments and results (tensor.cpu()), or torch.distributed.send() and recv().",
        )
    return original(devices)


# ---------------------------------------------------------------- torchrun --nproc-per-node gpu
def _processes(wanted: Any) -> Any:
    """The number of devices for "gpu"; without any, torch says so."""
    return str(torch.cuda.device_count() or wanted) if wanted == "gpu" else wanted


def launcher_option(
    original: Callable[..., None], self: Any, parser: Any, namespace: Any, values: Any, *rest: Any
) -> None:
    """An option of torchrun. Its main module may be run under the name ``__main__``, where no rule finds its functions,
    so that "gpu" is answered where the command line is read."""
    original(self, parser, namespace, _processes(values) if self.dest == "nproc_per_node" else values, *rest)


def launcher_default(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """The same, for PET_NPROC_PER_NODE."""
    original(self, *args, **kwargs)
    if self.dest == "nproc_per_node":
        self.default = _processes(self.default)


def local_world_size(original: Callable[[str], int], nproc_per_node: str) -> int:
    """The same, for programs that call torchrun's functions."""
    return original(_processes(nproc_per_node))
