"""MUSA's architectures, and for which of them code is built. Imports no torch, and never initialises MUSA."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from types import MappingProxyType

from .errors import TorchadaWarning
from .toolkit import toolkit_home

__all__ = ["ARCHS", "MusaArch", "arch_flags", "cache_tag", "target_archs", "torch_arch_list"]

_TOKEN = re.compile(r"(?:mp_?)?(\d)(\d)|(\d)\.(\d)")
_SECONDS = 60  # a driver that hangs must not hang a build


@dataclass(frozen=True, order=True)
class MusaArch:
    """An architecture, known by its compute capability alone: everything else takes no part in comparisons."""

    major: int
    minor: int
    devices: tuple[str, ...] = field(default=(), compare=False)
    fp8: bool | None = field(default=None, compare=False)  # None: torchada has no facts about this architecture
    fp4: bool | None = field(default=None, compare=False)

    @classmethod
    def of(cls, major: int, minor: int) -> MusaArch:
        """The architecture with this compute capability: the row of ``ARCHS``, or one nothing else is known of."""
        return _BY_CAPABILITY.get((major, minor)) or cls(major, minor)

    @classmethod
    def parse(cls, token: str) -> MusaArch:
        """``mp_31``, ``mp31``, ``3.1`` and ``31`` are the same. ValueError for anything else."""
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise ValueError(f"{token!r} is no MUSA architecture: write mp_31, mp31, 3.1 or 31")
        major, minor = (int(digit) for digit in match.groups() if digit)
        return cls.of(major, minor)

    @property
    def capability(self) -> tuple[int, int]:
        return self.major, self.minor

    @property
    def number(self) -> int:
        """As torch_musa counts them: 31."""
        return 10 * self.major + self.minor

    @property
    def name(self) -> str:
        """As the compiler mcc names it: mp_31."""
        return f"mp_{self.major}{self.minor}"

    def __str__(self) -> str:
        return self.name


_KNOWN = (
    MusaArch(2, 1, ("MTT S80", "MTT S3000"), fp8=False, fp4=False),
    MusaArch(2, 2, ("MTT S4000",), fp8=False, fp4=False),
    MusaArch(3, 1, ("MTT S5000",), fp8=True, fp4=False),
)
_BY_CAPABILITY = {arch.capability: arch for arch in _KNOWN}
ARCHS: Mapping[str, MusaArch] = MappingProxyType({arch.name: arch for arch in _KNOWN})
"""What is known of each architecture, by its name, oldest first."""


def target_archs(
    env: str | Sequence[str], *, default: str = "mp_31", check_device: bool = False
) -> tuple[MusaArch, ...]:
    """The architectures to build for, each once.

    The first of the environment variables *env* that has a value decides: ``mp_22;mp_31``, also ``mp22``, ``2.2``,
    ``22``, separated by semicolons and blanks. With none set: those of the visible devices where this process has
    initialised MUSA; else those that ``musaInfo`` (on ``PATH`` or in the toolkit) tells, which is run once per process;
    else *default*, written as in a variable.

    With *check_device* the devices of a process that has initialised MUSA have to be among them, and no process is
    started: of ``musaInfo`` only an answer that is there already counts.

    Raises:
        ValueError: a token is no architecture, or there is none.
        RuntimeError: *check_device*, and a visible device has an architecture that is not among the answer.
    """
    devices = _visible()
    archs = _chosen((env,) if isinstance(env, str) else env)
    archs = archs or _unique(arch for arch, _ in devices)
    if not archs and not (check_device and not _asked):
        archs = _installed()
    archs = archs or _split(default, "default")
    for index, (arch, device) in enumerate(devices if check_device else ()):
        if arch not in archs:
            names = ", ".join(map(str, archs))
            raise RuntimeError(
                f"musa:{index} ({device}) has the architecture {arch}, and the code is for {names} only. "
                f"Build it for {arch} as well ({' or '.join([env] if isinstance(env, str) else env)}), "
                "or hide the device by MUSA_VISIBLE_DEVICES."
            )
    return archs


def arch_flags(archs: Iterable[MusaArch | str]) -> list[str]:
    """The flags that make mcc compile for *archs*: ``["--offload-arch=mp_22", "--offload-arch=mp_31"]``."""
    return [f"--offload-arch={arch}" for arch in _archs(archs)]


def torch_arch_list(archs: Iterable[MusaArch | str]) -> str:
    """The value of ``TORCH_MUSA_ARCH_LIST`` for *archs*: ``"22;31"``."""
    return ";".join(str(arch.number) for arch in _archs(archs))


def cache_tag(archs: Iterable[MusaArch | str], musa: str | None = None) -> str:
    """A name for a directory of what is built for *archs* by a toolkit: ``mp31_mu50200`` for MUSA 5.2.0.

    *musa* is the toolkit's version, ``"5.2.0"`` or ``"50200"``; None asks torch_musa (``mu0`` where it does not tell).
    """
    return "_".join([*(f"mp{arch.number}" for arch in sorted(_archs(archs))), f"mu{_musa_number(musa)}"])


# ---------------------------------------------------------------- tokens
def _archs(archs: Iterable[MusaArch | str]) -> tuple[MusaArch, ...]:
    if isinstance(archs, str):  # its letters would be taken one by one
        raise TypeError(f"a sequence of architectures is needed, not the text {archs!r}")
    return _unique(arch if isinstance(arch, MusaArch) else MusaArch.parse(arch) for arch in archs)


def _unique(archs: Iterable[MusaArch]) -> tuple[MusaArch, ...]:
    return tuple(dict.fromkeys(archs))


def _chosen(env: Sequence[str]) -> tuple[MusaArch, ...]:
    for name in env:
        value = os.environ.get(name)
        if value:
            return _split(value, name)
    return ()


def _split(text: str, where: str) -> tuple[MusaArch, ...]:
    tokens = re.split(r"[;\s]+", text.strip("; \t\r\n"))
    if tokens == [""]:
        raise ValueError(f"{where}={text!r} names no MUSA architecture: write for example mp_31, or mp_22;mp_31")
    try:
        return _unique(MusaArch.parse(token) for token in tokens)
    except ValueError as error:
        raise ValueError(f"{where}={text!r}: {error}") from None


# ---------------------------------------------------------------- devices
def _visible() -> list[tuple[MusaArch, str]]:
    """Architecture and name of each visible device, where this process has initialised MUSA already."""
    torch_musa = sys.modules.get("torch_musa")
    if torch_musa is None or not getattr(torch_musa, "is_initialized", bool)():
        return []
    return [
        (MusaArch.of(*torch_musa.get_device_capability(index)), torch_musa.get_device_name(index))
        for index in range(torch_musa.device_count())
    ]


_asked: list[tuple[MusaArch, ...]] = []  # what musaInfo has told


def _installed() -> tuple[MusaArch, ...]:
    if not _asked:
        _asked.append(_ask_musa_info())
    return _asked[0]


def _ask_musa_info() -> tuple[MusaArch, ...]:
    home = toolkit_home()
    program = shutil.which("musaInfo") or (home and shutil.which("musaInfo", path=os.path.join(home, "bin")))
    if not program:
        return ()
    try:
        answer = subprocess.run(
            [program], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        warnings.warn(f"{program} cannot be asked for the architecture: {error}", TorchadaWarning, stacklevel=4)
        return ()
    if answer.returncode != 0:
        return ()  # no driver or no device, as in a build container
    found = _read_musa_info(answer.stdout)
    if not found:
        told = f"{program} tells no architecture that torchada can read; set it by the variable of the build"
        warnings.warn(told, TorchadaWarning, stacklevel=4)
    return found


def _read_musa_info(text: str) -> tuple[MusaArch, ...]:
    """The compute capabilities in a device listing: ``major: 3`` and ``minor: 1``, or ``compute capability: 3.1``."""
    field_of = r"^[ \t]*{}[ \t]*[:=][ \t]*(\d)\b"
    both = re.findall(r"compute capability(?:[^\n:=]*[:=])?[ \t]*(\d)\.(\d)\b", text, re.IGNORECASE)
    if not both:
        majors, minors = (
            re.findall(field_of.format(name), text, re.IGNORECASE | re.MULTILINE) for name in ("major", "minor")
        )
        both = list(zip(majors, minors, strict=False))
    return _unique(MusaArch.of(int(major), int(minor)) for major, minor in both)


# ---------------------------------------------------------------- the toolkit
def _musa_number(text: str | None) -> str:
    text = text if text is not None else _musa_version()
    dotted = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if dotted:
        major, minor, patch = (int(part or 0) for part in dotted.groups())
        return str(10000 * major + 100 * minor + patch)
    if not text.isdigit():
        raise ValueError(f"{text!r} is no version of MUSA: write 5.2.0 or 50200")
    return text


def _musa_version() -> str:
    """The version of MUSA that torch_musa is built with; ``"0"`` where nothing tells it."""
    told = getattr(sys.modules.get("torch.version"), "musa", None)
    if told:
        return str(told)
    return _local_version() or "0"


@functools.cache
def _local_version() -> str | None:
    try:
        version = metadata.version("torch_musa")
    except metadata.PackageNotFoundError:
        return None
    match = re.search(r"\+.*?musa(\d+\.\d+(?:\.\d+)?)", version)
    return match[1] if match else None
