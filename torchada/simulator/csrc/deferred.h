// Operators and copies that run later: queued on a stream or captured into a graph.
#pragma once

#include "fallback.h"
#include "work.h"

namespace sim {

struct DeferredOp {
  const c10::OperatorHandle& op;     // what the user called
  const c10::OperatorHandle& target; // what computes it
  Body body;
  c10::DispatchKey cpu_key;
  c10::Device device;
  int generator;        // position of the Generator argument, or -1
  bool hidden_random;   // draws from the default generator without one
  bool reads_data;      // the host must see values on the device
  std::optional<c10::ScalarType> half; // computed in float, with the result in this type
};

// Issues the operator on the device's current stream and puts its results on the stack. False when it has to be
// computed at once instead; then all earlier work of the stream is done. Throws when it cannot be captured.
bool defer(const DeferredOp& call, torch::jit::Stack* stack);

// The same for copies; `self` or `dst` or both are on the device.
void deferred_copy(const at::Tensor& self, const at::Tensor& dst, bool non_blocking);

// Before a host read of device memory: waits for the current stream, refuses in a capture.
void before_host_read(c10::Device device, const char* what);

// A CPU tensor over the bytes of a device tensor, which it does not keep alive.
at::Tensor unowned_alias(const at::Tensor& tensor);

// Gives a storage another size; the work that moves the content is issued.
void resize_storage(const c10::Storage& storage, size_t bytes);

} // namespace sim
