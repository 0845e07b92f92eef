"""Options of the caching allocator: what programs say to CUDA's is said to MUSA's.

torch_musa reads ``PYTORCH_MUSA_ALLOC_CONF``; CUDA programs write ``PYTORCH_CUDA_ALLOC_CONF``, or ``PYTORCH_ALLOC_CONF``
which torch reads first, until the allocator is first used. One that is set for MUSA decides alone. What torchada wrote
is left in a third variable, so that children tell it from a choice of their own.
"""

from __future__ import annotations

import os
import re
import sys

from .errors import tell
from .ledger import Undo
from .visible import write

MUSA, CUDA = "PYTORCH_MUSA_ALLOC_CONF", ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
LEFT = "TORCHADA_ALLOC_CONF"
RENAMED = {
    "release_lock_on_cudamalloc": "release_lock_on_musamalloc",
    "pinned_use_cuda_host_register": "pinned_use_musa_host_register",
    "backend:cudaMallocAsync": "backend:musaMallocAsync",
}
# Options of torch 2.7 to 2.13 that torch_musa's allocator refuses as unknown, with what a program can do instead.
ABSENT = {
    "graph_capture_record_stream_reuse": "",
    "large_segment_size_mb": "",
    "max_non_split_rounding_mb": "",
    "per_process_memory_fraction": " Call torch.cuda.set_per_process_memory_fraction() instead.",
    "pinned_max_cached_size_mb": "",
    "pinned_max_round_threshold_mb": "",
    "pinned_reserve_segment_size_mb": "",
    "throw_on_cudamalloc_oom": "",
}
_OPTION = re.compile(r"[^,\[]+(?:\[[^\]]*\]?)?[^,]*")  # a comma in brackets belongs to the value
_told: set[str] = set()
_read: list[str | None] = []  # what torch_musa found at its import


def translate(text: str) -> str:
    """The options *text* of CUDA's allocator in MUSA's names, without those that only CUDA's has: told once.

    An option that neither knows stays: torch_musa refuses it as torch would.
    """
    kept = []
    for option in (found.strip() for found in _OPTION.findall(text)):
        name = option.partition(":")[0].strip()
        if name in ABSENT:
            if name not in _told:
                _told.add(name)
                tell(f"torch_musa's allocator has no option {name}, which is left out.{ABSENT[name]}")
        elif option:
            compact = re.sub(r"\s*:\s*", ":", option, count=1)
            kept.append(RENAMED.get(compact) or RENAMED.get(name, name) + compact[len(name) :])
    return ",".join(kept)


def follow_options() -> str | None:
    """Write MUSA's variable anew from CUDA's, unless the program has set it itself; the options as they are now."""
    own, left = os.environ.get(MUSA), os.environ.get(LEFT)
    if own not in (None, left):
        return own
    said = next((os.environ[name] for name in CUDA if os.environ.get(name)), "")
    chosen = translate(said) or None
    write(MUSA, chosen)
    write(LEFT, chosen)
    return chosen


def mirror_options() -> Undo:
    """``follow_options()`` for the start; what it returns puts back what was there."""
    before = {name: os.environ.get(name) for name in (MUSA, LEFT)}
    chosen = follow_options()
    _read[:] = [before[MUSA] if "torch_musa" in sys.modules else chosen]

    def undo() -> None:
        if os.environ.get(MUSA) not in (None, os.environ.get(LEFT)):
            return  # somebody else's since
        for name, value in before.items():
            write(name, value)

    return undo


def changed_options() -> str | None:
    """What was chosen after torch_musa had read the variable; None where it has read it."""
    chosen = follow_options()
    return chosen if chosen and _read and chosen != _read[0] else None
