"""Graphs over the native binding."""

import gc
import weakref
from typing import Any

import torch
import torch_musa
from torch.utils import _pytree

_MUSAC = torch_musa._MUSAC


def is_current_stream_capturing():
    """True while the current stream is being captured."""
    return _MUSAC._musa_isCurrentStreamCapturing()


def graph_pool_handle():
    """A new identity for a memory pool that graphs can share."""
    return _MUSAC._graph_pool_handle()


class MUSAGraph(_MUSAC._MUSAGraph):  # type: ignore[name-defined, misc]
    """A captured piece of work."""

    _graph_instances: Any = weakref.WeakSet()
    _latest: Any = None

    def __new__(cls):
        made = super().__new__(cls)
        cls._graph_instances.add(made)
        MUSAGraph._latest = weakref.ref(made)
        return made

    @classmethod
    def get_latest_instance(cls):
        """The newest graph that is alive, or None."""
        return cls._latest() if cls._latest is not None else None

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """Start to capture the current stream. `pool`: from `graph_pool_handle()` or another graph."""
        if pool is None:
            super().capture_begin(capture_error_mode=capture_error_mode)
        else:
            super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)

    def capture_end(self):
        """End the capture."""
        super().capture_end()

    def reinstantiate_graph(self):
        """Make the executable form anew."""
        super().reinstantiate_graph()

    def replay(self):
        """Run the captured work."""
        super().replay()

    def reset(self):
        """Forget the captured work."""
        super().reset()

    def pool(self):
        """Identity of the graph's memory pool."""
        return super().pool()

    def enable_debug_mode(self):
        """Keep what `debug_dump` needs."""
        return super().enable_debug_mode()

    def debug_dump(self, debug_path):
        """Write a description of the graph to a file."""
        return super().debug_dump(debug_path)


class graph:
    """Context manager: what runs inside is captured into `musa_graph`, on a stream of its own."""

    default_capture_stream = None

    def __init__(self, musa_graph, pool=None, stream=None, capture_error_mode="global"):
        if stream is None:
            if type(self).default_capture_stream is None:
                type(self).default_capture_stream = torch_musa.Stream()
            stream = type(self).default_capture_stream
        self.pool = () if pool is None else (pool,)
        self.capture_stream = stream
        self.stream_ctx = torch_musa.stream(stream)
        self.musa_graph = musa_graph
        self.capture_error_mode = capture_error_mode

    def __enter__(self):
        torch_musa.synchronize()
        gc.collect()  # a dead cycle may hold memory the capture could use
        torch_musa.empty_cache()
        self.stream_ctx.__enter__()
        try:
            self.musa_graph.capture_begin(*self.pool, capture_error_mode=self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(self, exc_type, exc_value, traceback):
        try:
            self.musa_graph.capture_end()
        finally:
            self.stream_ctx.__exit__(exc_type, exc_value, traceback)


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False):
    """Callables (functions or modules) whose forward and backward passes are graphs.

    `sample_args`: a tuple of tensors, or a tuple of such tuples for a tuple of callables; later calls copy their
    arguments into these shapes. Modules are patched in place and returned; in the other training mode they run as
    before. RuntimeError under autocast with a cache, for modules with hooks or buffers that require grad.
    """
    if torch.is_autocast_enabled("musa") and torch.is_autocast_cache_enabled():
        raise RuntimeError("make_graphed_callables does not support the autocast caching. Set `cache_enabled=False`.")
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    flat_samples = []
    for function, sample in zip(functions, samples, strict=True):
        if isinstance(function, torch.nn.Module):
            _check_module(function)
        flat, _ = _pytree.tree_flatten(sample)
        if not all(isinstance(value, torch.Tensor) for value in flat):
            raise TypeError("In the beta API, sample_args for each callable must contain only Tensors.")
        flat_samples.append(tuple(flat))

    parameters = [tuple(f.parameters()) if isinstance(f, torch.nn.Module) else () for f in functions]
    inputs = [flat + params for flat, params in zip(flat_samples, parameters, strict=True)]
    pool = graph_pool_handle()

    torch_musa.synchronize()
    with torch_musa.stream(torch_musa.Stream()):
        for function, sample, given in zip(functions, samples, inputs, strict=True):
            for _ in range(num_warmup_iters):
                outputs, _ = _pytree.tree_flatten(function(*sample))
                _gradients(
                    outputs, [torch.empty_like(o) for o in outputs if o.requires_grad], given, allow_unused_input
                )
    torch_musa.synchronize()

    # All forward passes, then the backward passes in reverse: as they will run, which lets them share memory.
    forwards = []
    for function, sample in zip(functions, samples, strict=True):
        forward = MUSAGraph()
        with graph(forward, pool=pool):
            result = function(*sample)
        forwards.append((forward, *_pytree.tree_flatten(result)))
    backwards = []
    for (_, outputs, _), given in zip(reversed(forwards), reversed(inputs), strict=True):
        grads = [torch.empty_like(o) if o.requires_grad else None for o in outputs]
        backward = MUSAGraph()
        with graph(backward, pool=pool):
            found = _gradients(outputs, [g for g in grads if g is not None], given, allow_unused_input)
        backwards.append((backward, grads, found))
    backwards.reverse()

    made = []
    for i, function in enumerate(functions):
        graphed = _graphed(forwards[i], backwards[i], inputs[i], len(flat_samples[i]))
        made.append(_patched(function, graphed) if isinstance(function, torch.nn.Module) else graphed)
    return made[0] if single else tuple(made)


def _check_module(module):
    if module._backward_hooks or module._forward_hooks or module._forward_pre_hooks:
        raise RuntimeError(
            "Modules must not have hooks registered at the time they are passed to make_graphed_callables."
        )
    if any(buffer.requires_grad for buffer in module.buffers()):
        raise RuntimeError("In any Module passed to make_graphed_callables, only parameters may be trainable.")


def _gradients(outputs, grads, given, allow_unused):
    """Gradients for `given`, None where it needs none."""
    outputs = [o for o in outputs if o.requires_grad]
    wanted = [x for x in given if x.requires_grad]
    if not outputs or not wanted:
        return [None] * len(given)
    found = iter(torch.autograd.grad(outputs, wanted, grad_outputs=grads, only_inputs=True, allow_unused=allow_unused))
    return [next(found) if x.requires_grad else None for x in given]


def _graphed(forward, backward, static_inputs, count):
    forward_graph, outputs, spec = forward
    backward_graph, static_grads, found = backward

    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *given):
            for static, value in zip(static_inputs[:count], given, strict=False):
                if static.data_ptr() != value.data_ptr():
                    static.copy_(value)
            forward_graph.replay()
            return tuple(output.detach() for output in outputs)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, *grads):
            for static, grad in zip(static_grads, grads, strict=True):
                if static is not None and static.data_ptr() != grad.data_ptr():
                    static.copy_(grad)
            backward_graph.replay()
            return tuple(grad.detach() if grad is not None else None for grad in found)

    def call(*args):
        flat, _ = _pytree.tree_flatten(args)
        # Parameters are arguments so that autograd calls backward() for them; their values are in place.
        return _pytree.tree_unflatten(Graphed.apply(*flat, *static_inputs[count:]), spec)

    return call


def _patched(module, graphed):
    training, plain = module.training, module.forward

    def forward(*args):
        return graphed(*args) if module.training == training else plain(*args)

    module.forward = forward
    return module


def update_musa_graph_with_profile():
    """Instantiate all graphs anew, so that a profiler that has started sees what they run."""
    for one in list(MUSAGraph._graph_instances):
        one.reinstantiate_graph()
