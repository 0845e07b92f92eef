"""What torch_musa, and the vendor's build of torch, change in torch._inductor; each when its module is imported."""

import functools
import hashlib
import json
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch_musa

from torchada.simulator.profiles import active_defects

from .._late import when_imported
from .._not_simulated import refuse
from .._replace import replace_everywhere


def install():
    """Arrange for everything; imports nothing of torch._inductor."""
    when_imported("torch.utils._triton", _patch_triton)
    when_imported("torch._inductor.config", _patch_config)
    when_imported("torch._inductor.utils", _patch_utils)
    for theirs, ours in (("runtime.benchmarking", "benchmark"), ("codegen.cpp_utils", "codegen.cpp_utils")):
        when_imported("torch._inductor." + theirs, partial(import_module, "torch_musa._inductor." + ours))
    when_imported("torch._inductor.codecache", _patch_codecache)
    when_imported("torch._inductor.select_algorithm", _patch_templates)
    when_imported("torch._inductor.fx_passes.post_grad", _write_out_attention)
    when_imported("torch._inductor.graph", _register)  # it is the first to ask for a backend


_torch_has_triton: Any = None


def has_triton():
    """Whether Triton can compile for an accelerator of this process. There is no Triton for the simulated device."""
    return _torch_has_triton()


def is_gpu(device):
    """Whether `device` names a GPU's device type."""
    return device in sys.modules["torch._inductor.utils"].GPU_TYPES


has_triton.__module__ = is_gpu.__module__ = "torch_musa._inductor.utils"  # where they are found


def _patch_triton():
    global _torch_has_triton
    _torch_has_triton = sys.modules["torch.utils._triton"].has_triton
    replace_everywhere(_torch_has_triton, has_triton)


def _patch_config():
    config: Any = sys.modules["torch._inductor.config"]
    config.compile_threads = 1


def _patch_utils():
    utils: Any = sys.modules["torch._inductor.utils"]
    types = [*utils.GPU_TYPES, "musa"]
    for name, module in list(sys.modules.items()):
        if name.startswith("torch._inductor") and "GPU_TYPES" in vars(module):
            vars(module)["GPU_TYPES"] = types
    replace_everywhere(utils.is_gpu, is_gpu)

    original = getattr(utils, "get_current_backend", None)
    if original is None:  # up to torch 2.7: see codegen/simulated.py
        return

    @functools.wraps(original)
    def get_current_backend(*device_type):  # torch 2.9 has no argument
        from torch._inductor.virtualized import V

        # The device's kernels are C++; torch takes every device it does not know for one of Triton.
        of = next(filter(None, device_type), None) or V.graph.get_current_device_or_throw().type
        return "cpp" if of == "musa" else original(*device_type)

    replace_everywhere(original, get_current_backend)


def _patch_templates():
    # Without this, FlexAttention ends in the import of a Triton that is not there.
    template: Any = sys.modules["torch._inductor.select_algorithm"].TritonTemplate
    original = template.generate

    @functools.wraps(original)
    def generate(self, *args, **kwargs):
        if not has_triton():
            refuse(f"Triton's template {self.name!r} of torch._inductor", "Triton compiler")
        return original(self, *args, **kwargs)

    template.generate = generate


def _write_out_attention():
    from .flex import register

    register()


def device_key():
    """What compiled code depends on besides torch: the device and this package. None without a device."""
    if torch_musa.device_count() == 0:
        return None
    properties = torch_musa.get_device_properties(0)
    build = Path(torch_musa._MUSAC.__file__).parent.name
    return {
        "device": {"name": properties.name, "capability": [properties.major, properties.minor]},
        "version": {"torch_musa": torch_musa.__version__, "build": build, "defects": sorted(active_defects())},
    }


def _patch_codecache():
    # torch asks torch.cuda for the device, whose initialisation is torch_musa's by now; the vendor's torch asks MUSA.
    base: Any = sys.modules["torch._inductor.codecache"].CacheBase

    @functools.cache
    def get_system():
        key = device_key() or {}
        return {**key, "hash": hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()}

    base.get_system = staticmethod(get_system)


def _register():
    from .ir import _apply_ir_patch

    _apply_ir_patch()
    torch_musa._inductor._init_inductor_backend_registration()
