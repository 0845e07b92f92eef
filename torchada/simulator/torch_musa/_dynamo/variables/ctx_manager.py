"""`with torch.musa.device(i)` and autocast in compiled functions, as the vendor's build of torch has them."""

import functools
import inspect
from typing import Any

import torch
import torch._dynamo.variables.ctx_manager as _ctx
import torch_musa
from torch_musa.core._utils import _get_musa_device_index
from torch_musa.core.amp.autocast_mode import autocast

if hasattr(_ctx, "register_device_context_manager"):

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

elif hasattr(_ctx, "CUDADeviceVariable"):  # an older torch, which knows torch.cuda.device alone

    class MUSADeviceVariable(_ctx.CUDADeviceVariable):  # type: ignore[no-redef]
        """Represents torch.musa.device."""

        @staticmethod
        def create(tx: Any, device: Any, **kwargs: Any) -> Any:
            """For a device as the program names it."""
            index = _get_musa_device_index(device, optional=True)
            return MUSADeviceVariable(target_values=[index], initial_values=None, **kwargs)

        @property
        def _kept(self) -> Any:
            """What keeps what was entered: the variable itself, or (torch 2.8 and older) its state."""
            return getattr(self, "state", self)

        def enter(self, tx: Any) -> Any:
            """Make the device current, for the tracing and in the graph."""
            previous = torch_musa._exchange_device(*self.target_values)
            self.set_cleanup_hook(tx, lambda: torch_musa._maybe_exchange_device(previous))
            arguments = (*self.target_values,)
            node = tx.output.create_node("call_function", torch_musa._exchange_device, arguments, {})
            self._kept.proxy = node
            return _ctx.variables.ConstantVariable.create(None)

        def exit(self, tx: Any, *args: Any) -> Any:
            """Make the device from before current again."""
            self._kept.cleanup_assert()
            tx.output.create_node("call_function", torch_musa._maybe_exchange_device, (self._kept.proxy,), {})
            return _ctx.variables.ConstantVariable.create(False)

        def module_name(self) -> str:
            """Where Dynamo finds the class after a graph break."""
            return "torch.musa"

    from torch._dynamo.variables import user_defined

    _class: Any = user_defined.UserDefinedClassVariable
    _call = _class.call_function

    @functools.wraps(_call)
    def _call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.value is torch_musa.device and not kwargs and len(args) == 1 and args[0].is_python_constant():
            return MUSADeviceVariable.create(tx, args[0].as_python_constant())
        return _call(self, tx, args, kwargs)

    _class.call_function = _call_function


_create = _ctx.AutocastModeVariable.create


def _create_autocast(func: Any, args: Any, kwargs: Any) -> Any:
    if func is not autocast:
        return _create(func, args, kwargs)
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    kwargs.clear()
    return _create(torch.amp.autocast_mode.autocast, (), {"device_type": "musa", **bound.arguments})


_ctx.AutocastModeVariable.create = staticmethod(_create_autocast)  # type: ignore[method-assign]
