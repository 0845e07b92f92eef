"""Which module of torch is answered from which module of torch_musa."""

from ..rules import Mirror

_SELF = "no module of torch_musa answers it; names are torch's own unless a rule says otherwise"

MIRRORS = (
    Mirror("torch.cuda", "torch_musa", "torch.musa is the module torch_musa"),
    Mirror("torch.cuda._utils", "torch_musa.core._utils", "device index helpers"),
    Mirror("torch.cuda.amp", None, "torch's own classes: their device string is translated by torch.autocast's row"),
    Mirror("torch.cuda.amp.autocast_mode", None, "as torch.cuda.amp"),
    Mirror("torch.cuda.amp.common", "torch_musa.core.amp.common", "whether mixed precision can work"),
    Mirror("torch.cuda.amp.grad_scaler", None, "as torch.cuda.amp"),
    Mirror("torch.cuda.comm", None, "re-exports torch.nn.parallel.comm"),
    Mirror("torch.cuda.gds", None, _SELF),
    Mirror("torch.cuda.graphs", "torch_musa.musa_graph.graphs", "graphs live under another name"),
    Mirror("torch.cuda.green_contexts", None, _SELF),
    Mirror("torch.cuda.jiterator", None, _SELF),
    Mirror("torch.cuda.memory", "torch_musa.core.memory", "memory management"),
    Mirror("torch.cuda.nccl", "torch_musa.core.mccl", "NCCL is called MCCL"),
    Mirror("torch.cuda.nvtx", None, _SELF),
    Mirror("torch.cuda.profiler", None, "torch_musa.profiler is something else"),
    Mirror("torch.cuda.random", "torch_musa.core.random", "random number generation"),
    Mirror("torch.cuda.sparse", None, _SELF),
    Mirror("torch.cuda.streams", "torch_musa.core.stream", "streams live under another name"),
    Mirror("torch.cuda.tunable", None, _SELF),
)
