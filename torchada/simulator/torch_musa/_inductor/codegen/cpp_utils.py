"""The device in generated C++."""

from torch._inductor.codegen.cpp_utils import DEVICE_TO_ATEN

__all__ = ["DEVICE_TO_ATEN"]

DEVICE_TO_ATEN["musa"] = "at::kPrivateUse1"
