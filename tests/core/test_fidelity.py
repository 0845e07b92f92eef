"""A virtual module is to every tool the module it stands for (design, invariants 5, 6, 7)."""

import subprocess

import pytest

FACE = """
import importlib, importlib.resources, importlib.util, inspect, json, pkgutil, sys
import torch

def face(name):
    module = importlib.import_module(name)
    spec = importlib.util.find_spec(name)
    return {
        "type": type(module).__name__,
        "dunders": {key: str(vars(module).get(key)) for key in
                    ("__name__", "__file__", "__path__", "__doc__", "__package__", "__all__", "__cached__")},
        "loader": type(module.__loader__).__name__,
        "spec": [module.__spec__.name, type(module.__spec__.loader).__name__, str(module.__spec__.origin),
                 str(module.__spec__.submodule_search_locations)],
        "found": [spec.name, str(spec.origin)],
        "source": inspect.getsource(module)[:80],
        "file": inspect.getsourcefile(module),
        "repr": repr(module),
        "children": sorted(info.name for info in pkgutil.iter_modules(getattr(module, "__path__", []))),
        "resources": str(importlib.resources.files(name)) if hasattr(module, "__path__") else "",
        "parent": getattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2]) is module,
    }

print(json.dumps({name: face(name) for name in sys.argv[1:]}, sort_keys=True))
"""
MODULES = (
    "torch.cuda",
    "torch.cuda.memory",
    "torch.cuda.amp",
    "torch.cuda.streams",
    "torch.cuda.nvtx",
    "torch.cuda.graphs",
)


def test_same_face_as_the_native_module(run_python):
    native = run_python(FACE, *MODULES, env={"TORCHADA": "0"})
    virtual = run_python("import torchada\n" + FACE, *MODULES)
    assert virtual.stdout == native.stdout


def test_star_import_gives_the_same_names(run_python):
    code = """
    import torch
    scope = {}
    for name in ("torch.cuda", "torch.cuda.memory", "torch.cuda.random"):
        exec(f"from {name} import *", scope)
    print(sorted(name for name in scope if not name.startswith("__")))
    """
    native = run_python(code, env={"TORCHADA": "0"})
    virtual = run_python("import torchada\n" + _dedent(code))
    assert virtual.stdout == native.stdout


def _dedent(code):
    import textwrap

    return textwrap.dedent(code)


def test_dir_shows_native_names_only(run_python):
    code = "import torch\nprint([n for n in dir(torch.cuda) if n not in ('__getattr__', '__dir__')])\n"
    native = run_python(code, env={"TORCHADA": "0"})
    virtual = run_python("import torchada\n" + code)
    assert set(eval(virtual.stdout)) == set(eval(native.stdout))


def test_nothing_else_of_torch_musa_is_visible():
    import torch
    import torch_musa

    leaked = [name for name in dir(torch_musa) if not name.startswith("__") and hasattr(torch.cuda, name)]
    native = set(dir(torch.cuda))
    assert set(leaked) <= native
    for name in ("musart", "mccl", "MUSAGraph", "set_attributes", "backend"):
        assert not hasattr(torch.cuda, name)
    with pytest.raises(AttributeError, match=r"module 'torch.cuda' has no attribute 'no_such_name'"):
        _ = torch.cuda.no_such_name


def test_reload_and_late_child_import(run_python):
    run_python(
        """
        import importlib, sys, torchada, torch
        before = torch.cuda
        count = torch.cuda.device_count
        again = importlib.reload(torch.cuda)
        assert again is before is sys.modules["torch.cuda"]
        assert torch.cuda.device_count is count
        importlib.reload(torch.cuda.memory)
        assert torch.cuda.memory_allocated() == 0
        import torch.cuda.gds
        assert torch.cuda.gds is sys.modules["torch.cuda.gds"]
        """
    )


def test_pickle_by_name(run_python):
    run_python(
        """
        import pickle, torchada, torch
        for value in (torch.cuda.Stream, torch.cuda.device_count, torch.cuda.is_available, torch.zeros):
            assert pickle.loads(pickle.dumps(value)) is value
        """
    )


def test_identity_over_time_and_threads():
    import threading

    import torch

    names = ["Stream", "Event", "device_count", "memory_allocated", "amp", "device", "memory_summary", "manual_seed"]
    seen = {name: set() for name in names}
    barrier = threading.Barrier(8)

    def look():
        barrier.wait()
        for _ in range(200):
            for name in names:
                seen[name].add(id(getattr(torch.cuda, name)))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: len(ids) for name, ids in seen.items()} == dict.fromkeys(names, 1)


def test_data_is_live(run_python):
    run_python(
        """
        import torchada, torch
        assert torch.cuda.is_initialized() is False
        assert len(torch.cuda.default_generators) == 0
        torch.zeros(1, device="cuda")
        assert torch.cuda.is_initialized() is True
        assert len(torch.cuda.default_generators) == 2
        """
    )


def test_torch_installed_as_a_zip_or_elsewhere_is_found_by_other_finders_too(run_python):
    """Cooperation (invariant 10): wrapping finders before and after ours, no recursion, every effect present."""
    done: subprocess.CompletedProcess[str] = run_python(
        """
        import sys, importlib.util, importlib.abc
        import torchada

        class Asking(importlib.abc.MetaPathFinder):
            '''Starts the search anew, as some wrapping finders do.'''
            def __init__(self): self.seen, self.busy = [], False
            def find_spec(self, name, path, target=None):
                if self.busy or not name.startswith("torch.cuda"):
                    return None
                self.busy = True
                try:
                    spec = importlib.util.find_spec(name)
                finally:
                    self.busy = False
                self.seen.append(name)
                return spec

        before, after = Asking(), Asking()
        sys.meta_path.insert(0, before)
        sys.meta_path.append(after)
        import wrapt
        told = []
        wrapt.register_post_import_hook(lambda module: told.append(module), "torch.cuda")
        import torch
        assert "torch.cuda" in before.seen, (before.seen, sys.meta_path)
        assert told == [torch.cuda], told
        assert str(torch.zeros(1, device="cuda").device) == "musa:0"
        assert torch.cuda.device_count() == 2
        print("fine")
        """
    )
    assert done.stdout.strip() == "fine"
