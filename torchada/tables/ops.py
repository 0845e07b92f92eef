"""Operators that a version of torch_musa lacks, computes wrongly, or makes the host wait for.

Each row has a switch, TORCHADA_DISABLE_OP_OVERRIDE_<NAME>, and ends with the version that needs it no more.
"""

from ..rules import Detour, Install, Rule, each

_TEST = "tests/devices/test_ops.py"
_COMPILED = "tests/devices/test_cpp_ops.py"
_NO_LOG = "torch_musa < 2.11.0.post2; not env:TORCHADA_DISABLE_OP_OVERRIDE_LOG_"  # log_ has no kernel for float64

LOG = each(
    "torch",
    "_C.TensorBase.log_ log_",
    Detour(shim="ops:log_in_place"),
    when=_NO_LOG,
    until="torch_musa 2.11.0.post2",
    why="log_ has no kernel for float64",
    test=f"{_TEST}::test_log_in_place",
)

SUMS = each(
    "torch",
    "_C.TensorBase.logsumexp logsumexp _C._special.special_logsumexp",
    Detour(shim="ops:log_sum_exp"),
    when=_NO_LOG,
    until="torch_musa 2.11.0.post2",
    why="torch ends logsumexp with log_, in C++, which has no kernel for float64",
    test=f"{_TEST}::test_log_sum_exp",
)

CLUTTER = (
    Rule(
        "torch._inductor.utils:is_big_gpu",
        Install("inductor:drop_clutter"),
        when="not env:TORCHADA_DISABLE_OP_OVERRIDE_CLUTTER",
        why="max-autotune counts multiprocessors by NVIDIA's cards and warns that a MUSA card has too few of them",
        test=f"{_TEST}::test_clutter",
    ),
)

_CAPTURED = f"{_COMPILED}::test_row_is_needed"

COMPILED = (
    Rule(
        "torch:ops.aten.multinomial",
        Install("cpp_ops:multinomial"),
        when="torch_musa < 2.11.0.post2; not env:TORCHADA_DISABLE_OP_OVERRIDE_MULTINOMIAL",
        until="torch_musa 2.11.0.post2",
        why="multinomial cannot be captured in a graph: from the first graph on it is a kernel in C++ that can",
        test=_CAPTURED,
    ),
    Rule(
        "torch:ops.aten.log",
        Install("cpp_ops:log"),
        when="torch_musa < 2.11.0.post2; not env:TORCHADA_DISABLE_OP_OVERRIDE_LOG",
        until="torch_musa 2.11.0.post2",
        why="log cannot be captured in a graph: as multinomial",
        test=_CAPTURED,
    ),
    Rule(
        "torch:ops.aten.log_",
        Install("cpp_ops:log_in_place"),
        when=_NO_LOG,
        until="torch_musa 2.11.0.post2",
        why="log_ cannot be captured in a graph: as multinomial",
        test=_CAPTURED,
    ),
)

PRODUCTS = (
    Rule(
        "torch:mm",
        Detour(shim="ops:mm", if_keyword="out_dtype", if_position=2),
        when="torch_musa < 2.13.0; not env:TORCHADA_DISABLE_OP_OVERRIDE_MM",
        until="torch_musa 2.13.0",
        why="with out_dtype it may give zeros: tried once in a process, and computed by the ordinary mm if so",
        test=f"{_TEST}::test_products_with_out_dtype",
    ),
    Rule(
        "torch:bmm",
        Detour(shim="ops:bmm", if_keyword="out_dtype", if_position=2),
        when="torch_musa < 2.13.0; not env:TORCHADA_DISABLE_OP_OVERRIDE_BMM",
        until="torch_musa 2.13.0",
        why="as mm",
        test=f"{_TEST}::test_products_with_out_dtype",
    ),
)

FINITE = each(
    "torch",
    "_C.TensorBase.isfinite isfinite",
    Detour(shim="ops:is_finite"),
    when="not env:TORCHADA_DISABLE_OP_OVERRIDE_ISFINITE",
    why="torch makes it of a product of boolean tensors, for which MUSA makes the host wait",
    test=f"{_TEST}::test_is_finite_does_not_wait",
)

HEURISTICS = (
    Rule(
        "torch._inductor.template_heuristics.registry:get_template_heuristic",
        Install("inductor:fill_heuristics"),
        when="torch_musa < 2.11.0.post2; not env:TORCHADA_DISABLE_OP_OVERRIDE_TEMPLATE_HEURISTICS",
        until="torch_musa 2.11.0.post2",
        why="max-autotune finds the sizes of its templates by device type, and none for MUSA",
        test=f"{_TEST}::test_template_heuristics",
    ),
)

RULES = (*LOG, *SUMS, *PRODUCTS, *FINITE, *HEURISTICS, *COMPILED, *CLUTTER)
