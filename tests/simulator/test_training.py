"""Training on the device gives the losses that training on the CPU gives, step by step."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

STEPS = 8


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2, groups=2), nn.GroupNorm(4, 16), nn.GELU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(64, 5),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.head(self.body(self.embed(x), mask=mask, is_causal=True).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.LSTM(6, 12, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([7, 7, 6, 5, 5, 4, 3, 2]), batch_first=True)
        return self.head(self.body(packed)[1][0][-2:].transpose(0, 1).flatten(1))


MODELS = {
    "convolutional": (Convolutional, lambda: torch.randn(8, 3, 16, 16), torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "attention": (Attention, lambda: torch.randint(0, 11, (8, 7)), torch.optim.AdamW, {"lr": 3e-3}),
    "recurrent": (Recurrent, lambda: torch.randn(8, 7, 6), torch.optim.Adam, {"lr": 1e-2}),
}


def losses(name, device, autocast=None, **options):
    """The loss of every step; weights and data are the same for all devices."""
    make, data, optimizer, named = MODELS[name]
    torch.manual_seed(1)
    model = make()
    batches = [(data(), torch.randint(0, 5, (8,))) for _ in range(2)] * (STEPS // 2)
    model.to(device)
    optimizer = optimizer(model.parameters(), **named, **options)
    seen = []
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=autocast, enabled=autocast is not None):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen.append(loss.item())
    return torch.tensor(seen)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=["loop", "foreach", "fused"])
@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_the_cpu(name, options):
    expected = losses(name, "cpu")
    assert expected[-2:].sum() < 0.95 * expected[:2].sum()  # it learns
    torch.testing.assert_close(losses(name, "musa", **options), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_losses_under_autocast_are_those_of_the_cpu(name):
    expected = losses(name, "cpu", autocast=torch.bfloat16)
    torch.testing.assert_close(losses(name, "musa", autocast=torch.bfloat16), expected, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("name", ["attention", "recurrent"])
def test_capturable_optimizers(name):
    torch.testing.assert_close(losses(name, "musa", capturable=True), losses(name, "cpu"), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_makes_training_repeatable(name):
    assert torch.equal(losses(name, "musa"), losses(name, "musa"))
