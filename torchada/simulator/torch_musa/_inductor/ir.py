"""What inductor's intermediate representation learns about the device."""

from contextvars import ContextVar
from typing import Any

import torch
from torch._inductor import ir as _ir
from torch._inductor import scheduler as _scheduler
from torch._inductor.ir import TemplateBuffer

from .._not_simulated import refuse
from ._install import is_gpu


class MUSATemplateBuffer(TemplateBuffer):
    """The buffer of a kernel from a template of the vendor's mutlass."""

    def __init__(self, layout, inputs, make_kernel_render, workspace_size, template):
        refuse("torch_musa._inductor.ir.MUSATemplateBuffer", "template library")

    def get_workspace_size(self):
        """Bytes of scratch memory the kernel needs."""
        refuse("torch_musa._inductor.ir.MUSATemplateBuffer", "template library")


def _is_musa(device):
    return isinstance(device, torch.device) and device.type == "musa"


def _apply_ir_patch():
    """Let the C++ code generation treat the device as it treats the CPU; twice is once.

    Inductor orders loops, and asks for Triton, for every device that is a GPU; its C++ kernels want neither.
    """
    if hasattr(_ir.is_cpu, "_torch_musa"):
        return
    is_cpu: Any = _ir.is_cpu
    node_is_cpu = _scheduler.BaseSchedulerNode.is_cpu

    def is_cpu_or_musa(x):
        return is_cpu(x) or _ir.get_device_type(x) == "musa"

    def node_is_cpu_or_musa(self):
        return node_is_cpu(self) or _is_musa(self.get_device())

    partitioning = ContextVar("partitioning", default=False)

    def is_gpu_with_triton(device):
        return is_gpu(device) and (device != "musa" or partitioning.get())

    is_cpu_or_musa._torch_musa = True  # type: ignore[attr-defined]
    _ir.is_cpu = is_cpu_or_musa
    _scheduler.BaseSchedulerNode.is_cpu = node_is_cpu_or_musa
    _ir.is_gpu = _scheduler.is_gpu = is_gpu_with_triton

    # What a graph can capture is what runs on a GPU, whoever wrote the kernel.
    should_partition: Any = getattr(_scheduler.Scheduler, "should_partition", None)  # since torch 2.8

    def should_partition_gpu(self, *args, **kwargs):
        token = partitioning.set(True)
        try:
            return should_partition(self, *args, **kwargs)
        finally:
            partitioning.reset(token)

    if should_partition is not None:
        _scheduler.Scheduler.should_partition = should_partition_gpu
