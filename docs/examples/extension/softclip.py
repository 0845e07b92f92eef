"""Values drawn softly inside a limit, by a CUDA kernel of its own: python -m softclip"""

import torch  # first: the extension is linked against its libraries

# isort: split
import softclip_cuda  # noqa: F401  (registers the operator)


def clip(x, limit):
    return torch.ops.softclip.clip(x, limit)


if __name__ == "__main__":
    x = torch.linspace(-4, 4, 1000, device="cuda")
    y = clip(x, 1.5)
    torch.testing.assert_close(y.cpu(), 1.5 * torch.tanh(x.cpu() / 1.5))
    print(f"softclip on {x.device}: {y.min().item():.3f} to {y.max().item():.3f}")
