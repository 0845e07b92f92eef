"""One kernel over lists of tensors; not simulated yet."""

from .._not_simulated import absent, refuse


class MultiTensorApply:
    """Calls a kernel over lists of tensors."""

    def __init__(self, chunk_size):
        refuse("torch_musa.multi_tensor_apply.MultiTensorApply", "multi-tensor kernels")


__getattr__ = absent(__name__, {"multi_tensor_applier", "multi_tensor_apply"}, "multi-tensor kernels")
