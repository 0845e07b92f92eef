"""What the porter makes of names, conditions, macros, inline PTX; what it leaves alone; what it reports."""

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from torchada.porting import Porter
from torchada.porting.lexer import tokens

PORTER = Porter()
TABLES = PORTER.tables
SPECIAL = {"is_cuda"}


def port(text, name="a.cu", porter=PORTER):
    result = porter.port(text, name)
    again = porter.port(result.text, name)
    assert again.text == result.text, "porting twice is porting once"
    assert not again.changes
    return result


def same(text, name="a.cu"):
    assert port(text, name).text == text


def test_every_name_of_the_tables_ports_alone_and_in_context():
    wrong = []
    for name, (new, *_) in TABLES.names.items():
        if PORTER.port(name).text != new:
            wrong.append(name)
        head = f"f({name}, &{name}); "
        tail = f'/* {name} */ "{name}" my_{name} x{name} // {name}'
        if port(head + tail).text != head.replace(name, new) + tail:
            wrong.append(head)
    assert not wrong
    assert len(TABLES.names) > 1800


def test_every_header_and_qualified_name_of_the_tables_ports():
    for path, (new, *_) in TABLES.headers.items():
        want = new if new[0] == '"' else f"<{new}>"
        assert port(f"#  include <{path}> // <{path}>").text == f"#  include {want} // <{path}>"
        assert port(f'#include "{path}"').text == f"#include {want}".replace("<", '"').replace(">", '"')
    for name, (new, *_) in TABLES.qualified.items():
        assert port(f"x({name}, ::{name})").text == f"x({new}, ::{new})"


def test_unchanged_and_unresolved_names_stay():
    for name in TABLES.unchanged:
        same(name)
    for name in TABLES.unresolved:
        if re.fullmatch(r"\w+", name):
            result = port(f"\n{name}")
            assert result.text == f"\n{name}"
            assert [(p.line, p.name) for p in result.problems] == [(2, name)]


@pytest.mark.parametrize(
    ("text", "new"),
    [  # what a porter by substrings got wrong
        ("ncclCommCuDevice", "mcclCommMuDevice"),
        ("cusolverDnCungqr", "musolverDnCungqr"),
        ("#include <ATen/cuda/CUDAGeneratorImpl.h>", "#include <ATen/musa/MUSAGeneratorImpl.h>"),
        ("#include <cusolverDn.h>", "#include <musolver.h>"),
        ("#include<cublas_v2.h>", "#include<mublas.h>"),
        ("#include <ATen/native/cuda/Loops.cuh>", "#include <ATen/native/musa/Loops.muh>"),
        ("#include <cuda/std/limits>", "#include <musa/std/limits>"),
        ("#include <cute/tensor.hpp>", "#include <mute/tensor.hpp>"),
        ("cuda::std::numeric_limits<int>", "musa::std::numeric_limits<int>"),
        ("CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020", "MUPTI_RUNTIME_TRACE_CBID_musaMemcpy_v3020"),
        ("nvcuda::wmma::fragment", "mtmusa::wmma::fragment"),
        ("cuLaunchKernel(f)", "muLaunchKernel(f)"),
        ("curand4(&s)", "murand4(&s)"),
        ("namespace at { namespace cuda { } }", "namespace at { namespace musa { } }"),
        ("y->is_cuda() && z . is_cuda ()", "y->is_privateuseone() && z . is_privateuseone ()"),
        (
            "at::f(x.cuda(), y->a . cuda( ))",
            "at::f(x.to(c10::DeviceType::PrivateUse1), y->a . to(c10::DeviceType::PrivateUse1))",
        ),
        ("at::f(cuda(), m->cuda(), x.cuda(0), x.cuda, x.cuda_())", None),
        ("config.cuda(); text::at;", None),
        ("gen.philox_cuda_state(1)", "gen.philox_musa_state(1)"),
        ("torch::headeronly::DeviceType::CUDA", "torch::headeronly::DeviceType::PrivateUse1"),
        ("kCUDA", "kPrivateUse1"),
        ("STABLE_TORCH_LIBRARY_IMPL(ns /* , */ ,\n  CUDA // x\n , m)", None),
        ("TORCH_LIBRARY_IMPL (ns, AutogradCUDA, m)", "TORCH_LIBRARY_IMPL (ns, AutogradPrivateUse1, m)"),
        ("::cudaGridDependencySynchronize( );", "((void)0);"),
        ("cudaTriggerProgrammaticLaunchCompletion /* x */ ();", "((void)0);"),
        ('dlopen("libcudart.so.12", 1); "libcudart.so"', 'dlopen("libmusart.so", 1); "libcudart.so"'),
        ('dlopen("libcuda.so.1", 1)', 'dlopen("libmusa.so.1", 1)'),
        ('dlsym(handle, "cuInit")', 'dlsym(handle, "muInit")'),
        ('torch::Device d("cuda:0"), c10::Device{ "cuda" };', 'torch::Device d("musa:0"), c10::Device{ "musa" };'),
        ("int v = CUDART_VERSION;", "int v = MUSART_VERSION;"),
        ("/* x */ #include <cuda.h>", "/* x */ #include <musa.h>"),
        ("CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL", "MU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL"),
        # words that a line continuation cuts in two
        ("#define A cuda\\\nMalloc(x) my_\\\r\ncudaFree", "#define A musaMalloc\\\n(x) my_cudaFree\\\r\n"),
        ("#inc\\\nlude <cuda.h>", "#include\\\n <musa.h>"),
        ("#if __CUDA_ARCH__ >= 8\\\n00", "#if __MUSA_ARCH__ >= 220\\\n"),
    ],
)
def test_porting(text, new):
    assert port(text).text == (new or re.sub(r"CUDA(?!_)", "PrivateUse1", text))


@pytest.mark.parametrize(
    "text",
    [
        "my_cudaMalloc cudart_x Mycublas nccl_world cutlass_extensions total_cub CUDA_CHECK CUDNN_CHECK",
        "cu_seqlens cumsum current cub",
        "thrust::cuda_cub::x cub::Sum cooperative_groups::grid __shfl_sync(1) THRUST_DEVICE_SYSTEM_CUDA",
        '#include "my_cuda.h"\n#include "nccl_utils.h"\n#include "cutlass_extensions/foo.h"\n#include <cub/cub.cuh>',
        'printf("cublas error cudaMalloc"); // cudaMalloc\n/* cudaMalloc\n cudaFree */ R"(cudaMalloc)" \'c\'',
        "// cudaMalloc \\\n cudaMalloc\n#error cudaMalloc isn't here\n",
        "bool is_cuda = is_cuda_device(); vllm::cuda::x; MyEnum::kCUDA; MyEnum::CUDA;",
        "musaMalloc muInit __MUSA_ARCH__ >= 220",
        'asm volatile("" ::: "memory"); asm("rdtsc" : "=a"(lo));',
        "TORCH_LIBRARY_IMPL(ns, CPU, m) TORCH_LIBRARY(ns, m)",
        "my_\\\ncudaMalloc(p); /\\\n/ cudaMalloc",
        'Device("cuda"); x.to("cuda"); m.def("cuda")',
        "STD_CUDA_CHECK(x); STD_CUDA_KERNEL_LAUNCH_CHECK();",
        'float f(int) __asm("llvm.amdgcn.raw.buffer.load.f32"); asm volatile("v_add_f32 %0, %1, %2" : "=v"(x));',
        "a.Sum<VEC_SIZE>(x); math::ptx_exp2(x); capability.first >= 8",
    ],
)
def test_left_alone(text):
    result = port(text, "a.cpp")
    assert result.text == text
    assert not result.problems


@pytest.mark.parametrize(
    ("condition", "new"),
    [
        (">= 800", ">= 220"),
        ("<800", "<220"),
        (">=\t 900", ">=\t 310"),
        (">  750", ">=  220"),
        ("<= 750", "< 220"),
        ("> 890", ">= 310"),
        (">= 530", ">= 210"),
        (">= 700U", ">= 220U"),
        ("< 890", "< 310"),
    ],
)
@pytest.mark.parametrize("around", ["#if {0}", "#if defined(X) && ({0})\n#elif {0} || Y", "if constexpr ({0}) {{}}"])
def test_architecture_conditions(condition, new, around):
    text, wanted = around.format("__CUDA_ARCH__ " + condition), around.format("__MUSA_ARCH__ " + new)
    result = port(text)
    assert result.text == wanted.replace("220U", "220U")
    assert not result.problems


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("#if 800 <= __CUDA_ARCH__", "#if 220 <= __MUSA_ARCH__"),
        ("#if 750 < __CUDA_ARCH__ && X", "#if 220 <= __MUSA_ARCH__ && X"),
        ("#ifdef __CUDA_ARCH__", "#ifdef __MUSA_ARCH__"),
        ("#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__", "#if !defined(__MUSA_ARCH__) || __MUSA_ARCH__"),
        ("#if X && \\\n  __CUDA_ARCH__ >= 800", "#if X && \\\n  __MUSA_ARCH__ >= 220"),
    ],
)
def test_architecture_spellings(text, new):
    assert port(text).text == new


@pytest.mark.parametrize(
    "condition",
    [
        "== 800",
        ">= 860",
        "> 800",
        ">= 1000",
        "> 1210",
        ">= 8000",
        "/ 100 >= 8",
        ">= SM",
        ">= 8 * 100",
        ") >= 800",
        "- 1",
    ],
)
def test_a_condition_without_counterpart_stays_whole_and_is_reported(condition):
    text = f"#if {'(' if condition[0] == ')' else ''}__CUDA_ARCH__ {condition}\n#endif"
    result = port(text)
    assert result.text == text
    assert [(p.line, p.name, p.note) for p in result.problems] == [(1, "__CUDA_ARCH__", False)]


@pytest.mark.parametrize(
    "text",
    [
        "#if CUDA_VERSION >= 12000",
        "#ifdef CUDART_VERSION",
        "if (CUDART_VERSION < 11000) {}",
        "11 <= CUDNN_MAJOR",
        "#if NCCL_VERSION_CODE >= NCCL_VERSION(2,10,0)",
        "#if __CUDACC_VER_MAJOR__ >= 12",
    ],
)
def test_versions_never_change_scales(text):
    result = port(text)
    assert result.text == text
    assert result.problems


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("#define cudaSuccess musaSuccess", None),
        ("#define cudaSuccess (musaSuccess) // c", None),
        ("#define cudaMalloc(p, n) \\\r\n  musaMalloc((void**)p, n)", None),
        ("using cudaStream_t = musaStream_t;", None),
        ("typedef struct { int x; } y; typedef musaEvent_t cudaEvent_t;", None),
        ("constexpr auto cudaSuccess = musaSuccess;", None),
        (
            "inline cudaError_t cudaFree(void* p) { return musaFree(p); }",
            "inline musaError_t cudaFree(void* p) { return musaFree(p); }",
        ),
        ("inline auto cudaFree(void* p) noexcept(true) -> int { return musaFree(p); }", None),
        ("int cudaFree(void* p) __attribute__((weak)) [[gnu::cold]] { return musaFree(p); }", None),
        ("if (cudaFree(p)) { musaFree(q); }", "if (musaFree(p)) { musaFree(q); }"),
        ("#ifndef cudaFree\n#define cudaFree musaFree\n#endif", None),
        ("#if !defined(cudaFree)\n# define cudaFree(x) \\\n musaFree(x)\n#endif", None),
        ("#undef cudaFree\n#define cudaFree my\nmusaFree", "#undef musaFree\n#define musaFree my\nmusaFree"),
        ("struct cudaStream_t : public musaStream_t { };", None),
        ("constexpr auto cudaSuccess{musaSuccess};", None),
        ("enum { cudaSuccess = musaSuccess };", None),
        ("template <class T> using cudaX = musaX<T>;", None),
        ("#define cudaFoo cudaBar", "#define musaFoo musaBar"),
        ("auto e = cudaFree(p); musaFree(q);", "auto e = musaFree(p); musaFree(q);"),
        ("#define CALL(x) f(x)\nmusaFree; CALL(cudaFree)", "#define CALL(x) f(x)\nmusaFree; CALL(musaFree)"),
    ],
)
def test_nothing_comes_to_be_defined_by_itself(text, new):
    assert port(text).text == (new or text)


PTX = 'asm volatile("mov.u32 %0, %laneid;\\n"\n   : "=r"(lane) : "r"(x))'


@pytest.mark.parametrize("spelling", ["asm volatile", "asm", "__asm__ __volatile__", "asm\tvolatile", "asm  volatile "])
def test_inline_ptx_is_a_compile_time_error(spelling):
    text = f"__device__ void f() {{\n  if (p) {PTX.replace('asm volatile', spelling)}; else y();\n}}"
    result = port(text)
    assert "asm" not in result.text
    assert 'static_assert(false, "torchada: inline PTX' in result.text
    assert result.text.count("\n") == text.count("\n")
    assert [(p.line, p.note) for p in result.problems] == [(2, False)]
    assert [(p.line, p.note) for p in PORTER.port(result.text).problems] == [(2, False)], "a later check still tells"


def test_inline_ptx_on_request():
    stub = port(f"{PTX};", porter=Porter(ptx="stub"))
    assert stub.text == "do { (lane) = {}; } while (0)\n;"
    assert stub.problems[0].note
    kept = port(f"{PTX};", porter=Porter(ptx="keep"))
    assert kept.text == f"{PTX};"
    assert not kept.problems[0].note
    macro = port('#define L(x) asm("ld.global.f32 %0, [%1];" \\\n : "=f"(x))\nint y;')
    assert macro.text.splitlines()[1:] == ["", "int y;"]
    assert macro.text.splitlines()[0].endswith("\\")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nvmlInit()", "nvmlInit"),
        ("nvtxRangePush", "nvtxRangePush"),
        ('asm volatile(TEMPLATE : "=r"(x))', "asm"),
        ("cuFileRead(h)", "cuFileRead"),
        ("#include <cufile.h>", "<cufile.h>"),
        ("cuTensorMapReplaceAddress(x)", "cuTensorMapReplaceAddress"),
        ("cuda::atomic_ref<int> a", "cuda::atomic_ref"),
        ("#include <cuda/atomic>", "<cuda/atomic>"),
        ("#include <nvToolsExt.h>", "<nvToolsExt.h>"),
        ("#define C(x) cu##x", "cu##"),
        ("CUDA_KERNEL_ASSERT(x)", "CUDA_KERNEL_ASSERT"),
        ("&cudaGridDependencySynchronize", "cudaGridDependencySynchronize"),
        ("a.programmaticStreamSerializationAllowed = 1", "programmaticStreamSerializationAllowed"),
        ("at::native::cuda::x", "at::native::cuda"),
        ('dlopen("libnvidia-ml.so", 1); dlopen("libcuhash.so", 1)', "libcuhash.so"),
        ("cudaFooNVLINK", "cudaFooNVLINK"),
        ("#include <torch/csrc/cuda/nccl.h>", "<torch/csrc/cuda/nccl.h>"),
        ('auto source = R"(__global__ void f() {})"', "a string"),
        ("nvshmem_init()", "nvshmem_init"),
        ("#include <nvshmemx.h>", "<nvshmemx.h>"),
        ("nvJitLinkCreate(h)", "nvJitLinkCreate"),
        ("cutensorCreate(h)", "cutensorCreate"),
        ("cusparseLtInit(h)", "cusparseLtInit"),
        ("cuvidCreateDecoder(h)", "cuvidCreateDecoder"),
        ("CUDA_GRAPH_INSTANTIATE_PARAMS p", "CUDA_GRAPH_INSTANTIATE_PARAMS"),
        ("__pipeline_memcpy_async(a, b, 4)", "__pipeline_memcpy_async"),
        ("nvtx3::scoped_range r", "nvtx3"),
        ("NV_IF_TARGET(NV_IS_HOST, ())", "NV_IF_TARGET"),
        ("#ifdef __NVCC__", "__NVCC__"),
        ('asm volatile(\n#ifdef X\n"mov.b32 %0, %1;"\n#endif\n: "=r"(x))', "asm"),
    ],
)
def test_what_no_table_covers_is_reported_and_whole(text, name):
    result = port("\n\n" + text)
    assert result.text == "\n\n" + text
    assert [(p.line, p.name, p.note) for p in result.problems] == [(3, name, False)]


def test_names_inside_pytorchs_namespaces():
    result = port("at::cuda::CUDANewThing c10::cuda::get_cuda_thing CUDANewThing thrust::cuda::x")
    assert result.text == "at::musa::MUSANewThing c10::musa::get_cuda_thing CUDANewThing thrust::musa::x"
    assert [p.name for p in result.problems] == ["get_cuda_thing"]


def test_notes():
    text = (
        "#define WARP_SIZE 32\nconstexpr int kWarpSize = 32;\nif (warpSize == 32)\nthreadIdx.x & 31; threadIdx.y % 32"
    )
    result = port(text + "\nWARP_SIZE 320, threadIdx.x % 320, threadIdx.x + 32")
    assert [(p.line, p.note) for p in result.problems] == [(1, True), (2, True), (3, True), (4, True), (4, True)]


def test_edits_of_flashinfer():
    text = "namespace flashinfer { a.Sum<VEC_SIZE>(x) + V::cast<vec_size>(y) + S::execute<T>(z) + a.Sum<2>(x);\n"
    text += "math::ptx_exp2(x), math::ptx_rcp(y), math::shfl_xor_sync(v, 1), compute_capacity.first >= 8; }\n"
    ported = port('#include "../math.cuh"\n' + text).text.split("\n")
    assert ported[0] == '// #include "../math.cuh": PTX'
    assert ported[1].startswith("namespace flashinfer { a.template Sum<VEC_SIZE>(x) + V::template cast<vec_size>(y)")
    assert ported[1].endswith(" + S::template execute<T>(z) + a.Sum<2>(x);")
    assert ported[2] == "exp2f(x), __frcp_rn(y), __shfl_xor_sync(0xffffffff, v, 1), compute_capacity.first >= 3; }"
    kept = port('#include "math.cuh"\n' + text + "math::log2e;").text
    assert kept.startswith('#include "math.cuh"'), "something of it is used"


def test_half_translated_names_do_not_exist():
    for name, (new, *_) in TABLES.names.items():
        assert not re.search(r"cuda|CUDA|cublas|cudnn", new), name
    for name in ("cudaXNvlink", "cudaCubinX", "cublasCudnnX", "cuNvtxX", "CUBLAS_NVVM", "cudaX"):
        found = TABLES.find(name)
        assert (found.new is None) == (name not in ("cudaXNvlink", "cudaX")), name


def test_own_rules_win():
    porter = Porter({"cudaMalloc": "my_malloc", "asm": "asm2", "project": "renamed"})
    assert port("cudaMalloc project asm projects", porter=porter).text == "my_malloc renamed asm2 projects"
    with pytest.raises(ValueError, match="whole identifiers"):
        Porter({"cuda.h": "musa.h"})
    with pytest.raises(ValueError, match="error, stub, keep"):
        Porter(ptx="drop")


def test_headers_of_the_project_keep_their_names():
    text = '#include "cutlass/cutlass.h"\n#include <cuda.h>\n#include <ATen/cuda/Own.cuh>'
    result = PORTER.port(text, "a.cu", lambda path: True)
    assert result.text == text.replace("<cuda.h>", "<musa.h>")


FRAGMENTS = st.sampled_from(
    [
        "cudaMalloc",
        "__CUDA_ARCH__",
        " >= 800",
        "#if ",
        "\n",
        "\\\n",
        "(",
        ")",
        " ",
        "asm",
        '"mov.b32 %0;"',
        "CUDA",
        "::",
        "at",
        "cuda",
        "kCUDA",
        ".is_cuda()",
        "#define ",
        "musaMalloc",
        "= ",
        ";",
        "using ",
        "typedef ",
        "{",
        "}",
        "/*",
        "*/",
        "//",
        '"',
        "'",
        "#include <cuda.h>",
        "TORCH_LIBRARY_IMPL",
        ", ",
        "dlopen",
        '"libcuda.so"',
        "##",
        "cu",
        "�",
        "\r\n",
        "cudaGridDependencySynchronize",
        "800 <=",
        "CUDA_VERSION",
        "nvmlInit",
        "thrust",
        "DeviceType",
        "namespace ",
        "é",
        "->",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(FRAGMENTS, max_size=30).map("".join), st.sampled_from(["error", "stub", "keep"]))
def test_any_text_ports_once(text, ptx):
    porter = PORTERS[ptx]
    once = porter.port(text, "a.cu")
    assert porter.port(once.text, "a.cu").text == once.text
    lines = text.count("\n") + 1
    assert all(1 <= item.line <= lines for item in (*once.changes, *once.problems))


TEXTS = st.sampled_from(
    [
        *(
            "cudaMalloc",
            "__CUDA_ARCH__",
            " >= 800",
            "#if ",
            "\n",
            "(",
            ")",
            " ",
            "CUDA",
            "::",
            "at",
            "kCUDA",
            "/*",
            "*/",
        ),
        *("//", '"', "'", 'R"x(', ')x"', "#include <cuda.h>", "#error ", "\\", "u8", "1'0", "#define ", "musaMalloc"),
        *("TORCH_LIBRARY_IMPL(a, CUDA, m)", ".is_cuda()", ";", "nvmlInit", "\r\n", "\ufeff", "é", "thrust::cuda"),
        *("= ", "cu##"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXTS, max_size=30).map("".join))
def test_nothing_in_comments_and_literals_moves(text):
    def quoted(text):
        return [t.text for t in tokens(text) if t.kind in ("comment", "raw", "string", "char", "message")]

    assume(not re.search(r"\\\r?\n", text))  # words that are cut in two are put together
    assert quoted(PORTER.port(text, "a.cpp").text) == quoted(text)


PORTERS = {ptx: Porter(ptx=ptx) for ptx in ("error", "stub", "keep")}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(TABLES.names)), st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True))
def test_names_that_only_contain_a_cuda_name_stay(name, extra):
    text = f"{extra}{name}"
    if TABLES.find(text) is None:
        same(text)
    same(f'"{name}" /* {extra} {name} */ // {name}')
