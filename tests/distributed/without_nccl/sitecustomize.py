"""For a torch that is built with NCCL: as the vendor's, which is not, before torch.distributed looks."""

import sys


class WithoutNCCL:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.distributed.distributed_c10d":
            vars(sys.modules["torch._C._distributed_c10d"]).pop("ProcessGroupNCCL", None)


sys.meta_path.insert(0, WithoutNCCL())
