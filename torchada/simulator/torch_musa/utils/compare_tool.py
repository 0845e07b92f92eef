"""Finding the operator that goes wrong: every operator is run on the CPU too, or its results are searched for NaN.

    open_module_tracker(model)          # messages then say in which module an operator ran
    with CompareWithCPU(atol=1e-3, rtol=1e-3, start_step=2, end_step=5) as mode:
        for batch in data:
            train(model, batch)
            mode.step()

Operator names are written as `aten.add.Tensor`, `aten.add` (all overloads) or `add`.
"""

import os
import sys
from datetime import datetime
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode, _pop_mode_temporarily
from torch.utils._pytree import tree_flatten, tree_map

_INDENT = "    "
# Operators whose result has no defined values.
_WITHOUT_VALUES = {"empty_like", "new_empty", "new_empty_strided", "resize_"}


class ModuleInfo:
    """A module in the tree of the modules that run now."""

    def __init__(self, name, father, is_leaf=False, is_forward=True):
        self.name = name
        self.father = father
        self.is_leaf = is_leaf
        self.is_forward = is_forward

    def name_with_prefix(self):
        """The name, with the direction in front: "forward: Linear"."""
        return f"{'forward' if self.is_forward else 'backward'}: {self.name}"

    def full_name(self):
        """Names from the outermost module to this one, joined by "/"; empty for the root."""
        names = []
        info = self
        while info is not None and info.father is not None:
            names.append(info.name)
            info = info.father
        return "/".join(reversed(names))


root_module_info = ModuleInfo("", None)
current_module_info = root_module_info


def _enter(module, is_forward):
    global current_module_info
    leaf = next(module.children(), None) is None
    current_module_info = ModuleInfo(type(module).__name__, current_module_info, leaf, is_forward)


def _leave():
    global current_module_info
    if current_module_info.father is not None:
        current_module_info = current_module_info.father


def pre_forward_hook(module, input):
    """Hook: `module` starts its forward."""
    _enter(module, True)


def post_forward_hook(module, input, output):
    """Hook: `module` has ended its forward."""
    _leave()


def pre_backward_hook(module, grad_output):
    """Hook: `module` starts its backward."""
    _enter(module, False)


def post_backward_hook(module, grad_input, grad_output):
    """Hook: `module` has ended its backward."""
    _leave()


def register_hooks(module):
    """Let one module tell when it runs."""
    module.register_forward_pre_hook(pre_forward_hook)
    module.register_forward_hook(post_forward_hook)
    module.register_full_backward_pre_hook(pre_backward_hook)
    module.register_full_backward_hook(post_backward_hook)


def open_module_tracker(module):
    """Let `module` and all modules in it tell when they run."""
    for one in module.modules():
        register_hooks(one)


def get_op_name(op_func):
    """The name of an operator: "aten.add.Tensor"."""
    if isinstance(op_func, torch._ops.OpOverload):
        return str(op_func)
    return getattr(op_func, "__name__", str(op_func))


def get_full_op_name(op_name):
    """The operator with the module that runs it: "Net/Linear/aten.addmm.default (forward)"."""
    info = current_module_info
    if info.father is None:
        return op_name
    return f"{info.full_name()}/{op_name} ({'forward' if info.is_forward else 'backward'})"


def _named(func, names):
    full = get_op_name(func)
    spellings = {full, full.rpartition(".")[0], getattr(func, "_overloadpacket", func).__name__}
    return not spellings.isdisjoint(names)


class LogToFile:
    """Context manager: what is printed inside goes to `filepath` as well. A process empties each file once."""

    _has_cleared_files: set[str] = set()

    def __init__(self, filepath=None):
        self.filepath = filepath
        self._file: Any = None
        self._stdout: Any = None

    def __enter__(self):
        if self.filepath is None:
            return self
        folder = os.path.dirname(self.filepath)
        if folder:
            os.makedirs(folder, exist_ok=True)
        mode = "a" if self.filepath in self._has_cleared_files else "w"
        self._file = open(self.filepath, mode)
        self._has_cleared_files.add(self.filepath)
        self._stdout = sys.stdout
        sys.stdout = self
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        if self._file is not None:
            sys.stdout = self._stdout
            self._file.close()
            self._file = self._stdout = None

    def write(self, text):
        """Write to both places."""
        self._file.write(text)
        return self._stdout.write(text)

    def flush(self):
        """Flush both places."""
        self._file.flush()
        self._stdout.flush()


class TorchFuncMockNoDispatch:
    """A method of Tensor that runs outside the present mode: what it prints is not itself examined."""

    def __init__(self, pt_impl):
        self.pt_impl = pt_impl

    def __get__(self, obj, c):
        return partial(self, obj)

    def __call__(self, obj, *args, **kwargs):
        if _get_current_dispatch_mode() is None:
            return self.pt_impl(obj, *args, **kwargs)
        with _pop_mode_temporarily():
            return self.pt_impl(obj, *args, **kwargs)


def recursive_apply(func):
    """A function that applies `func` to every tensor in nested arguments and leaves the rest as it is."""

    def apply(inputs):
        return tree_map(lambda value: func(value) if isinstance(value, torch.Tensor) else value, inputs)

    return apply


def convert_to_cpu(inputs):
    """Copies of all tensors on the CPU; one copy for a tensor that comes twice."""
    copies = {}

    def copy(tensor):
        if id(tensor) not in copies:
            # A copy of its own also for a CPU tensor: the operator may change its arguments.
            copies[id(tensor)] = tensor.detach().cpu().clone() if tensor.device.type != "meta" else tensor
        return copies[id(tensor)]

    return recursive_apply(copy)(inputs)


def convert_to_musa(inputs):
    """All tensors on the current MUSA device."""
    return recursive_apply(lambda tensor: tensor.detach().to("musa"))(inputs)


def convert_to_dtype(inputs, dtype):
    """All floating point tensors in `dtype`."""
    return recursive_apply(lambda t: t.to(dtype) if t.is_floating_point() else t)(inputs)


def format_tensor(tensor):
    """Shape, dtype and device of a tensor, with minimum, maximum and mean of a real one."""
    text = f"Tensor(shape={tuple(tensor.shape)}, dtype={tensor.dtype}, device={tensor.device}"
    if tensor.numel() and not tensor.is_complex() and not tensor.is_sparse and not tensor.is_quantized:
        values = tensor.detach().cpu().double()
        text += f", min={values.min().item():g}, max={values.max().item():g}, mean={values.mean().item():g}"
    return text + ")"


def recursive_print(args, top_level=True):
    """Print nested arguments, tensors in short form."""
    print(f"{_INDENT}{tree_map(lambda v: format_tensor(v) if isinstance(v, torch.Tensor) else v, args)}")


def _plain(tensor):
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    return tensor.to_dense().cpu() if tensor.layout is not torch.strided else tensor.cpu()


def compare_tensors(tensor1, tensor2, atol, rtol):
    """True when both have the same shape and dtype and their values are close; NaN is equal to NaN."""
    if tensor1.shape != tensor2.shape or tensor1.dtype != tensor2.dtype:
        return False
    one, two = _plain(tensor1), _plain(tensor2)
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, two)
    wide = torch.complex128 if one.is_complex() else torch.float64
    return torch.allclose(one.to(wide), two.to(wide), atol=atol, rtol=rtol, equal_nan=True)


def print_tensors_diff(tensor1, tensor2, atol, rtol):
    """Print in what two tensors differ: how many values, by how much, and the first ones."""
    if tensor1.shape != tensor2.shape or tensor1.dtype != tensor2.dtype:
        print(f"{_INDENT}{tuple(tensor1.shape)} {tensor1.dtype} against {tuple(tensor2.shape)} {tensor2.dtype}")
        return
    wide = torch.complex128 if tensor1.is_complex() else torch.float64
    one, two = _plain(tensor1).to(wide), _plain(tensor2).to(wide)
    wrong = ~torch.isclose(one, two, atol=atol, rtol=rtol, equal_nan=True)
    distance = (one - two).abs()[wrong]
    print(f"{_INDENT}{int(wrong.sum())} of {wrong.numel()} values differ, by up to {distance.max().item():g}")
    for index in wrong.nonzero()[:5].tolist():
        print(f"{_INDENT}at {tuple(index)}: {one[tuple(index)].item():g} against {two[tuple(index)].item():g}")


def recursive_compare(out1, out2, atol, rtol, depth=0):
    """True when nested results agree; differences are printed."""
    if isinstance(out1, torch.Tensor) and isinstance(out2, torch.Tensor):
        if compare_tensors(out1, out2, atol, rtol):
            return True
        print_tensors_diff(out1, out2, atol, rtol)
        return False
    if isinstance(out1, (list, tuple)) and isinstance(out2, (list, tuple)):
        same = [recursive_compare(one, two, atol, rtol, depth + 1) for one, two in zip(out1, out2, strict=False)]
        return all(same) and len(out1) == len(out2)
    if isinstance(out1, dict) and isinstance(out2, dict):
        same = [recursive_compare(out1[k], out2[k], atol, rtol, depth + 1) for k in out1.keys() & out2.keys()]
        return all(same) and out1.keys() == out2.keys()
    if isinstance(out1, float) and isinstance(out2, float):
        same = compare_tensors(torch.tensor(out1), torch.tensor(out2), atol, rtol)
    else:
        same = out1 == out2
    if not same:
        print(f"{_INDENT}{out1!r} against {out2!r}")
    return bool(same)


def save_data_for_op(out, args, kwargs, save_dir, op_name, file_suffix=""):
    """Write an operator's arguments and result to a file in `save_dir`, for the functions below; returns the path."""
    os.makedirs(save_dir, exist_ok=True)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    path = os.path.join(save_dir, f"{op_name}{file_suffix}_{stamp}.pt")
    torch.save({"op_name": op_name, "args": args, "kwargs": kwargs, "out": out}, path)
    return path


def _on_cpu(func, args, kwargs):
    kwargs = {k: torch.device("cpu") if k == "device" and v is not None else v for k, v in kwargs.items()}
    return func(*args, **kwargs)


def compare_for_single_func(func, args, kwargs, atol, rtol, func_name=None, verbose=True):
    """Run `func` on the MUSA device and on the CPU; True when the results agree. Differences are printed."""
    name = func_name or get_op_name(func)
    expected = _on_cpu(func, convert_to_cpu(args), convert_to_cpu(kwargs))
    same = recursive_compare(func(*convert_to_musa(args), **convert_to_musa(kwargs)), expected, atol, rtol)
    if verbose or not same:
        print(f"{name}: {'same' if same else 'different'} on MUSA and CPU")
    return same


def compare_for_single_op(inputs_data_save_path, op_func, atol, rtol):
    """`compare_for_single_func` with arguments that `dump_error_data=True` has written."""
    data = torch.load(inputs_data_save_path, weights_only=False)
    return compare_for_single_func(op_func, data["args"], data["kwargs"], atol, rtol)


def _not_finite(out):
    count = {"nan": 0, "inf": 0}
    for value in tree_flatten(out)[0]:
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
            if value.device.type == "meta":
                continue
            values = _plain(value)
            count["nan"] += int(values.isnan().sum())
            count["inf"] += int(values.isinf().sum())
    return {kind: number for kind, number in count.items() if number}


def nan_inf_track_for_single_func(func, args, kwargs, func_name=None):
    """Run `func` on the MUSA device; True when its result has a NaN or an infinity, which is printed."""
    found = _not_finite(func(*convert_to_musa(args), **convert_to_musa(kwargs)))
    print(f"{func_name or get_op_name(func)}: {found or 'neither NaN nor Inf'}")
    return bool(found)


def nan_inf_track_for_single_op(inputs_data_save_path, op_func):
    """`nan_inf_track_for_single_func` with arguments that `dump_error_data=True` has written."""
    data = torch.load(inputs_data_save_path, weights_only=False)
    return nan_inf_track_for_single_func(op_func, data["args"], data["kwargs"])


class _Watch(TorchDispatchMode):
    """What both modes share: which operators, on which ranks, in which steps, and where the messages go."""

    def _set_up(self, enabled, target_list, white_list, enable_ranks, should_log_to_file, output_dir, steps, dump):
        super().__init__()
        self.rank = int(os.environ.get("RANK", "0"))
        self.enabled = enabled and (enable_ranks is None or self.rank in enable_ranks)
        self.target_list = target_list
        self.white_list = white_list or ()
        self.output_dir = output_dir
        self.log_path = os.path.join(output_dir, f"{type(self).__name__}_rank{self.rank}.log")
        self.log = LogToFile(self.log_path if should_log_to_file else None)
        self.dump_error_data = dump
        self.start_step, self.end_step = steps
        self.current_step = 0
        self.active = False
        self._mocked = {}
        self.update_active_state()

    def _update(self):
        started = self.start_step is None or self.current_step >= self.start_step
        ended = self.end_step is not None and self.current_step >= self.end_step
        self.active = self.enabled and started and not ended

    def _step(self):
        self.current_step += 1
        self.update_active_state()

    def _enter(self, names):
        for name in names:
            self._mocked[name] = getattr(torch.Tensor, name)
            setattr(torch.Tensor, name, TorchFuncMockNoDispatch(self._mocked[name]))
        return super().__enter__()

    def _exit(self, exc_type, exc_val, exc_tb):
        for name, former in self._mocked.items():
            setattr(torch.Tensor, name, former)
        self._mocked.clear()
        return super().__exit__(exc_type, exc_val, exc_tb)

    def _watched(self, func, values):
        if not self.active or _named(func, self.white_list):
            return False
        if self.target_list is not None and not _named(func, self.target_list):
            return False
        return any(isinstance(value, torch.Tensor) and value.device.type == "musa" for value in values)

    def _dump(self, func, out, given):
        args, kwargs = given
        path = save_data_for_op(
            out, args, kwargs, os.path.join(self.output_dir, "error_data"), get_op_name(func), f"_rank{self.rank}"
        )
        print(f"{_INDENT}arguments and result: {path}")


class CompareWithCPU(_Watch):
    """Mode: runs every operator of the MUSA device on the CPU as well, and prints where the results differ.

    `target_list` names the only operators to look at, `white_list` those not to look at; `enable_ranks` are the
    ranks (environment variable RANK) it works on; steps are counted from 0 by `step()`, and it works from
    `start_step` up to, but not including, `end_step`. `dump_error_data` writes the arguments of differing
    operators to `output_dir`/error_data. Operators that draw random numbers are not compared.
    """

    TENSOR_FUNCS_NO_DISPATCH = ["__repr__"]

    def __init__(
        self,
        enabled=True,
        atol=0.001,
        rtol=0.001,
        target_list=None,
        white_list=None,
        dump_error_data=False,
        verbose=True,
        enable_ranks=None,
        should_log_to_file=False,
        output_dir="",
        start_step=None,
        end_step=None,
    ):
        self.atol, self.rtol, self.verbose = atol, rtol, verbose
        steps = (start_step, end_step)
        self._set_up(
            enabled, target_list, white_list, enable_ranks, should_log_to_file, output_dir, steps, dump_error_data
        )

    def __enter__(self):
        return self._enter(self.TENSOR_FUNCS_NO_DISPATCH)

    def __exit__(self, exc_type, exc_val, exc_tb):
        return self._exit(exc_type, exc_val, exc_tb)

    def step(self):
        """Tell that a step is over."""
        self._step()

    def update_active_state(self):
        """Decide anew whether this step is examined."""
        self._update()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not self.active:
            return func(*args, **kwargs)
        # Before the operator runs: it may change its arguments.
        watched = self._watched(func, tree_flatten((args, kwargs))[0])
        copies = convert_to_cpu((args, kwargs)) if watched else None
        out = func(*args, **kwargs)
        if watched:
            with self.log:
                self._compare(func, (args, kwargs), copies, out)
        return out

    def _compare(self, func, given, copies, out):
        name = get_full_op_name(get_op_name(func))
        if torch.Tag.nondeterministic_seeded in func.tags or any(
            isinstance(value, torch.Generator) for value in tree_flatten(given)[0]
        ):
            if self.verbose:
                print(f"{name}: not compared, it draws random numbers")
            return
        if func._overloadpacket.__name__ in _WITHOUT_VALUES:
            return
        saved = convert_to_cpu(copies) if self.dump_error_data else None
        try:
            expected = _on_cpu(func, *copies)
        except (NotImplementedError, RuntimeError) as error:
            print(f"{name}: not compared, the CPU cannot do it: {error}")
            return
        same = recursive_compare(out, expected, self.atol, self.rtol)
        if func._schema.is_mutable:  # what it changed in its arguments
            same = recursive_compare(given, copies, self.atol, self.rtol) and same
        if same:
            if self.verbose:
                print(f"{name}: same on MUSA and CPU")
            return
        print(f"{name}: different on MUSA and CPU (atol={self.atol}, rtol={self.rtol}), step {self.current_step}")
        recursive_print(given)
        if self.dump_error_data:
            self._dump(func, convert_to_cpu(out), saved)


class NanInfTracker(_Watch):
    """Mode: prints every operator of the MUSA device whose result has a NaN or an infinity.

    The arguments are those of `CompareWithCPU`.
    """

    TENSOR_FUNCS_NO_DISPATCH = ["__repr__"]

    def __init__(
        self,
        enabled=True,
        target_list=None,
        white_list=None,
        enable_ranks=None,
        should_log_to_file=False,
        output_dir="",
        dump_error_data=False,
        start_step=None,
        end_step=None,
    ):
        steps = (start_step, end_step)
        self._set_up(
            enabled, target_list, white_list, enable_ranks, should_log_to_file, output_dir, steps, dump_error_data
        )

    def __enter__(self):
        return self._enter(self.TENSOR_FUNCS_NO_DISPATCH)

    def __exit__(self, exc_type, exc_val, exc_tb):
        return self._exit(exc_type, exc_val, exc_tb)

    def step(self):
        """Tell that a step is over."""
        self._step()

    def update_active_state(self):
        """Decide anew whether this step is examined."""
        self._update()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        saved = convert_to_cpu((args, kwargs)) if self.active and self.dump_error_data else None
        out = func(*args, **kwargs)
        if not self._watched(func, tree_flatten((out, args))[0]):
            return out
        with self.log:
            found = _not_finite(out)
            if found:
                numbers = ", ".join(f"{number} {'NaN' if kind == 'nan' else 'Inf'}" for kind, number in found.items())
                print(f"{get_full_op_name(get_op_name(func))}: {numbers} in the result, step {self.current_step}")
                recursive_print((args, kwargs))
                if saved is not None:
                    self._dump(func, convert_to_cpu(out), saved)
        return out
