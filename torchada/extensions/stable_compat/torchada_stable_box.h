// Included before everything else in code for torch's stable ABI (-include): what the installed torch lacks of it.
//
// torch 2.10 and later have it, and get is_privateuseone() of devices and tensors, which ported sources call, and the
// checks of runtime calls. torch 2.9 gets accessors of torch::stable::Tensor, torch::stable::Device, some operators,
// HeaderOnlyArrayRef and TORCH_BOX as well. Where this folder stands on the include path does not matter.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#if __has_include(<torch/csrc/stable/version.h>)
#include <torch/csrc/stable/version.h>
#endif

#if __has_include(<torch/csrc/stable/device_struct.h>)
#include "torchada/stable_private_use.h"
#endif
#if !defined(TORCH_FEATURE_VERSION) || TORCH_FEATURE_VERSION < (((0ULL + 2) << 56) | ((0ULL + 11) << 48))
#include "torchada/stable_before_2_11.h"
#endif

// Checks of calls of the runtime. torch's macros of these names call a function that only a CUDA build of torch has.
#if __has_include(<torch/csrc/stable/macros.h>)
#include <torch/csrc/stable/macros.h>
#endif
#include "torchada/stable_checks.h"
