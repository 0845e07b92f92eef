"""Do something when a module of torch has been imported, so that nothing has to import it early."""

import importlib
import sys
from typing import Any


class _WhenImported:
    """A finder that finds nothing itself: it adds a call to the end of a module's execution."""

    def __init__(self):
        self.pending = {}

    def find_spec(self, name, path=None, target=None):
        if name not in self.pending:
            return None
        finders = sys.meta_path[sys.meta_path.index(self) + 1 :]
        for finder in finders:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                break
        else:
            return None
        loader: Any = spec.loader  # this object serves this one module
        execute = loader.exec_module

        def execute_then(module):  # not earlier: a spec may be looked up and never used
            execute(module)
            waiting = self.pending.pop(name, ())
            if not self.pending and self in sys.meta_path:
                sys.meta_path.remove(self)
            for then in waiting:
                then()

        loader.exec_module = execute_then
        return spec


_finder = _WhenImported()


def when_imported(name, then):
    """Call `then()` when the module `name` has been imported; now, if it is."""
    if name in sys.modules:
        then()
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.pending.setdefault(name, []).append(then)


def lazily(package, where):
    """`__getattr__` and `__dir__` for a package whose names load when they are asked for.

    `where`: name -> (module relative to the package, attribute in it or None for the module itself).
    """
    held = vars(sys.modules[package])

    def __getattr__(name):
        place = where.get(name)
        if place is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(place[0], package)
        value = module if place[1] is None else getattr(module, place[1])
        held[name] = value
        return value

    def __dir__():
        return sorted({*held, *where})

    return __getattr__, __dir__
