"""torch_musa over a simulated device: names, signatures and defects of the vendor's package, by version.

Parts that need Dynamo, inductor or torch.distributed load when they are asked for, so that importing this
package stays cheap. It knows MUSA only: nothing here translates CUDA names.
"""

# ruff: noqa: E402, F401  (the order matters; this is where the names of the package come together)

import contextlib
import os
import re
import sys
import warnings
from typing import Set, Type  # noqa: UP035  (torch_musa has these names)

from torchada import simulator as _simulator

_simulator.prepare()  # before torch: it cannot be imported a second time when a build fails or is interrupted

import torch
from packaging.version import Version

from torchada.simulator import profiles as _profiles

_profile = _profiles.chosen()
_profiles.active_defects()  # a wrong setting is an error here, before anything is changed in torch
__version__ = _profile.version
__simulated__ = True

TORCH_MIN_VERSION = Version(_profile.torch)
TORCH_VERSION = torch.__version__

if Version(Version(TORCH_VERSION).base_version) < TORCH_MIN_VERSION:
    raise ImportError(
        f"torch_musa {__version__} needs torch {TORCH_MIN_VERSION} or newer, not {TORCH_VERSION}; "
        f"{_profiles.VERSION_VARIABLE} names another torch_musa"
    )


def _load_backend():
    from torchada.simulator import build

    return build.load()


_MUSAC = _load_backend()
_MUSAC._musa_version = _profile.musa_number
sys.modules[__name__ + "._MUSAC"] = _MUSAC

import torch_musa

torch.utils.rename_privateuse1_backend("musa")
setattr(torch._C._profiler.ProfilerActivity, "MUSA", torch._C._profiler.ProfilerActivity.PrivateUse1)  # noqa: B010  (no stub has it)
# An attribute only: `import torch.musa` fails, as with the vendor's package.
torch.__dict__["musa"] = sys.modules[__name__]

from . import core
from .core import amp, current_blas_handle, current_blaslt_handle, mccl, memory
from .core._lazy_init import (
    MusaError,
    _initialized,
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    check_error,
    is_initialized,
    musart,
)
from .core.amp.common import amp_definitely_not_available, get_amp_supported_dtype
from .core.device import (
    Device as device,
)
from .core.device import (
    DeviceOf as device_of,
)
from .core.device import (
    _DeviceGuard,
    _exchange_device,
    _maybe_exchange_device,
    can_device_access_peer,
    current_device,
    device_count,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_available,
    is_bf16_supported,
    is_tf32_supported,
    register_musa_hook,
    set_device,
    synchronize,
)
from .core.memory import (
    MemPool,
    MemPoolContext,
    MUSAPluggableAllocator,
    _dump_snapshot,
    _record_memory_history,
    _set_allocator_settings,
    change_current_allocator,
    empty_cache,
    get_allocator_backend,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_all,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from .core.module_attrs import set_module_attributes
from .core.musa import (
    BFloat16Storage,
    BoolStorage,
    ByteStorage,
    CharStorage,
    DoubleStorage,
    FloatStorage,
    HalfStorage,
    IntStorage,
    LongStorage,
    ShortStorage,
)
from .core.random import (
    fork_rng,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .core.reductions import init_reductions
from .core.serialization import register_deserialization
from .core.storage import set_storage_attributes
from .core.stream import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    _set_stream_by_id,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from .core.tensor_attrs import set_torch_attributes
from .musa_graph import (
    MUSAGraph,
    graph,
    graph_pool_handle,
    graphs,
    is_current_stream_capturing,
    make_graphed_callables,
    update_musa_graph_with_profile,
)

OutOfMemoryError = torch._C.OutOfMemoryError
# Legacy tensor types: torch_musa.FloatTensor and so on.
_tensor_classes = set(_MUSAC._sim_tensor_types.values())
globals().update(_MUSAC._sim_tensor_types)

# name -> (module, attribute or None for the module itself), loaded on first use: they import Dynamo, inductor,
# distributed, setuptools, or are not simulated yet and say so when they are used.
_LATE = {
    "BuildExtension": (".utils.musa_extension", "BuildExtension"),
    "MUSAExtension": (".utils.musa_extension", "MUSAExtension"),
    "MusaInterface": ("._dynamo.device_interface", "MusaInterface"),
    "_apply_distributed_patch": (".distributed", "_apply_distributed_patch"),
    "_dynamo": ("._dynamo", None),
    "_export": ("._export", None),
    "_inductor": ("._inductor", None),
    "_init_inductor_backend_registration": ("._inductor", "_init_inductor_backend_registration"),
    "_register_ao_intrinsic_modules": (".core.ao.register_helper", "_register_ao_intrinsic_modules"),
    "apply_lowering_patch": (".core.lowering", "apply_lowering_patch"),
    "backend": ("._dynamo.backend", None),
    "device_interface": ("._dynamo.device_interface", None),
    "distributed": (".distributed", None),
    "get_registered_device_interfaces": ("._dynamo.device_interface", "get_registered_device_interfaces"),
    "multi_tensor_apply": (".multi_tensor_apply", None),
    "musa_extension": (".utils.musa_extension", None),
    "musagraphs": ("._dynamo.backend.musagraphs", None),
    "nn": (".core.ao.nn", None),
    "register_fake_impl": (".core.ops.register_fake_impl", None),
    "register_interface_for_device": ("._dynamo.device_interface", "register_interface_for_device"),
    "supported_ctx_manager_classes": ("._dynamo.variables.torch", "supported_ctx_manager_classes"),
    "trace_rules": ("._dynamo.trace_rules", None),
    "utils": (".utils", None),
    "variables": ("._dynamo.variables", None),
}


from ._late import lazily as _lazily

__getattr__, __dir__ = _lazily(__name__, _LATE)


def _sleep(cycles):
    """Keep the current stream busy for about `cycles` clock cycles."""
    _MUSAC._musa_sleep(cycles)


def ipc_collect():
    """Free memory of other processes that is no longer used here."""
    _lazy_init()
    return _MUSAC._musa_ipc_collect()


def overwrite_cuda_api():
    """Let torch.cuda's initialisation initialise MUSA: `torch.cuda._lazy_init` and `_lazy_call` are replaced."""
    torch.cuda._lazy_init = _lazy_init
    if _profile.names == "2.7.1":
        torch.cuda._lazy_call = _lazy_call


def parseEnvForUMM():
    """Turn unified memory on when PYTORCH_MUSA_ALLOC_CONF has `cpu:unified`."""
    if re.search(r"\bcpu\s*:\s*unified\b", os.environ.get("PYTORCH_MUSA_ALLOC_CONF", "")):
        os.environ["CPU_UNIFIED_FLAG"] = "1"
        _MUSAC._musa_register_unified_allocator()
        _MUSAC._musa_register_unified_cpu_allocator()


@contextlib.contextmanager
def use_unified_cpu_allocator():
    """Context manager: CPU tensors made inside are in memory the device reads as well."""
    _MUSAC._musa_register_unified_cpu_allocator()
    try:
        yield
    finally:
        _MUSAC._musa_reset_unified_cpu_allocator()


def set_attributes():
    """Put the methods on Tensor, Module and storages."""
    set_torch_attributes()
    set_module_attributes()
    set_storage_attributes()


def _apply_sharded_grad_scaler_patch():
    """FSDP's gradient scaler is one for MUSA."""
    from .distributed import _apply_sharded_grad_scaler_patch as apply

    apply()


def _apply_patches():
    """Everything that is changed in torch at import."""
    set_attributes()
    register_deserialization()
    init_reductions()
    set_profiler_attributes()
    if _profiles.defect("cuda_lazy_init"):
        overwrite_cuda_api()
    _set_up_vendor_torch()
    _apply_sharded_grad_scaler_patch()
    torch_musa._register_ao_intrinsic_modules()
    torch.random.fork_rng = fork_rng
    torch.backends.__dict__["mudnn"] = sys.modules["torch_musa.core.mudnn"]
    torch.version.__dict__["musa"] = _MUSAC._musa_version
    torch._C._conv_determine_backend_memory_format = _MUSAC._conv_determine_backend_memory_format


def _autoload():
    """Entry point for torch's automatic loading of backends; importing this package has done the work."""


from ._defects import set_up as _set_up_defects
from ._dynamo._install import install as _install_dynamo
from ._inductor._install import install as _install_inductor
from ._late import when_imported as _when_imported
from ._vendor_torch import set_up as _set_up_vendor_torch
from ._versions import set_up as _set_up_version
from .core import mudnn as _mudnn
from .profiler import set_profiler_attributes

_install_dynamo()
_set_up_defects(sys.modules[__name__], _MUSAC)
_install_inductor()
register_musa_hook()
parseEnvForUMM()
_apply_patches()
_set_up_version(sys.modules[__name__], _profile.names)
if "apply_lowering_patch" in _LATE:
    _when_imported("torch.ao.quantization.pt2e", lambda: torch_musa.apply_lowering_patch())
