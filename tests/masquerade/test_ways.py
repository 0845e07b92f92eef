"""Naming what is masqueraded: command line, environment, call; and everything that imports or runs code."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
ASK = 'import torch\ndef kind():\n    return torch.device("cuda").type\n'


@pytest.fixture
def program(tmp_path):
    """Run ``python -m torchada *args`` in the test's folder; its standard output, or all of it where it fails."""

    def run(*args, ok=True, env=None, cwd=tmp_path, stdin=""):
        environ = {name: value for name, value in os.environ.items() if name != "TORCHADA_MASQUERADE"}
        done = subprocess.run(
            [sys.executable, *args],
            env=environ | {"PYTHONPATH": str(ROOT)} | (env or {}),
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert (done.returncode == 0) is ok, done.stdout + done.stderr
        return done.stdout if ok else done.stdout + done.stderr

    return run


TORCHADA = ("-m", "torchada")


def test_script_and_the_modules_beside_it(program, write, tmp_path):
    write("app/beside.py", ASK)
    write("app/package/__init__.py", "from .inner import kind\n")
    write("app/package/inner.py", ASK)
    write("app/aware.py", ASK + 'MINE = "musa"\n')
    write("app/venv/lib/elsewhere.py", ASK)
    write("other/outside.py", ASK)
    write(
        "app/script.py",
        """
        import os, subprocess, sys
        import multiprocessing
        here = os.path.dirname(__file__)
        sys.path += [os.path.join(here, "venv", "lib"), os.path.join(os.path.dirname(here), "other")]
        import torch, beside, package, aware, elsewhere, outside

        def kind(_=None):
            return torch.device("cuda").type, beside.kind()

        if __name__ == "__main__":
            print(kind(), package.kind(), aware.kind(), elsewhere.kind(), outside.kind())
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(kind, [0]))
            child = "import torchada, torch, beside; print(torch.device('cuda').type, beside.kind())"
            subprocess.run([sys.executable, "-c", child], cwd=here, check=True)
        """,
    )
    expected = "('cuda', 'cuda') cuda musa musa musa\n[('cuda', 'cuda')]\nmusa cuda\n"
    assert program(*TORCHADA, "--masquerade", "app/script.py") == expected
    link = tmp_path / "link.py"
    link.symlink_to(tmp_path / "app" / "script.py")
    code = "import sys; sys.argv[0] = 'x'; import torch; print(torch.device('cuda').type)"
    assert program(*TORCHADA, "--masquerade", "-c", code) == "cuda\n"
    assert program(*TORCHADA, "--masquerade", "-", stdin=code) == "cuda\n"


def test_module_and_named(program, write):
    write("pkg/__init__.py", ASK)
    write("pkg/__main__.py", "import torch, pkg, plain; print(torch.device('cuda').type, pkg.kind(), plain.kind())")
    write("plain.py", ASK)
    assert program(*TORCHADA, "--masquerade", "-m", "pkg") == "cuda cuda musa\n"
    assert program(*TORCHADA, "--masquerade=plain", "-m", "pkg") == "musa musa cuda\n"
    assert program(*TORCHADA, "-m", "pkg", env={"TORCHADA_MASQUERADE": " pkg , plain,"}) == "cuda cuda cuda\n"
    assert program(*TORCHADA, "-m", "pkg") == "musa musa musa\n"


def test_zip_namespace_package_and_compiled_bytecode(program, write, tmp_path):
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", "import torch, inside; print(torch.device('cuda').type, inside.kind())")
        archive.writestr("inside.py", ASK)
    assert program(*TORCHADA, "--masquerade", "app.zip") == "cuda cuda\n"
    write("space/part.py", ASK)
    write("gone.py", ASK)
    code = """
import py_compile, os, sys, importlib
py_compile.compile("gone.py", "gone.pyc"); os.remove("gone.py")
import torchada, torch, space.part, gone
first = space.part.kind(), gone.kind()
print(*first, importlib.reload(space.part).kind(), space.__spec__.origin)
import runpy
print(runpy.run_path("borrowed.py", run_name="space.other")["kind"](), runpy.run_path("borrowed.py")["kind"]())
scope = {"__name__": "space.made"}
exec("import torch; text = torch.device('cuda').type", scope)
print(scope["text"], eval("torch.device('cuda').type", {"torch": torch}))
"""
    write("borrowed.py", ASK)
    out = program("-c", code, env={"TORCHADA_MASQUERADE": "space,gone"})
    assert out == "cuda cuda cuda None\ncuda musa\ncuda musa\n"


def test_a_row_for_a_namespace_package(run_python, write):
    """There is no code whose execution would tell that it is imported."""
    write("space/part.py", ASK)
    code = """
        import torchada
        from torchada import packages
        from torchada.rules import Masquerade
        from torchada.scope import SCOPE

        row = Masquerade("wrapt", ">=0", ("space",), why="w", test="t")  # an installed package gives the version
        SCOPE.rows = packages.PACKAGES = (row,)
        import torch, space.part
        print(space.part.kind(), space.__spec__.origin, list(SCOPE.applied))
    """
    assert run_python(code).stdout == "cuda None ['space']\n"


def test_call(masked, write):
    write("pkg/__init__.py", ASK + "AT_IMPORT = torch.cuda.is_available()\n")
    write("late.py", ASK + "AT_IMPORT = torch.cuda.is_available()\n")
    code = """
        import os, subprocess, sys, warnings, torch, late
        warnings.simplefilter("error")
        torchada.masquerade("pkg")
        import pkg
        print(pkg.kind(), pkg.AT_IMPORT, late.kind(), torch.device("cuda").type)
        try:
            torchada.masquerade("late")
        except torchada.TorchadaWarning as warning:
            print(str(warning).startswith("late was imported before torchada.masquerade()"))
        warnings.simplefilter("ignore")
        torchada.masquerade("late")
        print(late.kind(), late.AT_IMPORT)
        torchada.masquerade("__main__")
        print(torch.device("cuda").type, os.environ["TORCHADA_MASQUERADE"])
        subprocess.run([sys.executable, "-c", "import pkg; print(pkg.kind())"], check=True)
        with torchada.disabled():
            print(torch.device(0).type, pkg.kind.__globals__["torch"].device("cpu").type, torch.cuda.is_available())
        print(pkg.kind(), torch.cuda.is_available())
    """
    assert masked(None, code).stdout.splitlines() == [
        "cuda True musa musa",
        "True",
        "cuda False",
        "cuda pkg,late,__main__",
        "cuda",
        "musa cpu False",
        "cuda True",
    ]


def test_before_torch(masked, write):
    write("pkg.py", ASK)
    assert masked(None, "torchada.masquerade('pkg'); import pkg; print(pkg.kind())").stdout == "cuda\n"


def test_tools_see_the_module_as_it_is(masked, write):
    """The code is not changed: source, lines, code objects, traces and pickles are those without a masquerade."""
    write(
        "pkg.py",
        '''
        """Documented."""
        import pickle, torch

        def fail(d):
            assert d.type == "xpu", f"not {d}"

        class Kept:
            def __init__(self):
                self.d = torch.device("cuda:1")
        ''',
    )
    code = """
        import inspect, pickle, sys, traceback, pkg, torch, json
        try:
            pkg.fail(torch.device("cuda"))
        except AssertionError as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            print(error, frame.lineno, frame.line, file=sys.stderr)
        lines = []
        def trace(frame, event, arg):
            lines.extend([frame.f_lineno] if "pkg" in frame.f_code.co_filename else [])
        sys.settrace(trace)
        try:
            pkg.fail(torch.device("xpu"))
        finally:
            sys.settrace(None)
        kept = pickle.loads(pickle.dumps(pkg.Kept()))
        code = pkg.fail.__code__
        print(json.dumps([inspect.getsource(pkg), pkg.__doc__, lines, str(kept.d), code.co_code.hex(), code.co_names,
              type(pkg.__loader__).__name__, pkg.__spec__.origin, sorted(vars(pkg))]))
    """
    hidden, plain = masked("pkg", code), masked(None, code)
    assert json.loads(hidden.stdout) == json.loads(plain.stdout)
    assert "not cuda 6 assert" in hidden.stderr and "not musa 6 assert" in plain.stderr


def test_pytest_rewriting(program, write):
    write("pkg.py", ASK)
    write("test_it.py", "import pkg\ndef test_it():\n    assert pkg.kind() == 'cuda', 'told'\n")
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "test_it.py")
    assert "1 passed" in program(*TORCHADA, "--masquerade=pkg", *arguments)
    assert "AssertionError: told" in program(*TORCHADA, *arguments, ok=False)


def test_called_without_a_python_caller(masked, write):
    write("pkg.py", ASK)
    code = """
        import atexit, pkg, torch
        print(pkg.kind())
        atexit.register(torch.cuda.is_available)
        atexit.register(torch.device("cuda").__repr__)
    """
    done = masked("pkg", code)
    assert done.stdout == "cuda\n" and not done.stderr


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("torch", "torch cannot be masqueraded: torch, torch_musa, torchada always get the true answers"),
        ("torch.nn", "torch.nn cannot be masqueraded"),
        ("torch_musa", "always get the true answers"),
        ("no such", "'no such' cannot be masqueraded: neither the name of a module nor an existing path"),
        ("./gone.py", "'./gone.py' cannot be masqueraded"),
        ("a..b", "'a..b' cannot be masqueraded"),
    ],
)
def test_bad_names(program, names, text):
    for arguments in ((f"--masquerade={names}", "-c", "0"), (f"--masquerade={names}", "doctor")):
        out = program(*TORCHADA, *arguments, ok=False)
        assert text in out and "Traceback" not in out


def test_bad_use(program, masked):
    assert "--masquerade needs a program" in program(*TORCHADA, "--masquerade", "doctor", ok=False)
    assert "--masquerade= needs names" in program(*TORCHADA, "--masquerade=,", "-c", "0", ok=False)
    out = program(*TORCHADA, "--masquerade", "-m", "torch.distributed.run", "x.py", ok=False)
    assert "python -m torchada --masquerade=train.py -m torch.distributed.run" in out
    out = program(*TORCHADA, "doctor", env={"TORCHADA_NO_MASQUERADE": "nobody"}, ok=False)
    assert "there is no row for nobody; use all, or some of: deepspeed, " in out
    code = """
        for names in ((), (1,), ("torch",), ("no such",), ("",), (" ",)):
            try:
                torchada.masquerade(*names)
            except (TypeError, torchada.ConfigError) as error:
                print(type(error).__name__)
        import os; print(os.environ.get("TORCHADA_MASQUERADE"))
    """
    assert masked(None, code).stdout.split() == ["TypeError"] * 2 + ["ConfigError"] * 4 + ["None"]


def test_inert_without_musa(masked, write):
    write("pkg.py", ASK.replace('device("cuda")', 'device("cpu")'))
    code = "torchada.masquerade('pkg'); import pkg, sys; print(pkg.kind(), 'torchada._asker' in sys.modules)"
    assert masked(None, code, env={"TORCHADA_SIMULATE": None}).stdout == "cpu False\n"
    assert masked("pkg", "import pkg; print(pkg.kind())", env={"TORCHADA": "0"}).stdout == "cpu\n"


def test_nothing_is_applied_where_nothing_is_masqueraded(masked):
    code = "import sys, torch; print('torchada._asker' in sys.modules, vars(torch.version)['cuda'])"
    assert masked(None, code).stdout == f"False {torch.version.cuda}\n"


def test_doctor_tells_what_and_why(program, write):
    write("pkg.py", ASK)
    out = " ".join(program(*TORCHADA, "--masquerade=pkg", "doctor").split())
    assert "masquerade pkg: named by TORCHADA_MASQUERADE" in out
