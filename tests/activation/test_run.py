"""``python -m torchada PROGRAM`` against ``python PROGRAM``: the same output, errors and exit status."""

from __future__ import annotations

import re
import signal
import subprocess
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

from tests.activation.support import Environment, Result

ADDRESS = re.compile("at 0x[0-9a-f]+")
FILES = {
    "show.py": """
        import sys
        print(__name__, __file__, __spec__, __package__, __doc__, type(__loader__).__name__, sorted(globals()))
        print(sys.argv, sys.path[0], sys.orig_argv[1:], sys.flags, sys.warnoptions, sys._xoptions)
        print([entry for entry in sys.path if not entry.endswith("_site")], sys.executable, sys.prefix)
        print(sys.modules["__main__"].__dict__ is globals(), __builtins__ is sys.modules["builtins"])
        print(sorted(m for m in sys.modules if not m.startswith(("torchada", "sitecustomize"))))
    """,
    "package/__init__.py": "print('package imported as', __name__)",
    "package/__main__.py": "from . import thing\nimport sys\nprint(__name__, __spec__.name, sys.argv, thing.X)",
    "package/thing.py": "X = 5\nif __name__ == '__main__':\n    import sys\n    print('thing run', sys.argv)",
    "folder/__main__.py": "import sys, beside\nprint(__name__, sys.argv, sys.path[0], beside.Y)",
    "folder/beside.py": "Y = 6",
    "exit3.py": "import sys\nsys.exit(3)",
    "exit_text.py": "import sys\nsys.exit('that went wrong')",
    "exit_none.py": "import atexit\natexit.register(print, 'at exit')\nraise SystemExit",
    "raises.py": """
        def inner():
            try:
                {}["key"]
            except KeyError as error:
                raise ValueError("outer") from error
        inner()
    """,
    "syntax.py": "print('never')\ndef broken(:\n    pass",
    "tabs.py": "if True:\n        x = 1\n\ty = 2",
    "hook.py": "import sys\nsys.excepthook = lambda *a: print('hooked', a[1])\nraise RuntimeError('x')",
    "thread.py": """
        import threading
        def work(): raise RuntimeError("in a thread")
        t = threading.Thread(target=work, name="worker"); t.start(); t.join()
    """,
    "interrupt.py": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(5)",
    "killed.py": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "abort.py": "import os\nos._exit(7)",
    "reads.py": "import sys\nprint(sys.stdin.read().upper())",
    "stops.py": "x = 41\nbreakpoint()\nprint('after', x)",
    "spawn.py": """
        import multiprocessing, pickle
        class Thing:
            def __init__(self, value): self.value = value
            def double(self): return Thing(self.value * 2)
        def work(thing):
            print(__name__, type(thing).__module__, flush=True)
            return thing.double()
        if __name__ == "__main__":
            print(pickle.dumps(Thing(1)))
            for method in ("fork", "spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, pool.map(work, [Thing(4)])[0].value, flush=True)
    """,
    "source.py": "import inspect\nclass K:\n    pass\ndef f(): return 1\nfor x in f, K: print(inspect.getsource(x))",
    "warns.py": "import warnings\nwarnings.warn('look here', DeprecationWarning, stacklevel=1)",
    "latin.py": b"# coding: latin-1\nprint('caf\xe9'.encode())",
    "named/doctor": "print('a program called doctor')",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else dedent(text).lstrip("\n").encode())
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", "import sys\nprint(__name__, __file__, sys.argv, sys.path[0])")
    return folder


def both(environment: Environment, programs: Path, options: list[str], program: list[str], **more) -> Result:
    """Run *program* by plain python and by torchada, compare, and give the result."""
    plain = environment.run(*options, *program, cwd=programs, **more)
    ours = environment.run(*options, "-m", "torchada", *program, cwd=programs, **more)
    assert ADDRESS.sub("at ...", ours.stdout) == ADDRESS.sub("at ...", plain.stdout)
    assert ours.stderr == plain.stderr
    assert ours.returncode == plain.returncode
    return ours


@pytest.mark.parametrize(
    ("program", "status", "word"),
    [
        (["show.py"], 0, "__main__ "),
        (["./show.py", "a", "--simulate", "-m", "-", "b c"], 0, "b c"),
        (["-m", "show", "-x", "y"], 0, "ModuleSpec"),
        (["-mshow", "z"], 0, "'z'"),
        (["-m", "package", "1"], 0, "package.__main__"),
        (["-m", "package.thing", "2"], 0, "thing run"),
        (["-c", "import sys; print(__name__, sys.argv, repr(sys.path[0]))", "c", "-m"], 0, "['-c', 'c', '-m']"),
        (["-cprint(1 + 1)"], 0, "2"),
        (["folder", "q"], 0, "6"),
        (["archive.zip", "q"], 0, "archive.zip"),
        (["exit3.py"], 3, ""),
        (["exit_text.py"], 1, "that went wrong"),
        (["exit_none.py"], 0, "at exit"),
        (["raises.py"], 1, "direct cause"),
        (["-m", "raises"], 1, "ValueError: outer"),
        (["-c", "1/0"], 1, "ZeroDivisionError"),
        (["syntax.py"], 1, "SyntaxError"),
        (["tabs.py"], 1, "TabError"),
        (["hook.py"], 1, "hooked x"),
        (["thread.py"], 0, "Exception in thread worker"),
        (["interrupt.py"], -signal.SIGINT, "KeyboardInterrupt"),
        (["killed.py"], -signal.SIGKILL, ""),
        (["abort.py"], 7, ""),
        (["spawn.py"], 0, "forkserver 8"),
        (["source.py"], 0, "class K"),
        (["latin.py"], 0, "xc3"),
        (["absent.py"], 2, "can't open file"),
        (["absent/folder/x.py"], 2, "No such file or directory"),
        (["-m", "absent_module"], 1, "No module named absent_module"),
        (["-m"], 2, "Argument expected for the -m option"),
        (["-c"], 2, "Argument expected for the -c option"),
        (["-m", "pdb", "-c", "continue", "exit3.py"], 0, "exit"),
        (["-m", "timeit", "-n1", "-r1", "pass"], 0, "loop"),
        (["named/doctor"], 0, "a program called doctor"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_as_python(dormant: Environment, programs: Path, program: list[str], status: int, word: str) -> None:
    if "timeit" in program:  # its output is a time
        result = dormant.run("-m", "torchada", *program, cwd=programs)
    else:
        result = both(dormant, programs, [], program, input="q\n")
    assert result.returncode == status
    assert word in result.stdout + result.stderr
    assert "torchada" not in result.stderr


@pytest.mark.parametrize(
    ("program", "text", "word"),
    [
        (
            ["-", "x"],
            "import sys\nprint(__name__, sys.argv, repr(sys.path[0]), globals().get('__file__'))",
            "['-', 'x']",
        ),
        (["-"], "def broken(:", '"<stdin>"'),
        (["reads.py"], "words", "WORDS"),
        (["stops.py"], "p x + 1\nc\n", "42"),
        (["-m", "pdb", "stops.py"], "n\nn\np x\nc\nc\nq\n", "41"),
        (["-i", "exit3.py"], "print(6 * 7)\n", "42"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_standard_input(dormant: Environment, programs: Path, program: list[str], text: str, word: str) -> None:
    result = both(dormant, programs, [], program, input=text)
    assert word in result.stdout + result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["-u"],
        ["-O"],
        ["-OO", "-B"],
        ["-W", "error"],
        ["-Werror", "-X", "dev"],
        ["-Xutf8=0", "-bb"],
        ["-uW", "always::DeprecationWarning"],
        ["--check-hash-based-pycs", "never", "-q"],
    ],
    ids=" ".join,
)
def test_options_of_python(dormant: Environment, programs: Path, options: list[str]) -> None:
    both(dormant, programs, options, ["show.py", "a"])
    both(dormant, programs, options, ["warns.py"])


def test_interactive_option(dormant: Environment, programs: Path) -> None:
    both(dormant, programs, ["-i"], ["raises.py"], input="print(inner.__name__)\n")


def test_attached_module_option(dormant: Environment, programs: Path) -> None:
    plain = dormant.run("-Ou", "show.py", cwd=programs)
    for way in (["-Oum", "torchada"], ["-Oumtorchada"], ["-Ou", "-mtorchada"]):
        assert dormant.run(*way, "show.py", cwd=programs).stdout == plain.stdout


def test_console_script(dormant: Environment, programs: Path) -> None:
    script = str(Path(dormant.python).with_name("torchada"))
    plain = dormant.run("show.py", "a", cwd=programs)
    assert dormant.run("show.py", "a", cwd=programs, program=script).stdout == plain.stdout
    assert dormant.run("exit3.py", cwd=programs, program=script).returncode == 3
    assert dormant.run("-u", script, "-c", "import sys; print(sys.orig_argv[1:])").lines() == [
        "['-u', '-c', 'import sys; print(sys.orig_argv[1:])']"
    ]


def test_same_process(dormant: Environment, programs: Path) -> None:
    """No process in between: signals, job control and process limits see one process."""
    code = "import os; print(os.getpid())"
    with subprocess.Popen([dormant.python, "-m", "torchada", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and int(process.stdout.read()) == process.pid


def test_active_in_the_program(dormant: Environment, active: Environment) -> None:
    code = "import sys; print(sys.modules['torchada.startup'].state['via'])"
    assert dormant.run("-m", "torchada", "-c", code).lines() == ["python -m torchada"]
    assert active.run("-m", "torchada", "-c", code).lines() == ["pth"]
    assert active.run("-I", "-m", "torchada", "-c", code).lines() == ["pth"]


def test_switched_off(dormant: Environment) -> None:
    code = "import sys, os; print('torchada' in sys.modules, 'PYTHONPATH' in os.environ)"
    assert dormant.run("-m", "torchada", "-c", code, env={"TORCHADA": "0"}).lines() == ["False False"]


@pytest.mark.parametrize("option", ["-I", "-E"])
def test_options_that_shut_us_out(dormant: Environment, option: str) -> None:
    result = dormant.run(option, "-m", "torchada", "-c", "print('ran')")
    assert (result.returncode, result.stdout) == (2, "")
    assert "python -m torchada enable" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "tool", [["pdb", "-m"], ["cProfile", "-m"], ["trace", "--trace", "--module"]], ids=lambda tool: tool[0]
)
def test_inside_another_tool(dormant: Environment, programs: Path, tool: list[str]) -> None:
    result = dormant.run("-m", *tool, "torchada", "show.py", input="c\nq\n", cwd=programs)
    assert "python -m torchada -m pdb script.py" in result.stdout + result.stderr
