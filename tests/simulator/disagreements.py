"""Where the simulated device and the CPU may differ on torch's operator databases, and why: data only.

tests/simulator/opdb.py checks it: a difference without a row is an error, a row without a difference as well.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class Disagreement:
    """*database*, *op*, *dtypes* and *aspects* are patterns as in file names; the latter two may be several words."""

    database: str
    op: str
    dtypes: str
    aspects: str
    reason: str

    def covers(self, database: str, op: str, dtype: str, aspect: str) -> bool:
        return (
            fnmatch.fnmatchcase(database, self.database)
            and fnmatch.fnmatchcase(op, self.op)
            and any(fnmatch.fnmatchcase(dtype, pattern) for pattern in self.dtypes.split())
            and any(fnmatch.fnmatchcase(aspect, pattern) for pattern in self.aspects.split())
        )


DISAGREEMENTS: tuple[Disagreement, ...] = (
    Disagreement(
        "ops", "tensor_split", "*", "forward backward", "as on CUDA, split points given as a tensor must be on the CPU"
    ),
    Disagreement(
        "ops",
        "*quantile",
        "float32 float64",
        "forward",
        "PyTorch checks the range of q for CPU tensors only, not on CUDA",
    ),
    Disagreement(
        "ops",
        "nn.functional.max_pool1d",
        "float* bfloat16",
        "forward",
        "the CPU's own kernel ignores the lazy negative bit of its input; the device, like CUDA, uses another kernel",
    ),
)
