"""Calling a kernel over lists of tensors in chunks."""

from ..utils import ext_loader

__all__ = ["MultiTensorApply"]


class MultiTensorApply:
    """Calls `op(chunk_size, noop_flag_buffer, tensor_lists, *args)`."""

    available = False
    warned = False
    import_err: ImportError | None = None

    def __init__(self, chunk_size):
        try:
            ext_loader.load_ext("_ext", ["multi_tensor_lamb"])
            MultiTensorApply.available = True
        except ImportError as error:
            MultiTensorApply.available = False
            MultiTensorApply.import_err = error
        self.chunk_size = chunk_size

    def check_avail(self):
        """RuntimeError when the kernels are missing."""
        if not MultiTensorApply.available:
            raise RuntimeError(f"the kernels over lists of tensors are missing: {MultiTensorApply.import_err}")

    def __call__(self, op, noop_flag_buffer, tensor_lists, *args):
        self.check_avail()
        return op(self.chunk_size, noop_flag_buffer, tensor_lists, *args)
