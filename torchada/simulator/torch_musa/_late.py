"""Do something when a module of torch has been imported, so that nothing has to import it early."""

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
