"""Tensors on the device: making, moving, asking."""

import copy
import io
import pickle

import torch


def factories():
    for make in (torch.zeros, torch.ones, torch.empty, torch.rand, torch.randn):
        assert make(2, 3, device="cuda").device.type == torch.device("cuda").type
    assert torch.arange(3, device="cuda").tolist() == [0, 1, 2]
    assert torch.full((2,), 5, device="cuda").sum().item() == 10
    assert torch.eye(2, device="cuda").trace().item() == 2
    assert torch.linspace(0, 1, 3, device="cuda").tolist() == [0.0, 0.5, 1.0]
    assert torch.tensor([[1, 2]], device="cuda").shape == (1, 2)
    assert torch.as_tensor([1.5], device="cuda").is_cuda
    assert torch.asarray([1], device="cuda:1").get_device() == 1


def likes():
    x = torch.zeros(2, device="cuda:1")
    assert torch.ones_like(x).get_device() == 1
    assert torch.empty_like(torch.zeros(2), device="cuda").is_cuda
    assert x.new_zeros(3).get_device() == 1
    assert x.new_tensor([1.0], device="cuda:0").get_device() == 0
    assert torch.zeros(1).new_full((2,), 3.0, device="cuda").is_cuda


def to_and_back():
    x = torch.arange(4.0)
    for y in (
        x.to("cuda"),
        x.to(device="cuda"),
        x.to(torch.device("cuda:0")),
        x.cuda(),
        x.cuda(0),
        x.to("cuda", torch.float64),
    ):
        assert y.is_cuda and torch.equal(y.cpu().float(), x)
    assert x.to(0).is_cuda
    assert x.cuda("cuda:1").get_device() == 1


def to_the_same_device_is_the_same_tensor():
    x = torch.zeros(2, device="cuda")
    assert x.to("cuda") is x and x.cuda() is x
    assert x.to("cuda", copy=True) is not x


def to_like_another():
    x = torch.zeros(2, dtype=torch.float16, device="cuda")
    y = torch.ones(3).to(x)
    assert y.is_cuda and y.dtype == torch.float16


def between_devices():
    x = torch.arange(3, device="cuda:0")
    y = x.to("cuda:1")
    assert y.get_device() == 1 and y.tolist() == [0, 1, 2]
    z = torch.empty(3, dtype=torch.int64, device="cuda:1")
    z.copy_(x)
    assert z.tolist() == [0, 1, 2]


def mixing_devices_is_an_error():
    a, b, c = torch.zeros(2, device="cuda:0"), torch.zeros(2, device="cuda:1"), torch.zeros(2)
    for other in (b, c):
        for use in (lambda x: a + x, lambda x: torch.cat([a, x]), lambda x: torch.dot(a, x)):
            try:
                use(other)
            except RuntimeError as error:
                assert "device" in str(error)
            else:
                raise AssertionError


def a_number_on_the_cpu_mixes():
    assert (torch.ones(2, device="cuda") * torch.tensor(3.0)).sum().item() == 6


def questions():
    x = torch.zeros(2, device="cuda:1")
    assert x.is_cuda and not torch.zeros(1).is_cuda
    assert x.get_device() == 1 and torch.zeros(1).get_device() == -1
    assert x.device.index == 1


def legacy_types():
    x = torch.zeros(2, device="cuda")
    assert torch.zeros(2).type("torch.cuda.FloatTensor").is_cuda
    assert torch.cuda.FloatTensor(3).shape == (3,)
    assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2]
    assert isinstance(x, torch.cuda.FloatTensor) and not isinstance(torch.zeros(1), torch.cuda.FloatTensor)


def legacy_types_of_every_kind():
    for kind in ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "Bool", "BFloat16"):
        assert getattr(torch.cuda, f"{kind}Tensor")(2).is_cuda


def legacy_storages():
    for kind in ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "Bool", "BFloat16"):
        storage = getattr(torch.cuda, f"{kind}Storage")(4)
        assert len(storage) == 4 and storage.is_cuda
    assert issubclass(torch.cuda.ByteStorage, torch.TypedStorage) and issubclass(
        torch.cuda.CharStorage, torch.TypedStorage
    )
    for kind in (torch.cuda.BFloat16Storage, torch.cuda.BoolStorage, torch.cuda.DoubleStorage, torch.cuda.FloatStorage):
        assert kind(1).is_cuda
    for kind in (torch.cuda.HalfStorage, torch.cuda.IntStorage, torch.cuda.LongStorage, torch.cuda.ShortStorage):
        assert kind(1).is_cuda


def printing():
    text = repr(torch.arange(3, device="cuda:1"))
    assert text.startswith("tensor([0, 1, 2], device='") and ":1'" in text


def numpy_needs_a_copy():
    x = torch.arange(3, device="cuda")
    assert x.cpu().numpy().tolist() == [0, 1, 2]
    try:
        x.numpy()
    except TypeError as error:
        assert "cpu()" in str(error)
    else:
        raise AssertionError


def indexing():
    x = torch.arange(10, device="cuda")
    assert x[x > 6].tolist() == [7, 8, 9]
    assert x[torch.tensor([0, 2])].tolist() == [0, 2]
    x[2:4] = 0
    assert x[:5].tolist() == [0, 1, 0, 0, 4]


def views_share_memory():
    x = torch.zeros(2, 3, device="cuda")
    x.t()[0] = 5
    assert x[:, 0].tolist() == [5.0, 5.0]
    assert x.view(-1).data_ptr() == x.data_ptr()


def gradients():
    x = torch.ones(3, device="cuda", requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.is_cuda and x.grad.tolist() == [2.0] * 3


def gradients_cross_devices():
    x = torch.ones(2, requires_grad=True)
    (x.cuda() * 3).to("cuda:1").sum().backward()
    assert x.grad.tolist() == [3.0, 3.0] and not x.grad.is_cuda


def deep_copies():
    x = torch.ones(2, device="cuda:1")
    y = copy.deepcopy({"x": x, "device": x.device})
    assert y["x"].get_device() == 1 and y["x"] is not x and y["device"] == x.device


def pickles():
    x = torch.arange(3, device="cuda:1")
    assert pickle.loads(pickle.dumps(x)).get_device() == 1
    assert pickle.loads(pickle.dumps(torch.device("cuda:1"))) == torch.device("cuda:1")


def streams_do_not_pickle():
    try:
        pickle.dumps(torch.cuda.Stream())
    except (TypeError, RuntimeError, AttributeError, pickle.PicklingError):
        return
    raise AssertionError


def saved_tensors_come_back_where_they_were():
    buffer = io.BytesIO()
    torch.save({"a": torch.ones(2, device="cuda:1")}, buffer)
    buffer.seek(0)
    assert torch.load(buffer)["a"].get_device() == 1


def loading_to_another_place():
    for target, index in (("cpu", -1), ("cuda:0", 0), (torch.device("cuda:1"), 1), ({"cuda:1": "cuda:0"}, 0)):
        buffer = io.BytesIO()
        torch.save(torch.ones(2, device="cuda:1"), buffer)
        buffer.seek(0)
        assert torch.load(buffer, map_location=target).get_device() == index
    buffer = io.BytesIO()
    torch.save(torch.ones(2, device="cuda:1"), buffer)
    buffer.seek(0)
    assert torch.load(buffer, map_location=lambda storage, place: storage).get_device() == -1


def loading_weights_only():
    for weights_only in (True, False):
        buffer = io.BytesIO()
        torch.save(torch.ones(2, device="cuda"), buffer)
        buffer.seek(0)
        assert torch.load(buffer, weights_only=weights_only).is_cuda


def legacy_format():
    buffer = io.BytesIO()
    torch.save(torch.ones(2, device="cuda"), buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    assert torch.load(buffer, map_location="cuda:1").get_device() == 1


def sparse():
    x = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device="cuda")
    assert x.is_cuda and x.to_dense().tolist() == [[0.0, 1.0], [2.0, 0.0]]
    y = torch.eye(2, device="cuda").to_sparse_csr()
    assert (y @ torch.ones(2, 1, device="cuda")).is_cuda
    assert torch.sparse.mm(x, torch.eye(2, device="cuda")).is_cuda


def nested():
    x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="cuda")
    assert x.is_cuda and x.to_padded_tensor(0.0).shape == (2, 3)


def linear_algebra():
    a = torch.tensor([[2.0, 1.0], [1.0, 3.0]], device="cuda")
    assert torch.allclose(torch.linalg.inv(a) @ a, torch.eye(2, device="cuda"), atol=1e-5)
    assert torch.linalg.eigvalsh(a).is_cuda
    q, r = torch.linalg.qr(a)
    assert torch.allclose(q @ r, a, atol=1e-5)
    assert torch.linalg.solve(a, a[:, 0]).shape == (2,)
    assert torch.linalg.svd(a).S.is_cuda


def fourier():
    x = torch.randn(16, device="cuda")
    assert torch.allclose(torch.fft.ifft(torch.fft.fft(x)).real, x, atol=1e-5)
    assert torch.fft.fftfreq(4, device="cuda").is_cuda


def reductions():
    x = torch.arange(6.0, device="cuda").view(2, 3)
    assert x.sum(0).tolist() == [3.0, 5.0, 7.0] and x.max().item() == 5
    assert x.topk(1).values.flatten().tolist() == [2.0, 5.0]
    assert torch.unique(torch.tensor([1, 1, 2], device="cuda")).tolist() == [1, 2]
    assert torch.nonzero(x > 3).shape == (2, 2)


def sorting_and_scattering():
    x = torch.tensor([3, 1, 2], device="cuda")
    assert x.sort().values.tolist() == [1, 2, 3]
    out = torch.zeros(4, device="cuda").scatter_add_(0, x, torch.ones(3, device="cuda"))
    assert out.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert torch.bincount(x).tolist() == [0, 1, 1, 1]


def default_tensor_type():
    before = torch.tensor([]).type()
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    try:
        assert torch.Tensor(2).is_cuda
    finally:
        torch.set_default_tensor_type(before)


def views_of_memory_are_not_for_others():
    x = torch.zeros(2, device="cuda")
    assert isinstance(x.data_ptr(), int)
    assert x.element_size() * x.nelement() == 8


def scripted_and_traced_functions():
    def double(x):
        return x * 2 + torch.ones_like(x)

    x = torch.ones(2, device="cuda")
    for function in (torch.jit.script(double), torch.jit.trace(double, (x,))):
        assert function(x).is_cuda and function(x).tolist() == [3.0, 3.0]


def symbolic_traces():
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.zeros_like(x, device="cuda") + x.to("cuda:1").to("cuda:0")

    traced = torch.fx.symbolic_trace(Net())
    assert traced(torch.ones(2, device="cuda")).tolist() == [1.0, 1.0]


def exported_programs():
    class Net(torch.nn.Module):
        def forward(self, x):
            return x * torch.arange(2, device=x.device)

    x = torch.ones(2, device="cuda")
    program = torch.export.export(Net(), (x,))
    assert torch.equal(program.module()(x), torch.tensor([0.0, 1.0], device="cuda"))
    assert torch.equal(program.run_decompositions().module()(x), torch.tensor([0.0, 1.0], device="cuda"))


def vectorised_functions():
    x = torch.randn(3, 4, device="cuda")
    assert torch.allclose(torch.vmap(torch.dot)(x, x), (x * x).sum(1), atol=1e-5)
    assert torch.func.grad(lambda y: (y**2).sum())(x).is_cuda


def checkpointing():
    x = torch.ones(4, device="cuda", requires_grad=True)
    torch.manual_seed(0)
    y = torch.utils.checkpoint.checkpoint(lambda v: torch.nn.functional.dropout(v, 0.5), x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def subclass_of_tensor():
    class Mine(torch.Tensor):
        pass

    x = torch.ones(2).as_subclass(Mine).cuda()
    assert type(x) is Mine and x.is_cuda and type(x + 1) is Mine
