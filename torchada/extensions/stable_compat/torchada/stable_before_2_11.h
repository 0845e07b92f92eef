// What torch 2.9 and 2.10 lack of the stable ABI of torch 2.11, over the C functions that they have.
#pragma once

#if __has_include(<torch/headeronly/util/HeaderOnlyArrayRef.h>)
#include <torch/headeronly/util/HeaderOnlyArrayRef.h>
#else
#include "header_only_array_ref.h"
#endif

#if !__has_include(<torch/csrc/stable/device_struct.h>)
#include "stable_2_9.h"
#endif

#include <torch/csrc/stable/library.h>

#ifndef TORCH_BOX
#include "stable_box.h"
#endif
