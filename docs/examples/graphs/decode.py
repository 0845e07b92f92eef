"""Decode with a GPT whose layers are captured piece by piece, one set of CUDA graphs for every batch size.

Serving engines do this: attention depends on how long each request is and runs as it is, everything around it is
captured. 24 layers in 2 pieces, embedding and head, for 64 batch sizes make 3,200 graphs. Requests end one by one, so
that every batch size, and with it every graph, has its turn; the tokens are those of the same model without graphs.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F


class Decoder:
    """A GPT with its key and value cache, and the buffers that all its graphs share."""

    def __init__(self, layers: int, heads: int, width: int, vocabulary: int, requests: int, context: int) -> None:
        self.heads, self.width = heads, width

        def random(*shape: int) -> torch.Tensor:
            return (torch.randn(*shape) * 0.3 / shape[0] ** 0.5).cuda()

        self.token, self.position = random(vocabulary, width) * 20, random(context, width) * 20
        self.layers = [
            {
                "qkv": random(width, 3 * width),
                "project": random(width, width),
                "up": random(width, 4 * width),
                "down": random(4 * width, width),
            }
            for _ in range(layers)
        ]
        shape = (layers, requests, heads, context, width // heads)
        self.keys, self.values = (torch.zeros(shape, device="cuda") for _ in range(2))
        self.tokens = torch.zeros(requests, dtype=torch.long, device="cuda")
        self.at = torch.zeros(1, dtype=torch.long, device="cuda")
        self.x = torch.zeros(requests, width, device="cuda")
        self.qkv = torch.zeros(requests, 3 * width, device="cuda")
        self.attended = torch.zeros(requests, width, device="cuda")

    # The pieces: functions of the buffers, for the first `n` requests.
    def embed(self, n: int) -> None:
        self.x[:n] = self.token[self.tokens[:n]] + self.position[self.at]

    def before_attention(self, layer: int, n: int) -> None:
        x = F.layer_norm(self.x[:n], (self.width,))
        torch.mm(x, self.layers[layer]["qkv"], out=self.qkv[:n])

    def after_attention(self, layer: int, n: int) -> None:
        weights = self.layers[layer]
        x = self.x[:n] + self.attended[:n] @ weights["project"]
        self.x[:n] = x + F.gelu(F.layer_norm(x, (self.width,)) @ weights["up"]) @ weights["down"]

    def head(self, n: int) -> None:
        self.tokens[:n] = (F.layer_norm(self.x[:n], (self.width,)) @ self.token.t()).argmax(-1)

    def attention(self, layer: int, n: int, length: int) -> None:
        q, k, v = self.qkv[:n].view(n, 3, self.heads, 1, -1).unbind(1)
        keys, values = self.keys[layer, :n], self.values[layer, :n]
        keys[:, :, length - 1 : length], values[:, :, length - 1 : length] = k, v
        y = F.scaled_dot_product_attention(q, keys[:, :, :length], values[:, :, :length])
        self.attended[:n] = y.reshape(n, self.width)

    def pieces(self, n: int) -> list[tuple]:
        """The pieces of a step in their order, as (method, arguments)."""
        inner = [
            (piece, layer, n) for layer in range(len(self.layers)) for piece in ("before_attention", "after_attention")
        ]
        return [("embed", n), *inner, ("head", n)]


def capture(model: Decoder, sizes: int) -> dict[tuple, torch.cuda.CUDAGraph]:
    """One graph for every piece and batch size, all in one memory pool."""
    graphs = {}
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for piece in model.pieces(sizes):  # warm up
            getattr(model, piece[0])(*piece[1:])
        torch.cuda.synchronize()
        for n in range(sizes, 0, -1):  # the largest first: the others fit into its memory
            for piece in model.pieces(n):
                graph = graphs[piece] = torch.cuda.CUDAGraph()
                graph.capture_begin(pool=pool)
                getattr(model, piece[0])(*piece[1:])
                graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graphs


def decode(model: Decoder, prompts: torch.Tensor, run) -> list[list[int]]:
    """Request i gets as many tokens as there are requests, less i; `run` runs a piece."""
    model.tokens.copy_(prompts)
    seen = []
    for step in range(len(prompts)):
        n = len(prompts) - step  # requests that are not done yet
        model.at.fill_(step)
        for piece in model.pieces(n):
            run(piece)
            if piece[0] == "before_attention":
                model.attention(piece[1], n, step + 1)
        seen.append(model.tokens[:n].clone())
    torch.cuda.synchronize()
    return [tokens.tolist() for tokens in seen]


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print the result once more, for programs")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = Decoder(options.layers, options.heads, options.width, 512, options.requests, options.requests)
    prompts = torch.randint(512, (options.requests,)).cuda()
    print(f"{options.layers} layers on {torch.cuda.get_device_name()}")
    expected = decode(model, prompts, lambda piece: getattr(model, piece[0])(*piece[1:]))

    start = time.perf_counter()
    graphs = capture(model, options.requests)
    print(f"{len(graphs)} graphs captured in {time.perf_counter() - start:.1f} s")
    for turn in range(options.rounds):
        start = time.perf_counter()
        tokens = decode(model, prompts, lambda piece: graphs[piece].replay())
        assert tokens == expected, "graphs gave other tokens"
        seconds = time.perf_counter() - start
        print(f"round {turn + 1}: {sum(map(len, tokens))} tokens in {seconds:.1f} s, the same as without graphs")
    if options.json:
        different = len({token for step in expected for token in step})
        print(
            "RESULT " + json.dumps({"graphs": len(graphs), "tokens": sum(map(len, expected)), "different": different})
        )


if __name__ == "__main__":
    main()
