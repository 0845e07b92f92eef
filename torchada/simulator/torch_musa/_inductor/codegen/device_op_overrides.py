"""How generated code names the operations of the device."""

from torch._inductor.codegen.common import DeviceOpOverrides

from ..._not_simulated import refuse


def _refuse(name):
    refuse(f"torch_musa._inductor.codegen.device_op_overrides.MUSADeviceOpOverrides.{name}", "C++ wrapper")


class MUSADeviceOpOverrides(DeviceOpOverrides):
    """In Python; the C++ wrapper is not simulated."""

    def import_get_raw_stream_as(self, name):
        return f"from torch_musa._MUSAC import _musa_getCurrentRawStream as {name}"

    def set_device(self, device_idx):
        return f"torch.musa.set_device({device_idx})"

    def synchronize(self):
        return "torch.musa.synchronize()"

    def device_guard(self, device_idx):
        return f"torch.musa._DeviceGuard({device_idx})"

    def current_stream(self):
        return "torch.musa.current_stream()"

    def stream_handle(self, stream_name):
        return f"{stream_name}.musa_stream"

    def aoti_get_stream(self):
        _refuse("aoti_get_stream")

    def cpp_aoti_device_guard(self):
        _refuse("cpp_aoti_device_guard")

    def cpp_aoti_stream_guard(self):
        _refuse("cpp_aoti_stream_guard")

    def cpp_device_guard(self):
        _refuse("cpp_device_guard")

    def cpp_device_ptr(self):
        _refuse("cpp_device_ptr")

    def cpp_getStreamFromExternal(self):
        _refuse("cpp_getStreamFromExternal")

    def cpp_kernel_type(self):
        _refuse("cpp_kernel_type")

    def cpp_stream_guard(self):
        _refuse("cpp_stream_guard")

    def cpp_stream_type(self):
        _refuse("cpp_stream_type")

    def kernel_driver(self):
        _refuse("kernel_driver")

    def kernel_header(self):
        _refuse("kernel_header")

    def tma_descriptor_helpers(self):
        _refuse("tma_descriptor_helpers")

    def cpp_global_scratch(self, idx):
        _refuse("cpp_global_scratch")
