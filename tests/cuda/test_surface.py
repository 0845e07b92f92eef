"""Every public name of torch.cuda has a decision, and nothing else of torch_musa shows (design, invariant 6)."""

import ast
import importlib
import inspect
import sys
from pathlib import Path

import pytest
import torch
import torch_musa

import torchada
from torchada.engine import ENGINE
from torchada.rules import Compute, Forward, Native, Refuse, Table

from .names import PUBLIC_NAMES, cuda_rules, installed, undecided

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted({module for modules in PUBLIC_NAMES.values() for module in modules if installed(module)})
TODO = "decide about these names in torchada/tables (a row each, or torch_musa's object of the same name): "


@pytest.mark.parametrize("version", PUBLIC_NAMES)
def test_every_public_name_of_a_released_torch_is_decided(version):
    left = {
        module: names
        for module, names in ((module, undecided(module, names)) for module, names in PUBLIC_NAMES[version].items())
        if names
    }
    assert not left, TODO + str(left)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_of_the_installed_torch_is_decided(module):
    native = ENGINE.virtuals[importlib.import_module(module).__name__].native
    declared = getattr(native, "__all__", [name for name in vars(native) if not name.startswith("_")])
    own = [
        name
        for name in declared
        if name in getattr(native, "__all__", ())
        or getattr(vars(native)[name], "__module__", None) == module  # without __all__: what is defined there
    ]
    left = undecided(module, own)
    assert not left, TODO + str({module: left})


def test_a_new_name_is_reported():
    assert undecided("torch.cuda", ["brand_new_name", "device_count"]) == ["brand_new_name"]
    assert undecided("torch.cuda.brand_new_module", ["f"]) == ["f"]


@pytest.mark.parametrize("module", MODULES)
def test_nothing_else_of_torch_musa_is_visible(module):
    virtual = ENGINE.virtuals[importlib.import_module(module).__name__]
    for name in set(dir(virtual.module)) - set(dir(virtual.native)) - {"__warningregistry__"}:
        # Only what torch's C++ and importlib wrote into the module: tensor classes and children.
        value = vars(virtual.module)[name]
        assert value in torch._tensor_classes or value is sys.modules.get(f"{module}.{name}"), name
    peer = importlib.import_module(virtual.mirror.peer) if virtual.mirror.peer else None
    for name in dir(peer) if peer else ():
        if not hasattr(virtual.native, name) and name not in vars(virtual.module):
            with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
                getattr(virtual.module, name)


def test_names_that_only_torch_musa_has_are_absent():
    for name in ("MUSAGraph", "musart", "mccl", "re", "nn", "musa_graph", "fork_rng"):
        assert hasattr(torch_musa, name)
        assert not hasattr(torch.cuda, name)


@pytest.mark.parametrize("rule", cuda_rules(), ids=lambda rule: rule.id)
def test_every_row_answers_and_changes_the_answer(rule):
    """The row works, and without it the name would be answered by another object."""
    virtual = ENGINE.virtuals[rule.module]
    native = getattr(virtual.native, rule.name)
    if isinstance(rule.do, Refuse) and rule.do.absent:
        assert not hasattr(virtual.module, rule.name)
        return
    answer = getattr(virtual.module, rule.name)
    assert ENGINE.ledger.state(rule.id).outcome == "active"
    without = virtual.peer(rule.name)
    has_peer = bool(virtual.mirror.peer) and hasattr(importlib.import_module(virtual.mirror.peer), rule.name)
    default = without if has_peer else native
    if isinstance(rule.do, Compute):
        return  # state: what it says is tested by value
    if isinstance(rule.do, Native):
        assert answer is native or answer == native
    elif isinstance(rule.do, Forward) and answer is default:
        # torch_musa happens to hold the same object under the same name; the row pins it.
        assert has_peer
    else:
        assert answer is not default


REFUSED = [
    "torch.cuda:current_solver_handle",
    "torch.cuda:_compile_kernel",
    "torch.cuda.memory:caching_allocator_disabled",
    "torch.cuda.memory:_host_allocator",
    "torch.cuda.memory:_use_uvm",
    "torch.cuda.memory:_cuda_beginAllocateCurrentThreadToPool",
    "torch.cuda.nccl:all_reduce",
    "torch.cuda.nccl:reduce",
    "torch.cuda.nccl:broadcast",
    "torch.cuda.nccl:all_gather",
    "torch.cuda.nccl:reduce_scatter",
    "torch.cuda.nccl:init_rank",
    "torch.cuda.nccl:unique_id",
    "torch.cuda.profiler:init",
    "torch.cuda.tunable:tune_gemm_in_file",
    "torch.cuda.tunable:mgpu_tune_gemm_in_file",
    "torch.cuda.gds:GdsFile",
    "torch.cuda.gds:gds_register_buffer",
    "torch.cuda.gds:gds_deregister_buffer",
    "torch.cuda.green_contexts:GreenContext",
]


def test_refused_names_are_these():
    rows = {
        rule.at
        for rules in ENGINE.table.lazy.values()
        for group in rules.values()
        for rule in group
        if isinstance(rule.do, Refuse) and rule.module.startswith("torch.cuda")
    }
    assert rows == set(REFUSED)


def _present(at):
    module, _, name = at.partition(":")
    if not installed(module):
        return False
    importlib.import_module(module)
    return hasattr(ENGINE.virtuals[module].native, name)


@pytest.mark.parametrize("at", [at for at in REFUSED if _present(at)])
def test_refusals(at):
    """A refused name is there, and using it says what, why and (where there is something) what to do instead."""
    module, _, name = at.partition(":")
    refused = getattr(importlib.import_module(module), name)
    with pytest.raises(torchada.NotOnMusa) as caught:
        refused()
    error = caught.value
    assert isinstance(error, RuntimeError) and isinstance(error, AttributeError)
    assert error.api == f"{module}.{name}"
    (rule,) = ENGINE.table.lazy[module][name]
    assert error.api in str(error) and rule.do.reason in str(error) and rule.do.instead in str(error)


@pytest.mark.skipif(not hasattr(torch.cuda, "GreenContext"), reason="a name of later versions")
def test_refused_classes_refuse_their_static_methods():
    with pytest.raises(torchada.NotOnMusa, match="green contexts"):
        torch.cuda.GreenContext.create(num_sms=1)


@pytest.mark.parametrize(
    "rule",
    [rule for rule in cuda_rules() if isinstance(rule.do, Forward) and rule.do.path.startswith("torch.cuda")],
    ids=lambda rule: rule.id,
)
def test_one_object_under_both_names(rule):
    home = importlib.import_module(rule.do.path.partition(":")[0])
    assert getattr(importlib.import_module(rule.module), rule.name) is getattr(home, rule.name)


@pytest.mark.parametrize(
    "rule", [rule for rule in cuda_rules() if isinstance(rule.do, Native)], ids=lambda rule: rule.id
)
def test_native_rows_are_torch_objects(rule):
    virtual = ENGINE.virtuals[rule.module]
    answer, native = getattr(virtual.module, rule.name), getattr(virtual.native, rule.name)
    assert answer is native or answer == native


def test_the_test_a_row_names_exists():
    missing = []
    for rule in ENGINE.table.rules:
        if not rule.test.startswith("tests/cuda/"):
            continue
        file, _, function = rule.test.partition("::")
        tree = ast.parse((ROOT / file).read_text()) if (ROOT / file).is_file() else None
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)} if tree else set()
        if function not in names:
            missing.append(rule.test)
    assert not missing, sorted(set(missing))


def test_identity_over_time_and_in_star_imports():
    scope = {}
    exec("from torch.cuda import *", scope)
    for name in ("Stream", "Event", "device_count", "memory_summary", "FloatTensor", "graph", "get_rng_state"):
        assert scope[name] is getattr(torch.cuda, name) is getattr(torch.cuda, name)


def test_second_access_is_a_plain_hit():
    for name in ("device_count", "current_stream", "synchronize", "Stream", "get_device_properties", "FloatTensor"):
        getattr(torch.cuda, name)
        assert name in vars(torch.cuda)


# Where a signature is not the installed torch's, and why.
SIGNATURES = {
    "Event": "torch_musa's class; external= is accepted by its __new__",
    "MemPool": "torch_musa's class; use_on_oom= and no_split= are accepted by its __init__",
    "CUDAGraph": "torch_musa's class; keep_graph= is accepted by its __new__",
    "MemPoolContext": "torch_musa's class",
}
# Parameters that ours has on every torch.
OF_LATER_VERSIONS = {"graph": ("enable_annotations", "check_input_liveness")}
NEWEST = list(PUBLIC_NAMES)[-1]


def _shape(thing):
    if inspect.isclass(thing) and issubclass(thing, Exception) and thing.__init__ is Exception.__init__:
        return []  # inspect finds no signature of its own
    signature = inspect.signature(thing)
    return [
        (parameter.name, parameter.kind, "" if parameter.default is parameter.empty else repr(parameter.default))
        for parameter in signature.parameters.values()
    ]


def _callables():
    for module in MODULES:
        virtual = ENGINE.virtuals.get(importlib.import_module(module).__name__)
        for name in sorted({name for modules in PUBLIC_NAMES.values() for name in modules.get(module, ())}):
            native = vars(virtual.native).get(name)
            if inspect.isfunction(native) or (inspect.isclass(native) and native.__module__ == module):
                yield module, name


@pytest.mark.parametrize("module,name", list(_callables()))
def test_signature_is_the_installed_torchs(module, name):
    native = vars(ENGINE.virtuals[module].native)[name]
    ours = getattr(importlib.import_module(module), name)
    if inspect.isclass(native) and any(isinstance(rule.do, Refuse) for rule in ENGINE.table.lazy[module].get(name, ())):
        return  # a refused class cannot be made in any way
    wanted = _shape(native)
    if name in SIGNATURES:
        if torch.__version__.startswith(NEWEST):
            assert _shape(ours) != wanted, f"{name} does not differ any more: take it out of SIGNATURES"
    elif name in OF_LATER_VERSIONS:
        assert [parameter for parameter in _shape(ours) if parameter[0] not in OF_LATER_VERSIONS[name]] == [
            parameter for parameter in wanted if parameter[0] not in OF_LATER_VERSIONS[name]
        ]
    else:
        assert _shape(ours) == wanted


def test_a_table_without_the_rows_fails_the_surface():
    """The check of decisions can fail: without our rows dozens of names are open."""
    bare = Table(ENGINE.table.mirrors.values(), ())
    names = PUBLIC_NAMES["2.13.0"]["torch.cuda"]
    assert {"GreenContext", "CudaError", "cudart"} <= {
        name for name in names if name not in bare.lazy["torch.cuda"] and not hasattr(torch_musa, name)
    }
