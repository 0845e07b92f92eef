"""The exceptions torchada raises on its own account."""

from __future__ import annotations

import sys
import warnings

__all__ = ["ConfigError", "NotOnMusa", "TableError", "TorchadaError", "TorchadaWarning", "tell"]


class TorchadaError(Exception):
    """Base of torchada's own errors."""


class ConfigError(TorchadaError, ValueError):
    """An environment variable or argument has a value torchada does not know; the text lists the right ones."""


class TableError(TorchadaError):
    """A rule table contradicts itself (found when the table is validated, never at a user's call)."""


class TorchadaWarning(UserWarning):
    """Something torchada could not do in full; the text says what, why and what to do instead."""


class NotOnMusa(TorchadaError, NotImplementedError, AttributeError):
    """A CUDA name that has no counterpart on MUSA.

    It is both a ``RuntimeError`` (what a failing CUDA call raises) and an ``AttributeError`` (what a missing
    name raises), so that code that probes for a feature takes the branch its author meant.

    Attributes:
        api: the name as a CUDA program writes it, for example ``"torch.cuda.gds.GdsFile"``.
        reason: why it cannot work.
        instead: what to use instead, or an empty string.
    """

    def __init__(self, api: str, reason: str, instead: str = "") -> None:
        self.api = api
        self.reason = reason
        self.instead = instead
        text = f"{api} is not available on MUSA: {reason}"
        super().__init__(f"{text} Instead: {instead}" if instead else text)

    def __reduce__(self) -> tuple[type[NotOnMusa], tuple[str, str, str]]:
        return type(self), (self.api, self.reason, self.instead)


def tell(text: str) -> None:
    """Warn of something that happened while a module was being imported, where no line of the user's is to blame.
    ``-W error`` must not turn it into a failed import, so there it goes to stderr."""
    try:
        warnings.warn_explicit(text, TorchadaWarning, "torchada", 1)
    except TorchadaWarning:
        sys.stderr.write(f"torchada: {text}\n")
