"""The vendor's overlap of communication and work in FSDP2; not simulated: torch's own runs."""

import logging
import os
from enum import Enum

from ...._not_simulated import stand_ins

logger = logging.getLogger(__name__)
_TORCH_MUSA_FSDP2_ENABLE_CE_COMM_ENV = os.environ.get("TORCH_MUSA_FSDP2_ENABLE_CE_COMM")
_TORCH_MUSA_FSDP2_ENABLE_CE_COMM = 0  # there are no copy engines
_MAYBE_NONOVERLAPPED_FSDP_LAYER_NUM = 2
_ce_comm_is_available = False
_forward_all_gather_comm = _backward_all_gather_comm = _reduce_scatter_comm = None


class FSDP2OverlapLevel(Enum):
    """What overlaps."""

    NO_OVERLAP = 0
    OVERLAP_FSDP_COMM_ONLY = 1
    OVERLAP_FSDP_COMM_COPY_IN_WITH_COMM = 2
    OVERLAP_FSDP_COMM_COPY_IN_WITH_COPY_OUT = 3
    OVERLAP_HSDP_COMM = 4
    END = 5


def _get_fsdp2_overlap_level():
    """The level TORCH_MUSA_FSDP2_OVERLAP_LEVEL asks for; it has no effect here."""
    text = os.environ.get("TORCH_MUSA_FSDP2_OVERLAP_LEVEL", "0")
    level = int(text) if text.isdigit() else -1
    if not 0 <= level < FSDP2OverlapLevel.END.value:
        raise ValueError(f"TORCH_MUSA_FSDP2_OVERLAP_LEVEL={text!r} is not a number from 0 to 4")
    return FSDP2OverlapLevel(level)


_FSDP2_OVERLAP_LEVEL = _get_fsdp2_overlap_level()


def _apply_custom_overlap_patch():
    """Nothing: torch's own FSDP2 works on the simulated device."""


_CALL = "(self, output_tensor, input_tensor, group, {}async_op=False)"

globals().update(
    stand_ins(
        __name__,
        "FSDP2 code of the vendor (torch's works)",
        {
            "CECommAllocMixin": {"__init__": "(self, *args, **kwargs)", "allocate": "(self, size, *, dtype, device)"},
            "CECommAllGather": {"__init__": "(self)", "__call__": _CALL.format("")},
            "CECommReduceScatter": {"__init__": "(self)", "__call__": _CALL.format("op, ")},
            "_fsdp_state_init_shared_state": "(self)",
            "_maybe_set_mccl_collectives": "(state)",
            "_pre_forward": "(self, module, args, kwargs)",
            "comm_context_lazy_init": "(self)",
        },
    )
)
