// Checks of runtime calls, where torch has none (before 2.10).
#pragma once
#if __has_include_next(<torch/csrc/stable/macros.h>)
#include_next <torch/csrc/stable/macros.h>
#else
#include "../../../torchada/stable_checks.h"
#endif
