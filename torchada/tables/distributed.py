"""Rows for torch.distributed."""

from ..rules import Detour, Install, Rule

_C10D = "torch.distributed.distributed_c10d"
_MESH = "torch.distributed.device_mesh"
_RUN = "torch.distributed.run"
_OPTION = "torch.distributed.argparse_util"
_TEST = "tests/distributed/test_nccl.py"
_LAUNCH = "tests/distributed/test_launch.py"
_RPC = "TensorPipe moves tensors between CUDA devices only; torch would complain of invalid indices"
_GPU = "torchrun --nproc-per-node gpu asks whether CUDA is available"

RULES = (
    Rule(
        f"{_C10D}:_new_process_group_helper",
        Detour(shim="distributed:new_process_group"),
        why="nccl is called mccl; the group remembers the name it was asked for, so get_backend() reads nccl back",
        test=f"{_TEST}::test_two_ranks",
    ),
    Rule(
        f"{_C10D}:init_process_group",
        Detour(keywords=("device_id",), positions=(8,)),
        why="a device made before activation is of type cuda, and compared with the accelerator's",
        test=f"{_TEST}::test_two_ranks",
    ),
    Rule(
        f"{_C10D}:new_group",
        Detour(keywords=("device_id",), positions=(6,)),
        why="as init_process_group",
        test=f"{_TEST}::test_two_ranks",
    ),
    Rule(
        f"{_C10D}:new_subgroups",
        Detour(shim="distributed:new_subgroups"),
        why="without a size it insists on an available CUDA",
        test=f"{_TEST}::test_two_ranks",
    ),
    Rule(
        f"{_C10D}:is_nccl_available",
        Detour(shim="distributed:is_nccl_available"),
        why="programs choose gloo where it is False",
        test=f"{_TEST}::test_two_ranks",
    ),
    Rule(
        f"{_C10D}:ProcessGroupNCCL",
        Install("distributed:process_group_nccl"),
        why="the class and its Options are named by programs, and by torch where NCCL is available",
        test=f"{_TEST}::test_two_ranks",
    ),
    Rule(
        f"{_C10D}:Backend.default_device_backend_map",
        Install("distributed:default_backend"),
        why="the backend for a device is read back as nccl",
        test=f"{_TEST}::test_two_ranks",
    ),
    Rule(
        f"{_MESH}:init_device_mesh",
        Detour(keywords=("device_type",), positions=(0,)),
        why="a mesh of cuda devices is one of musa devices",
        test=f"{_TEST}::test_two_ranks",
    ),
    Rule(
        f"{_MESH}:DeviceMesh.__init__",
        Detour(keywords=("device_type",), positions=(0,)),
        why="a mesh of cuda devices is one of musa devices",
        test=f"{_TEST}::test_two_ranks",
    ),
    Rule(
        f"{_MESH}:DeviceMesh.from_group",
        Detour(keywords=("device_type",), positions=(1,)),
        why="a mesh of cuda devices is one of musa devices",
        test=f"{_TEST}::test_two_ranks",
    ),
    Rule(
        "torch.nn.parallel.distributed:DistributedDataParallel._check_comm_hook",
        Detour(shim="distributed:check_comm_hook"),
        why="torch asks for a CUDA build before it takes the hooks that send bfloat16",
        test=f"{_TEST}::test_training",
    ),
    Rule(
        "torch.nn.modules._functions:SyncBatchNorm.forward",
        Install("sync_batch_norm:install"),
        when="not env:TORCHADA_DISABLE_OP_OVERRIDE_SYNC_BATCH_NORM",
        why="its operators have CUDA kernels only; those that torch_musa lacks are made of others",
        test=f"{_TEST}::test_training",
    ),
    Rule(
        f"{_OPTION}:env.__call__",
        Detour(shim="distributed:launcher_option"),
        why=_GPU,
        test=f"{_LAUNCH}::test_workers_are_restarted",
    ),
    Rule(
        f"{_OPTION}:env.__init__",
        Detour(shim="distributed:launcher_default"),
        why=_GPU,
        test=f"{_LAUNCH}::test_one_worker_for_each_device",
    ),
    Rule(
        f"{_RUN}:determine_local_world_size",
        Detour(shim="distributed:local_world_size"),
        why=_GPU,
        test=f"{_LAUNCH}::test_one_worker_for_each_device",
    ),
    Rule(
        "torch_musa.distributed.fsdp.sharded_grad_scaler:ShardedGradScaler.__init__",
        Detour(shim="distributed:sharded_grad_scaler"),
        why="the vendor's class takes no device, torch's does, first of all",
        test=f"{_TEST}::test_training",
    ),
    Rule(
        "torch.distributed.rpc.options:_to_device_map",
        Detour(shim="distributed:rpc_devices"),
        why=_RPC,
        test=f"{_TEST}::test_in_one_process",
    ),
    Rule(
        "torch.distributed.rpc.options:_to_device_list",
        Detour(shim="distributed:rpc_devices"),
        why=_RPC,
        test=f"{_TEST}::test_in_one_process",
    ),
)
