"""Versions of torch_musa, their defects one by one, and kinds and numbers of devices."""

import json
import re
from pathlib import Path

import pytest

from tests.simulator.forked import Forked
from torchada.simulator import profiles

SIMULATOR = Path(profiles.__file__).parent
OLD = {
    "float64_log_inplace",
    "log_capture",
    "multinomial_capture",
    "accelerator_memory",
    "inductor_heuristics",
}
ALWAYS = {"bool_mul_sync", "streams_export", "reset_max_memory", "cuda_checkpoints", "cuda_lazy_init"}
# version -> (__version__, torch.version.musa, what it needs, defects)
EXPECTED = {
    "2.5.0": ("2.5.0+musa4.2.0", "40200", "2.5.0", ALWAYS | OLD | {"mm_out_dtype"}),
    "2.7.0": ("2.7.0+musa4.3.0", "40300", "2.7.0", ALWAYS | OLD | {"mm_out_dtype"}),
    "2.7.1": ("2.7.1+musa4.3.0", "40300", "2.7.1", ALWAYS | OLD | {"mm_out_dtype"}),
    "2.9": ("2.9.0+musa4.3.0", "40300", "2.9.0", ALWAYS | OLD | {"mm_out_dtype"}),
    "2.11.0.post1": ("2.11.0.post1+musa5.2.0", "50200", "2.11.0", ALWAYS | OLD | {"mm_out_dtype"}),
    "2.11.0.post2": ("2.11.0.post2+musa5.2.0", "50200", "2.11.0", ALWAYS | {"mm_out_dtype"}),
    "2.13.0": ("2.13.0+musa5.2.0", "50200", "2.13.0", ALWAYS),
}


@pytest.fixture(scope="module")
def process():
    forked = Forked()
    yield forked
    forked.close()


def fits(version):
    """Whether the installed torch is new enough for a torch_musa."""
    import torch
    from packaging.version import Version

    return Version(Version(torch.__version__).base_version) >= Version(EXPECTED[version][2])


# ---- the table --------------------------------------------------------------------------------------


def test_the_table_is_what_is_known():
    assert list(profiles.PROFILES) == list(EXPECTED) and profiles.DEFAULT == "2.7.1"
    for key, (version, musa, torch, defects) in EXPECTED.items():
        row = profiles.PROFILES[key]
        assert (row.key, row.version, row.musa_number, row.torch) == (key, version, musa, torch)
        assert profiles.defects_of(row) == defects, key


def test_every_defect_names_where_it_is_and_the_test_that_shows_it():
    compiled = (SIMULATOR / "csrc" / "defects.h").read_text()
    for name, row in profiles.DEFECTS.items():
        assert row.name == name and row.what and (row.until is None or row.until in profiles.PROFILES)
        assert name in (SIMULATOR / row.where).read_text(), (name, row.where)
        assert row.where.startswith("csrc/") == (f"X({name})" in compiled), name
        file, _, test = row.test.partition("::")
        assert f"def {test}(" in Path(__file__).with_name(file).read_text(), row.test


@pytest.mark.parametrize("version", [*EXPECTED, ""])
def test_a_version(process, version):
    expected, musa, needs, defects = EXPECTED[version or "2.7.1"]
    code = """
        import json, torch_musa
        from torchada.simulator import info, profiles
        native = [name for name, on in torch_musa._MUSAC._sim_defects().items() if on]
        about = [torch_musa.__version__, torch.version.musa, str(torch_musa.TORCH_MIN_VERSION)]
        x = torch.ones(2, device="musa") + 1
        print(json.dumps([*about, info()["defects"], native, x.tolist()]))
    """
    if version and not fits(version):
        with pytest.raises(AssertionError, match=f"ImportError: torch_musa {re.escape(expected)} needs torch"):
            process.run(code, TORCHADA_SIM_TORCH_MUSA=version)
        return
    found = json.loads(process.run(code, TORCHADA_SIM_TORCH_MUSA=version))
    assert found[:3] == [expected, musa, needs]
    assert set(found[3]) == defects
    assert set(found[4]) == {name for name in defects if profiles.DEFECTS[name].where.startswith("csrc/")}
    assert found[5] == [2, 2]


def test_torch_older_than_the_version_needs_is_refused(process):
    process.run(
        """
        torch.__version__ = "2.12.1+cpu"
        try:
            import torch_musa
        except ImportError as error:
            assert "needs torch 2.13.0 or newer, not 2.12.1" in str(error), error
            assert "TORCHADA_SIM_TORCH_MUSA" in str(error), error
        else:
            raise AssertionError
        """,
        TORCHADA_SIM_TORCH_MUSA="2.13.0",
    )


def test_names_by_version(process):
    code = """
        import torch_musa
        for name in {there}:
            assert hasattr(torch_musa, name), name
        for name in {absent}:
            assert not hasattr(torch_musa, name), name
        assert (torch.is_autocast_enabled.__name__ == "_musa_is_autocast_enabled") is {hooked}
        with torch.autocast("musa"):
            assert {asked}
        assert torch_musa.is_bf16_supported()
        assert hasattr(torch_musa.utils, "MUSAExtension") is {extension}
    """
    newer = ["StreamContext", "BuildExtension", "is_tf32_supported", "_lazy_call"]
    autocast = ["get_autocast_dtype", "set_autocast_enabled"]
    process.run(
        code.format(there=newer, absent=["is_loaded", *autocast], hooked=True, asked=True, extension=True),
        TORCHADA_SIM_TORCH_MUSA="2.7.1",
    )
    process.run(
        code.format(there=["is_loaded"], absent=newer + autocast, hooked=True, asked=True, extension=False),
        TORCHADA_SIM_TORCH_MUSA="2.7.0",
    )
    process.run(
        code.format(
            there=["is_loaded", *autocast],
            absent=[*newer, "apply_lowering_patch"],
            hooked=False,
            asked="torch_musa.is_autocast_enabled() and torch_musa.get_autocast_dtype() == torch.float16",
            extension=False,
        ),
        TORCHADA_SIM_TORCH_MUSA="2.5.0",
    )


@pytest.mark.parametrize("value", ["2.7", "2.7.1+musa4.3.0", "latest", "2.13"])
def test_a_wrong_version_lists_the_right_ones(process, value):
    with pytest.raises(AssertionError) as failed:
        process.run("import torch_musa", TORCHADA_SIM_TORCH_MUSA=value)
    assert f"ValueError: TORCHADA_SIM_TORCH_MUSA='{value}' names no version" in str(failed.value)
    assert ", ".join(profiles.PROFILES) in str(failed.value)


# ---- switching defects ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version, setting, change",
    [
        ("2.13.0", "+log_capture", {"+log_capture"}),
        ("2.7.1", "-log_capture,-bool_mul_sync", {"-log_capture", "-bool_mul_sync"}),
        ("2.7.1", " +log_capture , -mm_out_dtype ", {"-mm_out_dtype"}),
        ("2.13.0", "-all +streams_export", {f"-{name}" for name in ALWAYS - {"streams_export"}}),
        ("2.5.0", "+log_capture -log_capture", {"-log_capture"}),
        ("2.13.0", "+all", {f"+{name}" for name in profiles.DEFECTS}),
    ],
)
def test_switching(monkeypatch, version, setting, change):
    monkeypatch.setenv("TORCHADA_SIM_TORCH_MUSA", version)
    monkeypatch.setenv("TORCHADA_SIM_DEFECTS", setting)
    expected = set(EXPECTED[version][3])
    for word in change:
        (expected.add if word[0] == "+" else expected.discard)(word[1:])
    for function in (profiles.chosen, profiles.active_defects):
        function.cache_clear()
    try:
        assert profiles.active_defects() == expected
        assert profiles.defect("log_capture") == ("log_capture" in expected)
        with pytest.raises(KeyError):
            profiles.defect("no such defect")
    finally:
        for function in (profiles.chosen, profiles.active_defects):
            function.cache_clear()


@pytest.mark.parametrize("setting", ["log_capture", "+logcapture", "+", "=log_capture", "-all,+none"])
def test_a_wrong_switch_is_an_error_before_anything_happens(process, setting):
    process.run(
        f"""
        before = torch.Tensor.to
        try:
            import torch_musa
        except ValueError as error:
            assert "TORCHADA_SIM_DEFECTS takes +name and -name" in str(error) and "log_capture" in str(error), error
        else:
            raise AssertionError({setting!r})
        assert torch.Tensor.to is before and not hasattr(torch, "musa")
        """,
        TORCHADA_SIM_DEFECTS=setting,
    )


def test_the_compiled_part_refuses_names_it_does_not_know(process):
    process.run(
        """
        import torch_musa
        native = torch_musa._MUSAC
        before = native._sim_defects()
        for wrong, kind in ((["log_capture", "nothing"], ValueError), ([3], TypeError), (3, TypeError)):
            try:
                native._sim_set_defects(wrong)
            except kind:
                pass
            else:
                raise AssertionError(wrong)
            assert native._sim_defects() == before
        native._sim_set_defects([])
        assert not any(native._sim_defects().values())
        """
    )


# ---- the defects ------------------------------------------------------------------------------------


def with_and_without(process, defect, code):
    """Run the code twice: `broken` says whether torch_musa has the defect."""
    for broken in (True, False):
        process.run(f"import torch_musa\nbroken = {broken}\n{code}", TORCHADA_SIM_DEFECTS=f"{'-+'[broken]}{defect}")


def test_accelerator_memory(process):
    with_and_without(
        process,
        "accelerator_memory",
        """
x = torch.ones(1000, device="musa")
for name in ("memory_allocated", "max_memory_reserved", "memory_stats", "reset_peak_memory_stats", "empty_cache"):
    if not hasattr(torch.accelerator, name):
        continue                            # they are new in torch 2.9
    try:
        found = getattr(torch.accelerator, name)()
    except RuntimeError as error:
        assert broken and "not a DeviceAllocator" in str(error), error
    else:
        assert not broken, name
        assert name != "memory_allocated" or found == torch_musa.memory_allocated() > 0
# torch_musa's own functions work in any case, and so does memory that is allocated through torch's allocator
assert torch_musa.memory_allocated() >= 4000
storage = torch.UntypedStorage(16, device="musa")
storage.resize_(64)
assert storage.nbytes() == 64
""",
    )


def test_inductor_heuristics():
    forked = Forked("torch._inductor.template_heuristics.registry")
    try:
        with_and_without(
            forked,
            "inductor_heuristics",
            """
import torch._inductor.template_heuristics.triton
from torch._inductor.template_heuristics.registry import _TEMPLATE_HEURISTIC_REGISTRY as table
cuda = {key: value for key, value in table.items() if key[1] == "cuda"}
musa = {key: value for key, value in table.items() if key[1] == "musa"}
assert len(cuda) > 3
if broken:
    assert musa == {}
else:
    assert musa == {(key[0], "musa", key[2]): value for key, value in cuda.items()}
""",
        )
    finally:
        forked.close()


def test_streams_export(process):
    with_and_without(
        process,
        "streams_export",
        """
assert hasattr(torch_musa, "streams") is not broken
assert broken or torch_musa.streams.Stream is torch_musa.core.stream.Stream is torch_musa.Stream
""",
    )


def test_reset_max_memory(process):
    with_and_without(
        process,
        "reset_max_memory",
        """
import warnings
x = torch.ones(1000, device="musa")
del x
for name in ("reset_max_memory_allocated", "reset_max_memory_cached"):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            getattr(torch_musa, name)()
        except NameError as error:
            assert broken and "warnings" in str(error), error
        else:
            assert not broken and told[0].category is FutureWarning
assert (torch_musa.max_memory_allocated() > 0) is broken
""",
    )


def test_cuda_checkpoints(process):
    with_and_without(
        process,
        "cuda_checkpoints",
        """
import io
buffer = io.BytesIO()
tag, torch.serialization.location_tag = torch.serialization.location_tag, lambda storage: "cuda:0"
torch.save(torch.ones(2), buffer)
torch.serialization.location_tag = tag
buffer.seek(0)
try:
    torch.load(buffer)
except RuntimeError as error:
    assert ("which torch_musa does not load" in str(error)) is broken, error
    assert broken or "torch.cuda.is_available() is False" in str(error), error      # torch's own answer
else:
    raise AssertionError
buffer.seek(0)
assert torch.load(buffer, map_location="musa").is_musa
""",
    )


def test_cuda_lazy_init(process):
    with_and_without(
        process,
        "cuda_lazy_init",
        """
assert (torch.cuda._lazy_init is torch_musa._lazy_init) is broken
assert (torch.cuda._lazy_call is torch_musa._lazy_call) is broken
try:
    torch.cuda._lazy_init()
except (AssertionError, RuntimeError):
    assert not broken                       # this torch has no CUDA
else:
    assert broken and torch_musa.is_initialized()
""",
    )


# ---- devices ----------------------------------------------------------------------------------------

GIB = 1 << 30
CARDS = {
    "S80": ("MTT S80 (simulated)", [2, 1], "21", 32, 2 * GIB, True),
    "S3000": ("MTT S3000 (simulated)", [2, 1], "21", 32, 4 * GIB, True),
    "S4000": ("MTT S4000 (simulated)", [2, 2], "22", 48, 6 * GIB, True),
    "S5000": ("MTT S5000 (simulated)", [3, 1], "31", 56, 10 * GIB, True),
}


@pytest.mark.parametrize("card", CARDS)
def test_a_kind_of_device(process, card):
    found = process.run(
        """
        import json, torch_musa
        from torchada.simulator import info
        p = torch_musa.get_device_properties(0)
        fields = sorted(name for name in dir(p) if not name.startswith("_"))
        assert fields == ["is_integrated", "is_multi_gpu_board", "major", "minor", "multi_processor_count", "name",
                          "total_memory"], fields
        assert torch_musa.get_device_name(1) == p.name and torch_musa.mem_get_info()[1] == p.total_memory
        assert info()["device"]["architecture"] == f"mp_{torch_musa.get_arch_list()[0]}"
        print(json.dumps([p.name, torch_musa.get_device_capability(), torch_musa.get_arch_list()[0],
                          p.multi_processor_count, p.total_memory, torch_musa.is_bf16_supported()]))
        """,
        TORCHADA_SIM_DEVICE=card,
    )
    assert json.loads(found) == list(CARDS[card])


@pytest.mark.parametrize("number", [1, 16])
def test_a_number_of_devices(process, number):
    process.run(
        f"""
        import torch_musa
        assert torch_musa.device_count() == {number}
        last = torch.ones(2, device="musa:{number - 1}")
        assert (last + 1).tolist() == [2, 2] and last.device.index == {number - 1}
        try:
            torch.ones(2, device="musa:{number}")
        except RuntimeError as error:
            assert "invalid device ordinal" in str(error), error
        else:
            raise AssertionError
        """,
        TORCHADA_SIM_DEVICES=str(number),
    )


def test_a_build_container(process, tmp_path):
    process.run(
        f"""
        import torch_musa
        assert not torch_musa.is_available() and torch_musa.device_count() == 0 and not torch.accelerator.is_available()
        assert torch_musa.get_arch_list() == [] and torch.version.musa == "40300" and torch_musa.memory_stats() == {{}}
        torch_musa.manual_seed_all(1)                    # waits for ever, as with CUDA
        torch.save(torch.ones(2), {str(tmp_path / "cpu.pt")!r})
        assert torch.load({str(tmp_path / "cpu.pt")!r}, map_location="cpu").tolist() == [1, 1]
        assert torch.nn.Linear(2, 2)(torch.ones(2)).shape == (2,)
        assert torch.device("musa:0").type == "musa" and torch.empty(2, device="meta").shape == (2,)
        with torch.random.fork_rng():
            torch.rand(1)
        import io
        buffer = io.BytesIO()
        tag, torch.serialization.location_tag = torch.serialization.location_tag, lambda storage: "musa:0"
        torch.save(torch.ones(2), buffer)
        torch.serialization.location_tag = tag
        buffer.seek(0)
        assert torch.load(buffer, map_location="cpu").tolist() == [1, 1]
        uses = [lambda: torch.ones(1, device="musa"), lambda: torch.ones(1).musa(), torch_musa.current_device,
                torch_musa.synchronize, torch_musa.Stream, torch_musa.current_stream, torch_musa.get_device_name,
                lambda: torch.nn.Linear(1, 1).musa(), torch_musa.mem_get_info]
        for number, use in enumerate(uses):
            try:
                use()
            except RuntimeError as error:
                assert "No MUSA GPUs are available" in str(error), (number, error)
            else:
                raise AssertionError(number)
        buffer.seek(0)
        try:
            torch.load(buffer)
        except RuntimeError as error:
            assert "map_location" in str(error), error
        else:
            raise AssertionError
        """,
        TORCHADA_SIM_DEVICES="0",
    )
