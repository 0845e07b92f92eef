"""Defects of torch_musa that its Python part shows, and what a version without them does instead.

The table is torchada/simulator/profiles.py. What is not done here is what has the defect.
"""

import sys
import warnings

from torchada.simulator import profiles

from ._late import when_imported


def _fill_heuristics():
    from torch._inductor.template_heuristics import registry

    table = registry._TEMPLATE_HEURISTIC_REGISTRY
    for (template, device, operator), heuristic in list(table.items()):
        if device == "cuda":
            table.setdefault((template, "musa", operator), heuristic)


def set_up(package, native):
    """Give the compiled part its defects, and mend here what the chosen version does not have.

    `package` is torch_musa, with its names in place; `native` its compiled module.
    """
    active = profiles.active_defects()
    native._sim_set_defects(active.intersection(native._sim_defects()))
    if "streams_export" not in active:
        package.streams = sys.modules["torch_musa.core.stream"]
    if "reset_max_memory" not in active:
        package.memory.warnings = warnings
    if "inductor_heuristics" not in active:
        when_imported("torch._inductor.template_heuristics.triton", _fill_heuristics)
