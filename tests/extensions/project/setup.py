import os

from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CUDAExtension

assert CUDA_HOME, "no toolkit"


class Build(BuildExtension):
    def get_mapping_rule(self):
        return {**super().get_mapping_rule(), "CUDA_ONLY_NAME": "MUSA_ONLY_NAME"}


common = {
    "include_dirs": [os.path.abspath("include")],
    "libraries": ["cudart", "nvjpeg"],
    "define_macros": [("NVJPEG_FOUND", "1"), ("OWN_MACRO", "2")],
    "extra_link_args": ["-lcuda"],
}
nvcc = ["-O1", "--use_fast_math", "--expt-relaxed-constexpr", "-gencode", "arch=compute_80,code=sm_80", "-lineinfo"]
nvcc += ["-Xcompiler=-fvisibility=hidden,-Wall", "-DNVJPEG_FOUND=1", "--threads", "4"]
plain = "PROJECT_PLAIN" in os.environ  # without ninja, and so without linking device code

setup(
    name="project",
    version="1.0",
    ext_modules=[
        CUDAExtension(
            "project_cuda",
            ["module.cpp", "kernels/scale.cu", "kernels/total.cu"],
            dlink=not plain,
            extra_compile_args={"cxx": ["-O1"], "nvcc": nvcc if plain else [*nvcc, "-rdc=true"], "mcc": ["-DONLY_MCC"]},
            **common,
        ),
    ],
    cmdclass={"build_ext": Build.with_options(use_ninja=False) if plain else Build},
)
