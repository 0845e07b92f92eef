"""The one object with state: off -> dormant -> armed -> off. It knows when; the table knows what."""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from . import allocator, simulator
from .adopt import adopt, replace_references, swap_snapshots, warn_of_stale
from .errors import tell
from .facts import check_switches, hold_autoload, paused_collection, snapshot
from .finder import MIRRORED, WATCHED, Finder
from .gates import Facts
from .inherit import disinherit
from .ledger import ABSENT, ACTIVE, FAILED, GATED, PENDING, SHADOWED, Ledger, Undo
from .platform import Platform, detect_platform, env_flag, simulated
from .providers import provided
from .redirect import apply_patch, self_check
from .rules import Rule, Table, load_table
from .scope import SCOPE, switch_on
from .startup import place
from .virtual import Virtual, load_shim, probe
from .visible import mirror_visible_devices

OFF, DORMANT, ARMED = "off", "dormant", "armed"
ROOTS = ("torch", "torch_musa")


class Engine:
    """Applies a table to this process and takes it back. ``ENGINE`` below is the product's; tests make their own."""

    def __init__(self, table: Table | None = None) -> None:
        self._table = table
        self._turn = threading.RLock()  # one change of state at a time
        self._arming = False
        self._executing: set[str] = set()
        self._executed: set[str] = set()
        self._autoload = True
        self.late = self.strict = False
        self.state = OFF
        self.ledger = Ledger()
        self.facts: Facts | None = None
        self.finder: Finder | None = None
        self.virtuals: dict[str, Virtual] = {}
        self._by_module: dict[int, Virtual] = {}
        self.undo_start: list[Undo] = []

    @property
    def table(self) -> Table:
        if self._table is None:
            self._table = load_table()
        return self._table

    # -- on --------------------------------------------------------------------------------------------------------
    def engage(self) -> Finder | None:
        """Go from off to dormant (and armed, when torch is there already). None where there is nothing to do."""
        with self._turn:
            if self.state != OFF:
                return self.finder
            if detect_platform() is not Platform.MUSA:
                return None
            self.strict = env_flag("TORCHADA_STRICT")
            check_switches(self.table)
            SCOPE.begin()
            self.undo_start += [mirror_visible_devices(), allocator.mirror_options()]
            if simulated():
                simulator.install()
            kinds: dict[str, str | Rule] = {**provided(self.table), **dict.fromkeys(self.table.patches, WATCHED)}
            kinds |= dict.fromkeys(SCOPE.roots(), WATCHED)
            kinds |= dict.fromkeys(self.table.mirrors, MIRRORED) | dict.fromkeys(ROOTS, WATCHED)
            self.ledger = Ledger()
            self.finder = Finder(self, kinds)
            place(self.finder)
            self.state = DORMANT
            self.late = self._done("torch")
            if "torch" in sys.modules:
                adopt(self)
                self.ready()
        self.ready()  # another thread may have finished an import in the meantime
        return self.finder

    def armed(self) -> bool:
        """Whether rules answer. Arms here when the last root has finished in the meantime."""
        return self.state == ARMED or self.ready()

    def ready(self) -> bool:
        """Arm if torch and torch_musa have both finished importing; True when armed."""
        # Without waiting: this thread may hold an import lock that the thread whose turn it is needs.
        while self.state == DORMANT and not self._arming and self._done("torch") and self._turn.acquire(blocking=False):
            self._arming = True
            try:
                if self.state == DORMANT and "torch_musa" not in sys.modules:
                    self._import_backend()
                if self.state == DORMANT and self._done("torch_musa"):
                    with paused_collection():
                        self._arm()
            finally:
                self._arming = False
                self._turn.release()
            if not self._done("torch_musa"):
                break
        return self.state == ARMED

    def _done(self, name: str) -> bool:
        module = sys.modules.get(name)
        if module is None or name in self._executing:
            return False
        return name in self._executed or not getattr(module.__spec__, "_initializing", False)

    def _import_backend(self) -> None:
        """Import torch_musa at the end of ``import torch``. A broken one is told once; torch works without it."""
        try:
            load_shim("backend:import_backends")(self._autoload)
        except Exception as error:
            self._give_up("torch_musa could not be imported", error)

    def _give_up(self, what: str, error: Exception) -> None:
        """Go back to off, and say so once: never half armed."""
        self.deactivate()
        disinherit()  # children would only repeat it
        self.ledger.add("torchada", FAILED, f"{what}: {type(error).__name__}: {error}", error=error)
        told = f"{what} ({type(error).__name__}: {error}); torchada stays off and torch.cuda is torch's own. "
        tell(told + "`python -m torchada doctor` tells more.")

    def _arm(self) -> None:
        try:
            self_check()
            load_shim("backend:check_backend")()
            self.facts = snapshot(self.table, late=self.late)
            for rule in self.table.rules:
                self.apply(rule)
            self.state = ARMED
        except Exception as error:
            self._give_up("torchada could not be armed", error)
            if self.strict:
                raise
        if self.state == ARMED and self.ledger.failures():
            tell(self.ledger.complaint())
        if self.state == ARMED and self.late:
            self.ledger.add("torchada:snapshots", ACTIVE, "late activation", undo=swap_snapshots(self.virtuals))
            warn_of_stale(self.virtuals)

    # -- rules -----------------------------------------------------------------------------------------------------
    def apply(self, rule: Rule) -> None:
        """Apply one rule (a lazy one waits for its name to be asked for), or say in the ledger why not."""
        assert self.facts is not None
        module = sys.modules.get(rule.module)
        failing = rule.gate.failing(self.facts, probe)
        if failing:
            self.ledger.add(rule.id, GATED, failing)
        elif self.table.is_lazy(rule):
            self.ledger.add(rule.id, PENDING, "answered when asked for")
        elif module is None or rule.module in self._executing:
            self.ledger.add(rule.id, PENDING, f"{rule.module} is not imported")
        else:
            try:
                virtual = self.virtual_of(module)
                undo = apply_patch(rule, virtual.native if virtual else module)
            except AttributeError as error:
                self.ledger.add(rule.id, ABSENT, str(error), error=error)
            except Exception as error:
                self.ledger.add(rule.id, FAILED, f"{type(error).__name__}: {error}", error=error)
                if self.strict:
                    raise
            else:
                self.ledger.add(rule.id, ACTIVE, undo=undo)

    def is_open(self, rule: Rule) -> bool:
        """Whether the gate of a lazy rule holds here."""
        return self.facts is not None and rule.gate.failing(self.facts, probe) is None

    def open_rule(self, module: str, name: str) -> Rule | None:
        """The rule that answers this name, if any; a second one whose gate holds is recorded as shadowed."""
        found: Rule | None = None
        for rule in self.table.lazy.get(module, {}).get(name, ()):
            if self.is_open(rule):
                if found is None:
                    found = rule
                else:
                    self.ledger.add(rule.id, SHADOWED, f"by {found.id}")
        return found

    # -- modules ---------------------------------------------------------------------------------------------------
    def virtual_of(self, module: Any) -> Virtual | None:
        """The virtual module whose public (or native) object this is."""
        return self._by_module.get(id(module))

    def add_virtual(self, module: types.ModuleType, native: types.ModuleType) -> Virtual:
        virtual = Virtual(self, self.table.mirrors[module.__name__], module, native)
        self.virtuals[virtual.name] = virtual
        self._by_module[id(module)] = self._by_module[id(native)] = virtual
        return virtual

    def drop_virtual(self, virtual: Virtual) -> None:
        self.virtuals.pop(virtual.name, None)
        for module in (virtual.module, virtual.native):
            self._by_module.pop(id(module), None)

    @contextlib.contextmanager
    def importing(self, name: str) -> Iterator[None]:
        """Around the execution of a watched module."""
        self._executing.add(name)
        if SCOPE.meet(name):
            switch_on(self)
        try:
            with hold_autoload() if name == "torch" else contextlib.nullcontext(self._autoload) as self._autoload:
                yield
        finally:
            self._executing.discard(name)

    def module_done(self, name: str) -> None:
        """A watched or mirrored module has been executed."""
        self._executed.add(name)
        above, _, child = name.rpartition(".")
        if name in self.virtuals and above in self.virtuals:
            # importlib sets the child on the public parent only; native code that says `child.x` needs it as well.
            vars(self.virtuals[above].native).setdefault(child, self.virtuals[name].module)
        if name in ROOTS:
            self.ready()
        elif self.state == ARMED:
            for rule in self.table.patches.get(name, ()):
                self.apply(rule)

    # -- off -------------------------------------------------------------------------------------------------------
    def deactivate(self) -> None:
        """Take everything back, newest first. Idempotent."""
        with self._turn:
            if self.state == OFF:
                return
            self.state = OFF
            finder, self.finder = self.finder, None
            if finder in sys.meta_path:
                sys.meta_path.remove(finder)
            for entry in self.ledger.undo():
                tell(f"torchada could not undo {entry.rule}: {entry.detail}")
            virtuals = list(self.virtuals.values())
            for virtual in virtuals:
                virtual.forget()
            replace_references({id(virtual.module): virtual.native for virtual in virtuals})
            self.virtuals.clear()
            self._by_module.clear()
            while self.undo_start:
                self.undo_start.pop()()


ENGINE = Engine()
