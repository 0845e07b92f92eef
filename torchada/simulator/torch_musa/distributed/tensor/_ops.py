"""How DTensor shards the fused RMS norm; not simulated: the operator here is made of torch's, which DTensor shards."""

from ..._not_simulated import stand_ins

globals().update(
    stand_ins(
        __name__,
        "sharding of its own for it: it is made of torch's operators",
        {"fused_rmsnorm_bwd_strategy": "(op_schema)", "fused_rmsnorm_strategy": "(op_schema)"},
    )
)
fused_rmsnorm_bwd_strategy = globals()["fused_rmsnorm_bwd_strategy"]
fused_rmsnorm_strategy = globals()["fused_rmsnorm_strategy"]
