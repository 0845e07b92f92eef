"""The core of torch_musa: devices, streams, memory, random numbers, amp, and what is changed in torch."""

import os.path as _osp

import torch_musa

from . import _comm
from ._lazy_init import _lazy_init as _lazy_init_musa

_comm.bind(torch_musa._MUSAC)

cmake_prefix_path = _osp.join(_osp.dirname(_osp.dirname(__file__)), "share", "cmake")


def current_blas_handle():
    """Address of the handle of the current stream's BLAS library."""
    _lazy_init_musa()
    return torch_musa._MUSAC._musa_getCurrentBlasHandle()


def current_blaslt_handle():
    """Address of the handle of the current stream's BLASLt library."""
    _lazy_init_musa()
    return torch_musa._MUSAC._musa_getCurrentBlasLtHandle()
