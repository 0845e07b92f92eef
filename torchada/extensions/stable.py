"""Where the headers for code of torch's stable ABI lie (what they hold: docs/extensions.md)."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent / "stable_compat"


def stable_compat_include_dir() -> str:
    """The folder with headers that older versions of torch lack, for the include path: its place there is free, since
    each header hands over to torch's own where that is there."""
    return str(_HERE)


def stable_compat_box_header() -> str:
    """The header to include before all others (``-include``) in code for torch's stable ABI: ``TORCH_BOX``, checks,
    accessors of tensors, as far as the installed torch lacks them."""
    return str(_HERE / "torchada_stable_box.h")
