"""Parts of torch_musa that are torch's own Python for CUDA graphs with the names of MUSA.

The vendor's package carries such copies of torch 2.7's files. Here they are made from the files of the torch that is
installed, so that they fit its other parts: identifiers are renamed, configuration and logs keep torch's names.
"""

import ast
import importlib.util
import re
import sys

_CHAIN = re.compile(r"[A-Za-z_][\w.]*")
_WORDS = (
    ("cublass", "mublass"),
    ("cublas", "mublas"),
    ("Cublas", "Mublas"),
    ("cuda", "musa"),
    ("Cuda", "Musa"),
    ("CUDA", "MUSA"),
)
_MODULES = {
    "torch._inductor.cudagraph_utils": "torch_musa._inductor.musagraph_utils",
    "torch._inductor.cudagraph_trees": "torch_musa._inductor.musagraph_trees",
}
_EXACT = {
    "DeviceType.CUDA": "DeviceType.PrivateUse1",
    "torch.backends.cuda.matmul.allow_tf32": "torch.backends.mudnn.allow_tf32",
}
# Names that are torch's, whatever the device.
_KEPT = re.compile(
    r"\bconfig\.|^get_first_incompatible_cudagraph_node$|^is_using_cudagraph_partition$|cudagraph_conditional_nodes"
    r"|^torch\._inductor\.compile_fx$|^cudagraph_skips?$|^cudagraph_skip_reason$|^cudagraph_recorded_non_static_inputs$"
    r"|ControlFlowOp\w*DispatchMode$|\.allow_tf32_cublas$|^CallbackTrigger\."
)
# Bindings that torch has in torch._C for CUDA, and torch_musa in its own module.
_NATIVE = re.compile(
    r"^torch\._C\._(cuda_\w+|cudnn_\w+|storage_Use_Count|construct_CUDA_Tensor_From_Storage_And_Metadata"
    r"|tensors_data_ptrs_at_indices_equal|has_Standard_Deleter|free_And_Remove_DeleterFn|set_storage_access_error_msg"
    r"|set_storage_data_ptr_access_error_msg)$"
)
_NATIVE_NAMES = {
    "_cuda_clearCublasWorkspaces": "_musa_clearMublasWorkspaces",
    "_cuda_beginAllocateCurrentThreadToPool": "_musa_beginAllocateCurrentStreamToPool",
    "_cuda_endAllocateToPool": "_musa_endAllocateCurrentStreamToPool",
}


def _rename_words(text):
    for old, new in _WORDS:
        text = text.replace(old, new)
    return text


def _rename(match):
    name = match[0]
    if name in _MODULES or name in _EXACT:
        return _MODULES.get(name) or _EXACT[name]
    for old, new in _MODULES.items():
        if name.startswith(old + "."):
            return new + "." + _rename_words(name[len(old) + 1 :])
    if _KEPT.search(name):
        return name
    if _NATIVE.match(name):
        local = name.removeprefix("torch._C.")
        return "torch_musa._MUSAC." + _NATIVE_NAMES.get(local, _rename_words(local))
    return _rename_words(name)


def renamed_source(module):
    """The source of torch's `module` with the names of MUSA."""
    spec = importlib.util.find_spec(module)
    source = spec.loader.get_source(module) if spec and spec.loader else None  # type: ignore[attr-defined]
    if source is None:
        raise ImportError(f"the simulated torch_musa needs the source of {module}, and this torch has none")
    package = module.rpartition(".")[0]
    source = re.sub(r"^(\s*from )\.(?=\w)", rf"\g<1>{package}.", source, flags=re.MULTILINE)
    # The names under which torch knows its logs.
    logs = re.findall(r"getArtifactLogger\(\s*__name__,\s*\"\w+\"\s*\)", source)
    parts = re.split(r"getArtifactLogger\(\s*__name__,\s*\"\w+\"\s*\)", source)
    renamed = [_CHAIN.sub(_rename, part) for part in parts]
    logs = [log.replace("__name__", repr(module)) for log in logs]
    return "".join(part + log for part, log in zip(renamed, [*logs, ""], strict=True))


def execute(module, names, changes=()):
    """Fill `names`, the namespace of a module, from torch's `module`. `changes`: (renamed text, text instead)."""
    source = renamed_source(module)
    for old, new in changes:
        if source.count(old) != 1:
            raise ImportError(f"the simulated torch_musa does not know this torch's {module}: no single {old!r}")
        source = source.replace(old, new)
    names["torch_musa"] = sys.modules["torch_musa"]
    exec(compile(source, f"<{module} for MUSA>", "exec"), names)


def definitions(module, names):
    """The functions and classes `names` (after renaming) of torch's `module`, which is imported already, for MUSA."""
    tree = ast.parse(renamed_source(module))
    tree.body = [node for node in tree.body if getattr(node, "name", None) in names]
    space = dict(vars(sys.modules[module]))
    exec(compile(tree, f"<{module} for MUSA>", "exec"), space)
    return [space[name] for name in names]
