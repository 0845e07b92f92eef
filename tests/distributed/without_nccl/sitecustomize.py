"""For a torch that is built with NCCL: as the vendor's, which is not, before torch.distributed looks."""

import sys


class WithoutNCCL:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.distributed.distributed_c10d":
            for of_such_a_build in ("ProcessGroupNCCL", "_hash_tensors"):
                vars(sys.modules["torch._C._distributed_c10d"]).pop(of_such_a_build, None)


sys.meta_path.insert(0, WithoutNCCL())
