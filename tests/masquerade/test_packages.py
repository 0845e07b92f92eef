"""Published packages on the simulated device: with their rows they take it for a device they know, without them not.

A test is defined where its package is installed; the ``test`` extra brings Lightning and tensordict.
"""

import ast
import importlib.util
import textwrap
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from torchada.tables import PACKAGES

ROOT = Path(__file__).resolve().parent.parent.parent
INSTALLED = {row.root for row in PACKAGES if importlib.util.find_spec(row.root)}
WITHOUT_ROWS = {"TORCHADA_NO_MASQUERADE": "all"}


@pytest.mark.parametrize("row", PACKAGES, ids=lambda row: row.root)
def test_rows_are_honest(row):
    assert row.why.strip() and SpecifierSet(row.versions)
    assert {module.partition(".")[0] for module in row.modules} == {row.root}
    file, _, function = row.test.partition("::")
    names = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}
    assert function in names
    assert len([other for other in PACKAGES if other.root == row.root]) == 1, "one row per top-level module"


TRAIN = """
    import sys, warnings
    warnings.filterwarnings("ignore")
    import torchada
    import {lightning} as L
    import torch

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            x, y = batch
            self.seen = self.on_gpu
            loss = torch.nn.functional.mse_loss(self.layer(x), y)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    x = torch.randn(64, 4)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
    trainer = L.Trainer(
        accelerator="gpu", devices=1, precision="bf16-mixed", max_epochs=4, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=".",
    )
    model = Model()
    trainer.fit(model, data)
    print(type(trainer.accelerator).__name__, trainer.strategy.root_device, float(trainer.callback_metrics["loss"]) < 1)
    print(torch.device("cuda").type, torch.cuda.is_available(), model.seen)
"""

if INSTALLED & {"lightning", "pytorch_lightning"}:

    @pytest.mark.parametrize("lightning", sorted(INSTALLED & {"lightning", "pytorch_lightning"}))
    def test_lightning(run_python, lightning):
        """A Lightning module trains on ``accelerator="gpu"``; the script around it still sees the truth."""
        lines = run_python(TRAIN.format(lightning=lightning)).stdout.splitlines()
        assert lines[-2:] == ["CUDAAccelerator musa:0 True", "musa False True"]


if "lightning" in INSTALLED:

    def test_lightning_without_its_row(run_python):
        refused = run_python(TRAIN.format(lightning="lightning"), env=WITHOUT_ROWS, ok=False)
        assert "Device should be GPU, got musa:0 instead" in refused.stderr


if "tensordict" in INSTALLED:

    def test_tensordict(run_python):
        code = """
            import torchada, torch
            from tensordict import TensorDict
            td = TensorDict({"a": torch.ones(3, 2)}, batch_size=[3]).to("cuda")
            print(td["a"].device, td.device, td.is_cuda, td.is_shared(), td.device.type)
        """
        assert run_python(code).stdout == "musa:0 musa:0 True True musa\n"
        assert run_python(code, env=WITHOUT_ROWS).stdout == "musa:0 musa False False musa\n"


if "torchrl" in INSTALLED:

    def test_torchrl(run_python):
        code = """
            import torchada, torch
            from torchrl.modules import TruncatedNormal
            from torchrl.data import ReplayBuffer, LazyTensorStorage
            from tensordict import TensorDict
            buffer = ReplayBuffer(storage=LazyTensorStorage(16, device="cuda"), batch_size=4)
            buffer.extend(TensorDict({"a": torch.arange(16.0)}, batch_size=[16]))
            print(buffer.sample()["a"].device)
            print(TruncatedNormal(torch.zeros(2, device="cuda"), torch.ones(2, device="cuda")).rsample().device)
        """
        assert run_python(code).stdout.splitlines()[-2:] == ["musa:0", "musa:0"]


if "deepspeed" in INSTALLED:

    def test_deepspeed(run_python):
        code = """
            import torchada, torch
            from deepspeed.accelerator import get_accelerator
            found = get_accelerator()
            print(type(found).__name__, found.current_device_name(), found.on_accelerator(torch.ones(1, device="cuda")))
        """
        assert run_python(code).stdout.splitlines()[-1] == "CUDA_Accelerator cuda:0 True"
        assert run_python(code, env=WITHOUT_ROWS).stdout.splitlines()[-1] == "CPU_Accelerator cpu False"

    @pytest.mark.parametrize("stage", [0, 2])
    def test_deepspeed_trains(run_python, stage):
        """One process; torch's fake process group stands for the communication library."""
        code = f"""
            import torchada, torch, deepspeed
            from torch.testing._internal.distributed.fake_pg import FakeStore

            torch.distributed.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 1)
            options = {{"type": "Adam", "params": {{"lr": 0.02, "torch_adam": True}}}}
            config = {{"train_micro_batch_size_per_gpu": 8, "optimizer": options, "bf16": {{"enabled": True}},
                       "zero_optimization": {{"stage": {stage}}}}}
            engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
            x = torch.ones(8, 4, device=engine.device, dtype=torch.bfloat16)
            losses = []
            for _ in range(8):
                loss = torch.nn.functional.mse_loss(engine(x), x[:, :1])
                engine.backward(loss)
                engine.step()
                losses.append(loss.item())
            print(engine.device, losses[-1] < losses[0], model.weight.device)
        """
        world = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29517"}
        assert run_python(code, env=world).stdout.splitlines()[-1] == "musa:0 True musa:0"


if "stable_baselines3" in INSTALLED:

    def test_stable_baselines(run_python):
        code = """
            import torchada, torch
            from stable_baselines3.common.utils import get_device
            print(get_device("auto"), get_device("cuda:1"), get_device("cpu"))
        """
        assert run_python(code).stdout.splitlines()[-1] == "musa musa:1 cpu"
        assert run_python(code, env=WITHOUT_ROWS).stdout.splitlines()[-1] == "cpu cpu cpu"


if "ignite" in INSTALLED:

    def test_ignite(run_python):
        code = """
            import torchada, torch
            import ignite.distributed as idist
            print(idist.device(), next(idist.auto_model(torch.nn.Linear(2, 2)).parameters()).device)
        """
        assert run_python(code).stdout.splitlines()[-1] == "musa musa:0"
        assert run_python(code, env=WITHOUT_ROWS).stdout.splitlines()[-1] == "cpu cpu"


# package -> a program, its last line with the package's row, and without (of what is refused, a part of the error).
PROGRAMS = {
    "timm": (
        """
        from timm.data.loader import PrefetchLoader, fast_collate
        from timm.utils import init_distributed_device

        options = type("Options", (), {"device": "cuda", "dist_backend": None, "dist_url": "env://"})
        data = [(torch.zeros(3, 8, 8, dtype=torch.uint8).numpy(), index) for index in range(2)]
        loader = PrefetchLoader(torch.utils.data.DataLoader(data, collate_fn=fast_collate), device=torch.device("cuda"))
        print(loader.is_cuda, *(x.device for x, _ in loader), init_distributed_device(options()))
        """,
        "True musa:0 musa:0 musa",
        "CUDA is not available but cuda was specified",
    ),
    "open_clip": (
        """
        import sys, open_clip.openai
        torch.save({"weight": torch.ones(1)}, "model.pt")
        open_clip.openai.build_model_from_openai_state_dict = lambda state, cast_dtype: sys.exit(print(cast_dtype))
        open_clip.openai.load_openai_model("model.pt")
        """,
        "torch.float16",
        "None",
    ),
    "fastai": (
        """
        from fastai.callback.fp16 import MixedPrecision
        from fastai.data.core import DataLoaders
        from fastai.learner import Learner

        torch.cuda.set_device(1)
        data = [(torch.ones(4), torch.tensor(0))] * 8
        loaders = DataLoaders.from_dsets(data, data, bs=4)
        learner = Learner(loaders.cuda(), torch.nn.Linear(4, 2), loss_func=torch.nn.functional.cross_entropy, path=".")
        with learner.no_bar(), learner.no_logging():
            learner.to_fp16().fit(1)
        print(learner.model.weight.device)
        """,
        "musa:1",
        "cpu",
    ),
    "ultralytics": (
        """
        from ultralytics.utils.torch_utils import select_device
        print(select_device(""), select_device([1]), select_device("cuda:1"), select_device("cpu"))
        """,
        "musa:0 musa:1 musa:1 cpu",
        "Invalid CUDA 'device=1' requested",
    ),
    "sentence_transformers": (
        """
        from sentence_transformers import SentenceTransformer
        print(SentenceTransformer(modules=[torch.nn.Linear(2, 2)]).device)
        """,
        "musa:0",
        "cpu",
    ),
    "pytorch_metric_learning": (
        """
        from pytorch_metric_learning.utils.common_functions import use_cuda_if_available
        print(use_cuda_if_available())
        """,
        "musa",
        "cpu",
    ),
    "pytorch_tabnet": (
        """
        import numpy
        from pytorch_tabnet.tab_model import TabNetRegressor
        model = TabNetRegressor(verbose=0, device_name="cuda")
        model.fit(numpy.ones((8, 2), "float32"), numpy.ones((8, 1), "float32"), max_epochs=1, batch_size=8)
        print(model.device, next(model.network.parameters()).device)
        """,
        "musa musa:0",
        "cpu cpu",
    ),
    "torch_geometric": (
        """
        import torch_geometric
        from torch_geometric.data import Data
        from torch_geometric.loader import DataLoader, PrefetchLoader
        data = [Data(x=torch.ones(2, 2), edge_index=torch.zeros(2, 1, dtype=torch.long))]
        loader = PrefetchLoader(DataLoader(data), device=torch.device("cuda:1"))
        print(torch_geometric.device("auto"), *(batch.x.device for batch in loader))
        """,
        "musa musa:1",
        "cpu cpu",
    ),
    "monai": (
        """
        import torch.distributed, monai.bundle
        from monai.utils import get_dist_device
        from torch.testing._internal.distributed.fake_pg import FakeStore

        bundle = monai.bundle.ConfigParser({"d": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')"})
        bundle["imports"] = ["$import torch"]
        torch.distributed.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
        torch.distributed.get_backend = lambda: "nccl"
        print(bundle.get_parsed_content("d"), get_dist_device())
        """,
        "musa:0 musa:0",
        "cpu None",
    ),
    "gpytorch": (
        """
        from gpytorch.utils.nearest_neighbors import NNUtil
        points = torch.eye(3, device="cuda")
        search = NNUtil(k=1, dim=3, preferred_nnlib="sklearn", device=points.device)
        search.set_nn_idx(points)
        print(search.find_nn_idx(points).device)
        """,
        "musa:0",
        "Unknown device musa",
    ),
    "torchao": (
        """
        from torchao.optim import CPUOffloadOptimizer
        from torchao.utils import is_sm_at_least_89
        layer = torch.nn.Linear(2, 2).cuda()
        optimizer = CPUOffloadOptimizer(layer.parameters(), torch.optim.AdamW)
        before = layer.weight.detach().clone()
        layer(torch.ones(4, 2, device="cuda")).sum().backward()
        optimizer.step()
        torch.cuda.synchronize()
        print(not torch.equal(layer.weight, before), is_sm_at_least_89())
        """,
        "True False",
        "CPU Offload currently only supports CUDA & XPU",
    ),
    "denoising_diffusion_pytorch": (
        """
        from denoising_diffusion_pytorch.attend import Attend
        x = torch.ones(1, 2, 3, 4, device="cuda")
        print(Attend(flash=True)(x, x, x).device)
        """,
        "musa:0",
        "'NoneType' object has no attribute",
    ),
    "speechbrain": (
        """
        from speechbrain.utils.repro import SaveableGenerator
        generators = SaveableGenerator()
        torch.cuda.manual_seed_all(1)
        generators.save("state.pt")
        first = torch.rand(2, device="cuda:1")
        generators.load("state.pt", False)
        print(torch.equal(first, torch.rand(2, device="cuda:1")))
        """,
        "True",
        "False",
    ),
}


@pytest.mark.parametrize("package", sorted(PROGRAMS.keys() & INSTALLED))
def test_programs(run_python, package):
    code, expected, without = PROGRAMS[package]
    code = "import warnings\nwarnings.filterwarnings('ignore')\nimport torchada, torch\n" + textwrap.dedent(code)
    assert run_python(code).stdout.splitlines()[-1] == expected
    done = run_python(code, env=WITHOUT_ROWS, ok=False)
    assert without in done.stderr if done.returncode else done.stdout.splitlines()[-1] == without
