// torch::stable::Device, where torch has none (before 2.10).
#pragma once
#if __has_include_next(<torch/csrc/stable/device.h>)
#include_next <torch/csrc/stable/device.h>
#else
#include "../../../torchada_stable_box.h"
#endif
