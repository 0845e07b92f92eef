"""Let a tiny Llama, randomly initialised, learn the Zen of Python by heart with transformers' Trainer; then ask it.

Nothing is downloaded. The model reads characters, so it needs no tokenizer files either.
"""

import argparse
import codecs
import contextlib
import io
import json
import os
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

with contextlib.redirect_stdout(io.StringIO()):
    import this

TEXT = codecs.decode(this.s, "rot13")
CHARACTERS = sorted(set(TEXT))


def encode(text: str) -> torch.Tensor:
    return torch.tensor([CHARACTERS.index(character) for character in text])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--bf16", action="store_true", help="mixed precision")
    parser.add_argument("--prompt", default="In the face of ", help="what the model is to complete")
    parser.add_argument("--count", type=int, default=42, help="how many characters to generate")
    parser.add_argument("--json", action="store_true", help="end with a line of JSON for other programs to read")
    args = parser.parse_args()

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(CHARACTERS),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    tokens = encode(TEXT)
    windows = [{"input_ids": piece, "labels": piece} for piece in tokens.unfold(0, 64, 1)]

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            train_dataset=windows,
            args=TrainingArguments(
                output_dir=folder,
                max_steps=args.steps,
                per_device_train_batch_size=16,
                learning_rate=5e-3,
                lr_scheduler_type="cosine",
                warmup_steps=10,
                logging_steps=max(1, args.steps // 10),
                save_steps=args.steps,
                bf16=args.bf16,
                use_cpu=args.device == "cpu",
                disable_tqdm=True,
                report_to="none",
                seed=0,
            ),
        )
        started = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - started
        saved = sorted(os.listdir(os.path.join(folder, f"checkpoint-{args.steps}")))

    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    name = torch.cuda.get_device_name(model.device) if args.device == "cuda" else "CPU"
    peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else 0
    print(f"trained on {name} ({model.device}) in {seconds:.1f} s, peak memory {peak / 2**20:.1f} MiB")
    print(f"checkpoint: {', '.join(saved)}")

    model.eval()
    prompt = encode(args.prompt).unsqueeze(0).to(args.device)

    def complete(**how) -> str:
        mask = torch.ones_like(prompt)
        out = model.generate(prompt, attention_mask=mask, max_new_tokens=args.count, pad_token_id=0, **how)
        return "".join(CHARACTERS[token] for token in out[0].tolist())

    answer = complete(do_sample=False)
    drawn = complete(do_sample=True, top_k=5)
    print(f"greedy:  {answer!r}")
    print(f"sampled: {drawn!r}")
    result = {
        "device": name,
        "where": str(model.device),
        "losses": losses,
        "answer": answer,
        "known": answer in TEXT,
        "drawn": drawn,
        "peak_bytes": peak,
    }
    if args.json:
        print("RESULT", json.dumps(result))


if __name__ == "__main__":
    main()
