"""Dynamo on the simulated device: what it traces in one graph, and the graph backend of torch_musa."""

import pytest

from .compiled import programs

run = pytest.fixture(scope="module", name="run")(programs)

# Each is traced in one graph and gives what it gives without compilation.
ONE_GRAPH = {
    "factory": "return torch.zeros(4, device='musa') + x",
    "to": "return x.cpu().to('musa') + x.cpu().musa()",
    "current_device": "return x + torch.musa.current_device()",
    "is_available": "return x + 1 if torch.musa.is_available() else x",
    "is_musa": "return x + 1 if x.is_musa and x.device == torch.device('musa', 0) else x",
    "properties": "return x + torch.musa.get_device_properties(0).multi_processor_count",
    "capability": "return x + torch.musa.get_device_capability()[0]",
    "device": "with torch.musa.device(1):\n        y = torch.ones(2, device='musa')\n    return x + 1, y",
    "stream": "with torch.musa.stream(stream):\n        y = x + 1\n    return y * 2",
    "own_stream": "s = torch.musa.Stream()\n    s.wait_stream(torch.musa.current_stream())\n    "
    "with torch.musa.stream(s):\n        y = x + 1\n    torch.musa.current_stream().wait_stream(s)\n    return y * 2",
    "event": "e = torch.musa.Event()\n    e.record()\n    y = x + 1\n    e.wait()\n    return y",
    "synchronize": "y = x + 1\n    torch.musa.synchronize()\n    return y",
    "autocast": "with torch.autocast('musa', dtype=torch.bfloat16):\n        return x[None] @ x[:, None]",
    "musa_autocast": "with torch.musa.amp.autocast(dtype=torch.bfloat16):\n        return x[None] @ x[:, None]",
    "random": "return torch.rand(4, device='musa') + x",
}


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_is_traced_in_one_graph(run, name):
    run(
        f"""
        stream = torch.musa.Stream()
        def f(x):
            {ONE_GRAPH[name].replace(chr(10), chr(10) + " " * 8)}
        x = torch.randn(4, device="musa")
        count = CompileCounter()
        torch.musa.manual_seed(0); want = f(x)
        torch.musa.manual_seed(0); got = torch.compile(f, backend=count, fullgraph=True)(x)
        torch.testing.assert_close(got, want)
        assert count.frame_count == 1 and torch.musa.current_device() == 0
        assert torch.musa.current_stream() == torch.musa.default_stream()
        """
    )


def test_the_accelerator_is_traced(run):
    run(
        """
        def f(x):
            return x + 1 if torch.accelerator.is_available() else x
        if not torch._dynamo.trace_rules.check(torch.accelerator.is_available):  # torch 2.7 skips them all
            assert torch.compile(f, backend="eager", fullgraph=True)(torch.ones(2)).tolist() == [2, 2]
        """
    )


def test_guards_follow_the_current_device(run):
    run(
        """
        count = CompileCounter()
        compiled = torch.compile(lambda x: x + torch.musa.current_device(), backend=count, fullgraph=True)
        x = torch.zeros(1)
        assert compiled(x).item() == 0 and compiled(x).item() == 0 and count.frame_count == 1
        with torch.musa.device(1):
            assert compiled(x).item() == 1
        assert compiled(x).item() == 0 and count.frame_count == 2
        """
    )


def test_tracing_leaves_the_devices_random_numbers_alone(run):
    run(
        """
        torch_musa.manual_seed(5)
        want = torch.rand(3, device="musa")
        torch_musa.manual_seed(5)
        state = torch_musa.get_rng_state()
        with torch._dynamo.utils.preserve_rng_state():
            torch.rand(3, device="musa")
        assert torch.equal(torch_musa.get_rng_state(), state)
        assert torch.equal(torch.compile(lambda: torch.rand(3, device="musa"), backend="eager")(), want)
        """
    )


def test_names_and_registrations(run):
    run(
        """
        import torch._dynamo.trace_rules as rules
        from torch._dynamo.variables import TorchInGraphFunctionVariable
        from torch._dynamo.variables.torch import supported_ctx_manager_classes
        from torch_musa._dynamo import trace_rules, variables
        table = rules.get_torch_obj_rule_map()
        for function in (torch_musa.current_stream, torch_musa.synchronize, torch_musa.set_stream, torch_musa._sleep):
            assert table[function] is TorchInGraphFunctionVariable, function
        assert rules._load_obj_from_str is trace_rules._load_obj_from_str
        names = trace_rules._torch_musa_non_c_binding_in_graph_functions
        assert "torch_musa.current_stream" in names and not [n for n in names if "cuda" in n or "nccl" in n]
        assert variables.torch.supported_ctx_manager_classes is supported_ctx_manager_classes
        assert set(variables.torch._musa_supported_ctx_manager_classes) == {torch.musa.amp.autocast}
        assert "musagraphs" in torch._dynamo.list_backends()
        from torch._dynamo.backends.registry import lookup_backend
        backend = lookup_backend("musagraphs")
        assert isinstance(backend, torch_musa._dynamo.backend.musagraphs.MusagraphsBackend)
        assert backend is lookup_backend("musagraphs") and backend.compiler_name == "musagraphs"
        """
    )
