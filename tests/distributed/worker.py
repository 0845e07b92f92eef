"""One worker of an elastic job of a CUDA program: in the first attempt rank 1 dies after the first collective."""

import json
import os
import sys

import torch
import torch.distributed as dist

rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
values = torch.full((2,), rank + 1.0, device="cuda")
dist.all_reduce(values)
if attempt == 0 and rank == 1:
    os._exit(3)
dist.barrier(device_ids=[rank])
with open(os.path.join(sys.argv[1], f"{rank}.{attempt}"), "w") as file:
    json.dump([values.tolist(), dist.get_backend(), values.get_device(), dist.get_world_size()], file)
dist.destroy_process_group()
