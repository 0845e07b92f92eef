"""What the surface tests share: public names of released torch versions, and the rows of the product's table."""

import importlib
import importlib.util
import json
from pathlib import Path

import torchada
from torchada.engine import ENGINE

PUBLIC_NAMES = {
    version: {module: names.split() for module, names in modules.items() if module.startswith("torch.cuda")}
    for version, modules in json.loads(
        (Path(torchada.__file__).parent / "data" / "public_names.json").read_text()
    ).items()
}
"""Version -> module -> public names of torch.cuda."""


def installed(module):
    """Whether this torch has `module`."""
    return importlib.util.find_spec(module) is not None


def cuda_rules():
    """Every lazy row of torch.cuda and its submodules that is open here and whose name this torch has."""
    found = []
    for module, rules in ENGINE.table.lazy.items():
        if (module == "torch.cuda" or module.startswith("torch.cuda.")) and installed(module):
            importlib.import_module(module)
            virtual = ENGINE.virtuals[module]
            for rule in (rule for group in rules.values() for rule in group):
                if ENGINE.is_open(rule) and hasattr(virtual.native, rule.name):
                    found.append(rule)
    return found


def undecided(module, names):
    """Names for which there is neither a row, nor torch_musa's object of the same name, nor a mirrored module."""
    table = ENGINE.table
    mirror = table.mirrors.get(module)
    if mirror is None:
        return sorted(names)
    peer = importlib.import_module(mirror.peer) if mirror.peer else None
    return sorted(
        name
        for name in names
        if name not in table.lazy[module] and f"{module}.{name}" not in table.mirrors and not hasattr(peer, name)
    )
