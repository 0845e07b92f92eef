"""torch.cuda and its submodules: the names that are not simply torch_musa's of the same name."""

from ..rules import Native, Rule

RULES = (
    Rule(
        "torch.cuda:is_available",
        Native(),
        when="not env:TORCHADA_FORCE_CUDA_AVAILABLE",
        why="programs tell NVIDIA from MUSA by it",
        test="tests/cuda/test_policy.py",
    ),
)
