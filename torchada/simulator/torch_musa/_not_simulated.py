"""Names of torch_musa that are here, with their signatures, but do nothing yet."""

import inspect
from typing import Any


class NotSimulatedError(NotImplementedError):
    """A part of torch_musa that the simulated device does not have yet."""


def refuse(name, part):
    """Raise NotSimulatedError for `name`, a name of the part of torch_musa called `part`."""
    raise NotSimulatedError(
        f"{name} is part of torch_musa, but the simulated device has no {part} yet: "
        "use a MUSA machine for it, or code that does not need it"
    )


def absent(module, names, part):
    """A module `__getattr__` that tells names which are not simulated from names that do not exist."""

    def __getattr__(name):
        if name in names:
            raise AttributeError(f"{module}.{name} is part of torch_musa, but the simulated device has no {part} yet")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__


def _refusing(name, signature, part, namespace):
    def function(*args, **kwargs):
        refuse(name, part)

    scope: dict[str, Any] = dict(namespace)
    exec(f"def shape{signature}: pass", scope)
    function.__signature__ = inspect.signature(scope["shape"])  # type: ignore[attr-defined]
    module, _, function.__qualname__ = name.partition(":")
    function.__name__ = function.__qualname__.rpartition(".")[2]
    function.__module__ = module
    return function


def stand_ins(module, part, names, **namespace):
    """Functions and classes that refuse when they are called, for the globals of `module`.

    `names`: name -> signature as text, or for a class a dict of the signatures of its methods, with None for other
    members. A signature in front of which stands "static " or "class " makes a static or a class method.
    `namespace`: what the signatures' defaults mention.
    """
    made: dict[str, Any] = {}
    kinds: dict[str, Any] = {"static": staticmethod, "class": classmethod}
    for name, shape in names.items():
        if not isinstance(shape, dict):
            made[name] = _refusing(f"{module}:{name}", shape, part, namespace)
            continue
        members: dict[str, Any] = {"__module__": module, "__doc__": f"Not simulated: {part}."}
        for member, text in shape.items():
            if text is None:
                members[member] = None
                continue
            kind, _, signature = text.rpartition(" (")
            wrap = kinds.get(kind)
            function = _refusing(f"{module}:{name}.{member}", f"({signature}" if wrap else text, part, namespace)
            members[member] = wrap(function) if wrap else function
        if "__init__" not in members:
            members["__init__"] = _refusing(f"{module}:{name}", "(self, *args, **kwargs)", part, namespace)
        made[name] = type(name, (), members)
    return made
