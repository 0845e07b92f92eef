"""In-place redirection: one entry for every kind of callable, C or Python."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from .errors import TorchadaError
from .rules import Detour, Forward, Install, Rule, Stub, Wrap
from .virtual import load_shim, look_up

Undo = Callable[[], None]
SHIM, ORIGINAL = "torchada_shim_", "torchada_original_"  # no name mangling: no leading underscores


def self_check() -> None:
    """Raise TorchadaError unless every kind of detour works on this interpreter: torchada never arms half."""
    try:
        from . import _detour
    except ImportError as error:
        raise TorchadaError(f"the compiled part torchada._detour is missing ({error}); reinstall torchada") from error
    broken = {kind: reason for kind, reason in _detour.self_check().items() if reason != "ok"}
    if broken:
        raise TorchadaError(f"this interpreter does not allow in-place redirection: {broken}")


def apply_patch(rule: Rule, module: types.ModuleType) -> Undo:
    """Apply a patch rule to the real objects of *module*. Raises AttributeError where torch has no such place."""
    action = rule.do
    if isinstance(action, Install):
        return load_shim(action.shim)()  # type: ignore[no-any-return]
    if isinstance(action, Forward):
        return bind(module, rule.name, look_up(action.path))
    owner, name, target = locate(module, rule.name)
    if isinstance(action, Detour):
        return redirect(owner, name, target, action)
    assert isinstance(action, (Wrap, Stub))
    shim = load_shim(action.shim)
    return replace(owner, name, target, shim(target, None) if isinstance(action, Wrap) else shim)


def locate(module: types.ModuleType, qualname: str) -> tuple[Any, str, Any]:
    """(owner, attribute, object) of a place. The object is the one in the owner's dict, not what a look-up makes of it.

    Raises AttributeError when the installed torch has no such place.
    """
    owner: Any = module
    *parents, name = qualname.split(".")
    for part in parents:
        owner = getattr(owner, part)
    if not isinstance(owner, type):
        return owner, name, getattr(owner, name)
    if name in ("__new__", "__init__") and name not in vars(owner):
        return owner, name, getattr(owner, name)
    found = inspect.getattr_static(owner, name)
    if found is vars(object).get(name):  # what every class inherits is no place of torch
        raise AttributeError(f"{owner.__qualname__} has no {name} of its own")
    return owner, name, found


def redirect(owner: Any, name: str, target: Any, action: Detour) -> Undo:
    """Apply a Detour to *target* (found as *name* of *owner*) and return what undoes it."""
    from . import _detour

    shim = load_shim(action.shim) if action.shim else None
    bound = isinstance(owner, type) and (name == "__new__" or not isinstance(target, staticmethod))
    if isinstance(target, (staticmethod, classmethod)) and isinstance(target.__func__, types.FunctionType):
        target = target.__func__  # also the __new__ of a Python class
    function = target.fget if isinstance(target, property) else target
    if isinstance(function, types.FunctionType):
        if action.compares:
            return rename_compared(function)
        return redirect_python(function, _python_shim(function, action, shim, skip=int(bound)))
    if isinstance(owner, type) and name == "__new__":
        cache = load_shim(action.cache)() if action.cache else None
        return _detour.redirect_new(owner, action.positions, action.keywords, cache, shim).restore
    pybind = type(target).__name__ == "instancemethod"  # pybind11's methods are built-in functions, wrapped
    if isinstance(owner, type) and name == "__init__" and not pybind:
        return _detour.redirect_init(owner, action.positions, action.keywords, shim).restore
    if isinstance(target, types.GetSetDescriptorType):
        other = inspect.getattr_static(owner, action.getter) if action.getter else None
        return _detour.redirect_getter(target, other, shim).restore
    if pybind or isinstance(target, (staticmethod, classmethod)):
        target = target.__func__
    more: dict[str, Any] = {"if_keyword": action.if_keyword or None, "to_device": action.to_device}
    if action.if_position != sys.maxsize:
        more["if_position"] = action.if_position
    return _detour.redirect(target, action.positions, action.keywords, shim, **more).restore


def replace(owner: Any, name: str, target: Any, value: Any) -> Undo:
    """Write *value* into the owner; undone only as long as it still stands there."""
    setattr(owner, name, value)

    def undo() -> None:
        if inspect.getattr_static(owner, name, None) is value:
            setattr(owner, name, target)

    return undo


def bind(owner: types.ModuleType, name: str, value: Any) -> Undo:
    """Write *value* into a module which may have that name or not; undone only as long as it still stands there."""
    if name in vars(owner):
        return replace(owner, name, vars(owner)[name], value)
    setattr(owner, name, value)

    def undo() -> None:
        if vars(owner).get(name) is value:
            delattr(owner, name)

    return undo


def _translate(value: Any) -> Any:
    from ._detour import translate

    return translate(value)


# Dynamo runs a function that is marked so while it traces, where it could not follow the C code.
_translate._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _python_shim(function: types.FunctionType, action: Detour, shim: Any, skip: int) -> Callable[..., Any]:
    """Translation of a Python function's arguments, then the shim. A named parameter is found in its position too."""
    if not action.positions and not action.keywords:
        return shim  # type: ignore[no-any-return]
    parameters = inspect.signature(function).parameters
    named = {
        name: (at if parameter.kind is not parameter.KEYWORD_ONLY else sys.maxsize, parameter.default)
        for at, (name, parameter) in enumerate(parameters.items())
        if name in action.keywords
    }
    positions = {at + skip for at in action.positions} | {at for at, _ in named.values()}
    # A default that names a CUDA device is passed explicitly, translated.
    defaults = {name: (at, _translate(value)) for name, (at, value) in named.items() if _translate(value) is not value}

    def translated(original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        args = tuple([_translate(arg) if at in positions else arg for at, arg in enumerate(args)])
        for keyword in action.keywords:
            if keyword in kwargs:
                kwargs[keyword] = _translate(kwargs[keyword])
        for name, (at, default) in defaults.items():
            if len(args) <= at:
                kwargs.setdefault(name, default)
        return original(*args, **kwargs) if shim is None else shim(original, *args, **kwargs)

    return translated


def redirect_python(function: types.FunctionType, shim: Callable[..., Any]) -> Undo:
    """Let calls of *function* run ``shim(original, *args, **kwargs)``; the function object itself stays.

    Its code object is exchanged for one that calls the shim, so every reference, import and subclass sees it. The
    signature, name, file and line that tools show stay those of the original.
    """
    code = function.__code__
    original = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    original.__qualname__ = function.__qualname__
    original.__module__ = function.__module__
    had_signature = "__signature__" in vars(function)
    signature = inspect.signature(function)
    trampoline = _trampoline(code)
    keyword_defaults = function.__kwdefaults__
    # First the defaults, then the code: another thread may be calling. The old code ignores the two extra names.
    function.__kwdefaults__ = {**(keyword_defaults or {}), SHIM: shim, ORIGINAL: original}
    function.__code__ = trampoline
    if not had_signature:
        function.__signature__ = signature  # type: ignore[attr-defined]

    def undo() -> None:
        _restore(function, trampoline, code)
        function.__kwdefaults__ = keyword_defaults
        if not had_signature:
            del function.__signature__  # type: ignore[attr-defined]

    return undo


def _restore(function: types.FunctionType, ours: types.CodeType, code: types.CodeType) -> None:
    if function.__code__ is not ours:
        raise TorchadaError(f"{function.__qualname__} was changed by somebody else since; not restored")
    function.__code__ = code


def rename_compared(function: types.FunctionType) -> Undo:
    """Let torch's own code of *function* compare device types with the backend's name: its constants are translated,
    those of functions made inside it too. Raises AttributeError where there is no such constant (any more)."""
    code = function.__code__
    ours = _translate_constants(code)
    if ours is code:
        raise AttributeError(f"{function.__qualname__} compares nothing with a CUDA device")
    function.__code__ = ours
    return lambda: _restore(function, ours, code)


def _translate_constants(value: Any) -> Any:
    """The constant itself, if it names no CUDA device."""
    if isinstance(value, types.CodeType):
        constants = _translate_constants(value.co_consts)
        return value if constants is value.co_consts else value.replace(co_consts=constants)
    if not isinstance(value, (tuple, frozenset)):
        return _translate(value)
    members = [(_translate_constants(member), member) for member in value]
    return value if all(new is old for new, old in members) else type(value)(new for new, _ in members)


def _trampoline(code: types.CodeType) -> types.CodeType:
    """Code that calls the shim. It finds shim and original in its keyword defaults, where Dynamo can follow, and has
    the free variables of *code*, which a function cannot change."""
    cells = ", ".join(code.co_freevars)
    scope: dict[str, Any] = {}
    source = (
        f"def factory({cells}):\n"
        f"    def trampoline(*args, {SHIM}, {ORIGINAL}, **kwargs):\n"
        f"        if 0: ({cells + ',' if cells else ''})\n"
        f"        return {SHIM}({ORIGINAL}, *args, **kwargs)\n"
        "    return trampoline\n"
    )
    exec(source, scope)
    made = scope["factory"](*(None for _ in code.co_freevars)).__code__
    changes = {"co_filename": code.co_filename, "co_firstlineno": code.co_firstlineno, "co_name": code.co_name}
    if hasattr(code, "co_qualname"):
        changes["co_qualname"] = code.co_qualname
    return made.replace(**changes)  # type: ignore[no-any-return]
