// A view of values that somebody else keeps, where torch has none (before 2.10).
#pragma once
#if __has_include_next(<torch/headeronly/util/HeaderOnlyArrayRef.h>)
#include_next <torch/headeronly/util/HeaderOnlyArrayRef.h>
#else
#include "../../../torchada/header_only_array_ref.h"
#endif
