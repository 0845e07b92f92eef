"""`with torch.musa.device(i)` and autocast in compiled functions, as the vendor's build of torch has them."""

import inspect
from typing import Any

import torch
import torch._dynamo.variables.ctx_manager as _ctx
import torch_musa
from torch_musa.core._utils import _get_musa_device_index
from torch_musa.core.amp.autocast_mode import autocast

if hasattr(_ctx, "register_device_context_manager"):  # older versions break the graph here

    class MUSADeviceVariable(_ctx.GenericDeviceVariable):
        """Represents torch.musa.device."""

        _exchange_fn = staticmethod(torch_musa._exchange_device)
        _maybe_exchange_fn = staticmethod(torch_musa._maybe_exchange_device)
        _get_device_index_fn = staticmethod(_get_musa_device_index)

        def module_name(self) -> str:
            """Where Dynamo finds the class after a graph break."""
            return "torch.musa"

        def python_type(self) -> type:
            """The class it represents."""
            return torch_musa.device

    # torch has one already where the class stands in the place of one of its own.
    if _ctx.get_device_context_manager(torch_musa.device) is None:
        _ctx.register_device_context_manager(torch_musa.device, MUSADeviceVariable)

_create = _ctx.AutocastModeVariable.create


def _create_autocast(func: Any, args: Any, kwargs: Any) -> Any:
    if func is not autocast:
        return _create(func, args, kwargs)
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    kwargs.clear()
    return _create(torch.amp.autocast_mode.autocast, (), {"device_type": "musa", **bound.arguments})


_ctx.AutocastModeVariable.create = staticmethod(_create_autocast)  # type: ignore[method-assign]
