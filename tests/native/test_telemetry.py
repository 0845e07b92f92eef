"""pynvml and torch.cuda's telemetry through Moore Threads' management library; here a stand-in with its interface."""

import sys
import textwrap

import pytest
import torch

import torchada

PYMTML = """
MTML_SUCCESS, MTML_ERROR_DRIVER_NOT_LOADED, MTML_ERROR_NOT_SUPPORTED, MTML_ERROR_LIBRARY_NOT_FOUND = 0, 1, 4, 670
NVML_SUCCESS = 0
NVML_ERROR_NOT_SUPPORTED = MTML_ERROR_NOT_SUPPORTED
NVML_CLOCK_SM = 1
state = {"library": True, "driver": True}

class MTMLError(Exception):
    _valClassMapping = {}
    def __new__(cls, value):
        if cls is MTMLError:
            cls = MTMLError._valClassMapping.get(value, cls)
        error = Exception.__new__(cls)
        error.value = value
        return error

for _code, _name in ((1, "DriverNotLoaded"), (4, "NotSupported"), (670, "LibraryNotFound")):
    MTMLError._valClassMapping[_code] = type("MTMLError_" + _name, (MTMLError,), {
        "__new__": lambda cls, value=_code: MTMLError.__new__(cls, value)})

class NVMLError(MTMLError):
    pass

class _Rates:
    gpu, memory = 37, 12

class _Process:
    pid, usedGpuMemory = 4711, 3 * 2**20

def mtmlLibraryInit():
    if not state["library"]:
        raise OSError("Failed to load MTML library")
    if not state["driver"]:
        raise MTMLError(MTML_ERROR_DRIVER_NOT_LOADED)

def nvmlInit():
    return mtmlLibraryInit()

def nvmlInitWithFlags(flags):
    return mtmlLibraryInit()

def nvmlDeviceGetCount():
    return 2

def nvmlDeviceGetHandleByIndex(index):
    return ("handle", index)

def nvmlDeviceGetUtilizationRates(handle):
    return _Rates

def nvmlDeviceGetTemperature(handle, sensor):
    return 50 + handle[1]

def nvmlDeviceGetPowerUsage(handle):
    return 250000

def nvmlDeviceGetClockInfo(handle, kind):
    return {NVML_CLOCK_SM: 1750}[kind]

def nvmlDeviceGetUUID(handle):
    return "GPU-0a1b2c3d-0000-1111-2222-33334444555" + str(handle[1])

def nvmlDeviceGetComputeRunningProcesses(handle):
    return [_Process] if handle[1] == 1 else []
"""


@pytest.fixture
def installed(tmp_path):
    """A directory in which mthreads-ml-py is installed."""
    place = tmp_path / "packages"
    (place / "mthreads_ml_py-2.4.3.dist-info").mkdir(parents=True)
    (place / "mthreads_ml_py-2.4.3.dist-info" / "METADATA").write_text("Name: mthreads-ml-py\nVersion: 2.4.3\n")
    (place / "pymtml.py").write_text(textwrap.dedent(PYMTML))
    return place


USE = """
    print(torch.cuda.utilization(), torch.cuda.memory_usage(0), torch.cuda.temperature(torch.device("cuda:1")))
    print(torch.cuda.power_draw(), torch.cuda.clock_rate("cuda:1"))
    print(torch.cuda.list_gpu_processes(0))
    print(torch.cuda.memory.list_gpu_processes("cuda:1"))
    uuid = torch.cuda.get_device_properties(1).uuid
    assert str(uuid) == "0a1b2c3d-0000-1111-2222-333344445551" and len(uuid.bytes) == 16
"""
SEEN = ["37 12 51", "250000 1750", "GPU:0", "no processes are running", "GPU:1"]


def _check(lines):
    assert lines[:5] == SEEN
    assert lines[5].split() == ["process", "4711", "uses", "3.000", "MB", "GPU", "memory"]


HIDDEN = """
    from importlib.machinery import PathFinder
    found = PathFinder.find_spec
    PathFinder.find_spec = lambda name, *more: None if name == "pynvml" else found(name, *more)
"""
"""The first lines of a program on a machine where no pynvml is installed."""


@pytest.fixture
def no_library(monkeypatch):
    """As if no management library were installed where the tests run."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(torch.cuda, "_HAS_PYNVML", False)
    monkeypatch.setattr(torch.cuda, "_PYNVML_ERR", ModuleNotFoundError("pynvml"), raising=False)


def test_telemetry(run_python, installed):
    done = run_python(
        f"import sys; sys.path.insert(0, {str(installed)!r})\nimport torchada, torch" + textwrap.dedent(USE)
    )
    _check(done.stdout.splitlines())


def test_torch_imported_first(run_python, installed):
    before = f"""{HIDDEN.replace("    ", " " * 8)}
        import sys
        import torch
        sys.path.insert(0, {str(installed)!r})
        import torchada
        assert torch.cuda._HAS_PYNVML is True and torch.cuda._PYNVML_ERR is None
        {{}}
        torchada.deactivate()
        assert "pynvml" not in sys.modules
        assert torch.cuda._HAS_PYNVML is False and not hasattr(torch.cuda, "pynvml")
        torchada.activate()
        print(torch.cuda.temperature(1))
    """
    body = textwrap.dedent(before).replace("{}", textwrap.dedent(USE).strip())
    done = run_python(body)
    _check(done.stdout.splitlines())
    assert done.stdout.splitlines()[-1] == "51"


def test_pynvml(run_python, installed):
    """Asked for before torch and after it, with another pynvml installed, one module answers."""
    (installed / "pynvml.py").write_text("raise ImportError('the real one must not be asked')\n")
    done = run_python(
        f"""
        import sys; sys.path.insert(0, {str(installed)!r})
        import torchada
        import pynvml
        assert "torch" not in sys.modules
        import torch, pymtml, importlib, inspect
        assert torch.cuda.pynvml is pynvml is importlib.import_module("pynvml")
        from pynvml import NVMLError_DriverNotLoaded, NVMLError_LibraryNotFound, NVMLError, NVMLError_NoData, nvmlInit
        assert nvmlInit() is None and pynvml.nvmlDeviceGetCount() == 2
        assert issubclass(NVMLError_DriverNotLoaded, NVMLError) and issubclass(NVMLError_NoData, NVMLError)
        assert pynvml.NVML_ERROR_DRIVER_NOT_LOADED == 1 and pynvml.NVML_ERROR_NOT_SUPPORTED == 4
        assert "nvmlDeviceGetCount" in dir(pynvml)
        try:
            pynvml.nvmlDeviceGetGpuFabricInfo
        except AttributeError as error:
            assert "mthreads-ml-py" in str(error), error
        pymtml.state["library"] = False
        for start in (pynvml.nvmlInit, lambda: pynvml.nvmlInitWithFlags(0)):
            try:
                start()
            except NVMLError_LibraryNotFound as error:
                assert isinstance(error.__cause__, OSError)
            else:
                raise AssertionError
        pymtml.state.update(library=True, driver=False)
        try:
            torch.cuda.utilization()
        except RuntimeError as error:
            print(error)
        print(torch.cuda.list_gpu_processes())
        properties = torch.cuda.get_device_properties(0)
        for state in (dict(driver=False), dict(library=False)):
            pymtml.state.update(library=True, driver=True)
            pymtml.state.update(state)
            assert not hasattr(properties, "uuid")
        try:
            properties.uuid
        except torchada.NotOnMusa as error:
            assert isinstance(error.__cause__, NVMLError_LibraryNotFound), error
        torchada.deactivate()
        assert "pynvml" not in sys.modules
        """
    )
    assert done.stdout.splitlines() == ["cuda driver can't be loaded, is cuda enabled?"] * 2


def test_a_package_of_the_same_name_is_not_taken(run_python, installed):
    """The public index has another pymtml: only the vendor's distribution counts."""
    (installed / "mthreads_ml_py-2.4.3.dist-info" / "METADATA").unlink()
    (installed / "mthreads_ml_py-2.4.3.dist-info").rmdir()
    run_python(
        f"""{HIDDEN.replace("    ", " " * 8)}
        import sys; sys.path.insert(0, {str(installed)!r})
        import torchada, torch
        try:
            import pynvml
        except ModuleNotFoundError:
            pass
        else:
            raise AssertionError(pynvml)
        assert "pymtml" not in sys.modules
        """
    )


@pytest.mark.parametrize("name", ["utilization", "memory_usage", "temperature", "power_draw", "clock_rate"])
def test_without_the_library(no_library, name):
    with pytest.raises(ModuleNotFoundError, match=r"nvidia-ml-py|pynvml does not seem to be installed"):
        getattr(torch.cuda, name)()
    with pytest.raises(ModuleNotFoundError, match=r"nvidia-ml-py|pynvml does not seem to be installed"):
        getattr(torch.cuda, name)(device="cuda:1")


def test_processes_without_the_library(no_library):
    assert torch.cuda.list_gpu_processes().startswith("pynvml module not found, please install ")


def test_uuid_without_the_library(no_library):
    assert not hasattr(torch.cuda.get_device_properties(0), "uuid")
    with pytest.raises(torchada.NotOnMusa, match="mthreads-ml-py"):
        torch.cuda.get_device_properties(0).uuid
