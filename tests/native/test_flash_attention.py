"""sgl_kernel.flash_attn and flash_attn_interface, with stand-ins for the MUSA package."""

import importlib
import inspect
import sys
import textwrap

import pytest
import torch

import torchada
from torchada.engine import ENGINE
from torchada.shims import flash_attention

PROVIDER = """
    import torch

    def flash_attn_func(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), return_softmax_lse=False):
        "attention over (batch, sequence, heads, size)"
        scale = softmax_scale if softmax_scale is not None else q.shape[-1] ** -0.5
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
        out = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        return (out, scores.logsumexp(-1)) if return_softmax_lse else out

    def flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, return_softmax_lse=False
    ):
        return (q, cu_seqlens_q) if return_softmax_lse else q

    def flash_attn_with_kvcache(q, k_cache, v_cache, *, return_softmax_lse=False):
        return q + 1

    def flash_attn_forwarding(q, **kwargs):
        return kwargs

    def flash_attn_taking(q, only_qv=None):
        return only_qv
"""


@pytest.fixture
def provider(tmp_path, monkeypatch):
    """The MUSA package, importable for one test."""
    (tmp_path / "flash_attn_interface.py").write_text(textwrap.dedent(PROVIDER))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("flash_attn_interface", "sgl_kernel.flash_attn", "sgl_kernel", "sgl_kernel.other"):
        sys.modules.pop(name, None)
    ENGINE._executed.discard("flash_attn_interface")


def test_sgl_kernel(provider):
    import sgl_kernel.flash_attn as first

    assert first is importlib.import_module("flash_attn_interface")
    assert first.__name__ == "flash_attn_interface" and first.__spec__.name == "flash_attn_interface"
    assert sys.modules["sgl_kernel.flash_attn"] is first is sys.modules["sgl_kernel"].flash_attn
    from sgl_kernel.flash_attn import flash_attn_with_kvcache

    assert flash_attn_with_kvcache is first.flash_attn_with_kvcache
    assert ENGINE.ledger.state("sgl_kernel:flash_attn").outcome == "active"
    with pytest.raises(ModuleNotFoundError, match=r"sgl_kernel\.other"):
        importlib.import_module("sgl_kernel.other")


def test_beside_a_real_sgl_kernel(provider):
    (provider / "sgl_kernel").mkdir()
    (provider / "sgl_kernel" / "__init__.py").write_text(
        "from . import other\nfrom .flash_attn import flash_attn_func\n"
    )
    (provider / "sgl_kernel" / "other.py").write_text("value = 5\n")
    (provider / "sgl_kernel" / "flash_attn.py").write_text("raise ImportError('needs CUDA')\n")
    importlib.invalidate_caches()
    import sgl_kernel

    assert sgl_kernel.other.value == 5
    assert sgl_kernel.flash_attn is importlib.import_module("flash_attn_interface")


@pytest.mark.parametrize("name", ["sgl_kernel", "sgl_kernel.flash_attn", "flash_attn_interface"])
def test_without_the_provider_nothing_is_invented(name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)
    assert not {"sgl_kernel", "sgl_kernel.flash_attn", "flash_attn_interface"} & set(sys.modules)


def test_only_qv(provider):
    interface = importlib.import_module("flash_attn_interface")
    q = torch.zeros(2, device="cuda")
    function = interface.flash_attn_with_kvcache
    assert torch.equal(function(q, None, None, only_qv=True), q + 1)
    assert "only_qv" not in inspect.signature(function).parameters
    assert function.__name__ == "flash_attn_with_kvcache" and function.__module__ == "flash_attn_interface"
    with pytest.raises(TypeError, match="another"):
        function(q, None, None, another=1)
    assert interface.flash_attn_forwarding(q, only_qv=1) == {"only_qv": 1}
    assert interface.flash_attn_taking(q, only_qv=3) == 3
    with torchada.disabled():
        with pytest.raises(TypeError, match="only_qv"):
            function(q, None, None, only_qv=True)


def test_forward(provider):
    interface = importlib.import_module("flash_attn_interface")
    q, k, v = (torch.randn(1, 4, 2, 8, device="cuda") for _ in range(3))
    out, lse, mask, state = interface._flash_attn_forward(q, k, v, softmax_scale=0.5, causal=False)
    wanted, wanted_lse = interface.flash_attn_func(q, k, v, softmax_scale=0.5, return_softmax_lse=True)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(lse, wanted_lse)
    assert mask is None and state is None
    # Unset parameters of the larger function are no obstacle; set ones are named.
    assert (
        len(
            interface._flash_attn_forward(q, k, v, None, None, qv=None, window_size=[-1, -1], softcap=0.0, num_splits=1)
        )
        == 4
    )
    with pytest.raises(torchada.NotOnMusa, match="page_table"):
        interface._flash_attn_forward(q, k, v, page_table=q)
    with pytest.raises(torchada.NotOnMusa, match="softcap"):
        interface._flash_attn_forward(q, k, v, softcap=30.0)
    starts = torch.tensor([0, 4])
    packed = interface._flash_attn_forward(
        q[0], k[0], v[0], cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=4, max_seqlen_k=4
    )
    assert packed[1] is starts
    assert list(inspect.signature(interface._flash_attn_forward).parameters)[:4] == ["q", "k", "v", "k_new"]


def test_forward_fails_where_the_provider_gives_no_lse(provider):
    text = (provider / "flash_attn_interface.py").read_text()
    (provider / "flash_attn_interface.py").write_text(
        text.replace("(out, scores.logsumexp(-1)) if return_softmax_lse else out", "out")
    )
    importlib.invalidate_caches()
    interface = importlib.import_module("flash_attn_interface")
    q = torch.zeros(1, 1, 1, 8, device="cuda")
    with pytest.raises(torchada.NotOnMusa, match="returned no softmax_lse"):
        interface._flash_attn_forward(q, q, q)


def test_a_forward_of_the_providers_own_is_left_alone(provider):
    with (provider / "flash_attn_interface.py").open("a") as file:
        file.write("\n\ndef _flash_attn_forward(q):\n    return 'its own'\n")
    interface = importlib.import_module("flash_attn_interface")
    assert interface._flash_attn_forward(0) == "its own"
    assert ENGINE.ledger.state("flash_attn_interface:_flash_attn_forward").outcome == "absent"


def test_undo(run_python, provider):
    run_python(
        f"""
        import sys; sys.path.insert(0, {str(provider)!r})
        import torchada
        import sgl_kernel.flash_attn
        import torch
        assert sgl_kernel.flash_attn._flash_attn_forward
        torchada.deactivate()
        import flash_attn_interface
        assert not hasattr(flash_attn_interface, "_flash_attn_forward")
        assert "sgl_kernel.flash_attn" not in sys.modules
        """
    )


def test_the_shim_module_lists_what_it_wraps():
    def takes(q, only_qv=None): ...
    def forwards(q, **kwargs): ...
    def neither(q, k=None): ...

    assert [flash_attention._lacks_keyword(function) for function in (takes, forwards, neither)] == [False, False, True]
