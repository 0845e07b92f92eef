"""Reads a checkpoint of two MUSA devices in one process that has no device, and writes another. No torchada here."""

import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

folder = Path(sys.argv[1])
assert "torch_musa" not in sys.modules and torch.device("cuda", 1).type == "cuda"
names = b"".join(path.read_bytes() for path in (*folder.glob("*/*"), *folder.glob("*/.metadata")))
assert len(names) > 1000 and b"musa" not in names.lower(), "a CUDA machine could not read this"
whole = torch.load(folder / "whole.pt")
new, old = ({name: torch.zeros_like(value) for name, value in whole.items()} for _ in range(2))
state = {"old": old, "device": None, "step": 0}
dcp.load({"new": new}, checkpoint_id=folder / "later", no_dist=True)
dcp.load(state, checkpoint_id=folder / "here", no_dist=True)
for name, value in whole.items():
    torch.testing.assert_close(new[name], value, atol=0, rtol=0)
    assert old[name].abs().sum() > 0
assert state["step"] == 3 and state["device"].type == "cuda"
written = {"model": {name: value + 1 for name, value in whole.items()}, "device": torch.device("cuda", 1)}
dcp.save(written, checkpoint_id=folder / "there", no_dist=True)
