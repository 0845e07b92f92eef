"""Every row of tables/torch.py and tables/library.py changes something: without it, its probe answers otherwise."""

import contextlib
import importlib.util
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._custom_ops
import torch._decomp.decompositions_for_rng
import torch._export.serde.schema
import torch._prims_common
import torch.distributed.device_mesh
import torch.testing._internal.optests  # some rows belong to it

from torchada.engine import ENGINE
from torchada.ledger import ACTIVE
from torchada.rules import Rule
from torchada.tables.library import RULES as LIBRARY
from torchada.tables.torch import RULES as TORCH

from .test_entry_points import CPU, FACTORIES, METHODS

NET = "torch.library:Library"
PLACES = {
    "fft.fftfreq": "torch:_C._fft.fft_fftfreq",
    "fft.rfftfreq": "torch:_C._fft.fft_rfftfreq",
    "nested.nested_tensor": "torch:_C._nested.nested_tensor",
}
COMPRESSED = ([0, 1, 2], [0, 1])


def _on_musa(call: Callable[[], Any]) -> Callable[[], bool]:
    return lambda: call().device.type == "musa"


def _sparse(name: str) -> Callable[[], bool]:
    values = [[[1.0]], [[2.0]]] if "_bs" in name else [1.0, 2.0]
    more = {"layout": torch.sparse_csr} if "compressed" in name else {}
    return _on_musa(lambda: getattr(torch, name)(*COMPRESSED, values, (2, 2), device="cuda", **more))


def _raises_for_musa(call: Callable[[], Any]) -> Callable[[], bool]:
    """For what this backend refuses: the refusal must come from it and not from a missing CUDA."""

    def probe() -> bool:
        try:
            return call().device.type == "musa"  # type: ignore[no-any-return]
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            told = str(error).split("[", maxsplit=1)[0].lower()
            return "cuda" not in told and "nvidia" not in told  # a torch built for CUDA looks for NVIDIA's driver

    return probe


def _wrapper_subclass() -> torch.Tensor:
    sub = type("Sub", (torch.Tensor,), {"__torch_dispatch__": classmethod(lambda *args: None)})
    return torch.Tensor._make_wrapper_subclass(sub, (2,), device="cuda")


def _saved_on_cuda() -> io.BytesIO:
    file = io.BytesIO()
    torch.save(torch.ones(2, device="musa"), file)
    file.seek(0)
    return file


def _parts_of_a_sparse_tensor() -> tuple[torch.Tensor, torch.Tensor]:
    indices = torch.arange(2, device="musa")
    return torch.stack([indices, indices]), torch.ones(2, device="musa")


def _default_type() -> bool:
    try:
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
        return torch.zeros(1).device.type == "musa"
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")
        torch.set_default_device(None)


def _autocast_dtype() -> bool:
    with torch.autocast("musa", torch.bfloat16):
        return torch.get_autocast_dtype("cuda") == torch.bfloat16


def _autocast_set_dtype() -> bool:
    try:
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        return torch.get_autocast_dtype("musa") == torch.bfloat16
    finally:
        torch.set_autocast_dtype("musa", torch.float16)


def _autocast_set_enabled() -> bool:
    try:
        torch._C.set_autocast_enabled(True)
        return torch.is_autocast_enabled("musa")
    finally:
        torch.set_autocast_enabled("musa", False)
        torch._C.set_autocast_enabled("cuda", False)


def _gpu_dtype() -> bool:
    try:
        torch.set_autocast_dtype("musa", torch.float64)  # never CUDA's
        return torch.get_autocast_gpu_dtype() == torch.float64
    finally:
        torch.set_autocast_dtype("musa", torch.float16)


def _set_gpu_dtype() -> bool:
    try:
        torch.set_autocast_gpu_dtype(torch.bfloat16)
        return torch.get_autocast_dtype("musa") == torch.bfloat16
    finally:
        torch.set_autocast_dtype("musa", torch.float16)


def _custom_forward() -> bool:
    seen = []

    class Function(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.dtype)
            return x

    with torch.autocast("musa"):
        Function.apply(torch.ones(1, device="musa", dtype=torch.float16))
    return seen == [torch.float32]


def _export_fork_rng() -> bool:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.random.fork_rng(devices=[0]):
                return x + torch.rand(2, device="cuda")

    program = torch.export.export(Model(), (torch.ones(2, device="cuda"),), strict=False)
    return any(node.target is torch.ops.aten.rand.default for node in program.graph.nodes)


def _custom_backward() -> bool:
    wrapped = torch.amp.custom_bwd(lambda ctx, grad: None, device_type="cuda")
    values = [cell.cell_contents for cell in wrapped.__closure__ or ()]
    return "musa" in values and "cuda" not in values


def _autocast_of_custom_op(register: Callable[[Any, str], Any]) -> Callable[[], bool]:
    def probe() -> bool:
        name = f"torchada_test::probe{len(PROBED)}"
        PROBED.append(name)
        op = torch.library.custom_op(name, lambda_tensor, mutates_args=())
        register(op, name)
        with torch.autocast("musa"):
            return op(torch.ones(1, device="musa")).dtype == torch.float16  # type: ignore[no-any-return]

    return probe


def _state_of_a_mesh() -> bool:
    mesh = object.__new__(torch.distributed.device_mesh.DeviceMesh)
    mesh._device_type = "musa"
    return mesh.__getstate__()["_device_type"] == "cuda"  # type: ignore[no-any-return]


def _restored(kind: type, name: str) -> Callable[[], bool]:
    def probe() -> bool:
        made = object.__new__(kind)
        made.__setstate__({name: "cuda"})  # type: ignore[attr-defined]
        return vars(made)[name] == "musa"  # type: ignore[no-any-return]

    return probe


def _reduced_graph() -> bool:
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.ones, (1,), {"device": torch.device("musa:1")}))
    pickled = pickle.dumps(torch.fx.GraphModule(torch.nn.Module(), graph))
    return b"musa" not in pickled and pickle.loads(pickled)().get_device() == 1


PROBED: list[str] = []


def lambda_tensor(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def _fork_rng() -> bool:
    warned = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.random.fork_rng(devices=None, device_type="cuda", _caller="probe"):
            pass
        warned = [str(warning.message) for warning in caught]
    torch.random._fork_rng_warned_already = False
    return not any("CUDA reports" in text for text in warned)


def _fallback() -> bool:
    with torch.library._scoped_library("_", "IMPL") as everything:
        try:
            everything.fallback(lambda_tensor, "AutocastCUDA")
        except RuntimeError as error:
            return "AutocastPrivateUse1" in str(error)
    return False


def _kernel_handed_out() -> bool:
    with torch.library._scoped_library("torchada_probe", "FRAGMENT") as library:
        library.define("only(Tensor x) -> Tensor")
        library.impl("only", lambda x: x * 2, "PrivateUse1")
        kernel = torch.library.get_kernel("torchada_probe::only", "CUDA")
        key = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)
        return kernel.call_boxed(key, torch.ones(1, device="musa")).item() == 2  # type: ignore[no-any-return]


def _older_interface() -> bool:
    """It takes a first kernel for the device, and no second one."""

    def probe(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    free = []
    for taken in (False, True):
        probe.__name__ = f"older{len(PROBED)}"
        PROBED.append(name := f"torchada_test::{probe.__name__}")
        torch._custom_ops.custom_op(name)(probe)
        with torch.library._scoped_library("torchada_test", "FRAGMENT") as library:
            if taken:
                library.impl(probe.__name__, lambda x: x, "CUDA")
            try:
                torch._custom_ops.impl(name, device_types="cuda")(lambda x: x)
                free.append(True)
            except RuntimeError as error:  # an older torch refuses it a step later too
                free.append("already has an implementation" not in str(error))
    return free == [True, False]


def _kernel_by_device() -> bool:
    name = f"torchada_test::probe{len(PROBED)}"
    PROBED.append(name)
    op = torch.library.custom_op(name, _make, mutates_args=(), device_types="cuda")
    return op(1, torch.device("musa")).device.type == "musa"  # type: ignore[no-any-return]


def _make(n: int, device: torch.device) -> torch.Tensor:
    return torch.ones(n, device=device)


def _kernel_disabled() -> bool:
    name = f"torchada_test::probe{len(PROBED)}"
    PROBED.append(name)
    op = torch.library.custom_op(name, lambda_tensor, mutates_args=(), device_types="cpu")
    op.register_kernel("cuda")(lambda x: x * 2)
    with op.set_kernel_enabled("cuda", enabled=False):
        return op(torch.ones(1, device="musa")).item() == 1  # type: ignore[no-any-return]


def _opcheck() -> bool:
    name = f"torchada_test::probe{len(PROBED)}"
    PROBED.append(name)
    op = torch.library.custom_op(name, lambda_tensor, mutates_args=())
    given = (torch.ones(1, device="musa", requires_grad=True),)
    return set(torch.library.opcheck(op, given, test_utils="test_autograd_registration").values()) == {"SUCCESS"}


def _kernel_of_library(library: str, kernel: str) -> bool:
    """Whether a kernel for key CUDA, said by the library or at its registration, runs for MUSA tensors."""
    definition = torch.library.Library("torchada_probe", "DEF")
    implementation = torch.library.Library("torchada_probe", "IMPL", library)
    try:
        definition.define("double(Tensor x) -> Tensor")
        implementation.impl("double", lambda x: x * 2, kernel)
        return torch.ops.torchada_probe.double(torch.ones(1, device="musa")).item() == 2  # type: ignore[no-any-return]
    finally:
        implementation._destroy()
        definition._destroy()


def _without_autocast(guard: Any, *key: Any) -> Callable[[], bool]:
    """Whether *guard*, given CUDA's key, leaves out the autocast of the device."""

    def probe() -> bool:
        x = torch.ones(2, 2, device="musa")
        with torch.autocast("musa"), guard(*key):
            return (x @ x).dtype == torch.float32

    return probe


@contextlib.contextmanager
def _set(kind: str, key: Any) -> Iterator[None]:
    with torch._C._PreserveDispatchKeyGuard():
        getattr(torch._C, f"_dispatch_tls_set_dispatch_key_{kind}")(key, True)
        yield


def _included(guard: Callable[[], Any], ask: Callable[[Any], bool]) -> Callable[[], bool]:
    def probe() -> bool:
        with guard():
            return ask(torch._C)

    return probe


_CUDA_AUTOCAST, _AUTOCAST = torch._C.DispatchKey.AutocastCUDA, torch._C.DispatchKey.AutocastPrivateUse1


class _Doubled(torch._ops.HigherOrderOperator):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x)  # type: ignore[misc, no-any-return]


def _python_kernel() -> bool:
    operator = _Doubled("torchada_probe_doubled")
    operator.py_impl(torch._C.DispatchKey.CUDA)(lambda x: x * 2)
    with torch._C._AutoDispatchBelowAutograd():
        return operator(torch.ones(1, device="musa")).item() == 2


def _branch_under_autocast() -> bool:
    with torch.autocast("musa"):
        return torch.ops.higher_order.cond(True, torch.neg, torch.abs, (torch.ones(1, device="musa"),)).item() == -1  # type: ignore[no-any-return]


def _counted_numbers() -> torch.Tensor:
    state = torch.tensor(3), torch.tensor(4)
    return torch.ops.rngprims.philox_rand([2], *state, None, torch.device("musa"), torch.float32)[0]


def _save_on_cpu() -> bool:
    return torch.autograd.graph.save_on_cpu(pin_memory=True).pack_hook(torch.ones(1, device="musa"))[1].is_pinned()


PROBES: dict[str, Callable[[], bool]] = {
    **{
        PLACES.get(name, f"torch:{name}"): _on_musa(
            lambda name=name: _attribute(name)(*FACTORIES[name], device="cuda")  # type: ignore[misc]
        )
        for name in FACTORIES
    },
    **{
        f"torch:_C.TensorBase.{name}": _on_musa(
            lambda name=name: getattr(CPU, name)(*METHODS[name], device="cuda")  # type: ignore[misc]
        )
        for name in METHODS
    },
    **{f"torch:sparse_{kind}_tensor": _sparse(f"sparse_{kind}_tensor") for kind in ("bsc", "bsr", "csc", "csr")},
    "torch:sparse_compressed_tensor": _sparse("sparse_compressed_tensor"),
    "torch:kaiser_window": _raises_for_musa(lambda: torch.kaiser_window(4, device="cuda")),
    "torch:from_file": _raises_for_musa(lambda: torch.from_file("nothing", size=1, device="cuda")),
    "torch:empty_quantized": _raises_for_musa(
        lambda: torch.empty_quantized((2,), torch.quantize_per_tensor(CPU, 1.0, 0, torch.quint8), device="cuda")
    ),
    "torch:_empty_affine_quantized": _raises_for_musa(
        lambda: torch._empty_affine_quantized((2,), scale=1.0, zero_point=0, dtype=torch.quint8, device="cuda")
    ),
    "torch:_empty_per_channel_affine_quantized": _raises_for_musa(
        lambda: torch._empty_per_channel_affine_quantized(
            (2,), scales=CPU, zero_points=CPU, axis=0, dtype=torch.quint8, device="cuda"
        )
    ),
    "torch:_cudnn_init_dropout_state": _raises_for_musa(
        lambda: torch._cudnn_init_dropout_state(0.5, True, 1, dtype=torch.uint8, device="cuda")
    ),
    "torch:_assert_tensor_metadata": lambda: (
        torch._assert_tensor_metadata(torch.ones(1, device="musa:0"), device="cuda:0") is None
    ),
    "torch:_make_dep_token": _on_musa(lambda: torch._make_dep_token(device="cuda")),
    "torch:_nested_tensor_from_tensor_list": _on_musa(
        lambda: torch._nested_tensor_from_tensor_list([CPU], None, None, "cuda")
    ),
    "torch:_C.TensorBase._make_wrapper_subclass": _on_musa(_wrapper_subclass),
    "torch:Generator.__new__": _on_musa(lambda: torch.Generator("cuda")),
    "torch:Stream.__new__": _on_musa(lambda: torch.Stream("cuda")),
    "torch:Event.__new__": _on_musa(lambda: torch.Event("cuda")),
    "torch:_C._nn._parse_to": lambda: torch._C._nn._parse_to("cuda")[0].type == "musa",
    "torch:_C.StorageBase.__new__": _on_musa(lambda: torch.UntypedStorage(1, device="cuda")),
    "torch:_C.TensorBase.new": _on_musa(lambda: torch.ones(1, device="musa").new(1, device="cuda")),
    "torch:_C.TensorBase.is_cuda": lambda: torch.ones(1, device="musa").is_cuda,
    "torch:Tensor.__cuda_array_interface__": lambda: (
        not hasattr(torch.ones(1, device="musa"), "__cuda_array_interface__")
    ),
    "torch:_C.TensorBase.type": lambda: torch.ones(1, device="musa").type() == "torch.cuda.FloatTensor",
    "torch:FloatTensor.__class__.__instancecheck__": lambda: isinstance(
        torch.ones(1, device="musa"), torch.cuda.FloatTensor
    ),
    "torch:_tensor_classes": _on_musa(lambda: torch.cuda.FloatTensor(1)),
    "torch:set_default_tensor_type": _default_type,
    "torch:UntypedStorage.is_cuda": lambda: True,  # torch_musa answers the same: see EXEMPT
    "torch:TypedStorage.is_cuda": lambda: torch.ones(1, device="musa").storage().is_cuda,
    "torch.serialization:register_package": lambda: b"cuda:0" in _saved_on_cuda().getvalue(),
    "torch:Tensor._reduce_ex_internal": lambda: b"musa" not in pickle.dumps(torch.eye(2).to_sparse().to("musa")),
    "torch:_validate_sparse_coo_tensor_args": lambda: (
        torch._validate_sparse_coo_tensor_args(*_parts_of_a_sparse_tensor(), (2, 2), True) is None
    ),
    "torch.serialization:validate_cuda_device": lambda: torch.serialization.validate_cuda_device("cuda:1") == 1,
    "torch:device.__new__": lambda: torch.device("cuda").type == "musa",
    "torch:device.__reduce__": lambda: b"cuda" in pickle.dumps(torch.device("musa")),
    "torch:get_device_module": lambda: torch.get_device_module("cuda") is torch.cuda,
    "torch:_C._dispatch_key_for_device": lambda: torch._C._dispatch_key_for_device("cuda") == "PrivateUse1",
    "torch._library.custom_ops:CustomOpDef.register_autocast": _autocast_of_custom_op(
        lambda op, name: op.register_autocast("cuda", torch.float16)
    ),
    "torch:_C._dispatch_library": lambda: _kernel_of_library("CUDA", ""),
    "torch.library:Library.impl": lambda: _kernel_of_library("", "CUDA"),
    "torch.library:Library.fallback": _fallback,
    "torch.library:get_kernel": _kernel_handed_out,
    "torch:_C._ExcludeDispatchKeyGuard.__init__": _without_autocast(
        torch._C._ExcludeDispatchKeyGuard, torch._C.DispatchKeySet(_CUDA_AUTOCAST)
    ),
    "torch:_C._SetExcludeDispatchKeyGuard.__init__": _without_autocast(
        torch._C._SetExcludeDispatchKeyGuard, _CUDA_AUTOCAST, True
    ),
    "torch:_C._dispatch_tls_set_dispatch_key_excluded": _without_autocast(_set, "excluded", _CUDA_AUTOCAST),
    "torch:_C._dispatch_tls_is_dispatch_key_excluded": lambda: _with_musa_autocast(
        lambda: not torch._C._dispatch_tls_is_dispatch_key_excluded(_CUDA_AUTOCAST)
    ),
    "torch:_C._IncludeDispatchKeyGuard.__init__": _included(
        lambda: torch._C._IncludeDispatchKeyGuard(_CUDA_AUTOCAST),
        lambda c: c._dispatch_tls_local_include_set().has(_AUTOCAST),
    ),
    "torch:_C._dispatch_tls_set_dispatch_key_included": _included(
        lambda: _set("included", _CUDA_AUTOCAST), lambda c: c._dispatch_tls_local_include_set().has(_AUTOCAST)
    ),
    "torch:_C._dispatch_tls_is_dispatch_key_included": _included(
        lambda: _set("included", _AUTOCAST), lambda c: c._dispatch_tls_is_dispatch_key_included(_CUDA_AUTOCAST)
    ),
    "torch._custom_op.impl:CustomOp._check_doesnt_have_library_impl": _older_interface,
    "torch._library.custom_ops:CustomOpDef.register_kernel": _kernel_by_device,
    "torch._library.custom_ops:CustomOpDef.set_kernel_enabled": _kernel_disabled,
    "torch.testing._internal.optests.autograd_registration:autograd_registration_check": _opcheck,
    "torch._ops:OperatorBase.py_impl": _python_kernel,
    "torch:_ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS": _branch_under_autocast,
    "torch._prims.rng_prims:get_device": lambda: (
        torch._prims.rng_prims.get_device((torch.ones(1, device="musa"),), {}) == "cuda"
    ),
    "torch._prims_common:CUDARngStateHelper.get_torch_state_as_tuple": lambda: (
        torch._prims_common.CUDARngStateHelper.get_torch_state_as_tuple()[0].item() == torch.cuda.initial_seed()
    ),
    "torch._decomp.decompositions_for_rng:throw_on_non_cuda": lambda: (
        torch._decomp.decompositions_for_rng.throw_on_non_cuda(torch.device("musa")) is None
    ),
    "torch:_prims.rng_prims.register_philox_rand": _on_musa(_counted_numbers),
    NET: _on_musa(lambda: torch.ops.aten.zeros.default([2], device="cuda:1")),
    "torch:_C.get_autocast_dtype": _autocast_dtype,
    "torch:_C.set_autocast_dtype": _autocast_set_dtype,
    "torch:_C.is_autocast_enabled": lambda: _with_musa_autocast(lambda: torch._C.is_autocast_enabled("cuda")),
    "torch:_C.set_autocast_enabled": _autocast_set_enabled,
    "torch:is_autocast_enabled": lambda: torch.is_autocast_enabled is torch._C.is_autocast_enabled,
    "torch:set_autocast_enabled": lambda: torch.set_autocast_enabled is torch._C.set_autocast_enabled,
    "torch:_C.get_autocast_gpu_dtype": _gpu_dtype,
    "torch:_C.set_autocast_gpu_dtype": _set_gpu_dtype,
    "torch.amp.autocast_mode:autocast.__init__": lambda: torch.autocast("cuda").device == "musa",
    "torch.amp.autocast_mode:custom_fwd": _custom_forward,
    "torch.random:fork_rng": _export_fork_rng,
    "torch.nn.parameter:UninitializedTensorMixin._allowed_methods": _on_musa(
        lambda: torch.nn.LazyLinear(2).to("cuda").weight
    ),
    "torch.amp.autocast_mode:custom_bwd": _custom_backward,
    "torch.amp.grad_scaler:GradScaler.__init__": lambda: torch.amp.GradScaler()._device == "musa",
    "torch.amp.autocast_mode:autocast": lambda: b"musa" not in pickle.dumps(torch.autocast("musa")),
    "torch.amp.grad_scaler:GradScaler.__getstate__": lambda: b"musa" not in pickle.dumps(torch.amp.GradScaler("musa")),
    "torch.amp.grad_scaler:GradScaler.__setstate__": _restored(torch.amp.GradScaler, "_device"),
    "torch.distributed.device_mesh:DeviceMesh.__getstate__": _state_of_a_mesh,
    "torch.distributed.device_mesh:DeviceMesh.__setstate__": _restored(
        torch.distributed.device_mesh.DeviceMesh, "_device_type"
    ),
    "torch.fx.graph_module:GraphModule.__reduce__": _reduced_graph,
    "torch._export.serde.schema:Device.__init__": lambda: (
        torch._export.serde.schema.Device(type="musa", index=0).type == "cuda"
    ),
    "torch:TypedStorage.type": lambda: torch.ones(1, device="musa").storage().type() == "torch.cuda.FloatStorage",
    "torch.autograd.graph:save_on_cpu.__init__": _save_on_cpu,
    "torch:OutOfMemoryError": lambda: str(torch.OutOfMemoryError("MUSA out of memory. x")).startswith("CUDA"),
    "torch.utils.checkpoint:_get_device_module": lambda: bool(
        torch.utils.checkpoint._get_device_module("musa")._initialized
    ),
}

# Rows whose absence nothing here can show, and why.
NOT_HERE: dict[str, tuple[Callable[[], bool], str]] = {
    NET: (lambda: torch.version.cuda is not None, "in C++ a torch built for CUDA looks for NVIDIA's driver"),
    "torch.random:fork_rng": (
        lambda: importlib.util.find_spec("torch._functorch._aot_autograd.graph_capture_wrappers") is None,
        "this torch cannot set the random state of a device in export, on CUDA either",
    ),
}
AROUND_NET = ("torch._custom_op.impl:CustomOp._check_doesnt_have_library_impl",)  # rows that the net makes necessary
EXEMPT = {
    **{
        f"torch:_validate_sparse_{kind}_tensor_args": "only an older torch refuses: test_checkpoints.py"
        for kind in ("compressed", "csr", "csc", "bsr", "bsc")
    },
    "torch:device": "without it nothing is translated at all",
    "torch.accelerator._utils:_get_device_index": "only for devices made before activation: test_late.py",
    "torch:_C._construct_storage_from_data_pointer": "only for devices made before activation: test_late.py",
    "torch:_C.TensorBase._make_subclass": "only for devices made before activation: test_late.py",
    "torch:_pin_memory": "the native answer for a CUDA device without CUDA is the same error path",
    "torch:_resize_output_": "an operator of torch's code generator; reached by test_entry_points.py",
    "torch:Event.from_ipc_handle": "this backend has no event handles between processes",
    "torch:_C.TensorBase.pin_memory": "torch_musa's own function stands before it",
    "torch:_C.TensorBase.is_pinned": "torch_musa's own function stands before it",
    "torch:UntypedStorage.is_cuda": "torch_musa's own property gives the same answer",
    "torch:_C._is_autocast_available": "torch calls autocast for cuda available on every build",
    "torch.library:register_autocast": "hands on to CustomOpDef.register_autocast, or to operators made in C++",
    "torch.library:_impls": "only for kernels registered before activation: test_custom_ops.py",
    "torch._dynamo.variables.tensor:TensorVariable.method_attr_is_cuda": "test_identity.py compiles with it",
    "torch._dynamo.variables.tensor:TensorVariable.method_type": "test_identity.py compiles with it",
    "torch._inductor.autotune_process:CUDA_VISIBLE_DEVICES": "test_attention.py reads it",
    "torch:_C._jit_script_class_compile": "test_script.py compiles with it",
    "torch:_C._jit_script_compile": "test_script.py compiles with it",
    "torch.jit._recursive:create_hooks_from_stubs": "test_script.py compiles with it",
    "torch.jit._recursive:create_methods_and_properties_from_stubs": "test_script.py compiles with it",
    "torch:_C.ScriptFunction.save": "test_script.py writes a file with it",
    "torch:_C.ScriptFunction.save_to_buffer": "test_script.py writes a file with it",
    "torch:_C.ScriptModule.save": "test_script.py writes a file with it",
    "torch:_C.ScriptModule.save_to_buffer": "test_script.py writes a file with it",
    "torch.jit.frontend:ExprBuilder.build_Call": "test_script.py compiles with it",
    "torch:_C.import_ir_module": "test_script.py loads a file with it",
    "torch:_C.import_ir_module_from_buffer": "test_script.py loads a file with it",
    "torch.nn.attention.flex_attention:_validate_device": "test_attention.py makes a mask with it",
    "torch._dynamo.variables.ctx_manager:register_device_context_manager": "test_identity.py compiles with it",
}


def _attribute(path: str) -> Any:
    value: Any = torch
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _with_musa_autocast(call: Callable[[], bool]) -> bool:
    with torch.autocast("musa"):
        return call()


def _active(rule: Rule) -> bool:
    entry = ENGINE.ledger.state(rule.id)
    return entry is not None and entry.outcome == ACTIVE


MINE = [rule for rule in (*TORCH, *LIBRARY) if rule.test.startswith("tests/devices/")]


def test_every_row_has_a_probe_or_a_reason() -> None:
    rows = {rule.at for rule in MINE}
    assert {at for at in rows if at not in PROBES and at not in EXEMPT and not at.startswith("torch:Tensor.")} == set()
    assert {at for at in (*PROBES, *EXEMPT) if at not in rows} == set()


def test_the_tests_named_by_rows_exist() -> None:
    root = Path(__file__).resolve().parents[2]
    assert {rule.test for rule in MINE if not (root / rule.test.partition("::")[0]).exists()} == set()


@pytest.mark.parametrize(
    "rule", [rule for rule in MINE if rule.at in PROBES and rule.at not in EXEMPT], ids=lambda rule: rule.at
)
def test_row_is_needed(rule: Rule, rule_off: Any) -> None:
    if not _active(rule):
        assert ENGINE.ledger.states()[rule.id].outcome in ("gated", "absent"), rule.id
        return
    if rule.at in NOT_HERE and NOT_HERE[rule.at][0]():
        pytest.skip(NOT_HERE[rule.at][1])
    probe = PROBES[rule.at]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert probe()
        off = rule_off(rule.id)
        net = rule_off(NET) if rule.at not in (NET, *AROUND_NET) else None  # it would catch some of them
        try:
            if net is not None:
                net.__enter__()
            with off:
                try:
                    works = probe()
                except Exception:
                    works = False
        finally:
            if net is not None:
                net.__exit__(None, None, None)
        assert not works
        assert probe()
