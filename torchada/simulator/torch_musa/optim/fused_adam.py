"""Adam in one kernel."""

from typing import Any, TypeAlias

from ..utils import ext_loader
from ._base import _FusedBase, functions

__all__ = ["FusedAdam"]

StateDict: TypeAlias = dict[str, Any]

ext_module = ext_loader.load_ext("_ext", ["fused_adam"])
_fused_adam, _fused_adam_impl, _fused_adam_tensor_lr = functions(ext_module.fused_adam, "fused_adam")


class FusedAdam(_FusedBase):
    """`torch.optim.Adam`, one kernel for all parameters of a group. `differentiable` is refused, as by torch's own."""

    _run = staticmethod(_fused_adam)

    def __init__(
        self,
        params,
        lr=0.001,
        betas=(0.9, 0.999),
        eps=1e-08,
        weight_decay=0,
        amsgrad=False,
        *,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        self._set_up(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
        )
