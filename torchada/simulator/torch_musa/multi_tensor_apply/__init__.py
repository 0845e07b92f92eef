"""One kernel over lists of tensors."""

from . import multi_tensor_apply
from .multi_tensor_apply import MultiTensorApply

__all__ = ["MultiTensorApply", "multi_tensor_applier", "multi_tensor_apply"]

multi_tensor_applier = MultiTensorApply(2048 * 32)
