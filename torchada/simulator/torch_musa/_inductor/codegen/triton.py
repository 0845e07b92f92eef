"""Code generation with Triton, which the simulated device does not have."""

from torch._inductor.codegen.triton import TritonScheduling

from ..._not_simulated import refuse


class MUSATritonScheduling(TritonScheduling):
    """Inductor's code generation for Triton."""

    def __init__(self, scheduler):
        refuse("torch_musa._inductor.codegen.triton.MUSATritonScheduling", "Triton compiler")
