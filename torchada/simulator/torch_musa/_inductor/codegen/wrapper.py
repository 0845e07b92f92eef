"""The Python wrapper around kernels of the device."""

import dataclasses

from torch._inductor.codegen.wrapper import EnterDeviceContextManagerLine

from .simulated import SimulatedSubgraphWrapper, SimulatedWrapper


@dataclasses.dataclass
class EnterMUSADeviceContextManagerLine(EnterDeviceContextManagerLine):
    """The line that makes a device current."""


class MUSATritonWrapperCodeGen(SimulatedWrapper):
    """Writes the Python code that allocates and launches. The name is the vendor's; the kernels are C++."""

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        """The wrapper of a graph, or of a subgraph of `parent_wrapper`."""
        if is_subgraph:
            return SimulatedSubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return MUSATritonWrapperCodeGen()
