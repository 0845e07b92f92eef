"""Switches torchada on at interpreter start by way of ``PYTHONPATH``.

Two users: people who put this directory on ``PYTHONPATH`` where nothing can be installed, and torchada
itself, which does so for the child processes of a program in which it is active (``torchada/inherit.py``).
Kept free of imports and of syntax that an old Python could not read: any Python may run below such a parent.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_heir = os.environ.get("TORCHADA_INHERIT")

# An heir is the same Python only: another environment has its own torch, and its own wishes.
if _heir in (None, sys.prefix):
    _root = os.path.dirname(os.path.dirname(_here))
    sys.path.insert(0, _root)  # this copy of torchada, not another that may be installed
    try:
        import torchada.startup

        torchada.startup.via(os.environ.pop("TORCHADA_VIA", "inherited" if _heir else "sitecustomize"))
    except Exception as _error:  # an interpreter start never fails because of torchada
        sys.stderr.write("torchada: not active: %s: %s\n" % (type(_error).__name__, _error))  # noqa: UP031
    finally:
        sys.path.remove(_root)

# Hand over to the sitecustomize that this one shadows, as if this one were not there.
_self = sys.modules.pop("sitecustomize")
_at = sys.path.index(_here)
del sys.path[_at]
try:
    import sitecustomize  # noqa: F401
except ImportError as _error:
    if getattr(_error, "name", None) != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _self
finally:
    # Back in its place: launchers pass sys.path on as the PYTHONPATH of their children.
    sys.path.insert(min(_at, len(sys.path)), _here)
