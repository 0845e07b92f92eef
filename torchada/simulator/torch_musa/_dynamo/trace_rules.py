"""Dynamo's rules for torch_musa's functions: those torch has for its own accelerators' functions of the same names."""

import importlib
import types

import torch._dynamo.trace_rules as _rules
from torch._dynamo.trace_rules import torch_name_rule_map
from torch._dynamo.variables import TorchInGraphFunctionVariable

__all__ = ["_apply_dynamo_trace_rules_patches"]

_PREFIXES = (("torch.cuda.", "torch_musa."), ("torch._C._cuda_", "torch_musa._MUSAC._musa_"))


def _load_obj_from_str(fully_qualified_name):
    module, name = fully_qualified_name.rsplit(".", maxsplit=1)
    return getattr(importlib.import_module(module), name)


def _is_ours(value):
    kinds = (types.FunctionType, types.BuiltinFunctionType)
    return isinstance(value, kinds) and (value.__module__ or "").startswith("torch_musa")


def _our_name(name):
    """The counterpart of a name in torch's rules; None when there is none that is a function of torch_musa."""
    for theirs, ours in _PREFIXES:
        if name.startswith(theirs):
            candidate = ours + name[len(theirs) :]
            for where in (candidate, "torch_musa.core." + candidate.removeprefix("torch_musa.")):
                try:
                    found = _load_obj_from_str(where)
                except (AttributeError, ImportError):
                    continue
                if _is_ours(getattr(found, "__wrapped__", found)):
                    return where
    return None


_counterparts = {
    ours: rule for rules in torch_name_rule_map for name, rule in rules.items() if (ours := _our_name(name)) is not None
}
_torch_musa_non_c_binding_in_graph_functions = dict.fromkeys(
    [name for name, rule in _counterparts.items() if rule is TorchInGraphFunctionVariable],
    TorchInGraphFunctionVariable,
)
_other_rules = {name: rule for name, rule in _counterparts.items() if rule is not TorchInGraphFunctionVariable}


def _apply_dynamo_trace_rules_patches():
    """Add the rules to torch's; twice is once."""
    if _torch_musa_non_c_binding_in_graph_functions not in torch_name_rule_map:
        torch_name_rule_map.extend([_torch_musa_non_c_binding_in_graph_functions, _other_rules])
    _rules._load_obj_from_str = _load_obj_from_str
    _rules.get_torch_obj_rule_map.cache_clear()
