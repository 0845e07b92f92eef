"""What masqueraded modules are told, and the published packages that need it."""

from ..rules import Detour, Install, Masquerade, Rule, each

_ANSWERS = "tests/masquerade/test_answers.py"
_WHEN = "masquerade"

RULES = (
    Rule(
        "torch:device.__repr__",
        Install("masquerade:device_text"),
        when=_WHEN,
        why="str(), repr() and format() of a device, for masqueraded modules",
        test=f"{_ANSWERS}::test_device",
    ),
    Rule(
        "torch:device.type",
        Detour(shim="masquerade:device_type"),
        when=_WHEN,
        why='masqueraded modules compare it with "cuda"',
        test=f"{_ANSWERS}::test_device",
    ),
    Rule(
        "torch.version:cuda",
        Install("masquerade:version_cuda"),
        when=_WHEN,
        why="masqueraded modules take None for a build without CUDA",
        test=f"{_ANSWERS}::test_version",
    ),
    *each(
        "torch.cuda",
        "is_available _is_compiled",
        Detour(shim="masquerade:yes"),
        when=_WHEN,
        why="masqueraded modules use the device only where it is available",
        test=f"{_ANSWERS}::test_availability",
    ),
    Rule(
        "torch.backends.cuda:is_built",
        Detour(shim="masquerade:yes"),
        when=_WHEN,
        why="belongs to is_available",
        test=f"{_ANSWERS}::test_availability",
    ),
)

_REAL = "tests/masquerade/test_packages.py"
_REFUSES = "refuses a device whose type is not cuda, finds no GPU"

PACKAGES = (
    Masquerade(
        "lightning",
        ">=2.0,<3",
        ("lightning.fabric", "lightning.pytorch"),
        why=_REFUSES,
        test=f"{_REAL}::test_lightning",
    ),
    Masquerade(
        "pytorch-lightning",
        ">=2.0,<3",
        ("pytorch_lightning",),
        why=_REFUSES,
        test=f"{_REAL}::test_lightning",
    ),
    Masquerade(
        "pytorch-lightning",
        ">=2.0,<3",
        ("lightning_fabric",),
        why="the part of it that knows accelerators",
        test=f"{_REAL}::test_lightning",
    ),
    Masquerade(
        "tensordict",
        ">=0.6,<1",
        ("tensordict",),
        why="takes a MUSA device for one without an index and without streams: no current stream, no CUDA graphs",
        test=f"{_REAL}::test_tensordict",
    ),
    Masquerade(
        "torchrl",
        ">=0.6,<1",
        ("torchrl",),
        why="waits for no device and copies through the CPU where the type is not cuda",
        test=f"{_REAL}::test_torchrl",
    ),
    Masquerade(
        "deepspeed",
        ">=0.14,<1",
        ("deepspeed.accelerator", "deepspeed.runtime.chunked_cross_entropy"),
        why="chooses its CPU accelerator; its operators, which are CUDA kernels, keep the true answers",
        test=f"{_REAL}::test_deepspeed",
    ),
    Masquerade(
        "stable-baselines3",
        ">=2.9,<3",
        ("stable_baselines3",),
        why='device="cuda" silently becomes the CPU where torch.cuda is not available',
        test=f"{_REAL}::test_stable_baselines",
    ),
    Masquerade(
        "pytorch-ignite",
        ">=0.4.13,<0.6",
        ("ignite",),
        why="idist.device() is the CPU, and auto_model moves the model there",
        test=f"{_REAL}::test_ignite",
    ),
)
