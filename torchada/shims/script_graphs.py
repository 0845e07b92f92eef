"""TorchScript: what its graphs say about CUDA, translated after they were compiled and when an archive is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .device import BACKEND, translate

REPLACED = ("cuda", BACKEND)
"""What a text is searched for at run time, and what stands for it; ``archives`` looks for it when it writes."""


def adapt(graph: Any) -> None:
    """Translate the devices of one graph: constants, texts made into devices, ``x.cuda()`` and ``x.is_cuda``."""
    for node in graph.findAllNodes("prim::Constant"):
        if node.output().type().kind() == "DeviceObjType":
            node.s_("value", str(translate(node.s("value"))))
    for kind, change in (("aten::device", _device), ("aten::cuda", _cuda), ("prim::is_cuda", _is_cuda)):
        for node in graph.findAllNodes(kind):
            with graph.insert_point_guard(node):
                change(graph, node)
    for kind in ("prim::fork", "prim::awaitable"):  # code that runs beside its own has a graph of its own
        for node in graph.findAllNodes(kind):
            if node.hasAttribute("Subgraph"):
                adapt(node.g("Subgraph"))


def _device(graph: Any, node: Any) -> None:
    """``torch.device(text)``, which TorchScript also makes of a text given as a device."""
    text = node.inputsAt(0)
    if text.node().kind() == "prim::Constant":
        value = text.node().s("value")
        if translate(value) is not value:
            node.replaceInput(0, graph.insertConstant(str(translate(value))))
    elif text.node().kind() != "prim::type" and not _replaces(text.node()):  # the type of a device is true
        words = [graph.insertConstant(word) for word in (*REPLACED, -1)]
        node.replaceInput(0, _insert(graph, "aten::replace", [text, *words], text.type()))


def _replaces(node: Any) -> bool:
    """Whether it was put there before: types are shared between modules, and archives are written with it."""
    if node.kind() != "aten::replace":
        return False
    word = node.inputsAt(2).node()
    return word.kind() == "prim::Constant" and word.s("value") == BACKEND


def _cuda(graph: Any, node: Any) -> None:
    given = [graph.insertConstant(value) for value in (torch.device(BACKEND), None, False, False)]
    _replace(node, _insert(graph, "aten::to", [node.inputsAt(0), *given], node.output().type()))


def _is_cuda(graph: Any, node: Any) -> None:
    """A comparison of devices, so that an archive compares with the device of the machine that reads it: a word would
    stay what it is, and freezing makes words of what it can compute."""
    musa = graph.insertConstant(torch.device(BACKEND))
    own = _insert(graph, "prim::device", [node.inputsAt(0)], musa.type())
    word = _insert(graph, "prim::type", [own], graph.insertConstant("").type())
    bare = _insert(graph, "aten::device", [word], musa.type())
    _replace(node, _insert(graph, "aten::eq", [bare, musa], node.output().type()))


def _insert(graph: Any, kind: str, inputs: list[Any], type: Any) -> Any:
    output = graph.insertNode(graph.create(kind, inputs)).output()
    output.setType(type)
    return output


def _replace(node: Any, value: Any) -> None:
    node.output().replaceAllUsesWith(value)
    node.destroy()


# ---------------------------------------------------------------- where graphs come from
def compile_function(original: Callable[..., Any], *args: Any) -> Any:
    """``torch._C._jit_script_compile``"""
    function = original(*args)
    adapt(function.graph)
    return function


def compile_class(original: Callable[..., Any], *args: Any) -> Any:
    """``torch._C._jit_script_class_compile``"""
    compiled = original(*args)
    _adapt_methods(compiled, compiled.method_names())
    return compiled


def compile_methods(original: Callable[..., None], concrete_type: Any, *stubs: Any) -> None:
    """``torch.jit._recursive.create_methods_and_properties_from_stubs``"""
    original(concrete_type, *stubs)
    _adapt_methods(concrete_type.jit_type, concrete_type.jit_type.method_names())


def compile_hooks(original: Callable[..., None], concrete_type: Any, *stubs: Any) -> None:
    """``torch.jit._recursive.create_hooks_from_stubs``"""
    original(concrete_type, *stubs)
    _adapt_methods(concrete_type.jit_type, [stub.def_.name().name for kind in stubs for stub in kind])


def _adapt_methods(owner: Any, names: list[str]) -> None:
    from torch.jit._state import _python_cu

    for name in names:
        function = _python_cu.find_function(f"{owner.qualified_name()}.{name}")
        if function is not None:
            adapt(function.graph)
