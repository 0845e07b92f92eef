"""Random numbers."""

import torch


def seed_gives_the_same_numbers():
    torch.cuda.manual_seed(7)
    a = torch.rand(5, device="cuda")
    torch.cuda.manual_seed(7)
    assert torch.equal(a, torch.rand(5, device="cuda"))


def torch_manual_seed_reaches_the_device():
    torch.manual_seed(3)
    a = torch.randn(5, device="cuda")
    torch.manual_seed(3)
    assert torch.equal(a, torch.randn(5, device="cuda"))


def seeds_of_all_devices():
    torch.cuda.manual_seed_all(11)
    a = [torch.rand(3, device=f"cuda:{i}") for i in range(2)]
    torch.cuda.manual_seed_all(11)
    assert all(torch.equal(x, torch.rand(3, device=x.device)) for x in a)


def initial_seed():
    torch.cuda.manual_seed(42)
    assert torch.cuda.initial_seed() == 42


def random_seed():
    torch.cuda.seed()
    first = torch.cuda.initial_seed()
    torch.cuda.seed_all()
    assert first != torch.cuda.initial_seed()


def state_of_a_device():
    state = torch.cuda.get_rng_state()
    assert state.dtype == torch.uint8 and not state.is_cuda
    a = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(a, torch.rand(4, device="cuda"))


def state_by_device():
    state = torch.cuda.get_rng_state("cuda:1")
    a = torch.rand(4, device="cuda:1")
    torch.cuda.set_rng_state(state, device=torch.device("cuda:1"))
    assert torch.equal(a, torch.rand(4, device="cuda:1"))
    torch.cuda.set_rng_state(state, 1)


def states_of_all_devices():
    states = torch.cuda.get_rng_state_all()
    assert len(states) == torch.cuda.device_count()
    a = torch.rand(4, device="cuda:1")
    torch.cuda.set_rng_state_all(states)
    assert torch.equal(a, torch.rand(4, device="cuda:1"))


def fork_rng():
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[0]):
        inside = torch.rand(3, device="cuda")
    assert torch.equal(inside, torch.rand(3, device="cuda"))


def fork_rng_of_a_device_type():
    torch.cuda.manual_seed(0)
    with torch.random.fork_rng(devices=range(2), device_type="cuda"):
        inside = torch.rand(3, device="cuda:1")
    assert torch.equal(inside, torch.rand(3, device="cuda:1"))


def generator():
    g = torch.Generator(device="cuda").manual_seed(5)
    a = torch.rand(3, generator=g, device="cuda")
    g.manual_seed(5)
    assert torch.equal(a, torch.rand(3, generator=g, device="cuda"))
    assert g.initial_seed() == 5


def generator_state():
    g = torch.Generator("cuda:1")
    state = g.get_state()
    a = torch.randn(3, generator=g, device="cuda:1")
    g.set_state(state)
    assert torch.equal(a, torch.randn(3, generator=g, device="cuda:1"))


def generator_of_another_device_is_refused():
    g = torch.Generator()
    try:
        torch.rand(2, generator=g, device="cuda")
    except RuntimeError:
        pass
    else:
        raise AssertionError


def default_generators():
    torch.cuda.init()
    assert len(torch.cuda.default_generators) == torch.cuda.device_count()
    assert torch.cuda.default_generators[0].device == torch.device("cuda:0")


def dropout_is_reproducible():
    x = torch.ones(1000, device="cuda")
    torch.manual_seed(1)
    a = torch.nn.functional.dropout(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(a, torch.nn.functional.dropout(x, 0.5))


def the_cpu_stream_is_its_own():
    torch.manual_seed(9)
    a = torch.rand(3)
    torch.manual_seed(9)
    torch.rand(100, device="cuda")
    assert torch.equal(a, torch.rand(3))


def permutation_and_multinomial():
    assert sorted(torch.randperm(10, device="cuda").tolist()) == list(range(10))
    drawn = torch.multinomial(torch.tensor([0.0, 1.0, 0.0], device="cuda"), 4, replacement=True)
    assert drawn.tolist() == [1, 1, 1, 1]
