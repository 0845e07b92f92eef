"""Texts of the MUSA driver calls in generated C++; not simulated."""

from ..._not_simulated import stand_ins

globals().update(
    stand_ins(__name__, "compiler for device code", {"musa_kernel_driver": "()", "musa_kernel_header": "()"})
)
