"""What torch_musa, and the vendor's build of torch, change in torch._dynamo; each when its module is imported."""

import contextlib
import functools
import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

import torch
import torch_musa

from .._late import when_imported
from .._replace import replace_everywhere


def install():
    """Arrange for everything; imports nothing of torch._dynamo."""
    when_imported("torch._dynamo.device_interface", functools.partial(_load, "device_interface"))
    when_imported("torch._dynamo.trace_rules", lambda: _load("trace_rules")._apply_dynamo_trace_rules_patches())
    when_imported("torch._dynamo.variables.ctx_manager", functools.partial(_load, "variables.ctx_manager"))
    when_imported("torch._dynamo.variables.torch", functools.partial(_load, "variables.torch"))
    when_imported("torch._dynamo.variables.user_defined", _add_classes)
    when_imported("torch._dynamo.backends.registry", _register_backend)
    when_imported("torch._dynamo.utils", _patch_utils)


def _load(name):
    return import_module("torch_musa._dynamo." + name)


class _Backend(EntryPoint):
    """The backend's module registers itself when it is loaded; the registry then wants to do it once more."""

    def load(self):
        registry: Any = sys.modules["torch._dynamo.backends.registry"]
        backend = super().load()
        return registry._COMPILER_FNS.pop(self.name, backend)


def _register_backend():
    registry: Any = sys.modules["torch._dynamo.backends.registry"]
    where = "torch_musa._dynamo.backend.musagraphs:MusagraphsBackend"
    registry._BACKENDS["musagraphs"] = _Backend("musagraphs", where, "torch_dynamo_backends")


def _add_classes():
    # Made in compiled functions, as torch's own are; older versions have no such set.
    known = getattr(
        sys.modules["torch._dynamo.variables.user_defined"].UserDefinedClassVariable, "_in_graph_classes", set
    )
    known().update({torch_musa.Stream, torch_musa.Event})


def _patch_utils():
    utils: Any = sys.modules["torch._dynamo.utils"]
    utils.common_constant_types.add(torch_musa._MUSAC._MusaDeviceProperties)
    original = utils.preserve_rng_state

    @contextlib.contextmanager
    @functools.wraps(original)
    def preserve_rng_state():
        with original():
            if not torch_musa.is_initialized():
                yield
                return
            real = torch.utils._python_dispatch._disable_current_modes  # a mode of fake tensors would give a fake state
            with real():
                state = torch_musa.get_rng_state()
            try:
                yield
            finally:
                with real():
                    torch_musa.set_rng_state(state)

    replace_everywhere(original, preserve_rng_state)
