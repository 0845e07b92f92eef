"""Walks torch's own operator databases on the simulated device, against the CPU.

    python -m tests.simulator.opdb                         # everything: many minutes
    python -m tests.simulator.opdb --dtype float32 --op mm # one operator
    python -m tests.simulator.opdb --slice 0/8 --json      # an eighth, chosen by hash, as JSON
    python -m tests.simulator.opdb --write                 # everything, and the table in docs/operators.md

Both sides get the same bytes: the samples are made on the CPU and carried over with their strides, shared storages,
conjugate and negative bits. They must agree in values, dtype, shape, strides, which argument a result is a view of,
what became of the arguments, and in the kind of exception. Operators that draw random numbers agree when shape, dtype,
range and the effect of a seed do. Where the two may differ, disagreements.py says so and why; a difference that
is not there is an error, and so is a row there that explains nothing (checked in complete runs).
"""

from __future__ import annotations

import argparse
import copy
import functools
import itertools
import json
import os
import re
import sys
import time
import unittest
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ["TORCHADA"] = "0"
    os.environ.setdefault("TORCHADA_SIM_DEFECTS", "-all")
    import torchada.simulator

    torchada.simulator.install()

import torch
import torch_musa  # noqa: F401
from torch.testing._internal import common_methods_invocations as invocations
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.testing._internal.opinfo.definitions.nested import njt_op_db
from torch.utils._pytree import tree_flatten, tree_iter, tree_map

# Importing torch's test helpers forbids to set flags of torch.backends, in the whole process.
torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True

from tests.simulator.disagreements import DISAGREEMENTS

DTYPES = [
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "int16", "int8", "uint8",
    "bool", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip
SAMPLES = 4
POOL = 60  # samples are chosen evenly among the first so many
MUSA = torch.device("musa")
# Their contents are what the memory happened to hold.
UNDEFINED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip
HALVES = (torch.float16, torch.bfloat16)
# The database fixes the seed inside its random operators; here the seed is part of what is checked.
for _module in [module for name, module in sys.modules.items() if name.startswith("torch.testing._internal")]:
    if hasattr(_module, "wrapper_set_seed"):
        _module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


@dataclass(frozen=True)
class Case:
    """One thing to compare: an operator of a database, a dtype and an aspect of it."""

    database: str
    op: str
    dtype: str
    aspect: str

    def __str__(self) -> str:
        return f"{self.database}:{self.op}[{self.dtype}].{self.aspect}"


@dataclass
class Outcome:
    case: Case
    samples: int = 0
    refused: int = 0  # both sides raise the same kind of exception
    differences: list[str] = field(default_factory=list)
    reason: str | None = None  # of the row in disagreements.py


# ---- carrying values between devices -------------------------------------------------------------------


def carry(value: Any, device: torch.device | str) -> Any:
    """A copy of *value* on *device*: strides, storages that tensors share, lazy bits and gradient flags are kept."""
    storages: dict[int, torch.UntypedStorage] = {}
    device = torch.device(device)

    def tensor(old: torch.Tensor) -> torch.Tensor:
        if type(old) not in (torch.Tensor, torch.nn.Parameter) or old.layout != torch.strided or old.is_nested:
            new = old.detach().clone().to(device)
        elif old.device.type == "meta":
            return old
        else:
            storage = old.untyped_storage()
            if storage._cdata not in storages:
                whole = torch.empty(0, dtype=torch.uint8).set_(storage)
                storages[storage._cdata] = whole.clone().to(device).untyped_storage()
            new = torch.empty(0, dtype=old.dtype, device=device)
            new.set_(storages[storage._cdata], old.storage_offset(), old.size(), old.stride())
            if old.is_conj():
                new = new.conj()
            if old.is_neg():
                new = torch._neg_view(new)
            new = new.detach()
        if type(old) is torch.nn.Parameter:
            return torch.nn.Parameter(new, old.requires_grad)
        return new.requires_grad_() if old.requires_grad else new

    def leaf(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return tensor(item)
        if isinstance(item, torch.device) and item.type == "cpu":
            return device
        return device.type if isinstance(item, str) and item == "cpu" else item

    return tree_map(leaf, value)


def tensors(value: Any) -> list[torch.Tensor]:
    return [item for item in tree_iter(value) if isinstance(item, torch.Tensor)]


# ---- comparing -----------------------------------------------------------------------------------------


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    if dtype in HALVES:
        return {"rtol": 2e-2, "atol": 2e-2}  # products of halves are summed in float on the device
    if dtype in (torch.float32, torch.complex64):
        return {"rtol": 1e-4, "atol": 1e-5}
    if dtype in (torch.float64, torch.complex128):
        return {"rtol": 1e-7, "atol": 1e-7}
    return {"rtol": 0, "atol": 0}


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, in a dtype that assert_close can subtract."""
    tensor = tensor.detach().cpu()
    return tensor.float() if "float8" in str(tensor.dtype) else tensor


def nameless(value: Any) -> Any:
    """A shape without the names of ragged sizes: each nested tensor has its own."""
    return re.sub(r"j\d+", "j", str(value)) if isinstance(value, torch.Size) else value


def compare(expected: Any, actual: Any, dtype: torch.dtype, values: bool = True, place: str = "musa") -> Iterator[str]:
    """What differs between a result of the CPU and one of the device."""
    left, shape = tree_flatten(expected)
    right, other = tree_flatten(actual)
    if shape != other:
        yield f"structure: {shape} against {other}"
        return
    for i, (a, b) in enumerate(zip(left, right, strict=True)):
        if not isinstance(a, torch.Tensor):
            same = a == b or a != a or a in ("cpu", torch.device("cpu")) or not values
            if not same and isinstance(a, (float, complex)) and isinstance(b, (float, complex)):
                same = abs(a - b) <= 1e-4 * max(1.0, abs(a))
            if not same and not isinstance(a, (torch.Generator, torch.storage.UntypedStorage)):
                yield f"result {i}: {a!r} against {b!r}"
            continue
        if not isinstance(b, torch.Tensor):
            yield f"result {i}: a tensor against {type(b).__name__}"
            continue
        if a.device.type == "cpu" and b.device.type != place:
            yield f"result {i} is on {b.device}"
        for what in ("dtype", "layout", "shape", "requires_grad", "is_nested"):
            if nameless(getattr(a, what)) != nameless(getattr(b, what)):
                yield f"result {i}: {what} {getattr(a, what)} against {getattr(b, what)}"
                return
        if a.layout == torch.strided and not a.is_nested:
            if a.stride() != b.stride():
                yield f"result {i}: stride {a.stride()} against {b.stride()}"
            if (a.is_conj(), a.is_neg()) != (b.is_conj(), b.is_neg()):
                yield f"result {i}: lazy conjugate or negative bits differ"
        if not values or a.device.type == "meta":
            continue
        limit = tolerance(dtype if a.dtype not in HALVES else a.dtype)
        if dtype in HALVES and (a.is_floating_point() or a.is_complex()):
            limit = tolerance(dtype)
        try:
            pairs = [(a, b)]
            if a.is_nested:
                pairs = list(zip(a.unbind(), b.unbind(), strict=True))
            for x, y in pairs:
                if limit == tolerance(torch.float16) and x.numel() and x.is_floating_point():
                    # What cancels in a sum leaves an error of the size of its terms.
                    size = plain(x.to_dense()).nan_to_num(0, 0, 0).abs().max().item()
                    limit = limit | {"atol": limit["atol"] * max(1.0, size)}
                torch.testing.assert_close(plain(y), plain(x), equal_nan=True, **limit)
        except AssertionError as error:
            yield f"result {i}: " + " ".join(str(error).split())[:160]


def aliases(result: Any, arguments: Any) -> list[int | None]:
    """For every tensor of *result* the first of the arguments' tensors whose memory it lies in."""

    def place(tensor: torch.Tensor) -> int | None:
        strided = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
        return tensor.untyped_storage()._cdata if strided and not tensor.is_nested else None

    known = [place(tensor) for tensor in tensors(arguments)]
    return [known.index(place(t)) if place(t) in known and place(t) is not None else None for t in tensors(result)]


@dataclass
class Run:
    """What came of one call on one device."""

    result: Any = None
    arguments: Any = None
    alias: list[int | None] = field(default_factory=list)
    error: Exception | None = None


def call(function: Callable[..., Any], sample: tuple[Any, ...], device: torch.device | str, seed: int = 0) -> Run:
    arguments = carry(sample, device)
    torch.manual_seed(seed)
    try:
        result = function(*arguments)
        alias = aliases(result, arguments)
    except Exception as error:
        return Run(error=error)
    return Run(result, arguments, alias)


def carries_device(arguments: Any) -> bool:
    """Whether a call names the device; a factory function without a device argument works on the CPU."""
    leaves = list(tree_iter(arguments))
    return any(isinstance(leaf, torch.Tensor) or leaf in ("musa", MUSA) for leaf in leaves)


def same_error(a: Exception, b: Exception) -> bool:
    """Of one kind. A missing kernel is a NotImplementedError here and a RuntimeError there."""
    return type(a) is type(b) or {type(a), type(b)} <= {RuntimeError, NotImplementedError, torch.linalg.LinAlgError}


def random_differences(
    function: Callable[..., Any], sample: tuple[Any, ...], dtype: torch.dtype
) -> Iterator[str] | None:
    """None when the operator is not random: the CPU repeats itself whatever the seed."""
    runs = [call(function, sample, "cpu")]
    for seed in range(1, 17):
        runs.append(call(function, sample, "cpu", seed))
        if runs[-1].error:
            return None
        if len(runs) > 4 and any(list(compare_values(runs[0].result, run.result)) for run in runs[1:]):
            return check_random(function, sample, runs, dtype)
    return None


def compare_values(a: Any, b: Any) -> Iterator[int]:
    for i, (x, y) in enumerate(zip(tensors(a), tensors(b), strict=True)):
        x, y = (t if t.layout in (torch.strided, torch.jagged) else t.to_dense() for t in (x, y))
        if x.shape != y.shape or not torch.equal(plain(x).nan_to_num(), plain(y).nan_to_num()):
            yield i


def check_random(
    function: Callable[..., Any], sample: tuple[Any, ...], runs: list[Run], dtype: torch.dtype
) -> Iterator[str]:
    first, again, *others = (call(function, sample, MUSA, seed) for seed in (0, 0, *range(1, 17)))
    for run in (first, again, *others):
        if run.error:
            yield f"raises {run.error}"
            return
    yield from compare(runs[0].result, first.result, dtype, values=False)
    if list(compare_values(first.result, again.result)):
        yield "one seed gives two results"
    if not any(list(compare_values(first.result, other.result)) for other in others):
        yield "all seeds give one result"
    for i, result in enumerate(tensors(first.result)):
        if result.is_nested or result.layout != torch.strided or not result.numel() or result.is_complex():
            continue
        seen = torch.cat([plain(tensors(run.result)[i]).double().flatten() for run in runs])
        got = plain(result).double()
        seen, got = seen[seen.isfinite()], got[got.isfinite()]
        if seen.numel() and got.numel():
            slack = 2 * (seen.max() - seen.min()) + 1e-6
            if got.max() > seen.max() + slack or got.min() < seen.min() - slack:
                ranges = [f"{values.min():.3g} to {values.max():.3g}" for values in (got, seen)]
                yield f"result {i}: from {ranges[0]}, on the CPU from {ranges[1]}"


def judge(
    outcome: Outcome, function: Callable[..., Any], sample: tuple[Any, ...], watch_arguments: bool = False
) -> None:
    """Run one sample on both devices and note what differs."""
    dtype = getattr(torch, outcome.case.dtype)
    expected = call(function, sample, "cpu")
    actual = call(function, sample, MUSA)
    outcome.samples += 1
    if expected.error or actual.error:
        if expected.error and actual.error and same_error(expected.error, actual.error):
            outcome.refused += 1
        else:
            told = [
                f"{type(e).__name__}: {' '.join(str(e).split())[:240]}" if e else "works"
                for e in (expected.error, actual.error)
            ]
            outcome.differences.append(f"CPU {told[0]}; device {told[1]}")
        return
    undefined = outcome.case.op in UNDEFINED
    place = "musa" if carries_device(actual.arguments) else "cpu"
    found = list(compare(expected.result, actual.result, dtype, values=not undefined, place=place))
    if watch_arguments and not undefined:
        found += [f"argument, {text}" for text in compare(expected.arguments, actual.arguments, dtype)]
    if found:
        by_property = random_differences(function, sample, dtype)
        if by_property is not None:
            found = list(by_property)
    if expected.alias != actual.alias:
        found.append(f"views: results lie in arguments {expected.alias}, on the device in {actual.alias}")
    outcome.differences.extend(found)


# ---- what is asked of an operator ------------------------------------------------------------------------


def spread(items: Any, count: int) -> list[Any]:
    """*count* of the first POOL items, evenly chosen."""
    pool: list[Any] = []
    try:
        pool.extend(itertools.islice(iter(items), POOL))
    except (unittest.SkipTest, RuntimeError):  # the database has no sample of a kind, or the CPU cannot make it
        pass
    if len(pool) <= count:
        return pool
    return [pool[i * (len(pool) - 1) // (count - 1)] for i in range(count)] if count > 1 else pool[:1]


def seeded(make: Callable[..., Any], *arguments: Any, **named: Any) -> Iterator[Any]:
    torch.manual_seed(0)
    return iter(make(*arguments, **named))


def triple(sample: Any) -> tuple[Any, ...]:
    return (sample.input, tuple(sample.args), dict(sample.kwargs))


def calling(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input, args, kwargs: function(input, *args, **kwargs)


def forward(op: Any, outcome: Outcome, samples: list[Any]) -> None:
    for sample in samples:
        judge(outcome, calling(op), triple(sample))
    if samples and all(isinstance(sample, SampleInput) for sample in samples):
        sample = samples[len(samples) // 2]
        for lazy in lazy_variants(sample):
            judge(outcome, calling(op), triple(lazy))
        try:
            noncontiguous = sample.noncontiguous()
        except (RuntimeError, NotImplementedError):  # has no such form
            return
        judge(outcome, calling(op), triple(noncontiguous))


def lazy_variants(sample: Any) -> Iterator[Any]:
    """The sample with its tensors negated, and conjugated, lazily."""
    leaves = [t for t in tensors(triple(sample)) if t.layout == torch.strided and not t.requires_grad]
    if any(type(t) is torch.Tensor and t.is_complex() for t in leaves):
        yield sample.transform(lambda t: t.conj() if type(t) is torch.Tensor and t.is_complex() else t)
    if any(type(t) is torch.Tensor and (t.is_complex() or t.is_floating_point()) for t in leaves):
        yield sample.transform(
            lambda t: (
                torch._neg_view(t)
                if type(t) is torch.Tensor and (t.is_complex() or t.is_floating_point()) and t.layout == torch.strided
                else t
            )
        )


def inplace(op: Any, outcome: Outcome, samples: list[Any]) -> None:
    for sample in samples:
        if not sample.broadcasts_input:
            judge(outcome, calling(op.inplace_variant), triple(sample), watch_arguments=True)


def out(op: Any, outcome: Outcome, samples: list[Any]) -> None:
    """With results of the right shape, strided ones, and ones that have to grow."""
    for sample in samples:
        torch.manual_seed(0)
        try:
            result = op(*carry(triple(sample), "cpu")[:1], *sample.args, **sample.kwargs)
        except Exception:
            continue  # told by the aspect forward
        if not tensors(result) or not all(t.layout == torch.strided for t in tensors(result)):
            continue
        for prepare in (torch.empty_like, lambda t: t.new_empty([*t.shape, 2])[..., 0], lambda t: t.new_empty(0)):
            given = tree_map(
                lambda t, prepare=prepare: prepare(t).fill_(0) if isinstance(t, torch.Tensor) else t, result
            )
            judge(
                outcome,
                lambda sample, given: op(sample[0], *sample[1], out=given, **sample[2]),
                (triple(sample), given),
                watch_arguments=True,
            )


def backward(op: Any, outcome: Outcome, samples: list[Any]) -> None:
    for sample in samples:

        def gradients(input: Any, args: Any, kwargs: Any, sample: Any = sample) -> Any:
            result = op(input, *args, **kwargs)
            result = sample.output_process_fn_grad(result) if hasattr(sample, "output_process_fn_grad") else result
            wanted = [t for t in tensors((input, args, kwargs)) if t.requires_grad]
            outputs = [t for t in tensors(result) if t.requires_grad]
            if not wanted or not outputs:
                return []
            weights = []
            for i, output in enumerate(outputs):
                values = torch.linspace(0.5, 1.5, max(output.numel(), 1), dtype=torch.float64)[: output.numel()]
                values = (values + 0.1 * i).reshape(output.shape) if output.layout == torch.strided else None
                weights.append(torch.ones_like(output) if values is None else values.to(output.device, output.dtype))
            return [g for g in torch.autograd.grad(outputs, wanted, weights, allow_unused=True) if g is not None]

        judge(outcome, gradients, triple(sample))


ASPECTS: dict[str, Callable[[Any, Outcome, list[Any]], None]] = {
    "forward": forward, "out": out, "inplace": inplace, "backward": backward, "errors": forward,
}  # fmt: skip


# ---- the databases -----------------------------------------------------------------------------------------

LAYOUTS = {
    "coo": torch.sparse_coo, "csr": torch.sparse_csr, "csc": torch.sparse_csc, "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}  # fmt: skip
Work = tuple[Case, Callable[[Outcome], None]]


def full_name(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def operator_work(dtype: str, samples: int) -> Iterator[Work]:
    torch_dtype = getattr(torch, dtype)
    for op in invocations.op_db:
        if not op.supports_dtype(torch_dtype, "cpu"):
            continue
        aspects = ["forward"]
        if op.inplace_variant is not None:
            aspects.append("inplace")
        if op.supports_out:
            aspects.append("out")
        if op.supports_autograd and torch_dtype in op.supported_backward_dtypes("cpu"):
            aspects.append("backward")
        if dtype == "float32" and op.error_inputs_func is not None:
            aspects.append("errors")
        for aspect in aspects:

            def work(outcome: Outcome, op: Any = op, aspect: str = aspect) -> None:
                if aspect == "errors":
                    chosen = [error.sample_input for error in spread(seeded(op.error_inputs, "cpu"), samples * 2)]
                    chosen = [sample for sample in chosen if isinstance(sample, SampleInput)]
                else:
                    made = seeded(op.sample_inputs, "cpu", torch_dtype, requires_grad=aspect == "backward")
                    chosen = spread(made, samples)
                ASPECTS[aspect](op, outcome, chosen)

            yield Case("ops", full_name(op), dtype, aspect), work


def sparse_work(dtype: str, samples: int) -> Iterator[Work]:
    torch_dtype = getattr(torch, dtype)
    for op in invocations.op_db:
        for short, layout in LAYOUTS.items():
            supported = op.supports_sparse if short == "coo" else getattr(op, f"supports_sparse_{short}")
            if not supported or not op.supports_dtype(torch_dtype, "cpu"):
                continue
            grads = op.supports_autograd and torch_dtype in op.supported_backward_dtypes("cpu")
            for aspect in ("forward", "backward") if grads else ("forward",):

                def work(outcome: Outcome, op: Any = op, layout: Any = layout, aspect: str = aspect) -> None:
                    named = {"requires_grad": aspect == "backward"}
                    try:
                        made = seeded(op.sample_inputs_sparse, layout, "cpu", torch_dtype, **named)
                    except NotImplementedError:  # the database has none of this layout
                        return
                    for sample in spread(made, samples):
                        ASPECTS[aspect](op, outcome, [sample])

                yield Case(f"sparse-{short}", full_name(op), dtype, aspect), work


def foreach_work(dtype: str, samples: int) -> Iterator[Work]:
    torch_dtype = getattr(torch, dtype)
    names = [name for name in dir(invocations) if name.startswith("foreach_") and name.endswith("_op_db")]
    for op in itertools.chain.from_iterable(getattr(invocations, name) for name in names):
        if not op.supports_dtype(torch_dtype, "cpu"):
            continue
        for aspect, variant in (("forward", op.method_variant), ("inplace", op.inplace_variant)):
            if variant is None:
                continue

            def work(outcome: Outcome, op: Any = op, variant: Any = variant, aspect: str = aspect) -> None:
                for sample in spread(seeded(op.sample_inputs, "cpu", torch_dtype), samples):
                    judge(outcome, calling(variant), triple(sample), watch_arguments=aspect == "inplace")

            yield Case("foreach", op.name, dtype, aspect), work


def nested_work(dtype: str, samples: int) -> Iterator[Work]:
    torch_dtype = getattr(torch, dtype)
    for op in njt_op_db:
        if not (op.supports_dtype(torch_dtype, "cpu") and op.supports_njt):
            continue
        grads = op.supports_autograd and torch_dtype in op.supported_backward_dtypes("cpu")
        for aspect in ("forward", "backward") if grads else ("forward",):

            def work(outcome: Outcome, op: Any = op, aspect: str = aspect) -> None:
                made = seeded(op.sample_inputs, "cpu", torch_dtype, requires_grad=aspect == "backward")
                for sample in spread(made, samples):
                    if aspect == "backward":
                        backward(op, outcome, [sample])
                    else:
                        judge(outcome, calling(op), triple(sample))

            yield Case("nested", full_name(op), dtype, aspect), work


def module_work(dtype: str, samples: int) -> Iterator[Work]:
    torch_dtype = getattr(torch, dtype)
    for info in module_db:
        if torch_dtype not in info.dtypes:
            continue

        def work(outcome: Outcome, info: Any = info) -> None:
            named = {"device": "cpu", "dtype": torch_dtype, "requires_grad": True, "training": True}
            torch.manual_seed(0)
            for item in spread(info.module_inputs_func(info, **named), samples):
                if item.forward_input is None:
                    continue
                arguments, named = item.constructor_input.args, item.constructor_input.kwargs
                torch.manual_seed(1)
                made = info.module_cls(*arguments, **named)
                forward = item.forward_input
                if "Lazy" in info.name:  # its parameters come with the first input, and on the CPU for both sides
                    made(*tree_map(lambda t: t.float() if isinstance(t, torch.Tensor) else t, forward.args))
                made.to(torch_dtype)

                def train(args: Any, kwargs: Any, made: Any = made) -> Any:
                    device = next((t.device for t in tensors((args, kwargs))), torch.device("cpu"))
                    module = copy.deepcopy(made).to(device)
                    result = module(*args, **kwargs)
                    losses = [t.real.float().square().sum() for t in tensors(result) if t.requires_grad]
                    if losses:
                        sum(losses).backward()
                    leaves = [*module.parameters(), *[t for t in tensors((args, kwargs)) if t.is_leaf]]
                    return result, [t.grad for t in leaves if t.grad is not None], dict(module.state_dict())

                judge(outcome, train, (tuple(forward.args), dict(forward.kwargs)))

        yield Case("modules", info.name.removeprefix("nn."), dtype, "training"), work


def optimizer_work(dtype: str, samples: int) -> Iterator[Work]:
    torch_dtype = getattr(torch, dtype)
    if dtype not in ("float32", "float64", "bfloat16"):
        return
    for info in optim_db:
        for implementation in ("for-loop", *info.supported_impls):
            if implementation == "for-loop" and implementation in info.supported_impls:
                continue

            def work(outcome: Outcome, info: Any = info, implementation: str = implementation) -> None:
                for item in spread(info.optim_inputs_func("cuda"), samples + 4):
                    if item.params is not None:
                        continue
                    kwargs = copy.copy(item.kwargs)
                    if implementation != "for-loop":
                        kwargs[implementation] = True

                    def steps(params: Any, lr: Any, kwargs: Any = kwargs, info: Any = info) -> Any:
                        device = params[0].device
                        named = dict(kwargs)
                        if lr is not None:
                            named["lr"] = lr
                        if device.type == "cpu" and named.get("capturable"):  # for accelerators only; same numbers
                            named["capturable"] = False
                            named = tree_map(lambda v: v.item() if isinstance(v, torch.Tensor) else v, named)
                        if named.get("differentiable"):
                            params = [p.clone() for p in params]
                        optimizer = info.optim_cls(params, **named)
                        for step in range(3):
                            for i, parameter in enumerate(params):
                                grad = torch.linspace(-1, 1, parameter.numel(), dtype=torch.float64)
                                grad = (grad.cos() * (i + 1 + step)).reshape(parameter.shape).to(parameter)
                                parameter.grad = grad.to_sparse() if info.only_supports_sparse_grads else grad
                            optimizer.step(lambda: sum(p.detach().float().sum() for p in params))
                        return [p.detach() for p in params]

                    torch.manual_seed(0)
                    shapes = ((3, 4), (5, 2)) if info.optim_cls.__name__ == "Muon" else ((3, 4), (5,), (1,))
                    params = [torch.nn.Parameter(torch.randn(shape, dtype=torch_dtype)) for shape in shapes]
                    judge(outcome, steps, (params, kwargs.get("lr")))

            yield Case("optimizers", info.optim_cls.__name__, dtype, implementation), work


def cast_work(dtype: str, samples: int) -> Iterator[Work]:
    """Casts to and from the eight bit floats, which the database hardly knows."""
    if not dtype.startswith("float8"):
        return
    torch_dtype = getattr(torch, dtype)
    for other in ("float32", "float64", "float16", "bfloat16"):

        def work(outcome: Outcome, other: str = other) -> None:
            wide = torch.linspace(-500, 500, 97).to(getattr(torch, other))
            special = torch.tensor([float("nan"), float("inf"), -0.0, 1e-9], dtype=wide.dtype)
            for values in (wide, special, wide[:0], wide[3], wide[::3]):
                judge(outcome, lambda x: x.to(torch_dtype), (values,))
                judge(outcome, lambda x, dtype=wide.dtype: x.to(torch_dtype).to(dtype), (values,))
                judge(outcome, lambda x: x.to(torch_dtype).view(torch.uint8), (values,))

        yield Case("casts", f"to.{other}", dtype, "forward"), work


DATABASES = {
    "ops": operator_work, "sparse": sparse_work, "foreach": foreach_work, "nested": nested_work,
    "modules": module_work, "optimizers": optimizer_work, "casts": cast_work,
}  # fmt: skip


def all_work(databases: list[str], dtypes: list[str], samples: int) -> Iterator[Work]:
    for dtype in dtypes:
        for database in databases:
            yield from DATABASES[database](dtype, samples)


# ---- explained disagreements ---------------------------------------------------------------------------------


def explanation(case: Case) -> int | None:
    """The row of disagreements.py for a case."""
    for i, row in enumerate(DISAGREEMENTS):
        if row.covers(case.database, case.op, case.dtype, case.aspect):
            return i
    return None


def chosen(case: Case, part: tuple[int, int]) -> bool:
    """Whether a case belongs to a part: by a hash of its name, the same everywhere and for every torch."""
    return zlib.crc32(str(case).encode()) % part[1] == part[0]


def run_case(case: Case, work: Callable[[Outcome], None]) -> Outcome:
    outcome = Outcome(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        default = torch.get_default_dtype()
        try:
            work(outcome)
        finally:
            torch.set_default_dtype(default)
    return explained(outcome)


def explained(outcome: Outcome) -> Outcome:
    if outcome.differences:
        row = explanation(outcome.case)
        outcome.reason = None if row is None else DISAGREEMENTS[row].reason
    return outcome


def stale(outcomes: list[Outcome]) -> list[str]:
    """Rows of disagreements.py that cover cases of this run and explain none of their differences."""
    covered, used = set(), set()
    for outcome in outcomes:
        row = explanation(outcome.case)
        if row is not None:
            covered.add(row)
            if outcome.differences:
                used.add(row)
    return [f"{DISAGREEMENTS[row]}" for row in sorted(covered - used)]


# ---- the report ------------------------------------------------------------------------------------------------


def summary(outcomes: list[Outcome]) -> dict[tuple[str, str], Counter[str]]:
    """(database and aspect, dtype) -> how many cases agree, differ with a reason, differ without one."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for outcome in outcomes:
        if not outcome.samples and not outcome.differences:
            continue  # the database has no sample for it
        key = (f"{outcome.case.database} {outcome.case.aspect}", outcome.case.dtype)
        kind = "agree" if not outcome.differences else "explained" if outcome.reason else "unexplained"
        counts.setdefault(key, Counter())[kind] += 1
    return counts


def markdown(outcomes: list[Outcome]) -> str:
    counts = summary(outcomes)
    dtypes = [dtype for dtype in DTYPES if any(key[1] == dtype for key in counts)]
    rows = list(dict.fromkeys(key[0] for key in counts))
    lines = ["| | " + " | ".join(dtypes) + " |", "|---" * (len(dtypes) + 1) + "|"]
    for row in rows:
        cells = []
        for dtype in dtypes:
            count = counts.get((row, dtype))
            cells.append(f"{count['agree']}/{sum(count.values())}" if count else "")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    raising = Counter(o.case.dtype for o in outcomes if o.samples and o.refused == o.samples)
    lines.append("| of these, both raise for every sample | " + " | ".join(str(raising[d]) for d in dtypes) + " |")
    lines += [
        "",
        "Disagreements, all of them:",
        "",
        "| database | operator | dtypes | aspects | why |",
        "|---|---|---|---|---|",
    ]
    for row in DISAGREEMENTS:
        lines.append(f"| {row.database} | {row.op} | {row.dtypes} | {row.aspects} | {row.reason} |")
    for outcome in outcomes:
        if outcome.differences and not outcome.reason:
            case = outcome.case
            lines.append(f"| {case.database} | {case.op} | {case.dtype} | {case.aspect} | **not explained** |")
    return "\n".join(lines) + "\n"


def read_outcome(row: dict[str, Any]) -> Outcome:
    return explained(Outcome(**row | {"case": Case(**row["case"])}))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.opdb", description=__doc__.split("\n")[0])
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="may be repeated; default all")
    parser.add_argument("--database", action="append", choices=DATABASES, help="may be repeated; default all")
    parser.add_argument("--op", help="only operators of this name, without or with the variant")
    parser.add_argument("--aspect", action="append", help="forward, backward, inplace, out, errors ...")
    parser.add_argument("--backward", action="store_true", help="only gradients: --aspect backward")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="per operator and aspect (default %(default)s)")
    parser.add_argument("--slice", default="0/1", help="I/N: the part I of N parts, chosen by hash")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    parser.add_argument("--read", nargs="+", type=Path, help="run nothing: take the outcomes of earlier runs (--json)")
    parser.add_argument("--write", action="store_true", help="write docs/operators.md")
    options = parser.parse_args()
    if options.samples < 1:
        parser.error("--samples needs at least 1")
    try:
        part = tuple(int(text) for text in options.slice.split("/"))
        if len(part) != 2 or not 0 <= part[0] < part[1]:
            raise ValueError(part)
    except ValueError:
        parser.error(f"--slice {options.slice!r}: needs I/N with 0 <= I < N")
    aspects = ["backward"] if options.backward else options.aspect
    torch.set_num_threads(1)
    read = [read_outcome(row) for path in options.read or () for row in json.loads(path.read_text())]
    outcomes = list({outcome.case: outcome for outcome in read}.values())  # the last one of a case counts
    start = time.monotonic()
    show = functools.partial(print, file=sys.stderr if options.json else sys.stdout, flush=True)
    databases = [] if options.read else options.database or list(DATABASES)
    for case, work in all_work(databases, options.dtype or DTYPES, options.samples):
        if options.op and options.op not in (case.op, case.op.rpartition(".")[0]):
            continue
        if (aspects and case.aspect not in aspects) or not chosen(case, part):
            continue
        began = time.monotonic()
        outcome = run_case(case, work)
        outcomes.append(outcome)
        if time.monotonic() - began > 20:
            show(f"slow: {case} took {time.monotonic() - began:.0f} s")
        if outcome.differences and not outcome.reason:
            show(f"UNEXPLAINED {case}\n    " + "\n    ".join(dict.fromkeys(outcome.differences[:4])))
    complete = part == (0, 1) and not options.op and not aspects and not options.dtype and not options.database
    missing = [dtype for dtype in DTYPES if not any(outcome.case.dtype == dtype for outcome in outcomes)]
    complete = complete and not missing
    unexplained = [outcome for outcome in outcomes if outcome.differences and not outcome.reason]
    old = stale(outcomes) if complete else []
    for row in old:
        show(f"STALE, nothing differs any more: {row}")
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    else:
        print(markdown(outcomes))
    show(f"{len(outcomes)} cases, {sum(o.samples for o in outcomes)} samples in {time.monotonic() - start:.0f} s; "
         f"{len(unexplained)} unexplained, {len(old)} stale")  # fmt: skip
    if options.write:
        target = Path(__file__).resolve().parents[2] / "docs" / "operators.md"
        head = target.read_text().partition("<!-- table -->")[0] if target.exists() else ""
        note = f", {options.samples} samples per case" if options.samples != SAMPLES else ""
        note += f", without {', '.join(missing)}" if missing else "" if complete else ", from a part of the cases"
        target.write_text(f"{head}<!-- table -->\nTaken with torch {torch.__version__}{note}.\n\n{markdown(outcomes)}")
    return 1 if unexplained or old else 0


if __name__ == "__main__":
    sys.exit(main())
