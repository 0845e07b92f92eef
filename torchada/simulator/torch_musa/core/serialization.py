"""torch.save and torch.load for MUSA storages. Files with CUDA tags do not load without `map_location`."""

import torch
import torch_musa

from torchada.simulator import profiles

_REGISTRATION_KEY = 999


def _musa_tag(obj):
    if obj.device.type == "musa":
        return f"musa:{obj.device.index}"
    return None


def _validate_musa_device(location):
    device = torch.device(location)
    if not torch_musa.is_available():
        raise RuntimeError(
            "Attempting to deserialize object on a MUSA device but torch.musa.is_available() is False. "
            "Use torch.load with map_location=torch.device('cpu') to load it on the CPU."
        )
    index = torch_musa.current_device() if device.index is None else device.index
    if index >= torch_musa.device_count():
        raise RuntimeError(
            f"Attempting to deserialize object on MUSA device {index} but torch.musa.device_count() is "
            f"{torch_musa.device_count()}. Use torch.load with map_location to name a device that is there."
        )
    return torch.device("musa", index)


def _musa_deserialize(obj, location):
    if location.startswith("musa"):
        return obj.musa(_validate_musa_device(location))
    return None


def _cuda_deserialize(_, location):
    if location.startswith("cuda"):
        raise RuntimeError(
            f"the file holds storages of a CUDA device ({location}), which torch_musa does not load: "
            "use torch.load with map_location='musa' or map_location='cpu'"
        )


def register_deserialization():
    """Register the MUSA tags, and put a deserializer that refuses in the place of torch's one for CUDA."""
    torch.serialization.register_package(_REGISTRATION_KEY, _musa_tag, _musa_deserialize)
    if profiles.defect("cuda_checkpoints"):
        _refuse_cuda()


def _refuse_cuda():
    registry = torch.serialization._package_registry
    for position, (key, tag, _) in enumerate(registry):
        # torch's entry is a partial of a tagger over the name of the backend.
        if getattr(tag, "args", None) == ("cuda",):
            registry.pop(position)
            torch.serialization.register_package(key, tag, _cuda_deserialize)
            break
    else:
        raise RuntimeError("torch.serialization has no entry for CUDA where torch_musa expects one")
