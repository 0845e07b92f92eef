// For sources that were not ported: MUSA's header, unless a toolkit has one of this name.
#pragma once
#if __has_include_next(<cuda_fp8.h>)
#include_next <cuda_fp8.h>
#else
#include <musa_fp8.h>
#endif
