"""Tensors of two devices in one operator are an error wherever CUDA makes it one; what CUDA allows works."""

import pytest
import torch
import torch.nn.functional as F

M0, M1, CPU = torch.device("musa:0"), torch.device("musa:1"), torch.device("cpu")


def rand(device, *shape, dtype=torch.float32):
    return torch.ones(shape or (4, 4), dtype=dtype, device=device)


def longs(device, *values):
    return torch.tensor(values or (0, 1), device=device)


# name -> function(a, b): the two devices. Every one must refuse two different ones, and take one twice.
REFUSED = {
    "add": lambda a, b: rand(a) + rand(b),
    "add_": lambda a, b: rand(a).add_(rand(b)),
    "add out": lambda a, b: torch.add(rand(a), rand(a), out=rand(b)),
    "eq": lambda a, b: rand(a) == rand(b),
    "equal": lambda a, b: torch.equal(rand(a), rand(b)),
    "allclose": lambda a, b: torch.allclose(rand(a), rand(b)),
    "where": lambda a, b: torch.where(rand(a) > 0, rand(a), rand(b)),
    "where condition": lambda a, b: torch.where(rand(b) > 0, rand(a), rand(a)),
    "clamp": lambda a, b: torch.clamp(rand(a), rand(b), rand(a)),
    "lerp": lambda a, b: torch.lerp(rand(a), rand(a), rand(b)),
    "addcmul": lambda a, b: torch.addcmul(rand(a), rand(a), rand(b)),
    "mm": lambda a, b: rand(a) @ rand(b),
    "mm out": lambda a, b: torch.mm(rand(a), rand(a), out=rand(b)),
    "bmm": lambda a, b: torch.bmm(rand(a, 2, 3, 3), rand(b, 2, 3, 3)),
    "addmm": lambda a, b: torch.addmm(rand(b), rand(a), rand(a)),
    "baddbmm": lambda a, b: torch.baddbmm(rand(a, 2, 3, 3), rand(b, 2, 3, 3), rand(a, 2, 3, 3)),
    "mv": lambda a, b: torch.mv(rand(a), rand(b, 4)),
    "dot": lambda a, b: torch.dot(rand(a, 4), rand(b, 4)),
    "einsum": lambda a, b: torch.einsum("ij,jk", rand(a), rand(b)),
    "mm dtype": lambda a, b: torch.mm(
        rand(a, 2, 2, dtype=torch.half), rand(b, 2, 2, dtype=torch.half), out_dtype=torch.float32
    ),
    "cat": lambda a, b: torch.cat([rand(a), rand(b)]),
    "cat out": lambda a, b: torch.cat([rand(a), rand(a)], out=rand(b, 8, 4)),
    "stack": lambda a, b: torch.stack([rand(a), rand(b)]),
    "gather": lambda a, b: rand(a).gather(0, longs(b)[None]),
    "scatter": lambda a, b: rand(a).scatter(0, longs(b)[None], rand(a)),
    "scatter source": lambda a, b: rand(a).scatter(0, longs(a)[None], rand(b)),
    "scatter_add": lambda a, b: rand(a).scatter_add(0, longs(a)[None], rand(b)),
    "index_select": lambda a, b: rand(a).index_select(0, longs(b)),
    "index_add": lambda a, b: rand(a).index_add(0, longs(a), rand(b, 2, 4)),
    "index_copy": lambda a, b: rand(a).index_copy(0, longs(b), rand(a, 2, 4)),
    "index_fill": lambda a, b: rand(a).index_fill(0, longs(b), 1.0),
    "take": lambda a, b: rand(a).take(longs(b)),
    "put": lambda a, b: rand(a).put(longs(b), rand(a, 2)),
    "masked_fill": lambda a, b: rand(a).masked_fill(rand(b) > 0, 0.0),
    "masked_select": lambda a, b: rand(a).masked_select(rand(b) > 0),
    "masked_scatter": lambda a, b: rand(a).masked_scatter(rand(b) > 0, rand(a)),
    "index_put values": lambda a, b: rand(a).index_put((longs(a),), rand(b, 2, 4)),
    "searchsorted": lambda a, b: torch.searchsorted(rand(a, 4), rand(b, 4)),
    "bucketize": lambda a, b: torch.bucketize(rand(a, 4), rand(b, 4)),
    "isin": lambda a, b: torch.isin(rand(a), rand(b)),
    "embedding": lambda a, b: F.embedding(longs(b), rand(a)),
    "embedding_bag": lambda a, b: F.embedding_bag(longs(b)[None], rand(a)),
    "embedding_bag offsets": lambda a, b: F.embedding_bag(longs(a), rand(a), longs(b)),
    "linear": lambda a, b: F.linear(rand(a), rand(b)),
    "linear bias": lambda a, b: F.linear(rand(a), rand(a), rand(b, 4)),
    "bilinear": lambda a, b: F.bilinear(rand(a), rand(b), rand(a, 2, 4, 4)),
    "conv2d": lambda a, b: F.conv2d(rand(a, 1, 1, 4, 4), rand(b, 1, 1, 2, 2)),
    "conv2d bias": lambda a, b: F.conv2d(rand(a, 1, 1, 4, 4), rand(a, 1, 1, 2, 2), rand(b, 1)),
    "conv_transpose1d": lambda a, b: F.conv_transpose1d(rand(a, 1, 1, 4), rand(b, 1, 1, 2)),
    "batch_norm": lambda a, b: F.batch_norm(rand(a), rand(b, 4), rand(b, 4), training=True),
    "batch_norm weight": lambda a, b: F.batch_norm(rand(a), None, None, rand(b, 4), training=True),
    "layer_norm": lambda a, b: F.layer_norm(rand(a), (4,), rand(b, 4)),
    "group_norm": lambda a, b: F.group_norm(rand(a), 2, rand(b, 4)),
    "rms_norm": lambda a, b: F.rms_norm(rand(a), (4,), rand(b, 4)),
    "prelu": lambda a, b: F.prelu(rand(a), rand(b, 1)),
    "mse_loss": lambda a, b: F.mse_loss(rand(a), rand(b)),
    "cross_entropy": lambda a, b: F.cross_entropy(rand(a), longs(b, 0, 1, 2, 3)),
    "cross_entropy weight": lambda a, b: F.cross_entropy(rand(a), longs(a, 0, 1, 2, 3), rand(b, 4)),
    "binary_cross_entropy": lambda a, b: F.binary_cross_entropy(rand(a), rand(b)),
    "bce with logits": lambda a, b: F.binary_cross_entropy_with_logits(rand(a), rand(b)),
    "kl_div": lambda a, b: F.kl_div(rand(a), rand(b)),
    "sdpa": lambda a, b: F.scaled_dot_product_attention(rand(a, 1, 1, 4, 8), rand(b, 1, 1, 4, 8), rand(a, 1, 1, 4, 8)),
    "sdpa mask": lambda a, b: F.scaled_dot_product_attention(*[rand(a, 1, 1, 4, 8)] * 3, attn_mask=rand(b)),
    "grid_sample": lambda a, b: F.grid_sample(rand(a, 1, 1, 4, 4), rand(b, 1, 4, 4, 2), align_corners=False),
    "cdist": lambda a, b: torch.cdist(rand(a), rand(b)),
    "cross": lambda a, b: torch.linalg.cross(rand(a, 4, 3), rand(b, 4, 3)),
    "solve": lambda a, b: torch.linalg.solve(torch.eye(4, device=a), rand(b)),
    "lstsq": lambda a, b: torch.linalg.lstsq(torch.eye(4, device=a), rand(b)),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(rand(a), torch.eye(4, device=b)),
    "triangular_solve": lambda a, b: torch.linalg.solve_triangular(torch.eye(4, device=a), rand(b), upper=True),
    "lu_solve": lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(torch.eye(4, device=a)), rand(b)),
    "eigh out": lambda a, b: torch.linalg.eigvalsh(torch.eye(4, device=a), out=rand(b, 4)),
    "svd out": lambda a, b: torch.linalg.svdvals(torch.eye(4, device=a), out=rand(b, 4)),
    "fft out": lambda a, b: torch.fft.fft(rand(a), out=rand(b, dtype=torch.complex64)),
    "sort out": lambda a, b: torch.sort(rand(a), out=(rand(b), longs(b))),
    "topk out": lambda a, b: torch.topk(rand(a), 2, out=(rand(b), longs(b))),
    "max out": lambda a, b: torch.max(rand(a), 0, out=(rand(b), longs(b))),
    "sum out": lambda a, b: torch.sum(rand(a), 0, out=rand(b)),
    "cumsum out": lambda a, b: torch.cumsum(rand(a), 0, out=rand(b)),
    "nonzero out": lambda a, b: torch.nonzero(rand(a), out=longs(b)),
    "index_select out": lambda a, b: torch.index_select(rand(a), 0, longs(a), out=rand(b)),
    "gather out": lambda a, b: torch.gather(rand(a), 0, longs(a)[None], out=rand(b)),
    "normal out": lambda a, b: torch.normal(rand(a), rand(b)),
    "multinomial out": lambda a, b: torch.multinomial(rand(a), 2, out=longs(b)),
    "bincount": lambda a, b: torch.bincount(longs(a), rand(b, 2)),
    "histc out": lambda a, b: torch.histc(rand(a), 4, out=rand(b, 4)),
    "renorm out": lambda a, b: torch.renorm(rand(a), 2, 0, 1, out=rand(b)),
    "complex": lambda a, b: torch.complex(rand(a), rand(b)),
    "polar": lambda a, b: torch.polar(rand(a), rand(b)),
    "atan2": lambda a, b: torch.atan2(rand(a), rand(b)),
    "foreach_add": lambda a, b: torch._foreach_add([rand(a), rand(a)], [rand(b), rand(a)]),
    "foreach_lerp": lambda a, b: torch._foreach_lerp([rand(a)], [rand(b)], 0.5),
    "foreach_addcmul_": lambda a, b: torch._foreach_addcmul_([rand(a)], [rand(b)], [rand(a)], 1.0),
    "lstm_cell": lambda a, b: torch.nn.LSTMCell(4, 4).to(a)(rand(b)),
    "lstm": lambda a, b: torch.nn.LSTM(4, 4).to(a)(rand(b)),
    "gru hidden": lambda a, b: torch.nn.GRU(4, 4).to(a)(rand(a, 2, 4), rand(b, 1, 4)),
    "multi_head_attention": lambda a, b: torch.nn.MultiheadAttention(4, 1).to(a)(rand(b), rand(b), rand(b)),
    "sparse mm": lambda a, b: torch.sparse.mm(rand(a).to_sparse(), rand(b)),
    "sparse csr mm": lambda a, b: rand(a).to_sparse_csr() @ rand(b),
    "sparse add": lambda a, b: rand(a).to_sparse() + rand(b).to_sparse(),
    "sparse_coo_tensor": lambda a, b: torch.sparse_coo_tensor(longs(b)[None], rand(a, 2), (4,), check_invariants=True),
    "amp unscale": lambda a, b: torch._amp_foreach_non_finite_check_and_unscale_([rand(a)], rand(b, 1), rand(b, 1)),
    "segment_reduce": lambda a, b: torch.segment_reduce(rand(a, 4), "sum", lengths=longs(b, 2, 2)),
    "unique out": lambda a, b: torch.bitwise_and(longs(a), longs(b)),
    "autograd.grad": lambda a, b: rand(a).requires_grad_().mul(2).backward(rand(b)),
    "repeat_interleave": lambda a, b: torch.repeat_interleave(rand(a), longs(b, 1, 2, 3, 4), dim=0),
    "histogram weight": lambda a, b: torch.bincount(longs(a, 1, 2), weights=rand(b, 2)),
    "scatter_reduce": lambda a, b: rand(a).scatter_reduce(0, longs(b)[None], rand(a), "sum"),
    "pixel norm": lambda a, b: torch.native_layer_norm(rand(a), (4,), rand(b, 4), None, 1e-5),
    "max_unpool": lambda a, b: F.max_unpool2d(rand(a, 1, 1, 2, 2), longs(b, 0, 1, 2, 3).reshape(1, 1, 2, 2), 2),
    "logical_xor": lambda a, b: torch.logical_xor(rand(a), rand(b)),
    "trapezoid": lambda a, b: torch.trapezoid(rand(a), rand(b)),
    "cosine_similarity": lambda a, b: F.cosine_similarity(rand(a), rand(b)),
    "fused adam": lambda a, b: torch._fused_adam_(
        [rand(a)], [rand(b)], [rand(a)], [rand(a)], [], [torch.ones((), device=a)], lr=0.1, beta1=0.9, beta2=0.99,
        weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    ),
    "fp8 product": lambda a, b: torch._scaled_mm(
        torch.ones(16, 16, device=a).to(torch.float8_e4m3fn), torch.ones(16, 16, device=b).to(torch.float8_e4m3fn).t(),
        rand(a, 1), rand(a, 1),
    ),
}  # fmt: skip
if "dtype" not in torch.ops.aten.mm.overloads():  # torch 2.7
    del REFUSED["mm dtype"]
if not torch._C._dispatch_has_kernel_for_dispatch_key("aten::_scaled_mm", "CPU"):  # torch 2.7
    del REFUSED["fp8 product"]


@pytest.mark.parametrize("devices", [(M0, M1), (M0, CPU), (CPU, M0)], ids=["two devices", "CPU second", "CPU first"])
@pytest.mark.parametrize("name", REFUSED)
def test_two_devices_are_refused(name, devices):
    with pytest.raises((RuntimeError, ValueError), match="device"):
        REFUSED[name](*devices)


@pytest.mark.parametrize("device", [M0, M1, CPU], ids=str)
def test_one_device_is_accepted(device):
    """What the table calls is right but for the devices."""
    for name, function in REFUSED.items():
        if name == "mm dtype" and device == CPU:
            continue  # PyTorch has no such kernel
        try:
            function(device, device)
        except Exception as error:
            raise AssertionError(f"{name} on {device}: {error}") from error


ALLOWED = {
    "copy_": lambda a, b: rand(a).copy_(rand(b) * 2),
    "to": lambda a, b: rand(b).to(a),
    "scalar tensor": lambda a, b: rand(a) * torch.tensor(2.0),
    "scalar first": lambda a, b: torch.tensor(2.0) * rand(a),
    "scalar where": lambda a, b: torch.where(rand(a) > 0, torch.tensor(1.0), rand(a)),
    "masked_fill value": lambda a, b: rand(a).masked_fill(rand(a) > 0, torch.tensor(2.0)),
    "slice assignment": lambda a, b: rand(a).__setitem__(slice(0, 2), rand(b, 2, 4)),
    "data": lambda a, b: setattr(rand(a), "data", rand(b)),
    "cpu lengths": lambda a, b: torch.nn.utils.rnn.pack_padded_sequence(rand(a), longs(CPU, 4, 3, 2, 1)),
    "ctc_loss targets": lambda a, b: F.ctc_loss(
        rand(a, 4, 1, 3).log_softmax(-1), longs(b, 1)[None], longs(CPU, 4), longs(CPU, 1)
    ),
    "foreach_copy_": lambda a, b: torch._foreach_copy_([rand(a)], [rand(b)]),
}


@pytest.mark.parametrize("devices", [(M0, M1), (M0, CPU), (M1, M0)], ids=str)
@pytest.mark.parametrize("name", ALLOWED)
def test_what_cuda_allows(name, devices):
    ALLOWED[name](*devices)


def test_indices_may_be_on_the_cpu_and_nowhere_else():
    x = rand(M0)
    assert x[longs(CPU)].shape == (2, 4)
    x[longs(CPU)] = 3.0
    assert x[0, 0].item() == 3.0
    with pytest.raises(RuntimeError, match="device"):
        x[longs(M1)]
    with pytest.raises(RuntimeError, match="device"):
        x[longs(M1)] = 1.0
    with pytest.raises(RuntimeError, match="device"):
        rand(CPU)[longs(M0)]


@pytest.mark.parametrize("draw", ["normal_", "uniform_", "bernoulli_", "random_", "exponential_"])
def test_generators_belong_to_a_device(draw):
    for tensor, generator in ((M0, CPU), (CPU, M0)):
        with pytest.raises(RuntimeError, match=r"Expected .*device.* for generator"):
            getattr(rand(tensor), draw)(generator=torch.Generator(generator))
    getattr(rand(M1), draw)(generator=torch.Generator(M1))


def test_missing_kernels_are_named():
    with pytest.raises(NotImplementedError, match=r"'aten::_flash_attention_forward' .*'musa' backend"):
        q = rand(M0, 1, 4, 1, 8, dtype=torch.half)
        torch.ops.aten._flash_attention_forward(q, q, q, None, None, 4, 4, 0.0, False, False)
