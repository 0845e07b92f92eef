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
