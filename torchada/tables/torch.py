"""Places elsewhere in torch that take a device or say "cuda"."""

from ..rules import Detour, Install, Rule

RULES = (
    Rule(
        "torch:device",
        Install("device:configure"),
        why="tells the detours which values are CUDA devices and what they become",
        test="tests/devices/test_device.py",
    ),
    Rule(
        "torch:device.__new__",
        Detour(keywords=("device", "type"), positions=(0,), cache="device:spellings"),
        why='torch.device("cuda") is the MUSA device; the type stays torch.device',
        test="tests/devices/test_device.py",
    ),
    Rule(
        "torch:zeros",
        Detour(keywords=("device",)),
        why="a cuda device means the MUSA device",
        test="tests/devices/test_factories.py",
    ),
)
