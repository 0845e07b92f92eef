"""LAMB (layer-wise adaptive moments) in one kernel."""

import torch

from ..multi_tensor_apply import multi_tensor_applier
from ..utils import ext_loader

__all__ = ["FusedLAMB"]

ext_module = ext_loader.load_ext("_ext", ["multi_tensor_l2norm", "multi_tensor_lamb"])


class FusedLAMB(torch.optim.Optimizer):
    """LAMB. The gradients of all parameters together are scaled down to `max_grad_norm` first.

    `adam_w_mode`: the decay is added to the update instead of the gradient. `use_nvlamb`: the rate adapts to a
    parameter without decay, too. RuntimeError for `amsgrad` and sparse gradients.
    """

    def __init__(
        self,
        params,
        lr=0.001,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-06,
        weight_decay=0.01,
        amsgrad=False,
        adam_w_mode=True,
        grad_averaging=True,
        set_grad_none=True,
        max_grad_norm=1.0,
        use_nvlamb=False,
    ):
        if amsgrad:
            raise RuntimeError("FusedLAMB does not support the AMSGrad variant.")
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "max_grad_norm": max_grad_norm,
        }
        super().__init__(params, defaults)
        self.adam_w_mode = 1 if adam_w_mode else 0
        self.set_grad_none = set_grad_none
        self.use_nvlamb = use_nvlamb

    def zero_grad(self, set_to_none=True):
        """Forget the gradients; `set_grad_none=False` in the constructor keeps them as zeros."""
        super().zero_grad(set_to_none=set_to_none and self.set_grad_none)

    @torch.no_grad()
    def step(self, closure=None):
        """One step; the closure's result, if there is a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not grads:
            return loss
        if any(grad.is_sparse for grad in grads):
            raise RuntimeError("FusedLAMB does not support sparse gradients")
        skip = torch.zeros(1, dtype=torch.int32, device=grads[0].device)
        norm, _ = multi_tensor_applier(ext_module.multi_tensor_l2norm, skip, [grads], False)
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            lists: tuple[list, ...] = ([], [], [], [])
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["exp_avg"] = torch.zeros_like(param)
                    state["exp_avg_sq"] = torch.zeros_like(param)
                for one, value in zip(lists, (param.grad, param, state["exp_avg"], state["exp_avg_sq"]), strict=True):
                    one.append(value)
            if lists[0]:
                multi_tensor_applier(
                    ext_module.multi_tensor_lamb,
                    skip,
                    lists,
                    group["lr"],
                    *group["betas"],
                    group["eps"],
                    group["step"],
                    group["bias_correction"],
                    group["weight_decay"],
                    group["grad_averaging"],
                    self.adam_w_mode,
                    norm,
                    group["max_grad_norm"],
                    self.use_nvlamb,
                )
        return loss
