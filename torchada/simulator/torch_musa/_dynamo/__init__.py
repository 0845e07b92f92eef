"""MUSA for Dynamo: the device interface, the graph backend, rules for torch_musa's functions.

The names load when they are asked for: the device interface is needed while torch._dynamo itself is still loading.
"""

_WHERE = {
    "MusaInterface": (".device_interface", "MusaInterface"),
    "_apply_dynamo_trace_rules_patches": (".trace_rules", "_apply_dynamo_trace_rules_patches"),
    "backend": (".backend", None),
    "device_interface": (".device_interface", None),
    "get_registered_device_interfaces": (".device_interface", "get_registered_device_interfaces"),
    "musagraphs": (".backend.musagraphs", None),
    "register_interface_for_device": (".device_interface", "register_interface_for_device"),
    "supported_ctx_manager_classes": (".variables.torch", "supported_ctx_manager_classes"),
    "trace_rules": (".trace_rules", None),
    "variables": (".variables", None),
}


def __getattr__(name):
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(where[0], __name__)
    return module if where[1] is None else getattr(module, where[1])


def __dir__():
    return sorted({*globals(), *_WHERE})
