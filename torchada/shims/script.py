"""TorchScript: devices that scripted code names. Its compiler reads the source, so they are translated there; in an
archive they are constants of the loaded graphs."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from .device import translate

TAKES_DEVICE_FIRST = ("to", "device")


def build_call(original: Callable[..., Any], ctx: Any, expr: ast.Call) -> Any:
    """``x.to("cuda")``, ``x.cuda(1)``, ``torch.device("cuda")``, ``f(device="cuda")``"""
    return original(ctx, _translated(expr))


def build_attribute(original: Callable[..., Any], ctx: Any, expr: ast.Attribute) -> Any:
    """``x.is_cuda``; an attribute of ``self`` with that name is the user's own."""
    if expr.attr != "is_cuda" or (isinstance(expr.value, ast.Name) and expr.value.id == "self"):
        return original(ctx, expr)
    # torch's own trees, since build_Attribute looks for the names in the source, where these are not.
    from torch.jit.frontend import BinOp, Ident, Select, StringLiteral, build_expr

    here = ctx.make_range(expr.lineno, expr.col_offset, expr.col_offset + 1)
    device = Select(build_expr(ctx, expr.value), Ident(here, "device"))
    return BinOp("==", Select(device, Ident(here, "type")), StringLiteral(here, str(translate("cuda"))))


def _translated(call: ast.Call) -> ast.Call:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name == "cuda":
        return _as_to(call)
    args = [_constant(arg) if at == 0 and name in TAKES_DEVICE_FIRST else arg for at, arg in enumerate(call.args)]
    keywords = [
        ast.copy_location(ast.keyword(word.arg, _constant(word.value)), word) if word.arg == "device" else word
        for word in call.keywords
    ]
    return ast.copy_location(ast.Call(call.func, args, keywords), call)


def _as_to(call: ast.Call) -> ast.Call:
    """``x.cuda(device, non_blocking)`` as ``x.to(device, non_blocking=...)``."""
    assert isinstance(call.func, ast.Attribute)
    given = dict(zip(("device", "non_blocking"), call.args, strict=False))
    given |= {word.arg: word.value for word in call.keywords if word.arg}
    device = given.pop("device", ast.Constant("cuda"))
    if isinstance(device, ast.Constant) and isinstance(device.value, int):
        device = ast.Constant(f"cuda:{device.value}")
    device = _constant(ast.copy_location(device, call))
    func = ast.copy_location(ast.Attribute(call.func.value, "to", ast.Load()), call.func)
    keywords = [ast.copy_location(ast.keyword(name, value), call) for name, value in given.items()]
    return ast.copy_location(ast.Call(func, [device], keywords), call)


def _constant(node: ast.expr) -> ast.expr:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return node
    translated = translate(node.value)
    return node if translated is node.value else ast.copy_location(ast.Constant(str(translated)), node)


# ---------------------------------------------------------------- archives written on CUDA
def import_archive(original: Callable[..., Any], unit: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.jit.load``: the weights go where ``map_location`` says, the devices in the code are translated here."""
    module = original(unit, *args, **kwargs)
    for function in unit.get_functions():
        for node in function.graph.findAllNodes("prim::Constant"):
            if _is_device(node.output()) and node.kindOf("value") == "s":
                node.s_("value", str(translate(node.s("value"))))
    return module


def _is_device(value: Any) -> bool:
    """A device, or a text that is used for making one and for nothing else."""
    uses = {use.user.kind() for use in value.uses()}
    return value.type().kind() == "DeviceObjType" or uses == {"aten::device"}
