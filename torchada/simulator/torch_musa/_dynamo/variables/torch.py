"""Context managers Dynamo can trace; torch's own list, to which torch_musa's are not added yet."""

from torch._dynamo.variables.torch import supported_ctx_manager_classes

from ..._not_simulated import absent

__all__ = ["supported_ctx_manager_classes"]

__getattr__ = absent(__name__, {"_musa_supported_ctx_manager_classes"}, "Dynamo trace rules")
