"""torch.backends.mudnn."""

import sys
from contextlib import contextmanager

import torch_musa
from torch.backends import ContextProp, PropModule, __allow_nonbracketed_mutation


def version():
    """Version of muDNN as one number (major * 10000 + minor * 100 + patch)."""
    return torch_musa._MUSAC._mudnn_version()


def set_flags(_allow_tf32):
    """Set the flags; returns the former values as a tuple."""
    former = (torch_musa._MUSAC._get_allow_tf32(),)
    torch_musa._MUSAC._set_allow_tf32(_allow_tf32)
    return former


@contextmanager
def flags(allow_tf32=True):
    """Context manager: the flags have these values inside."""
    with __allow_nonbracketed_mutation():
        former = set_flags(allow_tf32)
    try:
        yield
    finally:
        with __allow_nonbracketed_mutation():
            set_flags(*former)


class MudnnModule(PropModule):
    """This module, with its flags as attributes that can be assigned."""

    allow_tf32 = ContextProp(torch_musa._MUSAC._get_allow_tf32, torch_musa._MUSAC._set_allow_tf32)


sys.modules[__name__] = MudnnModule(sys.modules[__name__], __name__)
