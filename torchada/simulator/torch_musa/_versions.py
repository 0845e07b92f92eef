"""What torch_musa before 2.7.1 has differently: the names it lacks, and those only it has.

Members of classes, private names that this package itself needs, and everything inside _inductor and distributed are
those of 2.7.1 in every version.
"""

import sys
from typing import Any

import torch

from ._late import when_imported

_LACKING_IN_2_7_0 = {
    "torch_musa": (
        "BuildExtension",
        "MUSAExtension",
        "StreamContext",
        "_lazy_call",
        "is_tf32_supported",
        "musa_extension",
        "update_musa_graph_with_profile",
    ),
    "torch_musa.core.device": ("_check_bf16_tensor_supported", "is_tf32_supported"),
    "torch_musa.musa_graph": ("update_musa_graph_with_profile",),
    "torch_musa.musa_graph.graphs": ("update_musa_graph_with_profile",),
    "torch_musa.optim.fused_adam": ("StateDict",),
    "torch_musa.optim.fused_adamw": ("StateDict",),
    "torch_musa.utils": ("BuildExtension", "MUSAExtension"),
}
_LACKING = {
    "2.7.0": _LACKING_IN_2_7_0,
    "2.5.0": {
        **_LACKING_IN_2_7_0,
        "torch_musa": (*_LACKING_IN_2_7_0["torch_musa"], "apply_lowering_patch"),
        "torch_musa.core.amp": ("_hook_autocast_common",),
        "torch_musa.core.amp.common": (
            "_hook_autocast_common",
            "_musa_is_autocast_enabled",
            "_musa_set_autocast_enabled",
        ),
        "torch_musa.utils.musa_extension": ("load",),
    },
}


def is_bf16_supported():
    """True when the current device computes in bfloat16."""
    import torch_musa

    return torch_musa.get_device_capability()[0] >= 3


def _exchange_device(device):
    import torch_musa

    return torch_musa._MUSAC._musa_exchangeDevice(device)


def _maybe_exchange_device(device):
    import torch_musa

    return torch_musa._MUSAC._musa_maybeExchangeDevice(device)


def get_autocast_dtype():
    """The dtype autocast computes in on MUSA."""
    return torch.get_autocast_dtype("musa")


def is_autocast_enabled():
    """Whether autocast is on for MUSA."""
    return torch.is_autocast_enabled("musa")


def set_autocast_dtype(dtype):
    """Set the dtype autocast computes in on MUSA."""
    torch.set_autocast_dtype("musa", dtype)


def set_autocast_enabled(enable):
    """Switch autocast for MUSA on or off."""
    torch.set_autocast_enabled("musa", enable)


_AUTOCAST = (get_autocast_dtype, is_autocast_enabled, set_autocast_dtype, set_autocast_enabled)


def _drop(module, names):
    held = vars(module)
    for name in names:
        held.pop(name, None)
        held.get("_LATE", {}).pop(name, None)  # those that load when they are asked for


def set_up(package, version):
    """Make `package`, torch_musa with the names of 2.7.1 in place, the package of an older `version`."""
    lacking = _LACKING.get(version)
    if lacking is None:
        return
    common: Any = sys.modules["torch_musa.core.amp.common"]
    device = package.core.device
    for function in (is_bf16_supported, _exchange_device, _maybe_exchange_device):
        setattr(package, function.__name__, function)
        setattr(device, function.__name__, function)
    device._dummy_type = package.core._utils._dummy_type
    package.is_loaded = False
    if version == "2.5.0":
        torch.is_autocast_enabled = common._torch_is_autocast_enabled
        torch.set_autocast_enabled = common._torch_set_autocast_enabled
        native = package._MUSAC
        native._get_autocast_musa_dtype, native._is_autocast_musa_enabled = get_autocast_dtype, is_autocast_enabled
        native._set_autocast_musa_dtype, native._set_autocast_musa_enabled = set_autocast_dtype, set_autocast_enabled
        for function in _AUTOCAST:
            setattr(package, function.__name__, function)
            setattr(common, function.__name__, function)
        common._get_musa_arch = package.core._utils._get_musa_arch
        del native._musart.musaStreamCreate, native._musart.musaStreamDestroy
        sys.modules["torch_musa.core.lowering"] = None  # type: ignore[assignment]  # there is none: importing it fails
    for name, names in lacking.items():
        when_imported(name, lambda name=name, names=names: _drop(sys.modules[name], names))
