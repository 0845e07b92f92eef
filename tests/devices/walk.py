"""Finding every callable of the installed torch that takes a device, mechanically.

Three sources: the stub files torch ships (its C callables with their Python signatures), the operator schemas, and the
signatures of the Python functions of all modules that ``import torch`` loads.
"""

import ast
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._device import _device_constructors

NAMES = {
    "device", "devices", "device_type", "device_types", "device_id", "device_ids", "device_index", "map_location",
    "pin_memory_device", "output_device", "use_device", "target_device", "target_gpus", "accelerator",
}  # fmt: skip
# torch.cuda has its own tables and tests; the rest is not about the accelerator a CUDA program uses.
OTHER = ("torch.cuda", "torch.xpu", "torch.mps", "torch.mtia", "torch.cpu", "torch.testing", "torch.utils._sympy")


def stubs() -> dict[str, set[str]]:
    """``"_C:TensorBase.to"`` -> the device parameters its stub has."""
    root = Path(torch.__file__).parent
    found: dict[str, set[str]] = {}

    def visit(module: str, body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(module, node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.If | ast.Try):
                visit(module, [*node.body, *node.orelse], prefix)
            elif isinstance(node, ast.FunctionDef):
                arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                names = {a.arg for a in arguments if a.arg in NAMES or "Device" in ast.unparse(a.annotation or a)}
                if names:
                    found.setdefault(f"{module}:{prefix}{node.name}", set()).update(names)

    for path in sorted(root.glob("_C/**/*.pyi")):
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        visit(module, ast.parse(path.read_text()).body, "")
    return found


def stub_object(name: str) -> Any:
    """The object a stub name stands for; None where this build has none (CUDA builds and the like)."""
    module, _, path = name.partition(":")
    value: Any = torch
    for part in (*module.split("."), *path.split(".")):
        if isinstance(value, type):
            value = inspect.getattr_static(value, part, None)
        else:
            value = getattr(value, part, None)
    return value.__func__ if isinstance(value, staticmethod) else value


def schema_names() -> set[str]:
    """Names of ATen operators with a device argument."""
    return {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
        and any(argument.name == "device" and "Device" in str(argument.type) for argument in schema.arguments)
    }


def schema_objects() -> Iterator[tuple[str, Any]]:
    """(place, object) of every Python-visible callable with the name of such an operator."""
    places = {
        "torch": torch, "_C.TensorBase": torch._C.TensorBase, "_C._nn": torch._C._nn, "_C._fft": torch._C._fft,
        "_C._special": torch._C._special, "_C._linalg": torch._C._linalg, "_C._sparse": torch._C._sparse,
        "_C._nested": torch._C._nested, "_C._VariableFunctions": torch._C._VariableFunctions, "fft": torch.fft,
        "nn.functional": torch.nn.functional, "special": torch.special, "sparse": torch.sparse,
    }  # fmt: skip
    for name in sorted(schema_names()):
        for place, owner in places.items():
            for spelling in {name, name.partition("_")[2]} if name.startswith("fft_") else {name}:
                value = inspect.getattr_static(owner, spelling, None) if isinstance(owner, type) else None
                value = value if isinstance(owner, type) else getattr(owner, spelling, None)
                if isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType):
                    yield f"{place}.{spelling}", value


def constructors() -> Iterator[tuple[str, Any]]:
    """What torch itself puts under the default device."""
    for function in _device_constructors():
        yield getattr(function, "__name__", str(function)), function


def python_functions() -> Iterator[tuple[str, types.FunctionType, set[str]]]:
    """(``module:qualname``, function, device parameters) of torch's Python code as loaded by ``import torch``."""
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] != "torch" or name.startswith(OTHER) or not isinstance(module, types.ModuleType):
            continue
        for attribute, value in sorted(vars(module).items()):
            # type() and not isinstance(): some deprecated objects of torch warn when their class is read.
            if type(value) is types.FunctionType and value.__module__ == name:
                yield from _described(f"{name}:{attribute}", value)
            elif issubclass(type(value), type) and value.__module__ == name:
                for method, function in sorted(vars(value).items()):
                    function = getattr(function, "__func__", function)
                    if isinstance(function, types.FunctionType):
                        yield from _described(f"{name}:{value.__qualname__}.{method}", function)


def _described(name: str, function: types.FunctionType) -> Iterator[tuple[str, types.FunctionType, set[str]]]:
    try:
        parameters = set(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        parameters = set(function.__code__.co_varnames[: function.__code__.co_argcount])
    found = parameters & NAMES
    if found:
        yield name, function, found
