"""The rows. Data only: literals and constructor calls."""

from .accelerator import RULES as _ACCELERATOR
from .backends import RULES as _BACKENDS
from .bindings import RULES as _BINDINGS
from .compares import RULES as _COMPARES
from .cuda import RULES as _CUDA
from .distributed import RULES as _DISTRIBUTED
from .extensions import RULES as _EXTENSIONS
from .graph_trees import RULES as _GRAPH_TREES
from .library import RULES as _LIBRARY
from .masquerade import PACKAGES
from .masquerade import RULES as _MASQUERADE
from .mirrors import MIRRORS
from .native import RULES as _NATIVE
from .ops import RULES as _OPS
from .torch import RULES as _TORCH

__all__ = ["MIRRORS", "PACKAGES", "RULES"]

RULES = (
    *_TORCH,
    *_OPS,  # its hook of captures lies below those of the graphs' own rows
    *_CUDA,
    *_ACCELERATOR,
    *_BACKENDS,
    *_BINDINGS,
    *_COMPARES,
    *_DISTRIBUTED,
    *_EXTENSIONS,
    *_GRAPH_TREES,
    *_LIBRARY,
    *_NATIVE,
    *_MASQUERADE,
)
