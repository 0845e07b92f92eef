"""ATen operators that torchada overrides in C++: the sources (``csrc``) and how they are built on first use.

When they are used and for which operators: the rows in ``torchada/tables/ops.py``; the rest: ``docs/overrides.md``.
"""

from __future__ import annotations

__all__ = ["prepare"]


def prepare() -> frozenset[str]:
    """Build and load now what the first graph of a process would, and return the names of the operators that are
    overridden: none where this torch_musa needs none. For images of containers, and for programs whose extensions
    capture graphs without torch. Import torch first.

    What cannot be overridden is told in a warning, and raised with ``TORCHADA_STRICT=1``.
    """
    from ..engine import ENGINE

    if not ENGINE.armed():
        return frozenset()
    from ..shims import cpp_ops

    return cpp_ops.prepare()
