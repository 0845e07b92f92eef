"""torch's own Python code over the virtual names: one function or class of a native module, run on MUSA primitives."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .errors import TableError

if TYPE_CHECKING:
    from .virtual import Virtual

Cell = types.CellType


def rehost(native: Any, virtual: Virtual) -> Any:
    """A copy of *native* (function or class of ``virtual.native``) whose globals are the public module's dict.

    Names it reads are put there first. Raises TableError when it reads state (a global that some function of the
    module assigns), since a copy would go stale, and TypeError for anything but Python code.
    """
    if isinstance(native, type):
        return _rehost_class(native, virtual)
    if isinstance(native, types.FunctionType):
        return _rehost_function(native, virtual, {})
    raise TypeError(f"{native!r} is not Python code and cannot be rehosted")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


def _names(code: types.CodeType, opname: str) -> set[str]:
    return {
        step.argval for part in _codes(code) for step in dis.get_instructions(part) if step.opname.startswith(opname)
    }


def _state_names(virtual: Virtual) -> frozenset[str]:
    """Globals of the native module that one of its functions assigns; looked for once."""
    if virtual.state_names is None:
        functions = [value for value in vars(virtual.native).values() if isinstance(value, types.FunctionType)]
        found = {name for function in functions for name in _names(function.__code__, "STORE_GLOBAL")}
        virtual.state_names = frozenset(found)
    return virtual.state_names


def _materialise(code: types.CodeType, virtual: Virtual) -> None:
    wanted = {name for name in _names(code, "LOAD_GLOBAL") if name in vars(virtual.native)}
    missing = sorted(wanted - vars(virtual.module).keys())
    if missing:
        state = _state_names(virtual)
        for name in missing:
            if name in state:
                raise TableError(f"cannot rehost {code.co_name}: it reads the module state {virtual.name}.{name}")
            # Held back while it is being resolved: two rehosted siblings may name each other.
            if name not in virtual.resolving:
                virtual.keep(name, virtual.resolve(name))


def _rehost_function(function: types.FunctionType, virtual: Virtual, cells: dict[int, Cell]) -> types.FunctionType:
    native_globals = vars(virtual.native)
    own = function.__globals__ is native_globals
    if own:
        virtual.resolving.add(function.__name__)
        try:
            _materialise(function.__code__, virtual)
        finally:
            virtual.resolving.discard(function.__name__)
    closure = tuple(_rehost_cell(cell, virtual, cells) for cell in function.__closure__ or ())
    copy = types.FunctionType(
        function.__code__,
        vars(virtual.module) if own else function.__globals__,
        function.__name__,
        function.__defaults__,
        closure or None,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    copy.__module__ = function.__module__
    copy.__doc__ = function.__doc__
    copy.__annotations__ = function.__annotations__
    vars(copy).update(vars(function))
    if isinstance(vars(copy).get("__wrapped__"), types.FunctionType):
        copy.__wrapped__ = _rehost_function(copy.__wrapped__, virtual, cells)  # type: ignore[attr-defined]
    return copy


def _rehost_cell(cell: Cell, virtual: Virtual, cells: dict[int, Cell]) -> Cell:
    """A cell for the copy: functions of the native module in it (decorated ones) are rehosted too."""
    if id(cell) in cells:
        return cells[id(cell)]
    try:
        content = cell.cell_contents
    except ValueError:
        return cell
    if isinstance(content, types.FunctionType) and content.__globals__ is vars(virtual.native):
        fresh = Cell()
        cells[id(cell)] = fresh
        fresh.cell_contents = _rehost_function(content, virtual, cells)
        return fresh
    return cell


def _rehost_class(native: type, virtual: Virtual) -> type:
    own = Cell()
    cells: dict[int, Cell] = {}
    functions = {name: _function_of(value) for name, value in vars(native).items()}
    for function in functions.values():
        if function is not None and function.__closure__ and "__class__" in function.__code__.co_freevars:
            index = function.__code__.co_freevars.index("__class__")
            cells[id(function.__closure__[index])] = own

    def convert(value: Any) -> Any:
        if isinstance(value, (staticmethod, classmethod)):
            inner = value.__func__
            return type(value)(convert(inner))
        if isinstance(value, property):
            return property(convert(value.fget), convert(value.fset), convert(value.fdel), value.__doc__)
        if isinstance(value, types.FunctionType):
            return _rehost_function(value, virtual, cells)
        return value

    skipped = ("__dict__", "__weakref__")
    namespace = {name: convert(value) for name, value in vars(native).items() if name not in skipped}
    bases = tuple(
        virtual.resolve(base.__name__) if vars(virtual.native).get(base.__name__) is base else base
        for base in native.__bases__
    )
    copy = types.new_class(native.__name__, bases, {"metaclass": type(native)}, lambda body: body.update(namespace))
    copy.__qualname__ = native.__qualname__
    own.cell_contents = copy
    return copy


def _function_of(value: Any) -> types.FunctionType | None:
    value = getattr(value, "__func__", value)
    if isinstance(value, property):
        value = value.fget
    return value if isinstance(value, types.FunctionType) else None
