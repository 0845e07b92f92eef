#pragma once
#include <c10/util/Exception.h>
#include <musa_runtime.h>
#define C10_MUSA_CHECK(EXPR) TORCH_CHECK((EXPR) == musaSuccess, "a MUSA call failed")
#define C10_MUSA_KERNEL_LAUNCH_CHECK() C10_MUSA_CHECK(musaGetLastError())
