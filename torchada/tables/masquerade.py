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
    Masquerade(
        "timm",
        ">=1.0,<2",
        ("timm",),
        why='init_distributed_device("cuda") refuses; batches are copied without a stream of their own',
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "open_clip_torch",
        ">=3,<4",
        ("open_clip",),
        why="models of OpenAI are loaded to the CPU, in float32",
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "fastai",
        ">=2.7,<3",
        ("fastai",),
        why="chooses the CPU for data and model; its own mixed precision refuses any other device type",
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "ultralytics",
        ">=8.3,<9",
        (
            "ultralytics.engine.model",
            "ultralytics.engine.predictor",
            "ultralytics.engine.trainer",
            "ultralytics.engine.validator",
            "ultralytics.models",
            "ultralytics.nn.autobackend",
            "ultralytics.trackers",
            "ultralytics.utils.autobatch",
            "ultralytics.utils.tal",
            "ultralytics.utils.torch_utils",
        ),
        why="device=0 is refused, and without one it is the CPU; exporters and other runtimes keep the true answers",
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "sentence-transformers",
        ">=5,<7",
        ("sentence_transformers",),
        why="models without a device go to the CPU",
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "pytorch-metric-learning",
        ">=2,<3",
        ("pytorch_metric_learning.utils.common_functions", "pytorch_metric_learning.utils.logging_presets"),
        why="trainers and testers take the CPU for their data; searches by faiss keep the true answers",
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "pytorch-tabnet",
        ">=4,<5",
        ("pytorch_tabnet",),
        why='device_name="cuda" silently becomes the CPU',
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "torch-geometric",
        ">=2.5,<3",
        ("torch_geometric",),
        why='PrefetchLoader(device="cuda") leaves the batches on the CPU, as device("auto") does',
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "monai",
        ">=1.3,<2",
        ("monai.bundle", "monai.utils.dist", "monai.apps.auto3dseg"),
        why="the usual expression for the device of a bundle gives the CPU; gathers over ranks get tensors of the CPU",
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "gpytorch",
        ">=1.11,<2",
        ("gpytorch.utils.nearest_neighbors",),
        why="models of nearest neighbours refuse every device but cpu and cuda",
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "torchao",
        ">=0.9,<1",
        ("torchao.utils",),
        why="the optimizer that keeps its state on the host finds no GPU; what asks for capabilities compares MUSA's",
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "speechbrain",
        ">=1,<2",
        ("speechbrain.utils.repro",),
        why="checkpoints leave out the random states of the devices",
        test=f"{_REAL}::test_programs",
    ),
    Masquerade(
        "denoising-diffusion-pytorch",
        ">=2,<3",
        ("denoising_diffusion_pytorch",),
        why="flash attention has no settings where CUDA is not available, and asks for them where x.is_cuda",
        test=f"{_REAL}::test_programs",
    ),
)
