"""The C++ wrapper (`torch._inductor.config.cpp_wrapper`), which the simulated device does not have."""

from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

from ..._not_simulated import refuse


class CppWrapperMusa(CppWrapperCpu):
    """Writes C++ code that allocates and launches."""

    def __init__(self):
        refuse("torch_musa's C++ wrapper (torch._inductor.config.cpp_wrapper, AOTInductor)", "C++ wrapper")

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        """The wrapper of a graph, or of a subgraph of `parent_wrapper`."""
        return CppWrapperMusa()
