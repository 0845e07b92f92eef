"""Compiled programs as a CUDA user writes them. The same text with `musa` for `cuda` is the native program.

Each body defines ``f`` and, where it is not called twice with ``x``, ``calls``: what is called, in order.
"""

from __future__ import annotations

import re

PROGRAMS: dict[str, str] = {
    # ------------------------------------------------------------ devices as values
    "factories": """
        def f(x):
            y = torch.zeros(4, device="cuda") + torch.ones(4, device="cuda:0") + torch.full((4,), 2.0, device="cuda")
            return y + torch.arange(4, device="cuda") + torch.tensor([1.0, 2.0, 3.0, 4.0], device="cuda") + x
        """,
    "factories by index": """
        def f(x):
            return torch.ones(4, device=0) + torch.zeros(4, device=torch.device("cuda", 0)) + x
        """,
    "like and new": """
        def f(x):
            h = x.cpu()
            y = torch.zeros_like(h, device="cuda") + h.new_ones(4, device="cuda:0") + h.new_full((4,), 3.0, device=0)
            return y + x + torch.empty_like(x).fill_(1.0) + x.new_tensor([1.0, 2.0, 3.0, 4.0])
        """,
    "to": """
        def f(x):
            return x.cpu().to("cuda") + x.to("cpu").to("cuda:0") + x.cpu().to(0) + x.cpu().to(device="cuda")
        """,
    "to with more": """
        def f(x):
            y = x.cpu().to("cuda", torch.float64, non_blocking=True)
            return y + x.cpu().to(torch.device("cuda", 0), copy=True) + x.cpu().to(x)
        """,
    "to another device": """
        def f(x):
            return x.to("cuda:1"), x.to(1), x.to(torch.device("cuda", 1)) + 1
        """,
    "cuda method": """
        def f(x):
            h = x.cpu()
            return h.cuda() + h.cuda(0) + h.cuda("cuda:0") + h.cuda(device="cuda"), h.cuda(1), x.cuda()
        """,
    "module to": """
        linear = torch.nn.Linear(4, 2)
        torch.nn.init.ones_(linear.weight); torch.nn.init.zeros_(linear.bias)
        linear.to("cuda")
        def f(x):
            return linear(x).detach(), linear.weight.device.index
        """,
    "device object": """
        def f(x):
            device = torch.device("cuda")
            other = torch.device("cuda:1")
            return torch.ones(2, device=device), torch.ones(2, device=other), other.index, device.index is None
        """,
    "device of a tensor": """
        def f(x):
            same = x.device == torch.device("cuda:0")
            return torch.ones(4, device=x.device) + x, x.device.index, x.get_device(), same
        """,
    "device as argument": """
        def f(device):
            return torch.ones(2, device=device)
        calls = [(d,) for d in ("cuda", torch.device("cuda"), "cuda:1", torch.device("cuda:1"), "cuda", "cpu")]
        """,
    "device as default": """
        def f(x, device="cuda"):
            return torch.ones(4, device=device) + x
        """,
    "device in a container": """
        places = {"first": "cuda:0", "all": [torch.device("cuda", i) for i in range(2)]}
        def f(x):
            return torch.ones(4, device=places["first"]) + x, torch.ones(2, device=places["all"][1])
        """,
    "device as a key": """
        table = {torch.device("cuda:0"): 10.0, torch.device("cuda:1"): 20.0}
        def f(x):
            return x + table[x.device] if x.device in table else x
        """,
    "default device": """
        def f(x):
            with torch.device("cuda"):
                y = torch.ones(4)
            return x + y, torch.ones(2)
        """,
    "set default device": """
        torch.set_default_device("cuda:1")
        def f(x):
            return torch.ones(4), x
        calls = [(x,), (x,)]
        finish = lambda: torch.set_default_device(None)
        """,
    # ------------------------------------------------------------ what a tensor says
    "is cuda": """
        def f(x):
            return x + 1 if x.is_cuda else x - 1
        calls = [(x,), (x.cpu(),), (x.to("cuda:1"),), (x,)]
        """,
    "device type": """
        def f(x):
            return x * 2 if x.device.type == "cuda" else x * 3
        """,
    "several devices": """
        def f(x):
            return x.sin() + torch.ones(4, device=x.device)
        calls = [(x,), (x.to("cuda:1"),), (x.cpu(),), (x,)]
        """,
    "dtypes": """
        def f(x):
            return x * 2
        calls = [(x,), (x.half(),), (x.double(),), (x,)]
        """,
    "dynamic shapes": """
        def f(x):
            return x.relu().sum() + torch.arange(x.shape[0], device="cuda").sum()
        calls = [(torch.ones(n, device="cuda"),) for n in (3, 4, 5, 9)]
        """,
    "gradients": """
        def f(x):
            return (x * x).sum()
        calls = [(x.clone().requires_grad_(),), (x.detach(),)]
        """,
    # ------------------------------------------------------------ torch.cuda
    "is available": """
        def f(x):
            return x + 1 if torch.cuda.is_available() is AVAILABLE else x
        """,
    "is initialized": """
        def f(x):
            return x + int(torch.cuda.is_initialized())
        """,
    "current device": """
        def f(x):
            return x + torch.cuda.current_device()
        calls = [(x,), (x,), lambda: at(1, x), (x,), lambda: at(1, x)]
        """,
    "current device as a device": """
        def f(x):
            i = torch.cuda.current_device()
            return torch.ones(4, device=i), torch.ones(2, device=f"cuda:{i}")
        calls = [(x,), lambda: at(1, x)]
        """,
    "device count": """
        def f(x):
            return x + torch.cuda.device_count()
        """,
    "properties": """
        def f(x):
            p = torch.cuda.get_device_properties(0)
            return x + p.multi_processor_count + p.major + p.minor
        """,
    "properties of a device": """
        def f(x):
            return x + torch.cuda.get_device_properties(x.device).multi_processor_count
        """,
    "properties of a string": """
        def f(x):
            p = torch.cuda.get_device_properties("cuda:1")
            return x + p.total_memory // 2**30 + len(p.name)
        """,
    "capability": """
        def f(x):
            return x + torch.cuda.get_device_capability()[0]
        """,
    "device name": """
        def f(x):
            return x + len(torch.cuda.get_device_name(0))
        """,
    "memory allocated": """
        def f(x):
            return x + 1 if torch.cuda.memory_allocated() > 0 else x
        """,
    "empty cache": """
        def f(x):
            y = x + 1
            torch.cuda.empty_cache()
            return y * 2
        """,
    "synchronize": """
        def f(x):
            y = x + 1
            torch.cuda.synchronize()
            return y * 2
        """,
    "synchronize a device": """
        def f(x):
            y = x + 1
            torch.cuda.synchronize("cuda:0")
            return y * 2
        """,
    "set device": """
        def f(x):
            torch.cuda.set_device(1)
            y = torch.ones(2, device="cuda")
            torch.cuda.set_device(0)
            return y, x
        """,
    "device context": """
        def f(x):
            with torch.cuda.device(1):
                y = torch.ones(2, device="cuda")
                i = torch.cuda.current_device()
            return x + 1, y, i
        """,
    "device contexts": """
        def f(x):
            with torch.cuda.device("cuda:1"):
                a = torch.ones(2, device="cuda")
                with torch.cuda.device(torch.device("cuda", 0)):
                    b = torch.ones(2, device="cuda")
            return a, b
        """,
    "device of": """
        def f(x):
            with torch.cuda.device_of(x):
                c = torch.ones(2, device="cuda")
            return c
        """,
    "seed": """
        def f(x):
            torch.cuda.manual_seed(7)
            return torch.rand(4, device="cuda") + x
        """,
    "random": """
        def f(x):
            return torch.rand(4, device="cuda") + torch.randn_like(x) + torch.randint(5, (4,), device="cuda")
        before = lambda: torch.cuda.manual_seed(7)
        """,
    "generator": """
        g = torch.Generator(device="cuda")
        def f(x):
            return torch.rand(4, device="cuda", generator=g) + x
        before = lambda: g.manual_seed(3)
        """,
    "is bf16 supported": """
        def f(x):
            return x + 1 if torch.cuda.is_bf16_supported() else x
        """,
    "nvtx": """
        def f(x):
            torch.cuda.nvtx.range_push("step")
            y = x + 1
            torch.cuda.nvtx.range_pop()
            return y
        """,
    "record function": """
        def f(x):
            with torch.profiler.record_function("step"):
                return x + 1
        """,
    # ------------------------------------------------------------ streams and events
    "stream": """
        stream = torch.cuda.Stream()
        def f(x):
            with torch.cuda.stream(stream):
                y = x + 1
            torch.cuda.current_stream().wait_stream(stream)
            return y * 2
        """,
    "own stream": """
        def f(x):
            s = torch.cuda.Stream()
            s.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(s):
                y = x + 1
            torch.cuda.current_stream().wait_stream(s)
            return y * 2
        """,
    "stream of a device": """
        def f(x):
            s = torch.cuda.Stream(device="cuda:1")
            with torch.cuda.stream(s):
                y = torch.ones(2, device="cuda:1")
            return x, y
        """,
    "current stream of a device": """
        def f(x):
            s = torch.cuda.current_stream("cuda:0")
            s.synchronize()
            return x + 1
        """,
    "event": """
        def f(x):
            e = torch.cuda.Event()
            e.record()
            y = x + 1
            e.wait()
            return y
        """,
    "record stream": """
        stream = torch.cuda.Stream()
        def f(x):
            with torch.cuda.stream(stream):
                y = x + 1
            y.record_stream(torch.cuda.current_stream())
            return y
        """,
    # ------------------------------------------------------------ autocast
    "autocast": """
        def f(x):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return x[None] @ x[:, None]
        """,
    "autocast by keyword": """
        def f(x):
            with torch.amp.autocast(device_type="cuda", dtype=torch.float16, enabled=True):
                y = x[None] @ x[:, None]
            with torch.autocast("cuda", enabled=False):
                return y, x[None] @ x[:, None]
        """,
    "autocast of torch.cuda": """
        def f(x):
            with torch.cuda.amp.autocast(dtype=torch.bfloat16):
                return x[None] @ x[:, None]
        """,
    "autocast around": """
        def f(x):
            return x[None] @ x[:, None], torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        calls = [(x,), lambda: cast(x), (x,)]
        """,
    "autocast as decorator": """
        @torch.autocast("cuda", dtype=torch.bfloat16)
        def f(x):
            return x[None] @ x[:, None]
        """,
    # ------------------------------------------------------------ larger things
    "attention": """
        q = torch.linspace(0, 1, 64, device="cuda").view(1, 2, 8, 4)
        def f(q):
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                return torch.nn.functional.scaled_dot_product_attention(q, q, q)
        calls = [(q,), (q,)]
        """,
    "checkpoint": """
        linear = torch.nn.Linear(4, 4).to("cuda")
        torch.nn.init.eye_(linear.weight); torch.nn.init.zeros_(linear.bias)
        def f(x):
            y = torch.utils.checkpoint.checkpoint(lambda x: linear(x).sin(), x, use_reentrant=False)
            return y.sum()
        calls = [lambda: gradient(f2, x)]
        """,
    "transforms": """
        def f(x):
            g = torch.func.grad(lambda x: (x * x * torch.ones(4, device="cuda")).sum())
            return g(x), torch.func.vmap(lambda y: y.cuda() * 2)(x), torch.func.jacrev(lambda y: y * y)(x)
        """,
    "cond": """
        def f(x):
            return torch.cond(x.sum() > 0, lambda x: x.cuda() + 1, lambda x: x - torch.ones(4, device="cuda"), (x,))
        """,
    "custom operator": """
        @torch.library.custom_op("compiled_program::twice", mutates_args=(), device_types="cuda")
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2
        twice.register_fake(lambda x: torch.empty_like(x))
        def f(x):
            return twice(x) + 1
        """,
    "disabled inside": """
        @torch.compiler.disable
        def eager(x):
            return x.cuda() + torch.ones(4, device="cuda")
        def f(x):
            return eager(x + 1) * 2
        """,
    "allowed in graph": """
        @torch.compiler.allow_in_graph
        def opaque(x):
            return x.to("cuda") + torch.ones(4, device="cuda")
        def f(x):
            return opaque(x) * 2
        """,
    "print": """
        def f(x):
            y = x + 1
            print("on", y.device.index)
            return y * 2
        """,
    "legacy types": """
        def f(x):
            return x.type(torch.float64), x.cpu().type("torch.cuda.HalfTensor")
        """,
    "accelerator": """
        def f(x):
            return x + torch.accelerator.current_device_index() + int(torch.accelerator.is_available())
        """,
    "device module": """
        def f(x):
            return x + torch.get_device_module("cuda").current_device()
        """,
    "pinned": """
        def f(x):
            return x.cpu().to("cuda", non_blocking=True) + 1
        """,
    "finite": """
        def f(x):
            return torch.isfinite(x) & x.isfinite()
        """,
    "optimizer": """
        p = torch.nn.Parameter(torch.ones(4, device="cuda"))
        p.grad = torch.full((4,), 0.5, device="cuda")
        optimizer = torch.optim.Adam([p], lr=0.1, capturable=True)
        def f(x):
            optimizer.step()
            return x
        calls = [(x,), (x,)]
        check = lambda: p.detach()
        """,
}

# How often Dynamo breaks the graph where that is not 0, as on CUDA: it has no rule for these, or one not to follow.
BREAKS = {
    "device count": 1,
    "device name": 1,
    "memory allocated": 1,
    "is bf16 supported": 1,
    "set device": 2,
    "device of": 2,
    "seed": 1,
    "generator": 1,
    "default device": 0,  # the whole function runs uncompiled
    "nvtx": 2,
    "disabled inside": 1,
    "print": 1,
    "optimizer": 2,
}
# Where torch_musa itself breaks the graph or fails, and the program for CUDA does not.
BETTER = {
    "cuda method": "Dynamo does not follow torch_musa's Tensor.musa",
    "cond": "as above, in a branch",
    "autocast around": "torch_musa's is_autocast_enabled is not torch's",
    "device module": "torch.get_device_module gives a module that is no child of torch",
    "nvtx": "torch_musa has none",
    "device of": "another one of its methods stops Dynamo",
}
# Where guards or values differ for a reason that is no fault.
OTHER_GUARDS = {
    "is cuda": "fewer: torch_musa's property is Python, and guarded as such",
    "is available": "the value compared with is a global",
    "autocast of torch.cuda": "the class is torch's own",
}
OTHER_VALUES = {"device type": "device.type says musa"}
# AOT leaves the change of the current device out, and a device without an index means another one: torch's own fault.
AOT_DIFFERS = ("device context", "device contexts")
# Where an older torch breaks no graph at a call of manual_seed, AOT leaves that out: on CUDA too.
SEED = "seed"
# What an older torch cannot have in a graph, whatever the device.
REFUSED = ("record stream",)


def native(source: str) -> str:
    """The program for torch_musa itself."""
    return re.sub("cuda", "musa", source)
