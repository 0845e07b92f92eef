// For sources that were not ported: MUSA's header, unless a toolkit has one of this name.
#pragma once
#if __has_include_next(<cuda_runtime_api.h>)
#include_next <cuda_runtime_api.h>
#else
#include <musa_runtime_api.h>
#endif
