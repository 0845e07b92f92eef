"""The compiled part by itself: bad input, and what it leaves behind."""

import sys


def test_everything(run_python):
    code = """
        import sys, re
        from torchada import _asker
        def raises(kind, function, *args):
            try:
                function(*args)
            except kind as error:
                return str(error)
            raise SystemExit(f"{function} {args} raised nothing")

        assert _asker.asked() is False, "nothing is configured"
        assert _asker.device_type("musa", None) == "musa"
        for bad in ((), ([], len, "a", "b"), ({}, 1, "a", "b"), ({}, len, b"a", "b"), ({}, len, "a", 1)):
            raises(TypeError, _asker.configure, *bad)
        raises(TypeError, _asker.device_type, "musa")
        for tp in (1, int, type("Heap", (), {}), re.Pattern):
            assert "no static C type" in raises(TypeError, _asker.redirect_text, tp)
        _asker.restore_text()

        # range stands for torch.device: a static C type without subclasses; but it has no __str__ of its own
        told = raises(RuntimeError, _asker.redirect_text, range)
        assert told == "the texts of range are not the type's own; nothing has been changed", told
        assert repr(range(3)) == str(range(3)) == "range(0, 3)"

        asked = []
        def decide(names):
            asked.append(names.get("__name__"))
            return answer
        answer, verdicts = True, {}
        _asker.configure(verdicts, decide, "musa", "cuda")
        assert _asker.asked() is True and asked == ["__main__"]
        assert _asker.device_type("musa", None) == "cuda" and _asker.device_type("cpu", None) == "cpu"
        assert _asker.device_type(1, None) == 1
        answer = []
        assert _asker.asked() is False and len(asked) == 3
        verdicts["__main__"] = True
        assert _asker.asked() is True and len(asked) == 3
        verdicts["__main__"] = {}
        assert _asker.asked() is False and len(asked) == 4, "no __file__ here"
        verdicts["__main__"][None] = True
        assert _asker.asked() is True and len(asked) == 4
        __file__ = "x.py"
        verdicts["__main__"]["x.py"] = True
        assert _asker.asked() is True and len(asked) == 4
        __file__ = []
        assert _asker.asked() is False and len(asked) == 5
        for name in (1, None, []):
            assert eval("asked()", {"asked": _asker.asked, "__name__": name}) is False
        assert eval("asked()", {"asked": _asker.asked}) is False and asked[5:] == [1, None, [], None]
        answer = True
        assert eval("asked()", {"asked": _asker.asked}) is True

        _asker.configure({}, lambda names: 1 / 0, "musa", "cuda")
        raises(ZeroDivisionError, _asker.asked)
        raises(ZeroDivisionError, _asker.device_type, "musa", None)

        before = sys.getrefcount(decide), sys.getrefcount(verdicts)
        for _ in range(1000):
            _asker.configure(verdicts, decide, "musa", "cuda")
            _asker.asked()
        _asker.configure({}, len, "musa", "cuda")
        assert (sys.getrefcount(decide), sys.getrefcount(verdicts)) == before
        print("done")
    """
    assert run_python(code).stdout == "done\n"


def test_device_texts_and_references(run_python):
    code = """
        import sys, torchada, torch
        own = torch.device.__repr__, torch.device.__str__
        torchada.masquerade("__main__")
        from torchada import _asker
        d = torch.device("cuda:1")
        try:
            _asker.redirect_text(torch.device)
        except RuntimeError as error:
            print(error)
        print(own[0](d), own[1](d), torch.device.__repr__ is own[0])
        before = sys.getrefcount(d), sys.getrefcount("cuda") if sys.version_info < (3, 12) else 0
        for _ in range(1000):
            str(d), repr(d), d.type
        after = sys.getrefcount(d), sys.getrefcount("cuda") if sys.version_info < (3, 12) else 0
        print(before == after)
        torchada.deactivate()
        print(str(d), own[1](d), d.type)
        _asker.restore_text()
    """
    assert run_python(code).stdout.splitlines() == [
        "the texts of torch.device are redirected already",
        "device(type='cuda', index=1) cuda:1 True",
        "True",
        "musa:1 musa:1 musa",
    ]


def test_sub_interpreters_are_refused(run_python):
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    child = "try:\n    import torchada._asker\nexcept ImportError as error:\n    print(error, flush=True)\n"
    code = f"import {name} as it; it.run_string(it.create(), {child!r})"
    assert "sub-interpreters" in run_python(code, env={"TORCHADA": "0"}).stdout
