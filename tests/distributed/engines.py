"""CUDA programs on top of training engines; each compares its parameters with plain SGD over the whole batch.

`engines.py NAME` under the engine's own launcher. Knows nothing of torchada.
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BATCH, STEPS, RATE = 4, 6, 0.2


def new_model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))


def new_data() -> TensorDataset:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(2 * BATCH * STEPS, 6, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True).sin())


def loss_of(model, x, y):
    return torch.nn.functional.mse_loss(model(x), y)


def check(model, name: str, device) -> None:
    """Two processes that share every batch train as one process that has all of it."""
    plain, (x, y) = new_model(), new_data().tensors
    optimizer = torch.optim.SGD(plain.parameters(), RATE)
    for step in range(STEPS):
        part = slice(2 * BATCH * step, 2 * BATCH * (step + 1))
        optimizer.zero_grad()
        loss_of(plain, x[part], y[part]).backward()
        optimizer.step()
    for mine, expected in zip(model.parameters(), plain.parameters(), strict=True):
        assert mine.is_cuda, mine.device
        torch.testing.assert_close(mine.detach().cpu(), expected.detach(), atol=1e-5, rtol=1e-5)
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    told = {"device": torch.device(device).index, "backend": torch.distributed.get_backend(), "rank": rank}
    Path(os.environ["REPORTS"], f"{name}{rank}").write_text(json.dumps(told))


def accelerate() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator()
    model = new_model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    loader = DataLoader(new_data(), batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        assert x.is_cuda and x.get_device() == torch.cuda.current_device() == accelerator.local_process_index
        loss = loss_of(model, x, y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    assert accelerator.gather(loss.detach()).shape == (2,)
    accelerator.wait_for_everyone()
    check(accelerator.unwrap_model(model), "accelerate", accelerator.device)
    accelerator.end_training()


def lightning() -> None:
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = new_model()

        def training_step(self, batch, index):
            assert batch[0].is_cuda and self.on_gpu
            loss = loss_of(self.model, *batch)
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), RATE)

        def train_dataloader(self):
            data = new_data()
            return DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, shuffle=False))

        def on_train_end(self):
            check(self.model, "lightning", self.device)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = L.Trainer(accelerator="gpu", devices=2, strategy="ddp", max_epochs=1, enable_model_summary=False, **quiet)
    trainer.fit(Module())


def deepspeed() -> None:
    import deepspeed

    deepspeed.init_distributed("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "optimizer": {"type": "SGD", "params": {"lr": RATE}},
        "zero_optimization": {"stage": 2 if sys.argv[2:] == ["zero"] else 0},
    }
    model = new_model()
    engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
    x, y = new_data().tensors
    for step in range(STEPS):
        at = 2 * BATCH * step + BATCH * rank
        loss = loss_of(engine, x[at : at + BATCH].cuda(), y[at : at + BATCH].cuda())
        engine.backward(loss)
        engine.step()
    check(engine.module, "deepspeed", engine.device)


def ray() -> None:
    import ray.train.torch
    from ray.train import RunConfig, ScalingConfig

    reports = os.environ["REPORTS"]

    def loop():
        os.environ["REPORTS"] = reports
        model = ray.train.torch.prepare_model(new_model())
        rank = ray.train.get_context().get_world_rank()
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        x, y = (part.to(ray.train.torch.get_device()) for part in new_data().tensors)
        for step in range(STEPS):
            at = 2 * BATCH * step + BATCH * rank
            optimizer.zero_grad()
            loss_of(model, x[at : at + BATCH], y[at : at + BATCH]).backward()
            optimizer.step()
        check(model.module, "ray", ray.train.torch.get_device())

    scaling = ScalingConfig(num_workers=2, use_gpu=True)
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False)
    ray.train.torch.TorchTrainer(loop, scaling_config=scaling, run_config=RunConfig(storage_path=reports)).fit()


if __name__ == "__main__":
    {"accelerate": accelerate, "lightning": lightning, "deepspeed": deepspeed, "ray": ray}[sys.argv[1]]()
