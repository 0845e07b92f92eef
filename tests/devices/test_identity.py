"""Redirected objects stay the objects they are, for every tool that looks at them."""

import copy
import functools
import inspect
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch.overrides import TorchFunctionMode

from torchada.engine import ENGINE
from torchada.ledger import ACTIVE
from torchada.redirect import locate
from torchada.rules import Detour

RULES = [rule for rule in ENGINE.table.rules if isinstance(rule.do, Detour) and rule.test.startswith("tests/devices")]
CASES: dict[str, Callable[[], Any]] = {
    "zeros": lambda: torch.zeros(2, device="cuda"),
    "ones_like": lambda: torch.ones_like(torch.ones(2), device="cuda"),
    "tensor": lambda: torch.tensor([1.0], device="cuda"),
    "randn": lambda: torch.randn(2, device="cuda"),
}


def _target(rule: Any) -> Any:
    target = locate(sys.modules[rule.module], rule.name)[2]
    return getattr(target, "__func__", target)


def test_all_rules_are_active() -> None:
    states = ENGINE.ledger.states()
    odd = {rule.id: states[rule.id] for rule in RULES if states[rule.id].outcome != ACTIVE}
    assert {name for name, entry in odd.items() if entry.outcome not in ("gated", "pending", "absent")} == set(), odd


NATIVE = """
import json, sys, inspect, pickle, torch, torchada.tables.torch as rows
from torchada.redirect import locate
from torchada.rules import Detour
facts = {}
for rule in rows.RULES:
    if not isinstance(rule.do, Detour) or rule.module not in sys.modules:
        continue
    try:
        target = locate(sys.modules[rule.module], rule.name)[2]
    except AttributeError:
        continue
    target = getattr(target, "__func__", target)
    try:
        signature = str(inspect.signature(target))
    except (ValueError, TypeError) as error:
        signature = type(error).__name__
    try:
        pickled = pickle.dumps(target).hex()
    except Exception as error:
        pickled = type(error).__name__
    facts[rule.at] = [type(target).__name__, getattr(target, "__name__", ""), getattr(target, "__qualname__", ""),
                      getattr(target, "__doc__", ""), str(getattr(target, "__module__", "")), signature, pickled]
print(json.dumps(facts))
"""


def test_name_doc_signature_and_pickle_as_natively(run_python: Callable[..., Any]) -> None:
    import json

    environ = {"TORCHADA": "0", "TORCHADA_SIMULATE": None}
    native = json.loads(run_python(NATIVE, env=environ).stdout.splitlines()[-1])
    ours = json.loads(run_python("import torchada\n" + NATIVE).stdout.splitlines()[-1])
    # torch_musa's own functions stand there.
    replaced = {
        "torch:Tensor.to", "torch:Tensor.pin_memory", "torch:Tensor.is_pinned", "torch.random:fork_rng",
        "torch:UntypedStorage.is_cuda",
    }  # fmt: skip
    assert len(native) > 80
    assert {at: ours[at] for at in native if at not in replaced} == {
        at: native[at] for at in native if at not in replaced
    }


def test_names_from_before_activation_and_hash(run_python: Callable[..., Any]) -> None:
    run_python(
        """
        import torch, sys, torchada.tables.torch as rows
        from torchada.redirect import locate
        from torchada.rules import Detour
        def targets():
            found = {}
            for rule in rows.RULES:
                if isinstance(rule.do, Detour) and rule.module in sys.modules:
                    try:
                        target = locate(sys.modules[rule.module], rule.name)[2]
                    except AttributeError:
                        continue  # this torch has no such place
                    found[rule.at] = getattr(target, "__func__", target)
            return found
        before = targets()
        hashes = {at: hash(value) for at, value in before.items()}
        table = {value: at for at, value in before.items()}
        import torchada
        after = targets()
        changed_by_torch_musa = ("torch:Tensor.", "torch.random:fork_rng", "torch:UntypedStorage.is_cuda")
        for at, value in before.items():
            if at.startswith(changed_by_torch_musa):
                continue
            assert after[at] is value and hash(value) == hashes[at] and table[value] in before, at
        """
    )


@pytest.mark.parametrize("name", CASES)
def test_builtins(name: str) -> None:
    function = getattr(torch, name)
    assert type(function) is types.BuiltinFunctionType
    assert pickle.loads(pickle.dumps(function)) is function is copy.copy(function) is copy.deepcopy(function)
    assert {function: 1}[getattr(torch._C._VariableFunctions, name)] == 1
    assert CASES[name]().is_cuda


def test_device_is_in_torchs_own_tables() -> None:
    from torch.utils._device import _device_constructors

    assert torch.zeros in _device_constructors() and torch.tensor in _device_constructors()
    assert torch.zeros_like in torch.overrides.get_testing_overrides()
    assert torch.Tensor.to in torch.overrides.get_testing_overrides()


def test_partial_and_bound_methods() -> None:
    assert functools.partial(torch.zeros, 2, device="cuda:1")().device.index == 1
    to, cuda, new = torch.ones(2).to, torch.ones(2).cuda, torch.ones(2).new_zeros
    assert to("cuda").is_cuda and to(device="cuda:1").device.index == 1 and cuda(1).device.index == 1
    assert new(2, device="cuda").is_cuda
    assert next(map(torch.Tensor.cuda, [torch.ones(1)])).is_cuda
    assert torch.Tensor.to(torch.ones(1), "cuda").is_cuda
    kwargs = {"dtype": torch.float16, "device": "cuda:1"}
    assert torch.zeros(2, **kwargs).device.index == 1 and kwargs["device"] == "cuda:1"


class Sub(torch.Tensor):
    seen: list[Any] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize(
    ("call", "function"),
    [
        (lambda x: torch.zeros_like(x, device="cuda"), torch.zeros_like),
        (lambda x: x.to("cuda"), None),
        (lambda x: x.cuda(), torch.Tensor.cuda),
        (lambda x: x.cuda(1), torch.Tensor.cuda),
        (lambda x: x.new_zeros(2, device="cuda"), torch.Tensor.new_zeros),
        (lambda x: x.type("torch.cuda.FloatTensor"), torch.Tensor.type),
    ],
)
def test_torch_function_sees_the_function(call: Any, function: Any) -> None:
    Sub.seen = []
    made = call(torch.ones(2).as_subclass(Sub))
    assert type(made) is Sub and made.is_cuda
    assert Sub.seen[0] is (torch.Tensor.to if function is None else function) or "to" in str(Sub.seen[0])


def test_torch_function_sees_the_arguments_as_written() -> None:
    """Handlers registered for a method take what the caller wrote: no default of ours, no keyword by position."""

    class Handled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((*args[1:], kwargs or {}))
            return super().__torch_function__(func, types, args, kwargs or {})

    seen: list[Any] = []
    x = torch.ones(2).as_subclass(Handled)
    x.cuda(), x.cuda(1), x.cuda(device=1), x.cuda(non_blocking=True), x.cuda(memory_format=torch.preserve_format)
    x.type(), x.type(torch.float64), x.type(dtype="torch.cuda.HalfTensor"), x.type(torch.float64, non_blocking=True)
    assert seen == [
        ({},), (1, {}), ({"device": 1},), ({"non_blocking": True},), ({"memory_format": torch.preserve_format},),
        ({},), (torch.float64, {}), ({"dtype": "torch.cuda.HalfTensor"},), (torch.float64, {"non_blocking": True}),
    ]  # fmt: skip


def test_torch_function_mode_sees_the_function() -> None:
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((func, (kwargs or {}).get("device")))
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []
    with Mode():
        assert torch.zeros(2, device="cuda:1").device.index == 1
        x = torch.ones(2)
        assert x.cuda().device.type == "musa"
    functions = [func for func, _ in seen]
    assert functions[:2] == [torch.zeros, torch.ones] or torch.zeros in functions
    assert torch.Tensor.cuda in functions


def test_a_mode_may_answer_itself() -> None:
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return "mine" if func is torch.Tensor.cuda else func(*args, **(kwargs or {}))

    x = torch.ones(1)
    with Mode():
        assert x.cuda() == "mine"


class Program(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.ones_like(x, device="cuda:1")
        return y + x.to("cuda:1") + x.cuda(1) + x.new_zeros(2, device="cuda:1")


def test_fx_targets() -> None:
    graph = torch.fx.symbolic_trace(Program())
    calls = {node.target for node in graph.graph.nodes if node.op == "call_function"}
    methods = {node.target for node in graph.graph.nodes if node.op == "call_method"}
    assert torch.ones_like in calls and {"to", "cuda", "new_zeros"} <= methods
    assert graph(torch.ones(2)).device.index == 1
    assert pickle.loads(pickle.dumps(graph))(torch.ones(2)).tolist() == [3.0, 3.0]


def test_torchscript_builtin() -> None:
    @torch.jit.script
    def make(n: int) -> torch.Tensor:
        return torch.zeros([n]) + torch.ones([n])

    assert make(2).tolist() == [1.0, 1.0]
    traced = torch.jit.trace(lambda x: x.to("cuda") * torch.ones(2, device="cuda"), torch.ones(2))
    assert traced(torch.full((2,), 2.0)).is_cuda


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "factory": lambda x: torch.zeros(2, device="cuda") + x.cuda(),
    "to": lambda x: x.cpu().to("cuda") + 1,
    "cuda": lambda x: x.cuda() * 2,
    "new": lambda x: x.new_zeros(2, device="cuda:0") + x.cuda(0),
    "device": lambda x: torch.ones(2, device=torch.device("cuda", 0)) + x.cuda(),
    "is_cuda": lambda x: x.cuda() * 2 if x.cuda().is_cuda else x,
    "same": lambda x: torch.empty(2, device=x.cuda().device).fill_(3.0),
    "type": lambda x: x.cuda() * 2 if x.cuda().type() == "torch.cuda.FloatTensor" else x,
    "legacy": lambda x: x.type("torch.cuda.FloatTensor") + torch.cuda.FloatTensor([1.0, 2.0]),
    "equal": lambda x: x.cuda() * 2 if x.cuda().device == torch.device("cuda", 0) else x,
    "module": lambda x: LINEAR.to("cuda")(x.cuda()).detach(),
    "function": lambda x: Double.apply(x.cuda()),
    "state": lambda x: x.cuda() + int(torch.is_autocast_enabled("cuda")),
    "autocast": lambda x: _autocast(x),
}


LINEAR, ON_CPU = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
# What Dynamo of an older torch does not follow on CUDA either.
FOLLOWED: dict[str, Callable[[], bool]] = {
    "legacy": lambda: torch.cuda.FloatTensor in torch._dynamo.variables.UserDefinedClassVariable._in_graph_classes(),
    "module": lambda: not _is_unsupported(lambda x: ON_CPU.to("cpu")(x), torch.ones(2)),
}


class Double(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


def _autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cuda"):
        y = x.cuda().view(1, 2)
        return y.t() @ y


def _is_unsupported(program: Callable[[torch.Tensor], Any], x: torch.Tensor) -> bool:
    try:
        torch.compile(program, backend="eager", fullgraph=True)(x)
    except torch._dynamo.exc.Unsupported:
        return True
    return False


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_fullgraph_compile(name: str, backend: str) -> None:
    torch._dynamo.reset()
    if name in FOLLOWED and not FOLLOWED[name]():
        pytest.skip("this torch does not follow it")
    x = torch.ones(2)
    expected = PROGRAMS[name](x)
    made = torch.compile(PROGRAMS[name], backend=backend, fullgraph=True)(x)
    assert made.device == expected.device and made.is_cuda and made.dtype == expected.dtype
    assert torch.equal(made.cpu(), expected.cpu())


def test_signature_of_python_functions() -> None:
    assert list(inspect.signature(torch.amp.GradScaler.__init__).parameters)[:2] == ["self", "device"]
    assert list(inspect.signature(torch.autocast.__init__).parameters)[:2] == ["self", "device_type"]
    assert inspect.getsourcefile(torch.autocast.__init__) == torch.amp.autocast_mode.__file__


def test_compiled_device_context():
    """torch.cuda.device is torch_musa's class: Dynamo has one entry for both names, and imports at all."""

    def f(x):
        with torch.cuda.device(0):
            return x + 1

    compiled = torch.compile(f, backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1, device="cuda")).item() == 1.0
