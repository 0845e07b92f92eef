"""Headers that map MUSA names back to CUDA's, so that nvcc reads ported sources: a check of syntax and types.

`write_headers` makes a folder for the include path: ``musa_runtime.h`` and the like, each of which includes its CUDA
header, and ``musa_back.h``, to be included first (``-include``), which defines every MUSA name as its CUDA name.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from torchada.porting import Ported
from torchada.porting.tables import Tables

WORD = re.compile(r"[^\W\d]\w*")
# A ported name of PyTorch's namespaces is one of ours by a word of its own; conditions keep their order of sizes.
ALWAYS = {"musa": "cuda", "mtmusa": "nvcuda", "__MUSA_ARCH__": "__CUDA_ARCH__", "is_privateuseone": "is_cuda"}
ALWAYS |= {"PrivateUse1": "CUDA", "kPrivateUse1": "kCUDA"}


def write_headers(folder: Path, ported: Iterable[Ported] = ()) -> None:
    """Fill *folder* with what the sources *ported* need, regular names (which no table lists) included."""
    tables = Tables()
    names = {row[0]: old for old, row in tables.names.items()}
    headers: dict[str, str] = {}
    for old, row in tables.headers.items():
        headers.setdefault(row[0].strip('"'), old)
    for result in ported:
        for change in result.changes:
            old, new = change.old, change.new
            if WORD.fullmatch(old) and WORD.fullmatch(new):
                names[new] = old
            elif old[0] in "<#" or '"' in old[:1]:
                headers.setdefault(new.strip('<>"'), old.strip('<>"'))
    names |= ALWAYS
    lines = [f"#define {new} {old}\n" for new, old in sorted(names.items()) if new != old]
    (folder / "musa_back.h").write_text("#pragma once\n" + "".join(lines))
    for new, old in headers.items():
        file = folder / new
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#include <{old}>\n")
