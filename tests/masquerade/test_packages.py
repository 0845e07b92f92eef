"""Published packages on the simulated device: with their rows they take it for a device they know, without them not.

A test is defined where its package is installed; the ``test`` extra brings Lightning and tensordict.
"""

import ast
import importlib.util
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
