"""Fused optimizers; not simulated yet (torch.optim's own work on the device)."""

import torch

from .._not_simulated import absent, refuse

_PART = "fused optimizers (torch.optim.Adam, AdamW and the others work)"


class FusedAdam(torch.optim.Optimizer):
    """Adam in one kernel."""

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
        refuse("torch_musa.optim.FusedAdam", _PART)


class FusedAdamW(torch.optim.Optimizer):
    """AdamW in one kernel."""

    def __init__(
        self,
        params,
        lr=0.001,
        betas=(0.9, 0.999),
        eps=1e-08,
        weight_decay=0.01,
        amsgrad=False,
        *,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        refuse("torch_musa.optim.FusedAdamW", _PART)


class FusedLAMB(torch.optim.Optimizer):
    """LAMB in one kernel."""

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
        refuse("torch_musa.optim.FusedLAMB", _PART)


__getattr__ = absent(__name__, {"fused_adam", "fused_adamw", "fused_lamb"}, _PART)
