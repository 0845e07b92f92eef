"""torch.compile(backend="musagraphs"): compiled functions are captured and replayed."""

import torch
import torch_musa  # noqa: F401

from torchada import simulator


def _launches():
    return simulator.counters()["graph_launches"]


def test_replay_gives_fresh_results():
    def function(x, w):
        return torch.relu(x @ w) + 1

    compiled = torch.compile(function, backend="musagraphs")
    x, w = torch.randn(4, 4, device="musa"), torch.randn(4, 4, device="musa")
    before = _launches()
    for _ in range(4):
        x.normal_()
        torch.testing.assert_close(compiled(x, w), function(x, w))
    assert _launches() - before == 3  # the first call warms up


def test_training(run_python):
    run_python(
        """
        import torchada.simulator
        torchada.simulator.install()
        import torch, torch_musa
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to("musa")
        copy = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to("musa")
        copy.load_state_dict(model.state_dict())
        compiled = torch.compile(model, backend="musagraphs")
        x = torch.randn(16, 4, device="musa")
        before = torchada.simulator.counters()["graph_launches"]
        for _ in range(3):
            for run, parameters in ((compiled, model.parameters()), (copy, copy.parameters())):
                run(x).square().mean().backward()
                with torch.no_grad():
                    for parameter in parameters:
                        parameter -= 0.1 * parameter.grad
                        parameter.grad = None
        assert torchada.simulator.counters()["graph_launches"] > before
        for a, b in zip(model.parameters(), copy.parameters(), strict=True):
            torch.testing.assert_close(a, b)
        """,
        env={"TORCHADA": "0"},
    )
