"""A CUDA extension as it is written for NVIDIA GPUs: pip install --no-build-isolation ."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="softclip",
    version="1.0",
    py_modules=["softclip"],
    ext_modules=[
        CUDAExtension("softclip_cuda", ["softclip.cu"], extra_compile_args={"nvcc": ["-O2", "--use_fast_math"]})
    ],
    cmdclass={"build_ext": BuildExtension},
)
