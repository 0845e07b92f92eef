"""FlashAttention's MUSA build, ``flash_attn_interface``: what callers written for CUDA builds expect of it."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from ..errors import NotOnMusa
from ..redirect import redirect_python
from .cuda_members import put

Undo = Callable[[], None]
MODULE = "flash_attn_interface"
KEYWORD = "only_qv"


def drop_only_qv() -> Undo:
    """Let the module's functions accept ``only_qv``, where their signature shows that they neither take nor forward it.

    Raises AttributeError where there is no such function.
    """
    functions = [
        value
        for name, value in vars(sys.modules[MODULE]).items()
        if name.startswith("flash_attn") and isinstance(value, types.FunctionType) and _lacks_keyword(value)
    ]
    if not functions:
        raise AttributeError(f"no function of {MODULE} needs it")
    undos = [redirect_python(function, _without_keyword) for function in functions]

    def undo() -> None:
        for undo_one in undos:
            undo_one()

    return undo


def _lacks_keyword(function: types.FunctionType) -> bool:
    parameters = inspect.signature(function).parameters
    forwards = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return KEYWORD not in parameters and not forwards


def _without_keyword(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    kwargs.pop(KEYWORD, None)
    return original(*args, **kwargs)


def forward() -> Undo:
    """Supply ``_flash_attn_forward`` where the module has none (AttributeError where it has its own)."""
    return put(sys.modules[MODULE], "_flash_attn_forward", _flash_attn_forward)


# The parameters of FlashAttention 3's function, in its order.
def _flash_attn_forward(
    q: Any, k: Any, v: Any, k_new: Any = None, v_new: Any = None, qv: Any = None, out: Any = None,
    cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, cu_seqlens_k_new: Any = None,
    seqused_q: Any = None, seqused_k: Any = None, max_seqlen_q: Any = None, max_seqlen_k: Any = None,
    page_table: Any = None, kv_batch_idx: Any = None, leftpad_k: Any = None,
    rotary_cos: Any = None, rotary_sin: Any = None, seqlens_rotary: Any = None,
    q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
    softmax_scale: float | None = None, causal: bool = False, **options: Any,
) -> tuple[Any, Any, None, None]:  # fmt: skip
    """Attention with the logarithms of its sums, over the public function of this build.

    Args:
        q, k, v: (batch, sequence, heads, head size), or (tokens, heads, head size) with ``cu_seqlens_q`` and
            ``cu_seqlens_k`` (then over ``flash_attn_varlen_func``).
        other parameters: passed on where the public function has them.

    Returns:
        ``(out, softmax_lse, None, None)``: an inference build gives neither dropout mask nor random state.

    Raises:
        NotOnMusa: a parameter is set that the public function does not have, or it gives no softmax_lse.
    """
    given = dict(locals())
    given.update(given.pop("options"))
    name = "flash_attn_func" if cu_seqlens_q is None else "flash_attn_varlen_func"
    public = getattr(sys.modules[MODULE], name, None)
    api = f"{MODULE}._flash_attn_forward"
    if public is None:
        raise NotOnMusa(api, f"this build of {MODULE} has no {name}, over which it would be computed.")
    parameters = inspect.signature(public).parameters
    known = {key: value for key, value in given.items() if key in parameters}
    left = sorted(key for key in given.keys() - known if not _unset(key, given[key]))
    if left:
        raise NotOnMusa(api, f"{name} of this build has no parameter {', '.join(left)}.", f"leave it out, or {name}.")
    if "return_softmax_lse" not in parameters:
        raise NotOnMusa(api, f"{name} of this build cannot return softmax_lse.", f"{name}, without softmax_lse.")
    answer = public(**known, return_softmax_lse=True)
    if not isinstance(answer, (tuple, list)) or len(answer) < 2 or answer[1] is None:
        raise NotOnMusa(api, f"{name} of this build returned no softmax_lse.", f"{name}, without softmax_lse.")
    return answer[0], answer[1], None, None


DEFAULTS = {"rotary_interleaved": True, "num_splits": 1, "window_size": (-1, -1)}
"""Parameters among *options* whose default is not None, False or 0."""


def _unset(name: str, value: Any) -> bool:
    """Whether an argument asks for nothing that the function would not do by itself."""
    if value is None:
        return True
    default = DEFAULTS.get(name, 0)
    return (tuple(value) if isinstance(value, list) else value) == default if type(value) in _PLAIN else False


_PLAIN = (bool, int, float, tuple, list)
