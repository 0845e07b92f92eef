"""Versions of torch_musa that the simulated one can be, and the known defects of each: data, and how it is chosen.

`TORCHADA_SIM_TORCH_MUSA` chooses the version, `TORCHADA_SIM_DEFECTS=+name,-name` switches defects on and off one by
one (`-all` first: none but those named). Importing this module loads neither torch nor torch_musa.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

__all__ = ["DEFAULT", "DEFECTS", "PROFILES", "Defect", "TorchMusa", "active_defects", "chosen", "defect", "defects_of"]

VERSION_VARIABLE = "TORCHADA_SIM_TORCH_MUSA"
DEFECTS_VARIABLE = "TORCHADA_SIM_DEFECTS"
DEFAULT = "2.7.1"


@dataclass(frozen=True)
class TorchMusa:
    """A version of torch_musa."""

    key: str  # the value of TORCHADA_SIM_TORCH_MUSA
    public: str  # the public part of __version__
    musa: str  # the MUSA toolkit it is built with
    torch: str  # the oldest torch it accepts
    names: str  # the version whose names it has: later ones have those of 2.7.1, as far as is known
    musa_known: bool  # False: the toolkit's version is an assumption

    @property
    def version(self) -> str:
        """As `torch_musa.__version__` says it."""
        return f"{self.public}+musa{self.musa}"

    @property
    def musa_number(self) -> str:
        """As `torch.version.musa` says it: 10000 * major + 100 * minor + patch, as text."""
        major, minor, patch = (int(part) for part in self.musa.split("."))
        return str(10000 * major + 100 * minor + patch)


# Oldest first.
PROFILES: dict[str, TorchMusa] = {
    row.key: row
    for row in (
        #         key            public         musa     torch    names    musa_known
        TorchMusa("2.5.0", "2.5.0", "4.2.0", "2.5.0", "2.5.0", False),
        TorchMusa("2.7.0", "2.7.0", "4.3.0", "2.7.0", "2.7.0", False),
        TorchMusa("2.7.1", "2.7.1", "4.3.0", "2.7.1", "2.7.1", True),
        TorchMusa("2.9", "2.9.0", "4.3.0", "2.9.0", "2.7.1", False),
        TorchMusa("2.11.0.post1", "2.11.0.post1", "5.2.0", "2.11.0", "2.7.1", True),
        TorchMusa("2.11.0.post2", "2.11.0.post2", "5.2.0", "2.11.0", "2.7.1", True),
        TorchMusa("2.13.0", "2.13.0", "5.2.0", "2.13.0", "2.7.1", False),
    )
}


@dataclass(frozen=True)
class Defect:
    """Something torch_musa does wrong, or lacks, that the simulated one does wrong or lacks as well."""

    name: str
    until: str | None  # the first version (a key of PROFILES) without it; None: no version is known to be without it
    what: str
    where: str  # the file that shows it, relative to torchada/simulator
    test: str  # the test that shows it, relative to tests/simulator


DEFECTS: dict[str, Defect] = {
    row.name: row
    for row in (
        Defect(
            "float64_log_inplace",
            "2.11.0.post2",
            "Tensor.log_ has no kernel for float64",
            "csrc/defects.cpp",
            "test_defects.py::test_float64_log_inplace",
        ),
        Defect(
            "log_capture",
            "2.11.0.post2",
            "log and log_ cannot be captured in a graph",
            "csrc/deferred.cpp",
            "test_graph_defects.py::test_log_capture",
        ),
        Defect(
            "multinomial_capture",
            "2.11.0.post2",
            "multinomial cannot be captured in a graph",
            "csrc/deferred.cpp",
            "test_graph_defects.py::test_multinomial_capture",
        ),
        Defect(
            "mm_out_dtype",
            "2.13.0",
            "mm and bmm with out_dtype= give zeros instead of the product",
            "csrc/defects.cpp",
            "test_defects.py::test_mm_out_dtype",
        ),
        Defect(
            "bool_mul_sync",
            None,
            "the product of two boolean tensors waits for the device (so does isfinite, which uses it)",
            "csrc/defects.cpp",
            "test_defects.py::test_bool_mul_sync",
        ),
        Defect(
            "accelerator_memory",
            "2.11.0.post2",
            "the memory functions of torch.accelerator raise: torch does not find a device allocator it knows",
            "csrc/profile.cpp",
            "test_profiles.py::test_accelerator_memory",
        ),
        Defect(
            "inductor_heuristics",
            "2.11.0.post2",
            "inductor's tables of template heuristics have no entry for musa",
            "torch_musa/_defects.py",
            "test_profiles.py::test_inductor_heuristics",
        ),
        Defect(
            "streams_export",
            None,
            "there is no torch_musa.streams: the classes are in torch_musa.core.stream",
            "torch_musa/_defects.py",
            "test_profiles.py::test_streams_export",
        ),
        Defect(
            "reset_max_memory",
            None,
            "reset_max_memory_allocated and reset_max_memory_cached raise NameError",
            "torch_musa/_defects.py",
            "test_profiles.py::test_reset_max_memory",
        ),
        Defect(
            "cuda_checkpoints",
            None,
            "torch.load refuses a file with storages of a CUDA device unless it gets a map_location",
            "torch_musa/core/serialization.py",
            "test_profiles.py::test_cuda_checkpoints",
        ),
        Defect(
            "cuda_lazy_init",
            None,
            "torch.cuda._lazy_init and _lazy_call are overwritten, so that torch.cuda initialises MUSA",
            "torch_musa/__init__.py",
            "test_profiles.py::test_cuda_lazy_init",
        ),
    )
}


def _order(key: str) -> int:
    return list(PROFILES).index(key)


def defects_of(profile: TorchMusa) -> frozenset[str]:
    """Names of the defects this version is known, or for want of better knowledge assumed, to have."""
    position = _order(profile.key)
    return frozenset(d.name for d in DEFECTS.values() if d.until is None or position < _order(d.until))


@functools.cache
def chosen() -> TorchMusa:
    """The version this process simulates. Raises ValueError for a value that names none."""
    text = os.environ.get(VERSION_VARIABLE, "").strip() or DEFAULT
    try:
        return PROFILES[text]
    except KeyError:
        raise ValueError(f"{VERSION_VARIABLE}={text!r} names no version; there are {', '.join(PROFILES)}") from None


@functools.cache
def active_defects() -> frozenset[str]:
    """Names of the defects this process shows. Raises ValueError for a wrong setting."""
    active = set(defects_of(chosen()))
    for word in os.environ.get(DEFECTS_VARIABLE, "").replace(",", " ").split():
        sign, name = word[0], word[1:]
        if sign not in "+-" or not (name == "all" or name in DEFECTS):
            raise ValueError(
                f"{DEFECTS_VARIABLE} takes +name and -name, separated by commas, not {word!r}; "
                f"the names are all, {', '.join(DEFECTS)}"
            )
        names = set(DEFECTS) if name == "all" else {name}
        active = active | names if sign == "+" else active - names
    return frozenset(active)


def defect(name: str) -> bool:
    """Whether this process shows the defect `name`. KeyError for a name that is not in DEFECTS."""
    return DEFECTS[name].name in active_defects()
