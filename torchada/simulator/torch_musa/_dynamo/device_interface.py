"""What Dynamo and inductor ask a device for."""

import torch
import torch_musa
from torch._dynamo.device_interface import (
    DeviceInterface,
    caching_worker_current_devices,
    caching_worker_device_properties,
    get_registered_device_interfaces,
    register_interface_for_device,
)

get_musa_stream = torch_musa._MUSAC._musa_getCurrentRawStream

__all__ = ["MusaInterface", "get_registered_device_interfaces", "register_interface_for_device"]


class MusaInterface(DeviceInterface):
    """The device interface for "musa"."""

    device = torch_musa.device
    Event = torch_musa.Event
    Stream = torch_musa.Stream

    class Worker:
        """Answers in compile workers, which must not initialise the device: from what was kept before the fork."""

        @staticmethod
        def set_device(device):
            caching_worker_current_devices["musa"] = device

        @staticmethod
        def current_device():
            if "musa" in caching_worker_current_devices:
                return caching_worker_current_devices["musa"]
            return torch_musa.current_device()

        @staticmethod
        def get_device_properties(device=None):
            index = MusaInterface.Worker.current_device()
            if isinstance(device, int):
                index = device
            elif device is not None and (named := torch.device(device)).index is not None:
                index = named.index
            if "musa" not in caching_worker_device_properties:
                caching_worker_device_properties["musa"] = [
                    torch_musa.get_device_properties(i) for i in range(torch_musa.device_count())
                ]
            return caching_worker_device_properties["musa"][index]

    current_device = staticmethod(torch_musa.current_device)
    set_device = staticmethod(torch_musa.set_device)
    device_count = staticmethod(torch_musa.device_count)
    stream = staticmethod(torch_musa.stream)
    current_stream = staticmethod(torch_musa.current_stream)
    set_stream = staticmethod(torch_musa.set_stream)
    _set_stream_by_id = staticmethod(torch_musa._set_stream_by_id)
    synchronize = staticmethod(torch_musa.synchronize)
    get_device_properties = staticmethod(torch_musa.get_device_properties)
    get_raw_stream = staticmethod(get_musa_stream)
    exchange_device = staticmethod(torch_musa._exchange_device)
    maybe_exchange_device = staticmethod(torch_musa._maybe_exchange_device)

    @staticmethod
    def is_available():
        return torch_musa.is_available()

    @staticmethod
    def get_compute_capability(device=None):
        major, minor = torch_musa.get_device_capability(device)
        return major * 10 + minor

    @staticmethod
    def is_bf16_supported(including_emulation=False):
        return torch_musa.is_bf16_supported(including_emulation)


register_interface_for_device("musa", MusaInterface)
for _index in range(torch_musa.device_count()):
    register_interface_for_device(f"musa:{_index}", MusaInterface)
