"""Names of CUDA's C libraries and their MUSA counterparts: how a function or a library file is called there."""

FUNCTIONS = {
    "cuda": (r"^(_{0,2})cuda(?=[A-Z])", r"\1musa"),
    "driver": (r"^cu(?=[A-Z])", "mu"),
    "cublas": (r"^cublas(?=[A-Z])", "mublas"),
    "cudnn": (r"^cudnn(?=[A-Z])", "mudnn"),
    "cufft": (r"^cufft(?=[A-Z])", "mufft"),
    "curand": (r"^curand(?=[A-Z])", "murand"),
    "cusolver": (r"^cusolver(?=[A-Z])", "musolver"),
    "cusparse": (r"^cusparse(?=[A-Z])", "musparse"),
    "cupti": (r"^cupti(?=[A-Z])", "mupti"),
    "nccl": (r"^(p?)nccl(?=[A-Z])", r"\1mccl"),
    "nvjpeg": (r"^nvjpeg(?=[A-Z])", "mtjpeg"),
    "nvrtc": (r"^nvrtc(?=[A-Z])", "mtrtc"),
}
"""Family -> (pattern at the start of a function's name, replacement)."""

WITHIN = (("CUDA", "MUSA"), ("Cuda", "Musa"), ("Cudart", "Musart"), ("CuDevice", "MuDevice"))
"""What changes in the rest of a name that a pattern of ``FUNCTIONS`` has matched."""

IRREGULAR = {
    "cublasGetCudartVersion": "mublasGetMusartVersion",
    "cuptiGetCubinCrc": "muptiGetMubinCrc",
    "nvrtcGetPTX": "mtrtcGetMUSA",
    "nvrtcGetPTXSize": "mtrtcGetMUSASize",
}
"""Functions whose MUSA name the patterns do not give."""

UNLIKE = {
    "cuTensorMapEncodeTiled": "muTensorDescriptorEncode takes other parameters",
    "cuTensorMapEncodeIm2col": "muTensorDescriptorEncode takes other parameters",
}
"""Functions whose counterpart cannot be called with the same arguments, and why: never translated."""

LIBRARIES = {
    "cublas": "mublas",
    "cublasLt": "mublasLt",
    "cuda": "musa",
    "cudart": "musart",
    "cudnn": "mudnn",
    "cufft": "mufft",
    "cupti": "mupti",
    "curand": "murand",
    "cusolver": "musolver",
    "cusparse": "musparse",
    "nccl": "mccl",
    "nvjpeg": "mtjpeg",
    "nvrtc": "mtrtc",
}
"""Library names without ``lib`` and suffix. NVML has none: MTML's functions take other arguments."""

MCCL_VARIABLES = (
    "MCCL_ASYNC_ERROR_HANDLING",
    "MCCL_BLOCKING_WAIT",
    "MCCL_DEBUG",
    "MCCL_DESYNC_DEBUG",
    "MCCL_ENABLE_TIMING",
    "TORCH_MCCL_ASYNC_ERROR_HANDLING",
    "TORCH_MCCL_AVOID_RECORD_STREAMS",
    "TORCH_MCCL_BLOCKING_WAIT",
    "TORCH_MCCL_COORD_CHECK_MILSEC",
    "TORCH_MCCL_DEBUG_INFO_PIPE_FILE",
    "TORCH_MCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_MCCL_DESYNC_DEBUG",
    "TORCH_MCCL_DUMP_ON_TIMEOUT",
    "TORCH_MCCL_ENABLE_MONITORING",
    "TORCH_MCCL_ENABLE_TIMING",
    "TORCH_MCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_MCCL_HIGH_PRIORITY",
    "TORCH_MCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN",
    "TORCH_MCCL_MUSA_EVENT_CACHE",
    "TORCH_MCCL_NAN_CHECK",
    "TORCH_MCCL_PROPAGATE_ERROR",
    "TORCH_MCCL_RANKS_PER_ROOT",
    "TORCH_MCCL_RETHROW_MUSA_ERRORS",
    "TORCH_MCCL_TRACE_BUFFER_SIZE",
    "TORCH_MCCL_TRACE_CPP_STACK",
    "TORCH_MCCL_WAIT_TIMEOUT_DUMP_MILSEC",
)
"""Environment variables that MCCL's process group reads; NCCL's has the same with NCCL and CUDA in their names."""
