"""The process group "mccl": its place in torch.distributed. The compiled part is loaded when a group is made."""

import torch


def process_group_class() -> type:
    """The class `torch.distributed.ProcessGroupMCCL`; builds the compiled part at the first use."""
    from torchada.simulator import build

    group = build.load("_MCCL").ProcessGroupMCCL
    group.__module__ = "torch.distributed.distributed_c10d"
    vars(torch.distributed)["ProcessGroupMCCL"] = group
    return group


def is_mccl_available() -> bool:
    """Check if the MCCL backend is available."""
    return torch.distributed.is_available()


def _create_process_group(description, options):
    """What `init_process_group` and `new_group` call; `options` is None or a `ProcessGroupMCCL.Options`."""
    group = process_group_class()
    if options is None:
        options = group.Options()  # type: ignore[attr-defined]
    elif not isinstance(options, group.Options):  # type: ignore[attr-defined]
        raise TypeError(
            f"pg_options of the mccl backend must be a ProcessGroupMCCL.Options, not {type(options).__name__}"
        )
    options._timeout = description.timeout
    options.group_name = description.group_id
    options.global_ranks_in_group = description.global_ranks_in_group
    return group(description.store, description.group_rank, description.group_size, options)


def register_process_group() -> None:
    """Make "mccl" the backend of `musa` tensors and put its names into torch.distributed."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    # In a list: a string would be taken letter by letter. The vendor's torch knows that mccl is for musa by itself.
    torch.distributed.Backend.register_backend("mccl", _create_process_group, extended_api=True, devices=["musa"])
    # The vendor's torch has this function; an unpatched one gets it here.
    for module in (distributed_c10d, torch.distributed):
        module.is_mccl_available = is_mccl_available  # type: ignore[attr-defined]

    def __getattr__(name):
        if name == "ProcessGroupMCCL":
            return process_group_class()
        raise AttributeError(f"module {torch.distributed.__name__!r} has no attribute {name!r}")

    vars(torch.distributed)["__getattr__"] = __getattr__
