"""What the fused Adam optimizers share."""

from typing import Any

import torch
from torch.optim.optimizer import Optimizer


class _FusedBase(Optimizer):
    """One kernel for all parameters of a group; a subclass has the kernel as `_run` (see `functions`)."""

    _step_supports_amp_scaling = True
    _run: Any = None

    def _set_up(self, params, **defaults):
        _check(defaults["lr"], defaults["betas"], defaults["eps"], defaults["weight_decay"], defaults["differentiable"])
        super().__init__(params, defaults)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("amsgrad", "maximize", "capturable", "differentiable"):
                group.setdefault(name, False)
        _step_to_device(self)

    @staticmethod
    def _process_value_according_to_param_policy(param, value, param_id, param_groups, key=None):
        if key == "step":  # counted on the device, whatever the dtype of the parameter
            return value.to(dtype=torch.float32, device=param.device)
        return Optimizer._process_value_according_to_param_policy(param, value, param_id, param_groups, key)

    def load_state_dict(self, state_dict):
        """torch's own, with the step counters on the parameters' devices."""
        super().load_state_dict(state_dict)
        _step_to_device(self)

    def _init_group(self, group, params_with_grad, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps):
        lists = (params_with_grad, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
        return _init_group(self.state, group, *lists)

    @torch.no_grad()
    def step(self, closure=None):
        """One step; the closure's result, if there is a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            lists: tuple[list, ...] = ([], [], [], [], [], [])
            has_complex = self._init_group(group, *lists)
            beta1, beta2 = group["betas"]
            self._run(
                *lists,
                group["lr"],
                capturable=group["capturable"],
                differentiable=group["differentiable"],
                grad_scale=getattr(self, "grad_scale", None),
                found_inf=getattr(self, "found_inf", None),
                has_complex=has_complex,
                amsgrad=group["amsgrad"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=group["maximize"],
            )
        return loss


def functions(kernel, name):
    """`_name`, `_name_impl` and `_name_tensor_lr` over `kernel`, which has the arguments of `torch._fused_adam_`."""

    def entry(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs,
        state_steps,
        lr,
        capturable=False,
        differentiable=False,
        grad_scale=None,
        found_inf=None,
        has_complex=False,
        *,
        amsgrad,
        beta1,
        beta2,
        weight_decay,
        eps,
        maximize,
    ):
        take = tensor_lr if isinstance(lr, torch.Tensor) else impl
        take(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            max_exp_avg_sqs,
            state_steps,
            lr,
            capturable,
            differentiable,
            grad_scale,
            found_inf,
            has_complex,
            amsgrad=amsgrad,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=eps,
            maximize=maximize,
        )

    def impl(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs,
        state_steps,
        lr,
        capturable=False,
        differentiable=False,
        grad_scale=None,
        found_inf=None,
        has_complex=False,
        *,
        amsgrad,
        beta1,
        beta2,
        weight_decay,
        eps,
        maximize,
    ):
        if not params:
            return
        if has_complex:  # the kernel takes real tensors: (real, imaginary) pairs give the same step
            lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
            views = [[torch.view_as_real(t) if t.is_complex() else t for t in tensors] for tensors in lists]
            params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs = views
        torch._foreach_add_(state_steps, 1)
        kernel(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            max_exp_avg_sqs,
            state_steps,
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=eps,
            amsgrad=amsgrad,
            maximize=maximize,
            grad_scale=grad_scale,
            found_inf=found_inf,
        )
        if found_inf is not None:  # nothing was done, so this was no step
            torch._foreach_sub_(state_steps, [found_inf] * len(state_steps))

    def tensor_lr(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs,
        state_steps,
        lr,
        capturable=False,
        differentiable=False,
        grad_scale=None,
        found_inf=None,
        has_complex=False,
        *,
        amsgrad,
        beta1,
        beta2,
        weight_decay,
        eps,
        maximize,
    ):
        if params:
            lr = lr.to(params[0].device)
        impl(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            max_exp_avg_sqs,
            state_steps,
            lr,
            capturable,
            differentiable,
            grad_scale,
            found_inf,
            has_complex,
            amsgrad=amsgrad,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=eps,
            maximize=maximize,
        )

    for function, suffix in ((entry, ""), (impl, "_impl"), (tensor_lr, "_tensor_lr")):
        function.__name__ = function.__qualname__ = f"_{name}{suffix}"
    return entry, impl, tensor_lr


def _check(lr, betas, eps, weight_decay, differentiable):
    """ValueError for a hyperparameter out of range, RuntimeError for `differentiable`."""
    for name, value in (("learning rate", lr), ("epsilon value", eps), ("weight_decay value", weight_decay)):
        if not value >= 0.0:
            raise ValueError(f"Invalid {name}: {value}")
    for index, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
    if isinstance(lr, torch.Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if differentiable:
        raise RuntimeError("a fused optimizer does not support `differentiable`")


def _step_to_device(optimizer):
    """Step counters as the kernels want them: float32 tensors on the parameters' devices."""
    for param, state in optimizer.state.items():
        if "step" in state:
            state["step"] = torch.as_tensor(state["step"], dtype=torch.float32).to(param.device)


def _init_group(states, group, params_with_grad, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps):
    """Fill the lists from a group, making the state of a parameter at its first step; whether one is complex."""
    has_complex = False
    for param in group["params"]:
        if param.grad is None:
            continue
        if param.grad.is_sparse:
            raise RuntimeError("a fused optimizer does not support sparse gradients")
        has_complex |= param.is_complex()
        state = states[param]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=param.device)
            state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(param, memory_format=torch.preserve_format)
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        params_with_grad.append(param)
        grads.append(param.grad)
        exp_avgs.append(state["exp_avg"])
        exp_avg_sqs.append(state["exp_avg_sq"])
        if group["amsgrad"]:
            max_exp_avg_sqs.append(state["max_exp_avg_sq"])
        state_steps.append(state["step"])
    return has_complex
