"""What masqueraded modules are told, in every spelling, and that nobody else is told so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BUILT = torch.version.cuda is not None  # the vendor's torch is not built for CUDA
NEW_ENOUGH = int((torch.version.cuda or "0").split(".")[0]) >= 11

ROOT = Path(__file__).resolve().parent.parent.parent

# expression -> the answer on CUDA, the answer elsewhere. ``d`` is torch.device("cuda:1"), ``x`` a tensor on it.
ASKED = {
    "d.type": ("cuda", "musa"),
    "x.device.type": ("cuda", "musa"),
    'd.type == "cuda"': (True, False),
    'd.type != "cuda"': (False, True),
    'd.type in ("cuda", "xpu")': (True, False),
    'd.type in {"cuda"}': (True, False),
    'getattr(d, "type")': ("cuda", "musa"),
    'operator.attrgetter("type")(d)': ("cuda", "musa"),
    "torch.device.type.__get__(d)": ("cuda", "musa"),
    "[e.type for e in (d, d)]": (["cuda", "cuda"], ["musa", "musa"]),
    "(lambda e: e.type)(d)": ("cuda", "musa"),
    '{"cuda": 1}.get(d.type, 0)': (1, 0),
    "(kind := d.type) and kind": ("cuda", "musa"),
    "str(d)": ("cuda:1", "musa:1"),
    "repr(d)": ("device(type='cuda', index=1)", "device(type='musa', index=1)"),
    "d.__repr__()": ("device(type='cuda', index=1)", "device(type='musa', index=1)"),
    "torch.device.__str__(d)": ("cuda:1", "musa:1"),
    'f"{d}"': ("cuda:1", "musa:1"),
    'f"{d!s:>8}|{d!r}"': ("  cuda:1|device(type='cuda', index=1)", "  musa:1|device(type='musa', index=1)"),
    'format(d, "")': ("cuda:1", "musa:1"),
    '"{} {0!r}".replace("{0!r}", "").format(d)': ("cuda:1 ", "musa:1 "),
    '"%s" % d': ("cuda:1", "musa:1"),
    '"%s" % (d,)': ("cuda:1", "musa:1"),
    'str(d).startswith("cuda")': (True, False),
    '"cuda" in str(d)': (True, False),
    'str(d).partition(":")[0]': ("cuda", "musa"),
    "list(map(str, [d]))": (["cuda:1"], ["musa:1"]),
    "repr([d])": ("[device(type='cuda', index=1)]", "[device(type='musa', index=1)]"),
    "sorted([torch.device('cpu'), d], key=str)[1].index": (1, 1),
    "matched(d)": ("type", "none"),
    "matched(d.type)": ("word", "none"),
    "deferred()": ("cuda", "musa"),
    "decorated(d)": ("cuda", "musa"),
    "asyncio.run(awaited(d))": ("cuda", "musa"),
    "next(generated(d))": ("cuda", "musa"),
    "Kind(d).__private()": ("cuda", "musa"),
    "Sub(d).kind()": ("cuda!", "musa!"),
    "repr(Data(d))": ("Data(d=device(type='cuda', index=1))", "Data(d=device(type='musa', index=1))"),
    "eval('d.type', {'d': d})": ("cuda", "musa"),  # as a configuration's expression
    "eval('str(d)', {'d': d, '__name__': 'other'})": ("musa:1", "musa:1"),
    "eval('torch.cuda.is_available()', {'torch': torch})": (True, False),
    "eval('torch.version.cuda is not None', {'torch': torch})": (True, BUILT),
    "torch.accelerator.current_accelerator().type": ("cuda", "musa"),
    "torch.get_default_device().type": ("cpu", "cpu"),
    "torch.device('cpu').type": ("cpu", "cpu"),
    "str(torch.device('meta'))": ("meta", "meta"),
    "repr(x)": ("tensor([1.], device='cuda:1')", "tensor([1.], device='musa:1')"),
    'f"{x}"': ("tensor([1.], device='cuda:1')", "tensor([1.], device='musa:1')"),
    "repr(torch.nn.Parameter(x)).partition(':')[2].strip()": (
        "tensor([1.], device='cuda:1', requires_grad=True)",
        "tensor([1.], device='musa:1', requires_grad=True)",
    ),
    "printed_under_a_default_device()": ("tensor([1.], device='cuda:1')", "tensor([1.], device='musa:1')"),
    "x.type()": ("torch.cuda.FloatTensor", "torch.cuda.FloatTensor"),
    "torch.cuda.is_available()": (True, False),
    "imported_available()": (True, False),
    "torch.cuda._is_compiled()": (True, BUILT),
    "torch.backends.cuda.is_built()": (True, BUILT),
    "bool([*filter(lambda f: f(), [torch.cuda.is_available])])": (True, False),
    "torch.version.cuda is not None": (True, BUILT),
    "imported_version is not None": (True, BUILT),
    "int((torch.version.cuda or '0').split('.')[0]) >= 11": (True, NEW_ENOUGH),
    "d == torch.device('cuda', 1)": (True, True),
    "hash(d) == hash(torch.device('cuda:1'))": (True, True),
    "torch.zeros(1, device=str(d)).device == d": (True, True),
    "torch.zeros(1, device=d.type).device.index": (0, 0),
    "getattr(torch, 'cuda').current_device()": (0, 0),
    "torch.device(d.type, d.index) == d": (True, True),
    "eval('d.type')": ("cuda", "musa"),
    "class_name(d)": ("Device", "Device"),
    "Thing().type": ("musa", "musa"),
    "str(Thing())": ("musa:0", "musa:0"),
}
MODULE = """
from __future__ import annotations
import asyncio, dataclasses, functools, operator
import torch
from torch.cuda import is_available as imported_available
from torch.version import cuda as imported_version

d = torch.device("cuda:1")
x = torch.ones(1, device=d)
deferred = lambda: d.type

def printed_under_a_default_device():
    with torch.device("cuda:0"):
        return str(x)

class Thing:
    type = "musa"
    def __str__(self):
        return "musa:0"

class Device:
    pass

def class_name(d, kind=Device):
    assert type(d) is torch.device
    return kind.__name__

def matched(value):
    match value:
        case torch.device(type="cuda"):
            return "type"
        case "cuda":
            return "word"
    return "none"

def decorator(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner

@decorator
def decorated(d):
    return d.type

async def awaited(d):
    return d.type

def generated(d):
    yield d.type

class Base:
    def __init__(self, d):
        self.d = d
    def kind(self):
        return self.d.type
    def _Kind__private(self):
        return self.d.type

class Kind(Base):
    pass

class Sub(Base):
    def kind(self):
        return super().kind() + "!"

@dataclasses.dataclass
class Data:
    d: torch.device

def ask(expressions):
    def one(text):
        if "__private" in text:
            text = text.replace("__private", "_Kind__private")
        return eval(text, globals())
    return {text: one(text) for text in expressions}
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    for name in ("hidden", "plain"):
        (folder / f"{name}.py").write_text(MODULE)
    code = "import json, sys, torchada, hidden, plain; asked = json.load(sys.stdin)\n"
    code += "print(json.dumps([hidden.ask(asked), plain.ask(asked)]))\n"
    code += "torchada.deactivate(); import torch\n"
    code += "print(json.dumps([hidden.d.type, str(hidden.d), hidden.ask(['torch.cuda.is_available()', "
    code += "'torch.version.cuda', 'torch.backends.cuda.is_built()', 'repr(x)']), 'cuda' in vars(torch.version)]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(list(ASKED)),
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "TORCHADA_MASQUERADE": "hidden"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("asked", ASKED)
def test_device(answers, asked):
    hidden, plain = answers[0]
    assert (hidden[asked], plain[asked]) == ASKED[asked]


def test_availability(answers):
    hidden, plain = answers[0]
    for asked in ("torch.cuda.is_available()", "torch.cuda._is_compiled()", "torch.backends.cuda.is_built()"):
        assert (hidden[asked], plain[asked]) == (True, "available" not in asked and BUILT), asked


def test_version(answers):
    hidden, plain = answers[0]
    assert (hidden["torch.version.cuda is not None"], plain["torch.version.cuda is not None"]) == (True, BUILT)


def test_after_deactivate_masqueraded_modules_get_the_truth(answers):
    kind, text, asked, in_dict = answers[1]
    assert (kind, text) == ("musa", "musa:1")
    assert list(asked.values()) == [False, torch.version.cuda, BUILT, "tensor([1.], device='musa:1')"]
    assert in_dict
