"""Answers that depend on the module that asks. How it works and what it cannot do: docs/masquerade.md."""

from collections.abc import Callable
from typing import Any

def configure(
    verdicts: dict[str, bool | dict[str | None, bool] | None],
    decide: Callable[[dict[str, Any]], bool],
    backend: str,
    word: str,
    /,
) -> None:
    """Say who is masqueraded. *verdicts* is kept, not copied: module name -> yes, no, or a dict by ``__file__`` (None
    without one); where it has no answer ``decide(globals)`` is asked, each time. *backend* is the device type to hide,
    *word* what is said instead. TypeError: an argument of the wrong type."""

def asked() -> bool:
    """Whether the calling module is masqueraded. Raises what ``decide`` raises."""

def device_type(value: str, device: Any, /) -> str:
    """*value*, or *word* where the device type is *backend* and the calling module is masqueraded."""

def redirect_text(tp: type, /) -> None:
    """Let ``str()`` and ``repr()`` of a static C type say *word* for *backend* to masqueraded modules.

    TypeError: not such a type. RuntimeError: one is redirected already, the texts are not its own, or a free-threaded
    build.
    """

def restore_text() -> None:
    """Undo redirect_text(); doing it twice is fine. RuntimeError when somebody else has written the slots since."""
