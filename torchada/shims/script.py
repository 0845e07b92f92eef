"""TorchScript: ``x.cuda(1)``, which its compiler refuses; what else names devices is done in ``script_graphs``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any


def build_call(original: Callable[..., Any], ctx: Any, expr: ast.Call) -> Any:
    """``x.cuda(device, non_blocking)`` as ``x.to(device, non_blocking=...)``."""
    if isinstance(expr.func, ast.Attribute) and expr.func.attr == "cuda" and (expr.args or expr.keywords):
        expr = _as_to(expr, expr.func)
    return original(ctx, expr)


def _as_to(call: ast.Call, func: ast.Attribute) -> ast.Call:
    given = dict(zip(("device", "non_blocking"), call.args, strict=False))
    given |= {word.arg: word.value for word in call.keywords if word.arg}
    device = given.pop("device", ast.Constant("cuda"))
    if isinstance(device, ast.Constant) and isinstance(device.value, int):
        device = ast.Constant(f"cuda:{device.value}")
    func = ast.copy_location(ast.Attribute(func.value, "to", ast.Load()), func)
    keywords = [ast.copy_location(ast.keyword(name, value), call) for name, value in given.items()]
    return ast.copy_location(ast.Call(func, [ast.copy_location(device, call)], keywords), call)
