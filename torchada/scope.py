"""Which modules are masqueraded: inside them a MUSA device answers as a CUDA device, elsewhere it tells the truth.

A module is known by its name, so it does not matter how or when it was imported. The answers themselves are rules
(``tables/masquerade.py``), applied when the first masqueraded module appears.
"""

from __future__ import annotations

import os
import sys
import types
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Any

from .errors import TorchadaWarning
from .packages import (
    NEVER,
    OFF_VARIABLE,
    VARIABLE,
    checked,
    is_folder,
    mentions_musa,
    refused_rows,
    remember,
    row_trouble,
    sources,
    split,
)
from .platform import find_module
from .rules import Masquerade
from .tables import PACKAGES

if TYPE_CHECKING:
    from .engine import Engine

MAINS = ("__main__", "__mp_main__")
# Modules that ask on behalf of others; who asks is found further out on the stack. Dynamo's evaluate constants of the
# code that is traced, the last one by calling functions (its own questions about devices are not the traced code's).
TRACER = ("torch._dynamo.variables.builtin", "torch._dynamo.variables.constant", "torch._dynamo.variables.misc")
CALLER = "torch._dynamo.variables.torch"
_PRINTING = ("torch._tensor_str", "torch._tensor", "torch.nn.parameter", "torch.overrides", "torch.utils._device")
PRINTER = (*_PRINTING, "contextlib")
ASKED_ANEW = (*TRACER, "torch._tensor_str")


@dataclass
class Scope:
    """What is masqueraded in this process, and why. *verdicts* is what the compiled part reads (``_asker.c``)."""

    rows: tuple[Masquerade, ...] = PACKAGES
    named: dict[str, str] = field(default_factory=dict)  # module, or folder -> by what the user named it
    applied: dict[str, Masquerade] = field(default_factory=dict)
    verdicts: dict[str, Any] = field(default_factory=dict)

    @property
    def used(self) -> bool:
        return bool(self.named or self.applied)

    # -- what is masqueraded ---------------------------------------------------------------------------------------
    def name(self, names: Iterable[str], by: str) -> None:
        """Masquerade what a user named. Raises ConfigError for what is neither a module nor code on disk."""
        for name in [checked(name) for name in names]:
            self.named.setdefault(name, by)
        self._forget()

    def begin(self) -> None:
        """Take over what the environment names, and what is imported already. Raises ConfigError as ``name()``."""
        refused_rows()
        names = [checked(name) for name in split(os.environ.get(VARIABLE, ""))]
        if names:
            os.environ[VARIABLE] = ",".join(names)  # children may run in another folder
        self.name(names, VARIABLE)
        for root in self.roots() & sys.modules.keys():
            self.meet(root)

    def roots(self) -> set[str]:
        """Top-level modules whose import may apply a row."""
        return {name.partition(".")[0] for row in self.rows for name in row.modules}

    def meet(self, root: str) -> bool:
        """A top-level module is there, or about to be executed: apply its rows. True when one is new."""
        found = next((row for row in self.rows if row.root == root), None)
        if found is None or root in self.applied or row_trouble(found):
            return False
        self.applied[root] = found
        self._forget()
        return True

    def _forget(self) -> None:
        self.verdicts.clear()
        self.verdicts.update(dict.fromkeys(NEVER, False), **{name: {} for name in MAINS})

    # -- who asks --------------------------------------------------------------------------------------------------
    def decide(self, names: dict[str, Any]) -> bool:
        """Whether the module with these globals is masqueraded. Called where ``verdicts`` has no answer."""
        name = names.get("__name__")
        if not isinstance(name, str) or name in ASKED_ANEW:
            return self._on_behalf(name, sys._getframe(1))
        file = names.get("__file__")
        if name in MAINS:
            answer = self._main(names.get("__spec__"), file)
            if file is None or isinstance(file, str):
                self.verdicts.setdefault(name, {})[file] = answer
            return answer
        answer = self._has_module(name)
        if not answer and isinstance(file, str) and self._has_file(name, file):
            answer = not mentions_musa(file, names.get("__loader__"))  # code that does knows what it wants
        # Code that was executed under a borrowed name has no file, by which a folder might be the reason.
        if isinstance(file, str) or answer or not any(map(is_folder, self.named)):
            self.verdicts[name] = answer
        return answer

    def asked_by(self, frame: types.FrameType | None) -> bool:
        """Whether the function that is called by the code in *frame* is called by a masqueraded module."""
        if frame is None:
            return False
        name = frame.f_globals.get("__name__")
        if not isinstance(name, str) or name == CALLER or name in ASKED_ANEW:
            return self._on_behalf(name, frame)
        verdict = self.verdicts.get(name)
        if isinstance(verdict, dict):
            verdict = verdict.get(frame.f_globals.get("__file__"))
        return self.decide(frame.f_globals) if verdict is None else bool(verdict)

    def _has_module(self, name: str) -> bool:
        chosen = [module for module in self.named if not is_folder(module)]
        chosen += [module for row in self.applied.values() for module in row.modules]
        return any(name == one or name.startswith(f"{one}.") for one in chosen)

    def _has_file(self, name: str, file: str) -> bool:
        """Whether the file lies in a named folder, directly or in the module's own package; not code that only happens
        to be somewhere below it, such as a virtual environment."""
        if name.partition(".")[0] in NEVER:
            return False
        path = os.path.realpath(file)
        beside = [path[len(folder) :] for folder in self.named if is_folder(folder) and path.startswith(folder)]
        return any(rest.partition(os.sep)[0].removesuffix(".py") in name.split(".") for rest in beside)

    def _main(self, spec: Any, file: Any) -> bool:
        if "__main__" in self.named:
            return True
        name = getattr(spec, "name", None)
        if isinstance(name, str) and self._has_module(name.removesuffix(".__main__")):
            return True
        if not isinstance(file, str):
            return False
        return f"{os.path.dirname(os.path.realpath(file))}{os.sep}" in self.named

    def _on_behalf(self, name: Any, frame: types.FrameType | None) -> bool:
        """Dynamo evaluates constants for the code it traces, torch prints tensors for whoever prints them, and code
        without a module (``eval()`` over a dictionary, as for expressions of a configuration) is its caller's."""
        while frame is not None:
            names = frame.f_globals
            if name == CALLER or name in TRACER:
                tracing = frame.f_locals.get("tx", frame.f_locals.get("self"))
                traced = getattr(tracing, "f_globals", None)
                if isinstance(traced, dict):
                    return self._decided(traced)
            elif isinstance(names.get("__name__"), str) and names["__name__"] not in PRINTER:
                return self._decided(names)
            frame = frame.f_back
        return False

    def _decided(self, names: dict[str, Any]) -> bool:
        return names.get("__name__") not in ASKED_ANEW and self.decide(names)


SCOPE = Scope()


def switch_on(engine: Engine) -> None:
    """Apply the rules for masqueraded modules, once there is one; they stay until the engine is off."""
    if engine.armed() and engine.facts is not None and not engine.facts.masquerade:
        engine.facts = replace(engine.facts, masquerade=True)
        for rule in engine.table.rules:
            if "masquerade" in rule.gate.clauses:
                engine.apply(rule)


@dataclass(frozen=True)
class Found:
    """One thing that is masqueraded, or a row for an installed package that does not apply here, and what to do."""

    fits: bool
    text: str
    fix: str = ""


def describe() -> list[Found]:
    """What is masqueraded here and why, for ``doctor``. A package counts as soon as it is installed."""
    found = [Found(True, f"{name}: named by {by}{_compiled(name)}") for name, by in SCOPE.named.items()]
    for row in (row for row in SCOPE.rows if find_module(row.root) is not None):
        trouble, modules = row_trouble(row), ", ".join(row.modules)
        if trouble:
            found.append(
                Found(
                    False,
                    f"{row.root}: {trouble}",
                    f"to masquerade it all the same: {VARIABLE}={','.join(row.modules)}",
                )
            )
        else:
            fix = f"to turn it off: {OFF_VARIABLE}={row.root}"
            found.append(Found(True, f"{modules} ({row.package} {row.versions}): {row.why}", fix))
    return found


def _compiled(name: str) -> str:
    """Compiled modules are asked as the Python code that calls them; the doctor tells of them."""
    suffixes = () if is_folder(name) else EXTENSION_SUFFIXES[:1]
    files = [file.name for suffix in suffixes for file in sources(name, f"*{suffix}")]
    told = ", ".join(sorted(files)[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    return f"; compiled, so not covered: {told}" if files else ""


def masquerade(*names: str) -> None:
    """Answer as on CUDA inside these modules and everything below them, and nowhere else (docs/masquerade.md).

    Args:
        names: modules as ``import`` spells them (``"pkg"``, ``"pkg.sub"``, ``"__main__"`` for the running program), or
            paths of scripts or folders, which stand for the code in that folder.

    Raises:
        ConfigError: a name is neither a module's name nor an existing path, or names torch itself.
        TypeError: a name is no string.
    """
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError("masquerade() takes one or more names of modules, as strings")
    SCOPE.name(names, "torchada.masquerade()")
    remember(names)
    imported = [name for name in names if name in sys.modules and name not in MAINS]
    if imported:
        warnings.warn(
            f"{', '.join(imported)} was imported before torchada.masquerade(): from now on it is answered as on CUDA, "
            "but what it asked while it was imported (constants such as HAS_CUDA = torch.cuda.is_available()) has the "
            "old answer. Call torchada.masquerade() first",
            TorchadaWarning,
            stacklevel=2,
        )
    from .engine import ENGINE

    switch_on(ENGINE)
