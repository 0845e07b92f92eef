// For sources that were not ported: MUSA's header, unless a toolkit has one of this name.
#pragma once
#if __has_include_next(<cublas_v2.h>)
#include_next <cublas_v2.h>
#else
#include <mublas.h>
#endif
