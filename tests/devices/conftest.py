"""Switching single rules off, so that a test can show that it needs its rule."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from torchada.engine import ENGINE
from torchada.ledger import ACTIVE
from torchada.redirect import apply_patch
from torchada.rules import Rule


@contextlib.contextmanager
def without_rule(rule: Rule) -> Iterator[None]:
    """Inside, this one active rule of the running engine is undone."""
    entry = ENGINE.ledger.state(rule.id)
    assert entry is not None and entry.outcome == ACTIVE and entry.undo is not None, (rule.id, entry)
    entry.undo()
    try:
        yield
    finally:
        module = sys.modules[rule.module]
        virtual = ENGINE.virtual_of(module)
        undo = apply_patch(rule, virtual.native if virtual else module)
        with ENGINE.ledger._lock:
            ENGINE.ledger._entries = [old for old in ENGINE.ledger._entries if old is not entry]
        ENGINE.ledger.add(rule.id, ACTIVE, "again", undo=undo)


@pytest.fixture
def rule_off() -> Callable[[str], AbstractContextManager[None]]:
    """``with rule_off("torch:zeros"):`` runs the body without this rule."""
    rules = {rule.id: rule for rule in ENGINE.table.rules} | {rule.at: rule for rule in ENGINE.table.rules}
    return lambda name: without_rule(rules[name])
