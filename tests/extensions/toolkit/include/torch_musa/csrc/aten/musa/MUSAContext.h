#pragma once
#include <torch_musa/csrc/core/MUSAException.h>
#include <torch_musa/csrc/core/MUSAGuard.h>
#include <torch_musa/csrc/core/MUSAStream.h>
