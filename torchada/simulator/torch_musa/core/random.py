"""Random numbers: seeds and states of the devices' default generators."""

import contextlib
from collections.abc import Generator, Iterable
from typing import cast

import torch
import torch_musa
from torch import Tensor
from torch.random import fork_rng as _torch_fork_rng

from ._lazy_init import _lazy_call, _lazy_init
from .device import current_device, device_count

__all__ = [
    "fork_rng",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]

_fork_rng_warned_already = False


def _index(device: int | str | torch.device) -> int | None:
    if isinstance(device, str):
        device = torch.device(device)
    elif isinstance(device, int):
        return device
    if device.type != "musa":
        raise ValueError(f"Expected a musa device, but got: {device}")
    return device.index


def get_rng_state(device: int | str | torch.device = "musa") -> Tensor:
    """State of the generator of `device`, as a ByteTensor on the CPU. Initialises."""
    _lazy_init()
    index = _index(device)
    generator = torch_musa.default_generators[current_device() if index is None else index]
    return generator.get_state()


def get_rng_state_all() -> list[Tensor]:
    """States of all devices' generators. Initialises."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state(new_state: Tensor, device: int | str | torch.device = "musa") -> None:
    """Set the state of the generator of `device`; waits for initialisation."""
    with torch._C._DisableFuncTorch():
        new_state = new_state.clone(memory_format=torch.contiguous_format)
    index = _index(device)

    def apply() -> None:
        at = current_device() if index is None else index
        torch_musa.default_generators[at].set_state(new_state)

    _lazy_call(apply)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the states of all devices' generators; waits for initialisation."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device; without a device nothing happens."""
    seed = int(seed)

    def apply() -> None:
        torch_musa.default_generators[current_device()].manual_seed(seed)

    _lazy_call(apply, seed=True)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; without a device nothing happens."""
    seed = int(seed)

    def apply() -> None:
        for generator in torch_musa.default_generators:
            generator.manual_seed(seed)

    _lazy_call(apply, seed_all=True)


def seed() -> None:
    """Seed the generator of the current device with a random number."""

    def apply() -> None:
        torch_musa.default_generators[current_device()].seed()

    _lazy_call(apply)


def seed_all() -> None:
    """Seed all devices' generators with one random number."""

    def apply() -> None:
        value: int | None = None
        for generator in torch_musa.default_generators:
            if value is None:
                value = generator.seed()
            else:
                generator.manual_seed(value)

    _lazy_call(apply)


def initial_seed() -> int:
    """The seed of the current device's generator. Initialises."""
    _lazy_init()
    return torch_musa.default_generators[current_device()].initial_seed()


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[int] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "musa",
) -> Generator[None, None, None]:
    """torch.random.fork_rng with the MUSA devices as the default ones."""
    with _torch_fork_rng(
        devices=cast(Iterable[int], devices),
        enabled=enabled,
        _caller=_caller,
        _devices_kw=_devices_kw,
        device_type=device_type,
    ):
        yield
