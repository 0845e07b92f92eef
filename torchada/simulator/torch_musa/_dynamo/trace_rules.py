"""Dynamo's rules for torch_musa's functions; not simulated yet."""

from .._not_simulated import absent, refuse

__all__ = ["_apply_dynamo_trace_rules_patches"]


def _apply_dynamo_trace_rules_patches():
    refuse("torch_musa._dynamo.trace_rules._apply_dynamo_trace_rules_patches", "Dynamo trace rules")


__getattr__ = absent(
    __name__, {"_load_obj_from_str", "_torch_musa_non_c_binding_in_graph_functions"}, "Dynamo trace rules"
)
