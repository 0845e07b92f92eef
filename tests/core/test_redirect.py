"""Python functions redirected in place: the object stays, every way of calling it goes through the shim."""

import copy
import functools
import inspect
import pickle
import threading
import traceback

import pytest

from torchada.errors import TorchadaError
from torchada.redirect import locate, redirect_python


def target(a, b=2, *rest, key="k", **more):
    """Its own words."""
    return ("original", a, b, rest, key, more)


def closing(offset):
    def inner(value, *, scale=1):
        return (value + offset) * scale

    return inner


class Base:
    def __init__(self, value):
        self.value = value


class Derived(Base):
    def __init__(self, value):
        super().__init__(value)
        self.derived = True


def doubled(original, *args, **kwargs):
    return ("shim", original(*args, **kwargs))


@pytest.fixture
def undo():
    undos = []
    yield undos.append
    for function in reversed(undos):
        function()


def test_every_call_form(undo):
    snapshot = target
    undo(redirect_python(target, doubled))
    assert target(1) == ("shim", ("original", 1, 2, (), "k", {}))
    assert snapshot is target
    assert snapshot(1, 3, 4, key="x", y=5) == ("shim", ("original", 1, 3, (4,), "x", {"y": 5}))
    assert functools.partial(target, 1)(b=7)[1][2] == 7
    assert target(*(1, 2), **{"key": "z"})[1][4] == "z"
    assert next(map(target, [1]))[0] == "shim"
    assert pickle.loads(pickle.dumps(target)) is target
    assert copy.deepcopy(target) is target


def test_what_tools_see_stays(undo):
    before = (inspect.signature(target), target.__name__, target.__doc__, hash(target), target.__defaults__)
    line = inspect.getsourcelines(target)[1]
    undo(redirect_python(target, doubled))
    assert (inspect.signature(target), target.__name__, target.__doc__, hash(target), target.__defaults__) == before
    assert inspect.getsourcelines(target)[1] == line
    assert inspect.unwrap(target) is target
    assert target.__code__.co_filename == __file__


def test_closures_keyword_only_arguments_and_undo():
    function = closing(10)
    assert function(1, scale=2) == 22
    undo = redirect_python(function, lambda original, value, **kwargs: original(value, **kwargs) + 1)
    assert function(1, scale=2) == 23
    undo()
    assert function(1, scale=2) == 22
    assert "__signature__" not in vars(function)


def test_constructors_of_subclasses_too(undo):
    undo(redirect_python(Base.__init__, lambda original, self, value: original(self, value.upper())))
    assert Derived("a").value == "A" and Derived("a").derived
    assert Base(value="b").value == "B"


def test_errors_and_wrong_arguments_come_from_the_original(undo):
    undo(redirect_python(target, lambda original, *args, **kwargs: original(*args, **kwargs)))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        target()
    with pytest.raises(ZeroDivisionError) as caught:
        undo(redirect_python(closing, lambda original, offset: 1 / offset))
        closing(0)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-2] == "closing"


def test_somebody_elses_change_is_not_overwritten():
    function = closing(1)
    undo = redirect_python(function, doubled)
    function.__code__ = closing(2).__code__
    with pytest.raises(TorchadaError, match="changed by somebody else"):
        undo()


def test_calls_in_flight_while_it_is_switched():
    function = closing(1)
    stop, wrong = threading.Event(), []

    def call():
        while not stop.is_set():
            if function(1) not in (2, 102):
                wrong.append(function(1))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        redirect_python(function, lambda original, value: original(value) + 100)()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_places_are_found_as_they_stand_in_the_dict():
    import builtins

    owner, name, found = locate(builtins, "dict.fromkeys")
    assert owner is dict and name == "fromkeys" and found is vars(dict)["fromkeys"]
    with pytest.raises(AttributeError):
        locate(builtins, "dict.no_such")
