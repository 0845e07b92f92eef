// For sources that were not ported: MUSA's header, unless a toolkit has one of this name.
#pragma once
#if __has_include_next(<cuda_bf16.h>)
#include_next <cuda_bf16.h>
#else
#include <musa_bf16.h>
#endif
