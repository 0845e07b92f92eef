"""Flags of nvcc and what mcc, which is a Clang, is given for them.

Each key holds the spellings of one flag. Each row says whether a value follows (``--flag value`` or ``--flag=value``),
what mcc is given (``{}`` is the value, a dict chooses by it, None: the flag is refused), and why. Where a row ends in
True, something is lost, which is told once in a build.
"""

FLAGS = {
    # ---- architectures: the targets are MUSA's, from TORCH_MUSA_ARCH_LIST or the devices
    "--generate-code -gencode": (True, "", "names an NVIDIA architecture"),
    "--gpu-architecture -arch": (True, "", "names an NVIDIA architecture"),
    "--gpu-code -code": (True, "", "names an NVIDIA architecture"),
    "--list-gpu-arch -arch-ls": (False, None, "asks nvcc for its architectures"),
    "--list-gpu-code -code-ls": (False, None, "asks nvcc for its architectures"),
    # ---- C++ dialect: what Clang does without a flag
    "--expt-relaxed-constexpr -expt-relaxed-constexpr": (False, "", "Clang always does so"),
    "--expt-extended-lambda -expt-extended-lambda": (False, "", "Clang always does so"),
    "--extended-lambda -extended-lambda": (False, "", "Clang always does so"),
    "--std -std": (True, "-std={}", "the same"),
    "--x -x": (True, {"cu": "", None: "-x {}"}, "CUDA's language is MUSA's"),
    "--allow-unsupported-compiler -allow-unsupported-compiler": (False, "", "mcc has no host compiler beside it"),
    "--compiler-bindir -ccbin": (True, "", "mcc has no host compiler beside it"),
    "--forward-unknown-to-host-compiler -forward-unknown-to-host-compiler": (False, "", "mcc is the host compiler"),
    "--forward-unknown-opts -forward-unknown-opts": (False, "", "mcc is the host compiler"),
    "--no-host-device-initializer-list": (False, "", "a matter of nvcc's front end"),
    "--no-host-device-move-forward": (False, "", "a matter of nvcc's front end"),
    # ---- arithmetic
    "--use_fast_math -use_fast_math": (False, "-ffast-math", "Clang's name"),
    "--fmad -fmad": (True, {"true": "-ffp-contract=fast", "false": "-ffp-contract=off"}, "Clang's name"),
    "--ftz -ftz": (True, {"true": "-fmusa-flush-denormals-to-zero", "false": ""}, "mcc's name"),
    "--prec-div -prec-div": (True, "", "mcc's flag for exact division is not known", True),
    "--prec-sqrt -prec-sqrt": (True, "", "mcc's flag for exact roots is not known", True),
    "--maxrregcount -maxrregcount": (True, "", "mcc has no bound on registers: use __launch_bounds__", True),
    "--extra-device-vectorization -extra-device-vectorization": (False, "", "a hint to nvcc's optimizer"),
    "--restrict -restrict": (False, "", "a hint to nvcc's optimizer"),
    "--dopt -dopt": (True, "", "a hint to nvcc's optimizer"),
    "--Ofast-compile -Ofc": (True, "", "a hint to nvcc's optimizer"),
    "--optimize": (True, "-O{}", "Clang's name"),
    # ---- phases
    "--relocatable-device-code -rdc": (True, {"true": "-fgpu-rdc", "false": "-fno-gpu-rdc"}, "Clang's name"),
    "--device-c -dc": (False, "-fgpu-rdc -c", "Clang's name"),
    "--device-w -dw": (False, "-fno-gpu-rdc -c", "Clang's name"),
    "--device-link -dlink": (False, "-dlink", "the same"),
    "--dlink-time-opt -dlto": (False, "", "mcc's device code is optimized before it is linked", True),
    "--lto -lto": (False, "", "mcc's device code is optimized before it is linked", True),
    "--ptx -ptx": (False, None, "asks for NVIDIA's assembly"),
    "--cubin -cubin": (False, None, "asks for NVIDIA's machine code"),
    "--fatbin -fatbin": (False, None, "asks for NVIDIA's machine code"),
    "--optix-ir -optix-ir": (False, None, "asks for NVIDIA's machine code"),
    "--compile": (False, "-c", "Clang's name"),
    "--shared": (False, "-shared", "Clang's name"),
    "--output-file": (True, "-o {}", "Clang's name"),
    "--cudart -cudart": (True, "", "the MUSA runtime is linked as a shared library"),
    "--cudadevrt -cudadevrt": (True, "", "kernels do not start kernels on MUSA"),
    "--default-stream -default-stream": (
        True,
        {"legacy": "", "null": ""},
        "one stream of its own for every thread is not known of MUSA: pass streams",
    ),
    # ---- to other tools
    "--ptxas-options -Xptxas": (True, "", "there is no ptxas", True),
    "--nvlink-options -Xnvlink": (True, "", "there is no nvlink", True),
    "--fatbinary-options -Xfatbin": (True, "", "there is no fatbinary"),
    "-Xcudafe": (True, "", "there is no cudafe++"),
    "-Xcicc": (True, "", "there is no cicc", True),
    "--archiver-options -Xarchive": (True, "", "no archive is made"),
    "--linker-options -Xlinker": (True, "-Xlinker {}", "Clang's name"),
    # ---- debugging
    "--generate-line-info -lineinfo": (False, "-gline-tables-only", "Clang's name"),
    "--device-debug -G": (False, "-g", "Clang's name"),
    "--debug": (False, "-g", "Clang's name"),
    "--profile": (False, "-pg", "Clang's name"),
    "--source-in-ptx -src-in-ptx": (False, "", "there is no PTX"),
    "--keep -keep": (False, "-save-temps", "Clang's name"),
    "--keep-dir -keep-dir": (True, "", "-save-temps writes beside the object"),
    "--resource-usage -res-usage": (False, "", "mcc does not report it", True),
    "--time -time": (True, "", "mcc does not report it"),
    "--dryrun -dryrun": (False, "-###", "Clang's name"),
    "--verbose": (False, "-v", "Clang's name"),
    # ---- diagnostics
    "--disable-warnings": (False, "-w", "Clang's name"),
    "--diag-suppress -diag-suppress": (True, "", "NVIDIA's numbers of warnings"),
    "--diag-error -diag-error": (True, "", "NVIDIA's numbers of warnings"),
    "--diag-warn -diag-warn": (True, "", "NVIDIA's numbers of warnings"),
    "--display-error-number -err-no": (False, "", "NVIDIA's numbers of warnings"),
    "--no-display-error-number -no-err-no": (False, "", "NVIDIA's numbers of warnings"),
    "-Wno-deprecated-gpu-targets": (False, "", "speaks of NVIDIA architectures"),
    "-Wreorder": (False, "-Wreorder", "the same"),
    "-Wdefault-stream-launch": (False, "", "a warning of nvcc's"),
    "-Wmissing-launch-bounds": (False, "", "a warning of nvcc's"),
    "-Wext-lambda-captures-this": (False, "", "a warning of nvcc's"),
    # ---- how nvcc works
    "--threads -t": (True, "", "the build runs compilers side by side"),
    "--split-compile -split-compile": (True, "", "the build runs compilers side by side"),
    "--split-compile-extended -split-compile-extended": (True, "", "the build runs compilers side by side"),
    "--compress-mode -compress-mode": (True, "", "the size of NVIDIA's machine code"),
    "--compress-all -compress-all": (False, "", "the size of NVIDIA's machine code"),
    "--no-compress -no-compress": (False, "", "the size of NVIDIA's machine code"),
    "--use-local-env -use-local-env": (False, "", "Windows only"),
    "--generate-dependencies-with-compile": (False, "-MD", "Clang's name"),
    "--generate-nonsystem-dependencies-with-compile": (False, "-MMD", "Clang's name"),
    "--dependency-output": (True, "-MF {}", "Clang's name"),
    "--include-path": (True, "-I{}", "Clang's name"),
    "--system-include": (True, "-isystem {}", "Clang's name"),
    "--pre-include": (True, "-include {}", "Clang's name"),
    "--library-path": (True, "-L{}", "Clang's name"),
    "--machine -m": (True, "-m{}", "Clang's name"),
}

WERROR = {
    "all-warnings": "-Werror",
    "cross-execution-space-call": "",
    "default-stream-launch": "",
    "deprecated-declarations": "-Werror=deprecated-declarations",
    "ext-lambda-captures-this": "",
    "missing-launch-bounds": "",
    "reorder": "-Werror=reorder",
}
"""The kinds of ``-Werror`` that nvcc has."""

LIBRARIES = {
    "cudadevrt": "",  # kernels that start kernels
    "cudart_static": "musart",
    "cublas_static": "mublas",
    "nvrtc": "mtrtc",
    "c10_cuda": "",  # torch_musa's libraries take the place of these two
    "torch_cuda": "",
    "torch_cuda_cpp": "",
    "torch_cuda_cu": "",
    "torch_cuda_linalg": "",
}
"""Libraries beside those of ``names.LIBRARIES``, and what is linked instead (empty: nothing)."""

NO_COUNTERPART = (
    r"cufile|culibos|nvToolsExt|nvidia-ml|nvjitlink|nvJitLink|nvptxcompiler(?:_static)?|nvrtc-builtins|nvtx3|npp\w*|"
    r"nvblas|nvshmem\w*|cusolverMg|cudnn_\w+|cutensor\w*|cudss|nvfatbin"
)
"""Libraries of NVIDIA with no MUSA counterpart seen (a pattern)."""
