"""FlexAttention in inductor. The device has no Triton, so the formula torch runs without compiling is compiled."""

from functools import partial
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.overrides import TorchFunctionMode


def register():
    """Write FlexAttention's operators of the device out in a graph's plain operators."""
    from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward, sdpa_dense
    from torch._inductor.fx_passes.post_grad import pass_patterns
    from torch._inductor.pattern_matcher import CallFunctionVarArgs, register_graph_pattern

    for operator, formula in ((flex_attention, sdpa_dense), (flex_attention_backward, _backward)):
        register_graph_pattern(
            CallFunctionVarArgs(operator),
            extra_check=_on_the_device,
            pass_dict=pass_patterns[0],  # type: ignore[arg-type]
        )(partial(_write_out, formula))


def _on_the_device(match: Any) -> bool:
    return match.nodes[0].args[0].meta["val"].device.type == "musa"


def _write_out(formula: Any, match: Any, *args: Any) -> None:
    flat, spec = pytree.tree_flatten(args)
    whole = [_module(value) for value in flat]
    given = [i for i, module in enumerate(whole) if module is None]

    def written(*values: Any) -> Any:
        for i, value in zip(given, values, strict=True):
            whole[i] = value
        with _ConstantsAsOperators():
            return formula(*pytree.tree_unflatten(whole, spec))

    match.replace_by_example(written, [flat[i] for i in given], run_functional_passes=False)


def _module(value: Any) -> Any:
    """The graph that a node stands for, such as that of a score_mod; None for any other value."""
    if not isinstance(value, torch.fx.Node) or value.op != "get_attr":
        return None
    held = getattr(value.graph.owning_module, str(value.target))
    return held if isinstance(held, torch.nn.Module) else None


def _backward(*args: Any) -> Any:
    from torch._higher_order_ops.flex_attention import sdpa_dense_backward

    *others, captured, of_mask = args
    # A graph's tensors do not say whose gradients are wanted; the gradients of score_mod do, after those of its five.
    wanted = [gradient is not None for gradient in args[8].graph.output_node().args[0][5:]]
    captured = [x.detach().requires_grad_() if want else x for x, want in zip(captured, wanted, strict=True)]
    return sdpa_dense_backward(*others, tuple(captured), of_mask)


class _ConstantsAsOperators(TorchFunctionMode):
    """A graph that is written into another one brings no constants along."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.tensor:
            function, args = torch.full, ((), *args)
        return function(*args, **(kwargs or {}))
