"""The vendor's changes to FSDP2. torch's own works on the simulated device, so there is nothing to apply."""

from ...._not_simulated import stand_ins

__all__ = ["_apply_fsdp2_patches", "monkey_patched_fully_shard"]


def _setup_fsdp2_patches():
    """Nothing: see above."""


def _apply_fsdp2_patches():
    """Nothing: see above."""


def monkey_patched_fully_shard(fully_shard_func):
    """`fully_shard` as it is."""
    return fully_shard_func


globals().update(
    stand_ins(
        __name__,
        "FSDP2 code of the vendor (torch's works)",
        {
            "foreach_all_gather_non_overlap": "(fsdp_params, group, async_op, all_gather_copy_in_stream, "
            "all_gather_stream, device, all_gather_comm)",
            "post_backward_non_overlap": "(self, *unused)",
            "wait_for_unshard_non_overlap": "(self)",
        },
    )
)
