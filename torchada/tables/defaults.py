"""Modules whose names need no row, because torch's own code serves every device: why, and where that is tested."""

_ACCELERATOR = ("asks the backend of the current accelerator, which is MUSA", "tests/snippets")
_AMP = ("torch's own; its device type is translated (rows of torch.amp's functions)", "tests/devices/test_amp.py")

GENERIC = {
    "torch.accelerator": _ACCELERATOR,
    "torch.accelerator.graphs": _ACCELERATOR,
    "torch.accelerator.memory": _ACCELERATOR,
    "torch.amp": _AMP,
    "torch.amp.autocast_mode": _AMP,
    "torch.amp.grad_scaler": _AMP,
    "torch.backends.cuda": (
        "a setting torch itself keeps, or a question about a CUDA build, which this is not",
        "tests/cuda/test_backends.py",
    ),
    "torch.backends.cudnn": (
        "a setting torch itself keeps and muDNN does not read, or a question about cuDNN",
        "tests/cuda/test_backends.py",
    ),
    "torch.backends.cudnn.rnn": (
        "classes of cuDNN's own recurrent networks, which nothing on MUSA asks for",
        "tests/cuda/test_backends.py",
    ),
    "torch.backends.cusparselt": ("a question about cuSPARSELt: not available", "tests/cuda/test_backends.py"),
}
