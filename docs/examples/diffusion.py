"""Train a tiny denoising diffusion model on handwritten digits with diffusers, then draw new ones.

The UNet is randomly initialised (nothing is downloaded) and learns scikit-learn's 8x8 digits; the label is its
condition, so it can be asked for a digit.
"""

import argparse
import json
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def draw(images: torch.Tensor) -> str:
    """The images (values -1 to 1) side by side in shades, two columns per pixel."""
    shades = " ░▒▓█"
    level = ((images.squeeze(1).clamp(-1, 1) + 1) / 2 * (len(shades) - 1)).round().long().tolist()
    rows = range(len(level[0]))
    return "\n".join(" ".join("".join(2 * shades[pixel] for pixel in image[row]) for image in level) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu (default: cuda)")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--draw", default="01234", help="the digits to draw")
    parser.add_argument("--denoise", type=int, default=20, help="denoising steps per drawing")
    parser.add_argument("--json", action="store_true", help="end with a line of JSON for other programs to read")
    args = parser.parse_args()

    device = torch.device(args.device)
    on_gpu = args.device != "cpu"
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    data = TensorDataset(images, torch.tensor(digits.target))
    loader = DataLoader(data, args.batch, shuffle=True, drop_last=True, pin_memory=on_gpu)

    unet = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        attention_head_dim=8,
        num_class_embeds=10,
    ).to(device)
    ema = EMAModel(unet.parameters(), decay=0.98, use_ema_warmup=True)
    ema.to(device)
    noise_schedule = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=2e-3)
    rate = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=20, num_training_steps=args.steps)
    name = torch.cuda.get_device_name(device) if on_gpu else "CPU"
    print(f"device  {name}, {sum(p.numel() for p in unet.parameters()):,} parameters")

    # One generator on the CPU for all noise: the run is then the same on every kind of device.
    random = torch.Generator().manual_seed(1)
    losses: list[float] = []
    started = time.perf_counter()
    while len(losses) < args.steps:
        for clean, label in loader:
            clean, label = clean.to(device, non_blocking=True), label.to(device, non_blocking=True)
            noise = torch.randn(clean.shape, generator=random).to(device)
            when = torch.randint(noise_schedule.config.num_train_timesteps, (len(clean),), generator=random).to(device)
            noisy = noise_schedule.add_noise(clean, noise, when)
            loss = F.mse_loss(unet(noisy, when, class_labels=label).sample, noise)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
            optimizer.step()
            rate.step()
            optimizer.zero_grad()
            ema.step(unet.parameters())
            losses.append(loss.item())
            if len(losses) % max(1, args.steps // 5) == 0:
                recent = losses[-50:]
                print(f"step {len(losses):4}  loss {sum(recent) / len(recent):.3f}", flush=True)
            if len(losses) == args.steps:
                break
    seconds = time.perf_counter() - started

    ema.copy_to(unet.parameters())
    unet.eval()
    wanted = torch.tensor([int(digit) for digit in args.draw], device=device)
    sampler = DDIMScheduler.from_config(noise_schedule.config)
    sampler.set_timesteps(args.denoise, device=device)
    drawing = torch.randn((len(wanted), 1, 8, 8), generator=torch.Generator(device).manual_seed(2), device=device)
    with torch.no_grad():
        for step in sampler.timesteps:
            predicted = unet(drawing, step, class_labels=wanted).sample
            drawing = sampler.step(predicted, step, drawing).prev_sample
    print(draw(drawing.cpu()))
    # How far each drawing is from the nearest real image of the digit that was asked for, and of any other digit.
    distance = torch.cdist(drawing.flatten(1), images.to(device).flatten(1)).cpu()
    same = torch.tensor(digits.target) == wanted.cpu().unsqueeze(1)
    right = (distance.masked_fill(~same, 1e9).amin(1) < distance.masked_fill(same, 1e9).amin(1)).sum().item()
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else 0
    print(f"{right} of {len(wanted)} look most like the digit asked for; {seconds:.1f} s", end="")
    print(f", peak memory {peak / 2**20:.1f} MiB" if on_gpu else "")
    result = {"device": name, "losses": losses, "right": right, "drawing": drawing.flatten().tolist()}
    if args.json:
        print("RESULT", json.dumps(result | {"where": str(next(unet.parameters()).device), "peak_bytes": peak}))


if __name__ == "__main__":
    main()
