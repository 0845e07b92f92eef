"""The rows. Data only: literals and constructor calls."""

from . import cuda, mirrors, torch

MIRRORS = mirrors.MIRRORS
RULES = (*torch.RULES, *cuda.RULES)
