"""The vendor's cross entropy over sharded logits; not simulated."""

from .. import _ext as ext_module  # noqa: F401
from .._not_simulated import stand_ins
from ..utils import ext_loader  # noqa: F401

globals().update(
    stand_ins(
        __name__,
        "fused loss (torch.distributed.tensor.parallel.loss_parallel works)",
        {
            "FusedCrossEntropyLossTensorParallel": {
                "forward": "static (ctx, input, target, reduction='mean', pg=None)",
                "backward": "static (ctx, grad_output)",
            },
            "parallel_fused_cross_entropy": "(input, target, reduction='mean', pg=None)",
        },
    )
)
