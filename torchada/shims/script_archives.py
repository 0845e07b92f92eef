"""TorchScript archives in both directions: files name CUDA devices, code and memory are on the MUSA device."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .device import BACKEND, as_cuda, translate
from .script_graphs import adapt

DEVICE = re.compile(rf"{BACKEND}(:\d+)?")
IN_CODE = re.compile(rf'(?<=torch\.device\("){BACKEND}(?=[:"])|(?<=, "cuda", "){BACKEND}(?="(?:, -1)?\))')
"""A device, and the word by which ``script_graphs`` replaces a text that is made into one."""


# ---------------------------------------------------------------- read
def import_archive(original: Callable[..., Any], unit: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.jit.load``: the weights go where ``map_location`` says, the devices in the code are translated here."""
    module = original(unit, *args, **kwargs)
    graphs = [function.graph for function in unit.get_functions()]
    for graph in graphs:
        adapt(graph)
    _place_attributes(module, set(_device_attributes(graphs)))
    return module


def _device_attributes(graphs: list[Any]) -> Iterator[str]:
    for graph in graphs:
        for node in graph.findAllNodes("prim::GetAttr"):
            if "Device" in node.output().type().annotation_str:
                yield node.s("name")


def _place_attributes(module: Any, names: set[str]) -> None:
    for name in names:
        if module.hasattr(name):
            value = module.getattr(name)
            placed = _placed(value)
            if placed is not value:
                module.setattr(name, placed)
    for _, child in torch._C.ModuleDict(module).items():
        _place_attributes(child, names)


def _placed(value: Any) -> Any:
    """*value* with its devices translated; itself when there are none."""
    if isinstance(value, torch.device):
        return translate(value)
    if isinstance(value, (list, tuple)):
        new: Any = type(value)([_placed(item) for item in value]) if type(value) in (list, tuple) else value
    elif isinstance(value, dict):
        new = {key: _placed(item) for key, item in value.items()}
    else:
        return value
    return new if new != value else value


# ---------------------------------------------------------------- write
def save(original: Callable[..., None], module: Any, filename: str, *args: Any, **kwargs: Any) -> None:
    """``save`` of a scripted module or function. A file is written again where it names the MUSA device."""
    if os.path.exists(filename) and not os.path.isfile(filename) and not os.path.isdir(filename):
        with open(filename, "wb") as pipe:  # which cannot be read again
            pipe.write(module.save_to_buffer(*args, **kwargs))
        return
    original(module, filename, *args, **kwargs)
    reader = torch._C.PyTorchFileReader(filename)
    changed = _changed(reader)
    if changed:
        # Beside it, since it may be as large as a disk has room for; what fails half-way leaves no file but a part, as
        # torch itself does.
        path = os.path.realpath(filename)
        spare = f"{path}.{os.getpid()}.tmp"
        del reader
        os.replace(path, spare)
        try:
            _copy(torch._C.PyTorchFileReader(spare), torch._C.PyTorchFileWriter(path), changed)
        finally:
            os.remove(spare)


def save_to_buffer(original: Callable[..., bytes], module: Any, *args: Any, **kwargs: Any) -> bytes:
    """``save_to_buffer`` of a scripted module or function, and with it ``torch.jit.save`` into a file object."""
    written = original(module, *args, **kwargs)
    reader = torch._C.PyTorchFileReader(io.BytesIO(written))
    changed = _changed(reader)
    if not changed:
        return written
    buffer = io.BytesIO()
    _copy(reader, torch._C.PyTorchFileWriter(buffer), changed)
    return buffer.getvalue()


def _changed(reader: Any) -> dict[str, bytes]:
    """The records that name the MUSA device, as they are on CUDA."""
    changed = {}
    for name in reader.get_all_records():
        if name.startswith("extra/"):
            continue
        if name.startswith("code/") and name.endswith(".py"):
            text = reader.get_record(name).decode()
            new = IN_CODE.sub("cuda", text).encode()
        elif name.endswith(".pkl"):
            new = portable_pickle(reader.get_record(name))
        else:
            continue
        if new != reader.get_record(name):
            changed[name] = new
    return changed


def _copy(reader: Any, writer: Any, changed: dict[str, bytes]) -> None:
    own = {"version", "byteorder", ".data/version", ".data/serialization_id"}  # the writer's
    for name in reader.get_all_records():
        if name not in own:
            data = changed.get(name) or reader.get_record(name)
            writer.write_record(name, data, len(data))
    writer.set_min_version(int(reader.get_record("version")))
    writer.write_end_of_file()


def portable_pickle(data: bytes) -> bytes:
    """The pickle with CUDA's name for devices and places of tensors; a text of the user stays, though it is equal.

    torch writes equal texts once and refers to them after that, whatever they mean. Here they are written out.
    """
    if BACKEND.encode() not in data:
        return data
    steps = list(_steps(data))
    memo: dict[int, Any] = {}
    for at, (name, argument, _) in enumerate(steps):
        if name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = steps[at - 1][:2]
    written = []
    for at, (name, argument, raw) in enumerate(steps):
        referred = memo.get(argument) if name in ("BINGET", "LONG_BINGET") else None
        text = referred[1] if referred and referred[0] == "BINUNICODE" else argument if name == "BINUNICODE" else None
        if isinstance(text, str) and DEVICE.fullmatch(text):
            raw = _unicode(as_cuda(text) if _is_device(steps, memo, at) else text)
        written.append(raw)
    return b"".join(written)


def _steps(data: bytes) -> Iterator[tuple[str, Any, bytes]]:
    found = [(opcode.name, argument, position or 0) for opcode, argument, position in pickletools.genops(data)]
    ends = [position for *_, position in found[1:]] + [len(data)]
    for (name, argument, position), end in zip(found, ends, strict=True):
        yield name, argument, data[position:end]


def _is_device(steps: list[tuple[str, Any, bytes]], memo: dict[int, Any], at: int) -> bool:
    """Whether the text is the argument of ``torch.device``, or the place in the persistent id of a storage."""
    puts = ("BINPUT", "LONG_BINPUT")
    before = next(step[:2] for step in reversed(steps[:at]) if step[0] not in puts)
    if before[0] in ("BINGET", "LONG_BINGET"):
        before = memo.get(before[1], before)
    if before == ("GLOBAL", "torch device"):
        return True
    after = [step[0] for step in steps[at + 1 : at + 6] if step[0] not in puts]
    return after[1:3] == ["TUPLE", "BINPERSID"]


def _unicode(text: str) -> bytes:
    encoded = text.encode()
    return pickle.BINUNICODE + len(encoded).to_bytes(4, "little") + encoded
