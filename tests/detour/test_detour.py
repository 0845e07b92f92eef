"""torchada._detour on throw-away callables (victim.c): every kind, every calling convention, every way to call."""

import copy
import enum
import functools
import gc
import inspect
import operator
import pickle
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

CONVENTIONS = ("varargs_keywords", "varargs", "fastcall", "fastcall_keywords", "one", "none")
WITH_POSITION = CONVENTIONS[:-1]
WITH_KEYWORDS = ("varargs_keywords", "fastcall_keywords")


@contextmanager
def on(handle: Any) -> Iterator[Any]:
    assert handle.active
    try:
        yield handle
    finally:
        handle.restore()
        assert not handle.active


class Text(str):
    pass


class Hostile(str):
    """Compares and hashes as something else; only its content is a device."""

    def __hash__(self) -> int:
        raise AssertionError("hashed")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")


class Place(str, enum.Enum):
    ONE = "cuda:1"
    CPU = "cpu"


# ---- translation


@pytest.mark.parametrize("index", [0, 1, 63, 64, 127, 99999999999999999999])
def test_indices_are_kept(detour, index):
    assert detour.translate(f"cuda:{index}") == f"musa:{index}"


NO_DEVICES = [
    "",
    "c",
    "cud",
    "cuda:01",
    "cpu",
    "musa",
    "cuda0",
    "cudax",
    "my/cuda",
    "cuda:",
    "cuda:x",
    "cuda:-1",
    "cuda:+1",
]
NO_DEVICES += ["cuda: 1", "cuda:1 ", " cuda", "cuda ", "CUDA", "Cuda:0", "cuda:0:1", "cuda:1x", "cuda:1_0", "cuda.0"]
NO_DEVICES += ["cuda:\u0663", "cud\u0430", "cuda\0", "cuda:1\n", "cuda:1\0", "torch.cuda.FloatTensor"]


@pytest.mark.parametrize("text", NO_DEVICES)
def test_everything_else_comes_back_itself(detour, text):
    assert detour.translate(text) is text


@given(st.one_of(st.text(max_size=8), st.from_regex(r"cuda:?[0-9a\u0663 ]{0,4}", fullmatch=True)))
@example("cuda")
@example("cuda:007")
def test_the_grammar(shared_copy, victim, text):
    shared_copy.configure({"cuda": "musa", "cuda:0": "musa:0"})
    got = shared_copy.translate(text)
    if re.fullmatch(r"cuda(:(0|[1-9][0-9]*))?", text):
        assert got == "musa" + text[4:]
    else:
        assert got is text


def test_listed_spellings_win(new_copy):
    detour = new_copy()
    assert detour.translate("cuda") == "cuda"  # nothing configured yet
    detour.configure({"cuda": "meta", "cuda:1": "other"})
    assert [detour.translate(t) for t in ("cuda", "cuda:1", "cuda:2")] == ["meta", "other", "meta:2"]
    detour.configure({})
    assert detour.translate("cuda:1") == "cuda:1"


def test_str_subclasses_translate_by_content(detour):
    assert detour.translate(Text("cuda")) == "musa"
    assert detour.translate(Text("cuda:70")) == "musa:70"
    assert detour.translate(Hostile("cuda:1")) == "musa:1"
    assert detour.translate(Place.ONE) == "musa:1"
    assert detour.translate(Place.CPU) is Place.CPU
    assert type(detour.translate(Text("cuda:1"))) is str


def test_bytes_are_text(detour):
    assert detour.translate(b"cuda") == "musa" and detour.translate(b"cuda:1") == "musa:1"


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        1.5,
        b"cudas",
        b"cuda:x",
        b"cuda\xff",
        b"",
        bytearray(b"cuda"),
        ["cuda"],
        ("cuda",),
        {"cuda": 1},
        object(),
    ],
)
def test_other_types_come_back_themselves(detour, value):
    assert detour.translate(value) is value


@pytest.mark.parametrize(("kind", "how"), [("Device", "payload"), ("OddDevice", "lookup")])
def test_devices(new_copy, victim, kind, how):
    detour, device = new_copy(), getattr(victim, kind)
    devices = {device("cuda"): device("musa"), **{device(f"cuda:{i}"): device(f"musa:{i}") for i in range(4)}}
    assert detour.configure({"cuda": "musa"}, device, devices) == how
    for i in range(4):
        assert detour.translate(device(f"cuda:{i}")) is devices[device(f"cuda:{i}")]
    assert detour.translate(device("cuda")) is devices[device("cuda")]
    assert str(detour.translate(device("cuda:100"))) == "musa:100"  # not listed
    for other in (device("cpu"), device("cpu:1"), device("musa:1")):
        assert detour.translate(other) is other
    foreign = (victim.OddDevice if device is victim.Device else victim.Device)("cuda")
    assert detour.translate(foreign) is foreign


def test_one_device_proves_nothing(new_copy, victim):
    detour, device = new_copy(), victim.Device
    assert detour.configure({"cuda": "musa"}, device, {device("cuda"): device("musa")}) == "lookup"
    assert detour.translate(device("cuda")) == device("musa")
    assert detour.configure({"cuda": "musa"}) == "none"
    assert detour.translate(device("cuda")) == device("cuda")


def test_devices_of_the_same_type_byte_prove_nothing(new_copy, victim):
    device = victim.Device
    for devices in (
        {device(f"cuda:{i}"): device(f"cuda:{i}") for i in range(3)},
        {device("cuda:0"): device("musa:1"), device("cuda:1"): device("musa:0")},
        {device("cuda:0"): device("musa:0"), device("cpu:1"): device("musa:1")},
        {device("cuda:0"): device("musa:0"), device("cuda:1"): device("cpu:1")},
    ):
        assert new_copy().configure({"cuda": "musa"}, device, devices) == "lookup"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (({"cuda:0": "musa:0"},), ValueError),
        (({"cuda": "musa", "gpu": "musa"},), ValueError),
        (({"cuda": "musa", "cuda0": "musa"},), ValueError),
        (({"cuda": 1},), ValueError),
        (({1: "musa"},), ValueError),
        ((None,), TypeError),
        (({"cuda": "musa"}, int, None), TypeError),
        (({"cuda": "musa"}, 1, {}), TypeError),
        (({"cuda": "musa"}, int, {1: "x"}), TypeError),
        (({"cuda": "musa"}, None, {}), ValueError),
        (({}, int, {}), TypeError),
        (({"cuda": "musa"}, None, None, int), ValueError),
        (({"cuda": "musa"}, int, {}, 1), TypeError),
        (({"cuda": "musa"}, None, None, None, gc.isenabled), ValueError),
        (({"cuda": "musa"}, int, {}, int, 1), TypeError),
        (({"cuda": "musa"}, int, {}, int, len), TypeError),
        (({"cuda": "musa"}, int, {}, int, lambda: False), TypeError),
    ],
)
def test_a_bad_configuration_changes_nothing(detour, arguments, error):
    with pytest.raises(error):
        detour.configure(*arguments)
    assert detour.translate("cuda:1") == "musa:1"


# ---- functions


def ways(victim: Any, f: Callable[..., Any]) -> dict[str, Callable[[Any], Any]]:
    """Every way to call f with one positional argument."""
    return {
        "plain": lambda x: f(x),
        "star": lambda x: f(*[x]),
        "star and empty dict": lambda x: f(*[x], **{}),
        "__call__": lambda x: f.__call__(x),
        "type(f).__call__": lambda x: type(f).__call__(f, x),
        "partial": lambda x: functools.partial(f, x)(),
        "map": lambda x: next(map(f, [x])),
        "PyObject_Call": lambda x: victim.object_call(f, (x,)),
        "tp_call": lambda x: victim.slot_call(f, (x,)),
        "reduce-like wrapper": lambda x: (lambda func, args, kwargs: func(*args, **kwargs))(f, (x,), {}),
    }


def keyword_ways(victim: Any, f: Callable[..., Any]) -> dict[str, Callable[[Any], Any]]:
    return {
        "plain": lambda x: f(device=x),
        "star": lambda x: f(**{"device": x}),
        "fresh name": lambda x: victim.fresh_name_call(f, (), "device", x),
        "str subclass name": lambda x: f(**{Text("device"): x}),
        "__call__": lambda x: f.__call__(device=x),
        "partial": lambda x: functools.partial(f, device=x)(),
        "PyObject_Call": lambda x: victim.object_call(f, (), {"device": x}),
        "tp_call": lambda x: victim.slot_call(f, (), {"device": x}),
    }


def check_ways(calls: dict[str, Callable[[Any], Any]], handle: Callable[[], Any], got: Callable[[Any], Any]) -> None:
    """The call sites are warmed up first, so that specialised bytecode is in place when the detour comes and goes."""

    def repeat(call: Callable[[Any], Any], times: int) -> Any:
        for _ in range(times):
            result = call("cuda:1")
        return got(result)

    for call in calls.values():
        assert repeat(call, 300) == "cuda:1"
    with on(handle()):
        assert {name: repeat(call, 300) for name, call in calls.items()} == dict.fromkeys(calls, "musa:1")
    assert {name: repeat(call, 300) for name, call in calls.items()} == dict.fromkeys(calls, "cuda:1")


def first(result: Any) -> Any:
    return result[0][0]


@pytest.mark.parametrize("name", WITH_POSITION)
@pytest.mark.parametrize("owner", ["module", "StaticThing"])
def test_functions_in_every_way(detour, victim, owner, name):
    f = getattr(victim if owner == "module" else victim.StaticThing, name)
    check_ways(ways(victim, f), lambda: detour.redirect(f, (0,)), first)


@pytest.mark.parametrize("name", WITH_KEYWORDS)
def test_function_keywords_in_every_way(detour, victim, name):
    f = getattr(victim, name)
    check_ways(keyword_ways(victim, f), lambda: detour.redirect(f, (), ("device",)), lambda r: r[1]["device"])


@pytest.mark.parametrize("name", CONVENTIONS)
def test_functions_stay_who_they_are(detour, victim, name):
    f = getattr(victim, name)

    def looks():
        doc = (f.__name__, f.__qualname__, f.__doc__, f.__module__, f.__self__)
        return hash(f), pickle.dumps(f), copy.copy(f) is f, pickle.loads(pickle.dumps(f)) is f, repr(f), doc

    table, before, signature = {f: 1}, looks(), f.__text_signature__
    invented = name in ("one", "none") and sys.version_info >= (3, 13)  # from the flags; documented as a limit
    with on(detour.redirect(f, (0,))):
        assert looks() == before
        assert table[f] == 1
        assert f.__text_signature__ == (None if invented else signature)
    assert looks() == before
    assert f.__text_signature__ == signature


def test_a_long_warm_loop_sees_both_changes(detour, victim):
    f = victim.one

    def loop(n):
        seen = []
        for i in range(n):
            if i == 10_000:
                handle = detour.redirect(f, (0,))
            if i == 20_000:
                handle.restore()
            seen.append(f("cuda")[0][0])
        return seen

    assert loop(30_000) == ["cuda"] * 10_000 + ["musa"] * 10_000 + ["cuda"] * 10_000


def test_positions_and_keywords(detour, victim):
    f = victim.varargs_keywords
    with on(detour.redirect(f, (2, 0), ("device", "to"))):
        assert f() == ((), {})
        assert f("cuda") == (("musa",), {})
        assert f("cuda", "cuda", "cuda", "cuda") == (("musa", "cuda", "musa", "cuda"), {})
        assert f(1, other="cuda", to="cuda:3", device="cuda") == (
            (1,),
            {"other": "cuda", "to": "musa:3", "device": "musa"},
        )
        assert f("cuda", device=None) == (("musa",), {"device": None})
        many = [str(i) for i in range(100)]
        assert f("cuda", *many, **{f"k{i}": i for i in range(100)}, device="cuda")[1]["device"] == "musa"


def test_arguments_are_never_written(detour, victim):
    args, kwargs = ("cuda", [1]), {"device": "cuda", "x": "cuda"}
    for f in (victim.varargs_keywords, functools.partial(victim.Thing.varargs_keywords, victim.Thing())):
        with on(detour.redirect(getattr(f, "func", f), (0,), ("device",))):
            for call in (victim.object_call, victim.slot_call):
                assert call(f, args, kwargs) == (("musa", [1]), {"device": "musa", "x": "cuda"})
    bound = victim.Thing().varargs_keywords
    with on(detour.redirect(victim.Thing.varargs_keywords, (0,), ("device",))):
        bound = victim.Thing().varargs_keywords
        for call in (victim.object_call, victim.slot_call):
            assert call(bound, args, kwargs) == (("musa", [1]), {"device": "musa", "x": "cuda"})
    assert args == ("cuda", [1])
    assert kwargs == {"device": "cuda", "x": "cuda"}


def test_errors_are_the_original_ones(detour, victim):
    def errors():
        found = []
        for owner in (victim, victim.Thing, victim.Thing()):
            for name in CONVENTIONS:
                for args, kwargs in [
                    ((), {}),
                    ((1, 2), {}),
                    ((1,), {"x": 1}),
                    ((...,), {}),
                    ((victim.Thing(), 1, 2), {}),
                ]:
                    try:
                        found.append(str(type(getattr(owner, name)(*args, **kwargs))))
                    except (TypeError, LookupError) as e:
                        found.append(repr(e))
        return found

    before = errors()
    assert any("no keyword arguments" in e for e in before)
    handles = [detour.redirect(getattr(owner, name), (0,)) for owner in (victim, victim.Thing) for name in CONVENTIONS]
    try:
        assert errors() == before
    finally:
        for handle in handles:
            handle.restore()
    assert errors() == before


# ---- methods


@pytest.mark.parametrize("name", [*WITH_POSITION, "defining"])
def test_methods_in_every_way(detour, victim, name):
    thing, descr = victim.Thing(), victim.Thing.__dict__[name]

    class Sub(victim.Thing):
        pass

    class Super(victim.Thing):
        pass

    setattr(Super, name, lambda self, x: getattr(super(Super, self), name)(x))
    direct = eval(f"lambda thing: lambda x: thing.{name}(x)")
    calls = {
        "direct": direct(thing),
        "subclass": direct(Sub()),
        "super": direct(Super()),
        "through the type": lambda x: getattr(victim.Thing, name)(thing, x),
        "fresh bound": lambda x: ways(victim, getattr(thing, name))["PyObject_Call"](x),
        **{f"bound, {k}": lambda x, k=k: ways(victim, getattr(thing, name))[k](x) for k in ways(victim, descr)},
        **{f"partial, {k}": v for k, v in ways(victim, functools.partial(descr, thing)).items()},
    }
    check_ways(calls, lambda: detour.redirect(descr, (0,)), first)


@pytest.mark.parametrize("name", WITH_KEYWORDS)
def test_method_keywords_in_every_way(detour, victim, name):
    thing, descr = victim.Thing(), victim.Thing.__dict__[name]
    calls = {
        **{k: lambda x, k=k: keyword_ways(victim, getattr(thing, name))[k](x) for k in keyword_ways(victim, descr)},
        **{f"partial, {k}": v for k, v in keyword_ways(victim, functools.partial(descr, thing)).items()},
    }
    check_ways(calls, lambda: detour.redirect(descr, (), ("device",)), lambda r: r[1]["device"])


def test_methods_of_plain_objects_get_the_device(new_copy, victim):
    class Sub(victim.Thing):
        pass

    detour, device = new_copy(), victim.Device
    spellings = {"cuda": "musa", **{f"cuda:{i}": f"musa:{i}" for i in range(10)}}
    devices = {device(old): device(new) for old, new in spellings.items() if old != "cuda:9"}
    assert detour.configure(spellings, device, devices, victim.Thing) == "payload"
    for name in WITH_KEYWORDS:
        handle = detour.redirect(victim.Thing.__dict__[name], (0,), ("device",))
        plain, sub = getattr(victim.Thing(), name), getattr(Sub(), name)
        for old, new in spellings.items():
            if old == "cuda:9":  # no device of this name was given
                assert plain(old)[0][0] == plain(device=old)[1]["device"] == new
            else:
                assert plain(old)[0][0] is plain(device=old)[1]["device"] is devices[device(old)]
            assert sub(old)[0][0] == sub(device=old)[1]["device"] == new
        assert plain("cuda:10")[0][0] == "musa:10"
        assert plain(Text("cuda"))[0][0] == "musa"
        assert plain(device("cuda:1"))[0][0] is devices[device("cuda:1")]
        assert plain("cpu")[0][0] == "cpu"
        handle.restore()
        shim = detour.redirect(victim.Thing.__dict__[name], (0,), (), lambda original, self, *args: args)
        assert plain("cuda") == ("musa",)
        shim.restore()
    detour.configure({})


@pytest.mark.parametrize("name", WITH_POSITION)
@pytest.mark.parametrize("bound", [True, False])
def test_class_methods_in_every_way(detour, victim, name, bound):
    class Sub(victim.ClassThing):
        pass

    descr = victim.ClassThing.__dict__[name]
    calls = {
        "type": lambda x: getattr(victim.ClassThing, name)(x),
        "subclass": lambda x: getattr(Sub, name)(x),
        "instance": lambda x: getattr(victim.ClassThing(), name)(x),
        "descriptor": lambda x: descr(victim.ClassThing, x),
        **{k: lambda x, k=k: ways(victim, getattr(Sub, name))[k](x) for k in ways(victim, descr)},
    }
    target = getattr(Sub, name) if bound else descr
    check_ways(calls, lambda: detour.redirect(target, (0,)), first)
    with on(detour.redirect(target, (0,))) as handle:
        assert handle.target is descr
        assert handle.kind == "method"


def test_static_methods_of_a_type_dict(detour, victim):
    raw = victim.StaticThing.__dict__["varargs"]
    assert type(raw) is staticmethod
    with on(detour.redirect(raw, (0,))) as handle:
        assert handle.target is victim.StaticThing.varargs
        assert victim.StaticThing.varargs("cuda") == (("musa",), {})
        assert victim.StaticThing().varargs("cuda") == (("musa",), {})


@pytest.mark.parametrize("name", WITH_POSITION)
def test_bound_methods_before_during_and_after(detour, victim, name):
    thing = victim.Thing()
    early = getattr(thing, name)
    early_hash = hash(early)
    with on(detour.redirect(victim.Thing.__dict__[name], (0,))):
        during = getattr(thing, name)
        table = {during: 1}
        assert first(during("cuda")) == "musa"
        assert first(early("cuda")) == "cuda"  # documented: taken before, it keeps the original
        assert hash(early) == early_hash
    assert first(during("cuda")) == "cuda"
    assert table[during] == 1
    with on(detour.redirect(victim.Thing.__dict__[name], (0,))):
        assert first(during("cuda")) == "musa"
        assert during == getattr(thing, name)


def test_method_descriptors_stay_who_they_are(detour, victim):
    descr = victim.Thing.varargs_keywords

    def looks():
        signature = inspect.signature(descr)
        return hash(descr), repr(descr), descr.__doc__, signature, descr.__qualname__, pickle.dumps(descr)

    before, attributes = looks(), dict(vars(victim.Thing))
    with on(detour.redirect(descr, (0,))):
        assert looks() == before
        assert victim.Thing().varargs_keywords.__doc__ == "Doc."
        assert dict(vars(victim.Thing)) == attributes
    assert looks() == before


def test_other_descriptors_over_the_same_definition_are_not_touched(detour, victim):
    one, two = victim.many_types(2)
    with on(detour.redirect(one.varargs, (0,))):
        assert one().varargs("cuda") == (("musa",), {})
        assert two().varargs("cuda") == (("cuda",), {})
        with on(detour.redirect(two.varargs, shim=lambda original, self, *args: "two")):
            assert (first(one().varargs("cuda")), two().varargs("cuda")) == ("musa", "two")


# ---- shims


def test_function_shim(detour, victim):
    f = victim.fastcall_keywords
    seen = []

    def shim(original, *args, **kwargs):
        seen.append((original, args, kwargs))
        return "shim", original(*args, **kwargs)

    with on(detour.redirect(f, (0,), ("device",), shim)):
        assert f("cuda", "cuda", device="cuda", x=1) == ("shim", (("musa", "cuda"), {"device": "musa", "x": 1}))
        original, args, _ = seen[0]
        assert args == ("musa", "cuda")
        assert original is not f
        assert type(original) is type(f)
        assert original == f  # same C function, same self
        assert hash(original) == hash(f)
    assert seen[0][0]("cuda") == (("cuda",), {})  # outlives the detour
    assert len(seen) == 1


@pytest.mark.parametrize("name", [*CONVENTIONS, "defining"])
def test_method_shim(detour, victim, name):
    thing = victim.Thing()
    args = () if name == "none" else ("cuda",)

    def shim(original, self, *args, **kwargs):
        assert self is thing
        assert not kwargs
        return "shim", original(self, *args)

    with on(detour.redirect(victim.Thing.__dict__[name], (0,), shim=shim)):
        wanted = ("shim", (("musa",) if args else (), {}))
        assert getattr(thing, name)(*args) == wanted
        assert getattr(victim.Thing, name)(thing, *args) == wanted
        assert functools.partial(getattr(thing, name))(*args) == wanted
        with pytest.raises(TypeError):
            getattr(victim.Thing, name)(object(), *args)  # the shim never sees a wrong self
        with pytest.raises(TypeError):
            getattr(victim.Thing, name)()


def test_class_method_shim(detour, victim):
    class Sub(victim.ClassThing):
        pass

    shim = lambda original, cls, *args: (cls, original(cls, *args))  # noqa: E731
    with on(detour.redirect(victim.ClassThing.varargs, (0,), shim=shim)):
        assert Sub.varargs("cuda") == (Sub, (("musa",), {}))


def test_the_shim_may_be_conditional(detour, victim):
    shim = lambda original, *args, **kwargs: ("shim", args, kwargs)  # noqa: E731
    thing = victim.Thing()
    with (
        on(detour.redirect(victim.varargs_keywords, (0,), shim=shim, if_keyword="out_dtype")),
        on(detour.redirect(victim.Thing.varargs_keywords, (0,), shim=shim, if_keyword="out_dtype")),
    ):
        for call in (victim.varargs_keywords, thing.varargs_keywords, functools.partial(thing.varargs_keywords)):
            lead = () if call is victim.varargs_keywords else (thing,)
            assert call("cuda") == (("musa",), {})
            assert call("cuda", dtype=1) == (("musa",), {"dtype": 1})
            assert call("cuda", out_dtype=None) == ("shim", (*lead, "musa"), {"out_dtype": None})
            assert victim.fresh_name_call(call, ("cuda",), "out_dtype", 1)[0] == "shim"


def test_shim_only_for_a_keyword_or_its_position(detour, victim):
    shim = lambda original, *args, **kwargs: ("shim", args, kwargs)  # noqa: E731
    thing = victim.Thing()
    condition = {"shim": shim, "if_keyword": "out_dtype", "if_position": 2}
    with (
        on(detour.redirect(victim.varargs_keywords, (0,), **condition)),
        on(detour.redirect(victim.Thing.varargs_keywords, (0,), **condition)),
    ):
        for call in (victim.varargs_keywords, thing.varargs_keywords, functools.partial(thing.varargs_keywords)):
            lead = () if call is victim.varargs_keywords else (thing,)
            assert call("cuda", 1) == (("musa", 1), {})
            assert call(0, 1, out=2) == ((0, 1), {"out": 2})
            assert call("cuda", 1, 2) == ("shim", (*lead, "musa", 1, 2), {})
            assert call(0, 1, 2, 3) == ("shim", (*lead, 0, 1, 2, 3), {})
            assert call(0, out_dtype=1) == ("shim", (*lead, 0), {"out_dtype": 1})


def test_errors_of_a_shim_come_through(detour, victim):
    def shim(original, *args):
        raise KeyError("from the shim")

    with on(detour.redirect(victim.varargs, shim=shim)), pytest.raises(KeyError, match="from the shim"):
        victim.varargs(1)
    with on(detour.redirect(victim.Thing.varargs, shim=shim)):
        for call in (victim.Thing().varargs, functools.partial(victim.Thing.varargs, victim.Thing())):
            with pytest.raises(KeyError, match="from the shim"):
                call(1)


def test_a_shim_may_restore_its_own_detour(detour, victim):
    for target, call in [
        (victim.varargs, victim.varargs),
        (victim.Thing.varargs, lambda x: victim.Thing().varargs(x)),
        (victim.Thing.varargs, lambda x: functools.partial(victim.Thing().varargs)(x)),
    ]:
        handle = detour.redirect(target, (0,), shim=lambda original, *a: (holder.pop().restore(), original(*a))[1])  # noqa: B023
        holder = [handle]
        del handle
        assert call("cuda") == (("musa",), {})
        assert call("cuda") == (("cuda",), {})


def test_recursion_ends_in_an_error(detour, victim):
    with (
        on(detour.redirect(victim.varargs, shim=lambda original, *a: victim.varargs(*a))),
        pytest.raises(RecursionError),
    ):
        victim.varargs(1)


# ---- getters


def test_getter_with_another(detour, victim):
    thing, descr = victim.Thing(), victim.Thing.no

    class Sub(victim.Thing):
        pass

    def read(thing):
        return [thing.no for _ in range(300)][-1]

    assert read(thing) is False
    with on(detour.redirect_getter(descr, victim.Thing.yes)) as handle:
        assert (read(thing), read(Sub()), getattr(thing, "no"), descr.__get__(thing)) == (True,) * 4  # noqa: B009
        assert victim.Thing.no is descr
        assert handle.kind == "getter"
        with on(detour.redirect_getter(victim.Thing.yes, shim=lambda value, self: "never")):
            assert read(thing) is True  # `other` means its own C getter
    assert read(thing) is False
    with on(detour.redirect_getter(descr, victim.Thing.no_other)):
        assert read(thing) is False
    with on(detour.redirect_getter(descr, victim.Thing.error)), pytest.raises(LookupError, match="no value"):
        read(thing)
    with on(detour.redirect_getter(victim.Thing.yes, victim.Thing.error)):
        assert thing.yes is True
    with on(detour.redirect_getter(victim.Thing.error, victim.Thing.yes)), pytest.raises(LookupError):
        thing.error


def test_unwatched_objects_are_asked_once(new_copy, victim):
    """Where nobody sees which property is asked for, `other` is asked first."""

    class Sub(victim.Thing):
        pass

    detour, thing = new_copy(), victim.Thing
    devices = {victim.Device("cuda"): victim.Device("musa")}

    def configure(modes):
        detour.configure({"cuda": "musa"}, victim.Device, devices, thing, modes)

    configure(gc.isenabled)
    read = operator.attrgetter("error")
    with on(detour.redirect_getter(thing.error, thing.yes)):
        for collects in (True, False):
            (gc.enable if collects else gc.disable)()
            try:
                if collects:
                    with pytest.raises(LookupError):
                        read(thing())
                else:
                    assert read(thing()) is True  # its own getter, which raises, was not asked
                with pytest.raises(LookupError):
                    read(Sub())
            finally:
                gc.enable()
    with on(detour.redirect_getter(thing.no, thing.no_other)):
        gc.disable()
        try:
            assert thing().no is False
        finally:
            gc.enable()
    configure({}.popitem)  # fails
    with on(detour.redirect_getter(thing.no, thing.yes)), pytest.raises(KeyError):
        thing().no
    detour.configure({})


def test_an_unwatched_function_is_handed_the_device(new_copy, victim):
    """Parsing a name costs more than the redirection: with `to_device` the keyword holds the device."""
    detour, words = new_copy(), {"cuda": "musa", "cuda:0": "musa:0"}
    devices = {victim.Device("cuda", index): victim.Device("musa", index) for index in (-1, 0)}

    def configure(modes):
        return detour.configure(words, victim.Device, devices, victim.Thing, modes)

    assert configure(gc.isenabled) == "payload"
    first, second = devices.values()
    f = victim.fastcall_keywords
    gc.disable()
    try:
        with on(detour.redirect(f, (), ("device",), to_device=True)):
            assert (f(device="cuda")[1]["device"], f(device="cuda:0")[1]["device"]) == (first, second)
            gc.enable()
            assert f(device="cuda")[1] == {"device": "musa"}  # somebody sees the call
            gc.disable()
            configure(None)
            assert f(device="cuda")[1] == {"device": "musa"}
            configure({}.popitem)  # fails
            with pytest.raises(KeyError):
                f(device="cuda")
            configure(gc.isenabled)
        with on(detour.redirect(f, (), ("device",))):
            assert f(device="cuda")[1] == {"device": "musa"}
        with on(detour.redirect(f, (), ("device",), lambda original, **given: given, to_device=True)):
            assert f(device="cuda") == {"device": "musa"}
    finally:
        gc.enable()
        detour.configure({})


def test_two_getters_that_name_each_other(detour, victim):
    with on(detour.redirect_getter(victim.Thing.no, victim.Thing.no_other)):
        with on(detour.redirect_getter(victim.Thing.no_other, victim.Thing.no)):
            assert victim.Thing().no is False
            assert victim.Thing().no_other is False


def test_getter_with_a_shim_keeps_the_setter(detour, victim):
    thing = victim.Thing()
    thing.value = 3
    descr = victim.Thing.value
    with on(detour.redirect_getter(descr, shim=lambda value, self: (value, self))):
        assert thing.value == (3, thing)
        thing.value = 4
        assert thing.value == (4, thing)
        del thing.value
        assert thing.value == (None, thing)
    assert thing.value is None
    with on(detour.redirect_getter(victim.Thing.no, victim.Thing.yes, lambda value, self: value + 1)):
        assert thing.no == 2
        with pytest.raises(AttributeError):
            thing.no = 1


# ---- constructors and initialisers


def made(x: Any) -> Any:
    return x.made


def test_new(detour, victim):
    class Sub(victim.Made):
        pass

    class SubSub(Sub):
        pass

    class Own(victim.Made):
        def __new__(cls, *args, **kwargs):
            return super().__new__(cls, *args, **kwargs)

        def __init__(self, *args, **kwargs):
            pass

    def build(cls):
        return [cls("cuda", type="cuda").made for _ in range(300)][-1]

    kinds = (victim.Made, victim.StaticSub, Sub, SubSub, Own)
    before = [victim.slots_of(k) for k in (victim.Made, victim.StaticSub, Sub, SubSub, Own)]
    for _ in range(2):
        assert [build(k) for k in kinds] == [(("cuda",), {"type": "cuda"})] * 5
        with on(detour.redirect_new(victim.Made, (0,), ("type",))) as handle:
            assert handle.kind == "new"
            assert [build(k) for k in kinds] == [(("musa",), {"type": "musa"})] * 5
            assert victim.Made.__new__(SubSub, "cuda").made == (("musa",), {})
            assert type(SubSub("cuda")) is SubSub

            class Late(Sub):
                pass

            class LateOwn(victim.Made):
                def __new__(cls, x):
                    return super().__new__(cls, x)

            assert Late("cuda").made == LateOwn("cuda").made == (("musa",), {})
        assert [victim.slots_of(k) for k in kinds] == before
        assert victim.slots_of(Late) == victim.slots_of(Sub)
        assert Late("cuda").made == LateOwn("cuda").made == (("cuda",), {})


def test_new_with_a_cache(detour, victim):
    device = victim.Device
    ready = {"cpu": device("cpu"), "cuda": device("musa"), "cuda:1": device("musa:1")}
    before = victim.slots_of(device)
    names = {id(v) for v in ready.values()}

    def ways(x):
        calls = (device(x), device(*[x]), device.__call__(x), type.__call__(device, x), device.__new__(device, x))
        return [*calls, victim.object_call(device, (x,)), victim.slot_call(device, (x,)), *map(device, [x])]

    with on(detour.redirect_new(device, (0,), ("type",), ready)):
        ready["cpu"] = None  # a copy was taken
        for _ in range(100):
            assert {id(d) for d in ways("cuda")} | {id(d) for d in ways("cuda:1")} <= names
            assert {str(d) for d in ways("cuda:2")} == {"musa:2"}
            assert {str(d) for d in ways("cpu")} == {"cpu"}
            assert str(device(Place.ONE)) == "musa:1"
            assert str(device("cuda", 3)) == str(device("cuda", index=3)) == "musa:3"
            assert str(device(type="cuda", index=2)) == str(device(index=2, type="cuda")) == "musa:2"
            for bad in (lambda: device(), lambda: device(1), lambda: device("cpu", bad=1), lambda: device([])):
                with pytest.raises(TypeError):
                    bad()
    assert victim.slots_of(device) == before
    assert str(device("cuda")) == "cuda"


def test_cache_only_for_the_type_itself(detour, victim):
    class Sub(victim.Made):
        pass

    ready = victim.Made("ready")
    with on(detour.redirect_new(victim.Made, cache={"x": ready})):
        assert victim.Made("x") is ready
        assert type(Sub("x")) is Sub
        assert victim.Made(Text("x")) is not ready
        assert victim.Made("x", y=1) is not ready
    with pytest.raises(TypeError, match="ready ones cannot be shared"):
        detour.redirect_new(victim.Both, cache={"x": victim.Both()})
    with pytest.raises(TypeError, match="cache"):
        detour.redirect_new(victim.Made, cache={"x": 1})


def test_new_with_a_shim(detour, victim):
    class Sub(victim.Made):
        pass

    kept = []

    def shim(original, cls, *args, **kwargs):
        kept.append(original)
        assert original(cls, "cuda").made == (("cuda",), {})  # the original, not the detour
        for wrong in ((), (int,), (1,)):
            with pytest.raises(TypeError):
                original(*wrong)
        return original(cls, *args, extra=1, **kwargs)

    with on(detour.redirect_new(victim.Made, (0,), shim=shim)):
        assert Sub("cuda", y=2).made == (("musa",), {"extra": 1, "y": 2})
    assert kept[0](victim.Made, "cuda").made == (("cuda",), {})


def test_init(detour, victim):
    class Sub(victim.Inited):
        pass

    class Own(victim.Inited):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

    def build(cls):
        return [cls("cuda", device="cuda").initialised for _ in range(300)][-1]

    kinds = (victim.Inited, Sub, Own)
    before = [victim.slots_of(k) for k in kinds]
    for _ in range(2):
        assert [build(k) for k in kinds] == [(("cuda",), {"device": "cuda"})] * 3
        with on(detour.redirect_init(victim.Inited, (0,), ("device",))):
            assert [build(k) for k in kinds] == [(("musa",), {"device": "musa"})] * 3
            thing = victim.Inited()
            victim.Inited.__init__(thing, "cuda")
            assert thing.initialised == (("musa",), {})

            class Late(victim.Inited):
                pass

            assert Late("cuda").initialised == (("musa",), {})
            Late.__init__ = lambda self, x: None
            del Late.__init__
            assert Late("cuda").initialised == (("musa",), {})
        assert [victim.slots_of(k) for k in kinds] == before
        assert Late("cuda").initialised == (("cuda",), {})
        assert victim.slots_of(Late) == victim.slots_of(Sub)


def test_init_with_a_shim(detour, victim):
    def shim(original, self, *args):
        for wrong in ((), (1,)):
            with pytest.raises(TypeError):
                original(*wrong)
        return original(self, *args, "more")

    with on(detour.redirect_init(victim.Inited, (0,), shim=shim)):
        assert victim.Inited("cuda").initialised == (("musa", "more"), {})
    with on(detour.redirect_init(victim.Inited, shim=lambda original, self: 1)), pytest.raises(TypeError, match="None"):
        victim.Inited()
    with on(detour.redirect_init(victim.Inited, shim=lambda original, self: original(self, ...))):
        with pytest.raises(LookupError):
            victim.Inited()


@pytest.mark.parametrize("new_first", [True, False])
def test_a_type_with_a_vectorcall_of_its_own(detour, victim, new_first):
    def build():
        both = [victim.Both("cuda") for _ in range(300)][-1]
        return first(both.made), first(both.initialised)

    before = victim.slots_of(victim.Both)
    assert build() == ("cuda", "cuda")
    new = detour.redirect_new(victim.Both, (0,))
    assert build() == ("musa", "cuda")
    init = detour.redirect_init(victim.Both, (0,))
    assert build() == ("musa", "musa")
    (new if new_first else init).restore()
    assert build() == (("cuda", "musa") if new_first else ("musa", "cuda"))
    (init if new_first else new).restore()
    assert build() == ("cuda", "cuda")
    assert victim.slots_of(victim.Both) == before


def test_base_and_derived_types_in_any_order(detour, victim):
    class Sub(victim.Made):
        pass

    for cls in (Sub, victim.StaticSub):
        with pytest.raises(TypeError, match="inherited"):
            detour.redirect_new(cls, (0,))

    class Python:
        def __new__(cls):
            return super().__new__(cls)

        def __init__(self):
            pass

    for redirect in (detour.redirect_new, detour.redirect_init):
        with pytest.raises(TypeError, match="written in Python"):
            redirect(Python)


# ---- handles and refusals


def test_a_place_is_redirected_once(detour, victim):
    def again(redirect, *args):
        with on(redirect(*args)) as handle:
            with pytest.raises(RuntimeError, match="already redirected"):
                redirect(*args)
            assert handle.active
        with on(redirect(*args)):
            pass

    again(detour.redirect, victim.varargs, (0,))
    again(detour.redirect, victim.Thing.varargs, (0,))
    again(detour.redirect, victim.ClassThing.varargs, (0,))
    again(detour.redirect_getter, victim.Thing.no, victim.Thing.yes)
    again(detour.redirect_new, victim.Made, (0,))
    again(detour.redirect_init, victim.Inited, (0,))


@pytest.mark.parametrize(
    ("target", "error", "match"),
    [
        (lambda v: len, TypeError, "inlines"),
        (lambda v: list.append, TypeError, "inlines"),
        (lambda v: dict.fromkeys, TypeError, "inlines"),
        (lambda v: lambda: None, TypeError, "wrap Python functions"),
        (lambda v: v.Thing, TypeError, "cannot be redirected in place"),
        (lambda v: v.Thing().varargs, TypeError, "one bound method"),
        (lambda v: v.Thing.no, TypeError, "cannot be redirected in place"),
        (lambda v: object.__init__, TypeError, "cannot be redirected in place"),
        (lambda v: None, TypeError, "cannot be redirected in place"),
    ],
)
def test_targets_that_cannot_be(detour, victim, target, error, match):
    with pytest.raises(error, match=match):
        detour.redirect(target(victim), (0,))


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"positions": [0]}, TypeError),
        ({"positions": (-1,)}, ValueError),
        ({"positions": (5000,)}, ValueError),
        ({"positions": (1, 1)}, ValueError),
        ({"positions": ("0",)}, TypeError),
        ({"positions": (10**30,)}, OverflowError),
        ({"positions": tuple(range(9))}, ValueError),
        ({"keywords": ("a", 1)}, TypeError),
        ({"keywords": "device"}, TypeError),
        ({"shim": 1}, TypeError),
        ({"if_keyword": "x"}, ValueError),
        ({"if_keyword": 1, "shim": print}, ValueError),
        ({"if_position": 1, "shim": print}, ValueError),
        ({"if_position": -1, "if_keyword": "x", "shim": print}, ValueError),
        ({"if_position": "1", "if_keyword": "x", "shim": print}, TypeError),
        ({"unknown": 1}, TypeError),
    ],
)
def test_bad_arguments_change_nothing(detour, victim, kwargs, error):
    for target in (victim.varargs, victim.Thing.varargs):
        with pytest.raises(error):
            detour.redirect(target, **kwargs)
    assert first(victim.varargs("cuda")) == first(victim.Thing().varargs("cuda")) == "cuda"


def test_refusals_of_getters_and_types(detour, victim):
    thing = victim.Thing
    for args in [(thing.varargs,), (thing.no,), (thing.write_only, thing.yes), (thing.no, thing.no)]:
        with pytest.raises((TypeError, ValueError)):
            detour.redirect_getter(*args)
    for other in (victim.Made.yes, thing.varargs, thing.write_only, 1):
        with pytest.raises(TypeError):
            detour.redirect_getter(thing.no, other)
    with pytest.raises(TypeError, match="inlines"):
        detour.redirect_getter(type.__dict__["__doc__"], shim=print)
    for tp in (str, object, type):
        with pytest.raises(TypeError, match="inlines"):
            detour.redirect_new(tp)
    with pytest.raises(TypeError):
        detour.redirect_new(1)


def test_translation_needs_a_configuration(new_copy, victim):
    detour = new_copy()
    for redirect, target in [
        (detour.redirect, victim.varargs),
        (detour.redirect, victim.Thing.varargs),
        (detour.redirect_new, victim.Made),
        (detour.redirect_init, victim.Inited),
    ]:
        with pytest.raises(RuntimeError, match="configure"):
            redirect(target, (0,))
    with on(detour.redirect(victim.varargs, shim=lambda original, *a: 7)):
        assert victim.varargs() == 7


def test_two_copies_may_stack_and_refuse_disorder(detour, new_copy, victim):
    """Another copy of the module stands for somebody else who writes the same place."""
    other = new_copy()
    with on(detour.redirect(victim.varargs, (0,))), pytest.raises(RuntimeError, match="already redirected"):
        other.redirect(victim.varargs, shim=print)
    inner = detour.redirect(victim.Thing.varargs, shim=lambda original, *a: ("inner", original(*a)))
    outer = other.redirect(victim.Thing.varargs, shim=lambda original, *a: ("outer", original(*a)))
    assert victim.Thing().varargs(1) == ("outer", ("inner", ((1,), {})))
    with pytest.raises(RuntimeError, match="somebody else"):
        inner.restore()
    assert inner.active
    outer.restore()
    inner.restore()
    assert victim.Thing().varargs(1) == ((1,), {})
    for redirect, undo_in_order in [("redirect_new", victim.Made), ("redirect_init", victim.Inited)]:
        inner, outer = getattr(detour, redirect)(undo_in_order), getattr(other, redirect)(undo_in_order)
        with pytest.raises(RuntimeError, match="somebody else"):
            inner.restore()
        outer.restore()
        inner.restore()
    inner = detour.redirect_getter(victim.Thing.no, shim=lambda v, s: 1)
    outer = other.redirect_getter(victim.Thing.no, shim=lambda v, s: v + 1)
    assert victim.Thing().no == 2
    with pytest.raises(RuntimeError, match="somebody else"):
        inner.restore()
    outer.restore()
    inner.restore()


def test_handles(detour, victim):
    handle = detour.redirect(victim.varargs, (0,))
    assert type(handle) is detour.Handle
    assert handle.target is victim.varargs
    assert handle.kind == "function"
    assert repr(handle) == f"<active detour (function) of {victim.varargs!r}>"
    assert handle.restore() is None
    assert handle.restore() is None
    assert repr(handle).startswith("<restored detour")
    with pytest.raises(TypeError):
        detour.Handle()


def test_dropping_a_handle_does_not_undo(detour, victim):
    found = []

    def shim(original, *args):
        found.extend(h for h in gc.get_objects() if type(h) is detour.Handle and h.active)
        return "still"

    detour.redirect(victim.varargs, shim=shim)
    gc.collect()
    assert victim.varargs() == "still"
    [handle] = found
    handle.restore()


def test_restored_detours_are_collected(detour, victim):
    class Shim:
        def __call__(self, original, *args):
            return original(*args)

    redirects = [
        (detour.redirect, victim.varargs),
        (detour.redirect, victim.Thing.varargs),
        (detour.redirect_getter, victim.Thing.no),
        (detour.redirect_new, victim.Made),
        (detour.redirect_init, victim.Inited),
    ]
    for redirect, target in redirects:
        shim = Shim()
        shim.handle = redirect(target, shim=shim)  # a cycle
        gone = weakref.ref(shim)
        shim.handle.restore()
        del shim
        gc.collect()
        assert gone() is None, target


def test_self_check(new_copy):
    detour = new_copy()
    kinds = dict.fromkeys(["function", "method", "getter", "new", "init"], "ok")
    assert detour.self_check() == kinds
    assert detour.self_check() == kinds
    assert not [h for h in gc.get_objects() if type(h) is detour.Handle]


def test_capacity(new_copy, victim):
    detour = new_copy()
    types = victim.many_types(74)
    methods = [tp.__dict__[name] for tp in types for name in [*CONVENTIONS, "defining"]]
    handles = [detour.redirect(m, shim=lambda original, self, *a, m=m: m) for m in methods[:512]]
    with pytest.raises(RuntimeError, match="512 methods"):
        detour.redirect(methods[512], shim=print)
    places = [(tp, name, ("cuda",) if name == "one" else ()) for tp in types[:70] for name in CONVENTIONS]
    assert all(getattr(tp(), name)(*args) is tp.__dict__[name] for tp, name, args in places)
    assert all(getattr(tp, name)(tp(), *args) is tp.__dict__[name] for tp, name, args in places)
    for handle in handles:
        handle.restore()
    with on(detour.redirect(methods[0], shim=lambda original, self: "again")):  # its slot is still its own
        assert methods[0](types[0]()) == "again"
    handles = [detour.redirect_new(tp, shim=lambda original, cls, tp=tp: tp) for tp in types[:64]]
    with pytest.raises(RuntimeError, match="64 types"):
        detour.redirect_new(types[64], shim=print)
    assert all(tp() is tp for tp in types[:64])
    for handle in handles:
        handle.restore()
    assert all(type(tp()) is tp for tp in types)


def test_sub_interpreters_are_refused(build):
    """In a process of its own: once there was a second interpreter CPython never checks the GIL again; torch does."""
    inside = f"""
import importlib.machinery, importlib.util
loader = importlib.machinery.ExtensionFileLoader("_detour", {str(build("_detour"))!r})
spec = importlib.util.spec_from_file_location("_detour", loader.path, loader=loader)
try:
    loader.exec_module(importlib.util.module_from_spec(spec))
except ImportError as e:
    assert "interpreter" in str(e), e
else:
    raise RuntimeError("loaded")
"""
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    code = f"""
import {name} as interpreters
where = interpreters.create()
try:
    failure = interpreters.run_string(where, {inside!r})  # before 3.13 it raises RunFailedError
    assert failure is None, failure
finally:
    interpreters.destroy(where)
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# ---- references and threads


def everything(detour: Any, victim: Any) -> None:
    """One call of each kind and of each error path."""
    thing, device = victim.Thing(), victim.Device("cuda:1")
    for call in (
        lambda: victim.varargs_keywords("cuda", device, device="cuda:70", x=1),
        lambda: victim.varargs_keywords(...),
        lambda: victim.fastcall_keywords(Text("cuda:3"), device=Place.ONE),
        lambda: victim.slot_call(victim.varargs_keywords, ("cuda",), {"device": device}),
        lambda: victim.varargs_keywords(*range(50), device="cuda"),
        lambda: thing.varargs_keywords("cuda", device=device),
        lambda: functools.partial(thing.varargs_keywords)(device, device=device),
        lambda: functools.partial(thing.varargs_keywords)(..., device=device),
        lambda: thing.fastcall("cuda", "cuda"),
        lambda: functools.partial(thing.fastcall)("cuda"),
        lambda: thing.fastcall("cuda", device=1),
        lambda: victim.Thing.fastcall(1, "cuda"),
        lambda: victim.one("cuda"),
        lambda: thing.one("cuda"),
        lambda: thing.no,
        lambda: thing.error,
        lambda: thing.value,
        lambda: victim.Made("cuda", type=device),
        lambda: victim.Made(...),
        lambda: victim.Inited("cuda", device=device),
        lambda: victim.Inited(...),
        lambda: victim.Device("cuda"),
        lambda: victim.Device("cuda", 7),
        lambda: victim.Device("cuda", bad=7),
        lambda: victim.Device("nowhere"),
        lambda: detour.translate(victim.Device("cpu")),
        lambda: detour.translate("cuda:99"),
        lambda: detour.configure({"cuda": 1}),
        lambda: detour.redirect(victim.varargs_keywords, (0,), ("device",)),
        lambda: detour.redirect(victim.varargs, (0,), ("device", 1)),
        lambda: detour.redirect(victim.varargs, (0,), ("device",)).restore(),
        lambda: detour.redirect(victim.Thing.varargs, (0,), ("device",), shim=lambda *a: 1, if_keyword="x").restore(),
        lambda: detour.redirect_getter(victim.Thing.yes, victim.Thing.no).restore(),
    ):
        try:
            call()
        except (TypeError, ValueError, LookupError, RuntimeError):
            pass


def test_references_are_balanced(detour, victim):
    def shim(original, *args, **kwargs):
        return original(*args, **kwargs)

    def raising(original, *args):
        raise LookupError

    targets = ((victim.varargs_keywords, shim), (victim.fastcall_keywords, None), (victim.one, raising))
    methods = ((victim.Thing.varargs_keywords, None), (victim.Thing.fastcall, shim), (victim.Thing.one, raising))
    handles = [detour.redirect(t, (0, 1), ("device",), s) for t, s in targets + methods]
    handles += [
        detour.redirect_getter(victim.Thing.no, victim.Thing.error),
        detour.redirect_getter(victim.Thing.value, shim=lambda value, self: self),
        detour.redirect_new(victim.Made, (0,), ("type",), shim=shim),
        detour.redirect_init(victim.Inited, (0,), ("device",), shim=shim),
        detour.redirect_new(victim.Device, (0,), cache={"cpu": victim.Device("cpu")}),
    ]
    watched = [None, shim, raising, victim.varargs_keywords, victim.Thing.varargs_keywords, victim.Thing, victim.Made]
    watched += [victim.Inited, victim.Device, True, False, *handles, detour.Handle]
    total = getattr(sys, "gettotalrefcount", sys.getallocatedblocks)  # references in a debug build

    def counts():
        gc.collect()
        return [sys.getrefcount(o) for o in watched], total()

    try:
        for _ in range(20):
            everything(detour, victim)
        before = counts()
        for _ in range(500):
            everything(detour, victim)
        after = counts()
    finally:
        for handle in handles:
            handle.restore()
    drift = [(o, b - a) for o, a, b in zip(watched, before[0], after[0], strict=True) if abs(b - a) > 20]
    assert not drift, drift
    assert abs(after[1] - before[1]) < 100


@pytest.mark.parametrize("change", ["restore", "redirect"])
def test_a_change_between_look_up_and_call(detour, victim, change):
    """Until 3.11 a collection may run while C gathers arguments, after it has read the pointer it is about to call."""
    thing = victim.Thing()
    targets: list[tuple[Any, tuple[Any, ...]]] = [
        *[(getattr(victim, name), ()) for name in WITH_KEYWORDS],
        *[(getattr(victim.Thing, name), (thing,)) for name in WITH_KEYWORDS],
        *[(getattr(victim.ClassThing, name), ()) for name in WITH_KEYWORDS],
    ]
    handles: list[Any] = []

    def on_collection(phase, info):
        if handles and change == "restore":
            handles.pop().restore()
        elif not handles and change == "redirect":
            handles.append(detour.redirect(target, (0,), ("device",)))

    threshold, callbacks = gc.get_threshold(), gc.callbacks[:]
    gc.freeze()  # the rest of the process makes collections slow
    gc.callbacks.clear()  # those of others fill the free lists again
    for call in (victim.object_call, victim.slot_call):
        for target, lead in targets:
            for allocations in range(40):
                if change == "restore":
                    handles.append(detour.redirect(target, (0,), ("device",)))
                gc.collect()  # empties the free lists and counts allocations from here
                gc.callbacks.append(on_collection)
                try:
                    gc.set_threshold(allocations + 1)
                    result = call(target, (*lead, "cuda"), {"device": "cuda", "a": 1, "b": 2, "c": 3})
                finally:
                    gc.set_threshold(*threshold)
                    gc.callbacks.clear()
                    while handles:
                        handles.pop().restore()
                assert result in [((x,), {"device": x, "a": 1, "b": 2, "c": 3}) for x in ("cuda", "musa")]
    gc.callbacks[:] = callbacks
    gc.unfreeze()


def test_threads_call_while_detours_come_and_go(detour, victim):
    """Every call sees the argument as it was or translated, never anything else; and nothing crashes."""
    thing, stop, wrong = victim.Thing(), threading.Event(), []
    calls = [
        *ways(victim, victim.varargs_keywords).values(),
        *ways(victim, victim.fastcall).values(),
        *ways(victim, victim.one).values(),
        lambda x: victim.varargs_keywords(x, device=x),
        lambda x: victim.object_call(victim.fastcall_keywords, (x,), {"device": x}),
        lambda x: thing.varargs(x),
        lambda x: functools.partial(thing.fastcall_keywords, x)(device=x),
        lambda x: victim.object_call(victim.Thing.fastcall_keywords, (thing, x), {"device": x}),
        lambda x: victim.Made(x).made,
        lambda x: victim.Inited(x, device=x).initialised,
        lambda x: victim.Both(x).made,
    ]
    makers = [
        lambda: detour.redirect(victim.varargs_keywords, (0,), ("device",)),
        lambda: detour.redirect(victim.fastcall, (0,), shim=lambda original, *a: original(*a)),
        lambda: detour.redirect(victim.one, (0,)),
        lambda: detour.redirect(victim.fastcall_keywords, (0,), ("device",)),
        lambda: detour.redirect(victim.Thing.varargs, (0,)),
        lambda: detour.redirect(
            victim.Thing.fastcall_keywords, (0,), shim=lambda original, s, *a, **k: original(s, *a)
        ),
        lambda: detour.redirect_new(victim.Made, (0,)),
        lambda: detour.redirect_init(victim.Inited, (0,), ("device",)),
        lambda: detour.redirect_new(victim.Both, (0,)),
    ]

    def hammer():
        seen = set()
        try:
            while not stop.is_set():
                for call in calls:
                    seen.add(call("cuda:1")[0])
                    thing.no
            if not seen <= {("cuda:1",), ("musa:1",)}:
                wrong.append(seen)
        except BaseException as e:
            wrong.append(e)

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.freeze()
    gc.set_threshold(5)  # collections, hence thread switches, inside argument building
    threads = [threading.Thread(target=hammer) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        end = time.monotonic() + 3
        while time.monotonic() < end and not wrong:
            handles = [make() for make in makers]
            handles.append(detour.redirect_getter(victim.Thing.no, victim.Thing.yes))
            for handle in handles:
                handle.restore()
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        gc.unfreeze()
    assert not wrong
    assert first(victim.varargs_keywords("cuda")) == "cuda"
