"""torch._C's bindings for CUDA, which torch's own Python and some projects call by name."""

from ..rules import Forward, Rule, pairs

_TEST = "tests/cuda/test_bindings.py::test_a_binding_is_the_backends"
_WHY = "torch's own Python and serving engines call the binding by name"

RULES = (
    *pairs(
        "torch._C",
        "torch_musa:_MUSAC.",
        """
        _CUDAGraph=_MUSAGraph
        _CudaEventBase=_MusaEventBase
        _CudaStreamBase=_MusaStreamBase
        _construct_CUDA_Tensor_From_Storage_And_Metadata=_construct_MUSA_Tensor_From_Storage_And_Metadata
        _cuda_CUDAAllocator=_musa_MUSAAllocator
        _cuda_CUDAAllocator_AllocatorState=_musa_MUSAAllocator_AllocatorState
        _cuda_attach_out_of_memory_observer=_musa_attach_out_of_memory_observer
        _cuda_beginAllocateCurrentStreamToPool=_musa_beginAllocateCurrentStreamToPool
        _cuda_beginAllocateToPool=_musa_beginAllocateToPool
        _cuda_canDeviceAccessPeer=_musa_canDeviceAccessPeer
        _cuda_changeCurrentAllocator=_musa_changeCurrentAllocator
        _cuda_checkPoolLiveAllocations=_musa_checkPoolLiveAllocations
        _cuda_clearCublasWorkspaces=_musa_clearMublasWorkspaces
        _cuda_cudaCachingAllocator_raw_delete=_musa_musaCachingAllocator_raw_delete
        _cuda_customAllocator=_musa_customAllocator
        _cuda_emptyCache=_musa_emptyCache
        _cuda_endAllocateCurrentStreamToPool=_musa_endAllocateCurrentStreamToPool
        _cuda_endAllocateToPool=_musa_endAllocateCurrentStreamToPool
        _cuda_exchangeDevice=_musa_exchangeDevice
        _cuda_getAllocator=_musa_getAllocator
        _cuda_getAllocatorBackend=_musa_getAllocatorBackend
        _cuda_getArchFlags=_musa_getArchFlags
        _cuda_getCheckpointState=_musa_getCheckpointState
        _cuda_getCurrentBlasHandle=_musa_getCurrentBlasHandle
        _cuda_getCurrentRawStream=_musa_getCurrentRawStream
        _cuda_getCurrentStream=_musa_getCurrentStream
        _cuda_getDefaultStream=_musa_getDefaultStream
        _cuda_getDevice=_musa_getDevice
        _cuda_ipc_collect=_musa_ipc_collect
        _cuda_isCurrentStreamCapturing=_musa_isCurrentStreamCapturing
        _cuda_isHistoryEnabled=_musa_isHistoryEnabled
        _cuda_isInBadFork=_musa_isInBadFork
        _cuda_maybeExchangeDevice=_musa_maybeExchangeDevice
        _cuda_memorySnapshot=_musa_memorySnapshot
        _cuda_memoryStats=_musa_memoryStats
        _cuda_record_memory_history=_musa_record_memory_history
        _cuda_record_memory_history_legacy=_musa_record_memory_history_legacy
        _cuda_releasePool=_musa_releasePool
        _cuda_resetAccumulatedMemoryStats=_musa_resetAccumulatedMemoryStats
        _cuda_resetPeakMemoryStats=_musa_resetPeakMemoryStats
        _cuda_setCheckpointPoolState=_musa_setCheckpointPoolState
        _cuda_setDevice=_musa_setDevice
        _cuda_setMemoryFraction=_musa_setMemoryFraction
        _cuda_setStream=_musa_setStream
        _cuda_sleep=_musa_sleep
        _cuda_synchronize=_musa_synchronize
        _free_And_Remove_DeleterFn=_free_And_Remove_DeleterFn
        _graph_pool_handle=_graph_pool_handle
        _has_Standard_Deleter=_has_Standard_Deleter
        _nccl_version=_mccl_version
        _nccl_version_suffix=_mccl_version_suffix
        _set_storage_access_error_msg=_set_storage_access_error_msg
        _storage_Use_Count=_storage_Use_Count
        _tensors_data_ptrs_at_indices_equal=_tensors_data_ptrs_at_indices_equal
        """,
        why=_WHY,
        test=_TEST,
    ),
    *pairs(
        "torch._C",
        "torch_musa:_MUSAC.",
        "_cuda_getDeviceCount=_musa_getDeviceCount _cuda_init=_musa_init",
        when="env:TORCHADA_FORCE_CUDA_AVAILABLE",
        why="torch and others take this binding for the sign of a CUDA build",
        test="tests/cuda/test_policy.py::test_forced_availability_is_coherent",
    ),
    *pairs(
        "torch._C",
        "torch_musa:_MUSAC.",
        "_broadcast=_broadcast _broadcast_coalesced=_broadcast_coalesced _gather=_gather _scatter=_scatter",
        why="torch.nn.parallel.comm calls it; torch_musa binds it in its own module",
        test="tests/cuda/test_other.py::test_comm",
    ),
    Rule(
        "torch._C:_host_emptyCache",
        Forward("torch._C:_accelerator_emptyHostCache"),
        when="has:torch._C._accelerator_emptyHostCache",
        why="engines that offload give pinned memory back by it, where torch has the name",
        test="tests/cuda/test_bindings.py::test_pinned_memory_is_given_back",
    ),
)
