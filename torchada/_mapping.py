"""The names that porting changes, as plain dicts, for programs that read them. They are made from the porter's tables.

Changing them changes nothing; a ``BuildExtension`` with a ``get_mapping_rule`` of its own does (docs/extensions.md).
"""

from __future__ import annotations

from .porting.tables import Tables

__all__ = ["EXT_REPLACED_MAPPING", "_MAPPING_RULE"]

EXT_REPLACED_MAPPING = {"cu": "cu", "cuh": "cuh"}
"""What becomes of the suffixes of files: they stay."""


def _mapping_rule() -> dict[str, str]:
    tables = Tables()
    known = {**tables.headers, **tables.qualified, **tables.names}
    return {old: row[0] for old, row in known.items() if row[0] and row[0] != old}


_MAPPING_RULE = _mapping_rule()
"""CUDA name -> MUSA name: names, qualified names, headers. The regular rules cover more names than it lists."""
