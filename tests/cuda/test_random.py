"""Seeds and states of the devices' generators."""

import pytest
import torch


def draw(device="cuda"):
    return torch.rand(5, device=device).tolist()


@pytest.fixture(autouse=True)
def keep_states():
    states = torch.cuda.get_rng_state_all()
    cpu = torch.get_rng_state()
    yield
    torch.cuda.set_rng_state_all(states)
    torch.set_rng_state(cpu)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:1", 0, 1, torch.device("cuda"), torch.device("cuda:1")])
def test_states(device):
    where = torch.device("cuda", device) if isinstance(device, int) else device
    state = torch.cuda.get_rng_state(device)
    assert state.dtype is torch.uint8 and state.device.type == "cpu"
    first = draw(where)
    assert draw(where) != first
    torch.cuda.set_rng_state(state, device)
    assert draw(where) == first
    torch.cuda.set_rng_state(new_state=state, device=device)
    assert draw(where) == first


@pytest.mark.skipif(not hasattr(torch.cuda.random, "is_initialized"), reason="a name of later versions")
def test_states_are_set_at_once():
    """Not queued for an initialisation that has happened already."""
    assert torch.cuda.random.is_initialized is torch.cuda.is_initialized
    torch.cuda.init()
    assert torch.cuda.random.is_initialized()


def test_all_states():
    states = torch.cuda.get_rng_state_all()
    assert len(states) == torch.cuda.device_count()
    first = [draw("cuda:0"), draw("cuda:1")]
    torch.cuda.set_rng_state_all(states)
    assert [draw("cuda:0"), draw("cuda:1")] == first


def test_seeds():
    torch.cuda.manual_seed(7)
    assert torch.cuda.initial_seed() == 7
    first = draw()
    torch.cuda.manual_seed(7)
    assert draw() == first
    torch.cuda.manual_seed_all(11)
    assert draw("cuda:0") == draw("cuda:1")
    with torch.cuda.device(1):
        torch.cuda.manual_seed(12)
        assert torch.cuda.initial_seed() == 12
    assert torch.cuda.initial_seed() == 11
    torch.cuda.seed_all()
    assert draw("cuda:0") == draw("cuda:1")
    seed = torch.cuda.initial_seed()
    torch.cuda.seed()
    assert torch.cuda.initial_seed() != seed


def test_torch_manual_seed_gives_one_stream():
    """torch.manual_seed seeds through torch.cuda and through the private backend: the outcome is one and the same."""
    torch.manual_seed(123)
    both = draw("cuda:0"), draw("cuda:1"), torch.rand(5).tolist()
    torch.manual_seed(123)
    assert (draw("cuda:0"), draw("cuda:1"), torch.rand(5).tolist()) == both
    torch.cuda.manual_seed_all(123)
    assert (draw("cuda:0"), draw("cuda:1")) == both[:2]
    torch.musa.manual_seed_all(123)
    assert (draw("cuda:0"), draw("cuda:1")) == both[:2]


def test_seeds_before_initialisation(run_python):
    done = run_python(
        """
        import torchada, torch
        torch.cuda.manual_seed(1)
        torch.cuda.manual_seed_all(5)
        torch.manual_seed(42)
        print(torch.cuda.is_initialized())
        early = torch.rand(3, device="cuda").tolist()
        torch.manual_seed(42)
        print(torch.rand(3, device="cuda").tolist() == early, torch.cuda.initial_seed())
        """
    )
    assert done.stdout.splitlines() == ["False", "True 42"]


def test_the_cpu_stream_is_its_own():
    torch.manual_seed(3)
    cpu = torch.rand(4).tolist()
    torch.manual_seed(3)
    draw()
    assert torch.rand(4).tolist() == cpu


def test_fork_rng():
    torch.cuda.manual_seed_all(1)
    state = torch.cuda.get_rng_state()
    with torch.random.fork_rng(devices=[0, 1]):
        draw()
    assert torch.equal(torch.cuda.get_rng_state(), state)
    with torch.random.fork_rng(devices=["cuda:0"], device_type="cuda"):
        draw()
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_generators():
    generator = torch.Generator(device="cuda")
    generator.manual_seed(9)
    first = torch.rand(3, device="cuda", generator=generator).tolist()
    assert torch.rand(3, device="cuda", generator=generator.manual_seed(9)).tolist() == first
    assert torch.cuda.default_generators[0].device == torch.device("cuda:0")
    assert torch.cuda.default_generators[1].initial_seed() == torch.cuda.default_generators[1].initial_seed()


def test_bad_states():
    with pytest.raises((RuntimeError, TypeError)):
        torch.cuda.set_rng_state(torch.zeros(3))
    with pytest.raises((IndexError, RuntimeError)):
        torch.cuda.get_rng_state(99)
