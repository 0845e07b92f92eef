"""What happened to each rule, and how to undo it. Append-only; the last entry of a rule is its state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

ACTIVE = "active"
PENDING = "pending"  # its module has not been imported yet, or its name has not been asked for
GATED = "gated"  # a clause of its gate does not hold here
ABSENT = "absent"  # the installed torch has no such place
FAILED = "failed"
SHADOWED = "shadowed"  # another rule or a user's own object stands there
UNDONE = "undone"

Undo = Callable[[], None]


@dataclass(frozen=True)
class Entry:
    """One outcome: rule id, state, a short reason, and what takes it back (if anything has to)."""

    rule: str
    outcome: str
    detail: str = ""
    undo: Undo | None = None
    error: BaseException | None = None


class Ledger:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._last: dict[str, Entry] = {}

    def add(
        self, rule: str, outcome: str, detail: str = "", undo: Undo | None = None, error: BaseException | None = None
    ) -> None:
        entry = Entry(rule, outcome, detail, undo, error)
        with self._lock:
            if self._last.get(rule) == entry:
                return
            self._entries.append(entry)
            self._last[rule] = entry

    def state(self, rule: str) -> Entry | None:
        return self._last.get(rule)

    def states(self) -> dict[str, Entry]:
        with self._lock:
            return dict(self._last)

    def failures(self) -> list[Entry]:
        return [entry for entry in self.states().values() if entry.outcome == FAILED]

    def complaint(self) -> str:
        """What to tell of failed rules."""
        failed = self.failures()
        names = ", ".join(entry.rule for entry in failed[:3]) + (" ..." if len(failed) > 3 else "")
        told = f"{len(failed)} torchada rule(s) could not be applied: {names}. The others work"
        return f"{told}; `python -m torchada doctor` tells why."

    def undo(self) -> list[Entry]:
        """Run every undo, newest first and each once. Returns the entries of those that failed."""
        with self._lock:
            taken = [entry for entry in reversed(self._entries) if entry.undo is not None]
            self._entries = [entry for entry in self._entries if entry.undo is None]
        failed = []
        for entry in taken:
            try:
                assert entry.undo is not None
                entry.undo()
            except Exception as error:
                self.add(entry.rule, FAILED, f"undo: {type(error).__name__}: {error}", error=error)
                failed.append(self._last[entry.rule])
            else:
                self.add(entry.rule, UNDONE)
        return failed
