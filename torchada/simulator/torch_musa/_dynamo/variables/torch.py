"""Functions that Dynamo evaluates while it traces, and context managers that it knows."""

import functools

import torch
import torch._dynamo.variables.torch as _variables
import torch_musa
from torch._dynamo.variables.torch import supported_ctx_manager_classes
from torch_musa.core.amp.autocast_mode import autocast

__all__ = ["supported_ctx_manager_classes"]

_musa_supported_ctx_manager_classes = dict.fromkeys([autocast])
supported_ctx_manager_classes.update(_musa_supported_ctx_manager_classes)

# As torch has them for its own accelerators.
_guarded = dict.fromkeys([torch_musa.current_device, torch_musa.is_initialized])
_constant = dict.fromkeys([torch_musa.get_device_properties, torch_musa.is_available, *_guarded])


def _add(name, functions):
    known = getattr(_variables, name)
    known.update(functions) if isinstance(known, dict) else known.extend(functions)  # a list up to torch 2.7


_add("constant_fold_functions_need_guards", _guarded)
_add("constant_fold_functions", _constant)

_get_handlers = _variables.TorchInGraphFunctionVariable._get_handlers


@functools.cache
def _get_handlers_and_ours():
    handlers = dict(_get_handlers())
    if torch.accelerator.current_stream in handlers:  # not up to torch 2.8: the call goes into the graph
        handlers[torch_musa.current_stream] = handlers[torch.accelerator.current_stream]
    return handlers


_variables.TorchInGraphFunctionVariable._get_handlers = staticmethod(_get_handlers_and_ours)  # type: ignore[assignment]

_call_function = _variables.TorchCtxManagerClassVariable.call_function


def _call_autocast(self, tx, args, kwargs):
    if self.value is autocast:
        from torch._dynamo.variables.ctx_manager import AutocastModeVariable

        return AutocastModeVariable.create(self.value, args, kwargs)
    return _call_function(self, tx, args, kwargs)


_variables.TorchCtxManagerClassVariable.call_function = _call_autocast  # type: ignore[method-assign]
