#pragma once
#include <torch_musa/csrc/core/MUSAStream.h>
namespace c10::musa {
using MUSAGuard = c10::DeviceGuard;
using OptionalMUSAGuard = c10::OptionalDeviceGuard;
}  // namespace c10::musa
