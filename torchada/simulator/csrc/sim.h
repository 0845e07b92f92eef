// The simulated MUSA device: what its translation units share.
//
//   runtime.cpp    configuration, devices, streams, events, counters, device guard, hooks, generators
//   arena.cpp      the memory that stands for the devices' own
//   allocator.cpp  caching device allocator over it
//   host_allocator.cpp  pinned memory
//   history.cpp    what the allocator did and from where
//   ipc.cpp        memory shared between processes
//   fallback.cpp   one boxed fallback that computes every operator on CPU aliases
//   kernels.cpp    the operators that cannot go through the fallback
//   work.cpp       streams as queues, marks in them, captures
//   deferred.cpp   operators and copies that run later
//   graph.cpp      graphs: capture, executables, replay
//   musart.cpp     C functions of the MUSA runtime
//   autocast.cpp   autocast rules
//   module.cpp     the Python module torch_musa._MUSAC
//
// Later units (dist.cpp, profiler.cpp) use this header and nothing else of each other.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <torch/version.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#define SIM_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace sim {

constexpr c10::DeviceType kMusa = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 16;

// ---- configuration ---------------------------------------------------------------------------------

struct Profile {
  const char* key;  // value of TORCHADA_SIM_DEVICE
  const char* name; // what get_device_name() says
  int major, minor; // capability
  const char* arch; // compiler name of the architecture
  int multiprocessors;
  size_t memory; // bytes a device has by default
};

struct Config {
  int devices;    // of the machine: MUSA_VISIBLE_DEVICES shows some of them
  size_t memory;  // bytes per device
  const Profile* profile;
  bool async;      // TORCHADA_SIM_ASYNC: streams are queues with threads of their own
  int graph_execs; // how many graph executables can be alive
};

// Reads the environment at the first call. Throws c10::ValueError for a bad value.
const Config& config();
std::string arch_flags();

// ---- devices (runtime.cpp) -------------------------------------------------------------------------

int device_count();
int current_device();
void check_device(int64_t index); // "MUSA error: invalid device ordinal"
void set_device(int64_t index);
int exchange_device(int64_t index); // a negative index changes nothing and returns -1
c10::Device normalize(c10::Device device); // fills in the current index, checks the range

// Sets the device for a scope, on paths where c10::DeviceGuard costs a virtual call for nothing.
struct DeviceScope {
  explicit DeviceScope(int index);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_;
};

// Initialises through torch_musa._lazy_init() unless that has been done in this process; throws what it raises.
// torch cannot do that itself: it would import "torch.musa", which is an attribute and no module.
extern std::atomic<bool> ready;
void lazy_init_slow(); // module.cpp
inline void lazy_init() {
  if (!ready.load(std::memory_order_acquire)) lazy_init_slow();
}
bool in_bad_fork();
void mark_initialized(); // from here on a forked child is a bad fork
bool autograd_threads_started();
void register_layout_kernels(); // fallback.cpp
void drain_autograd(); // kernels.cpp: returns when autograd's device threads have dropped what they held
[[noreturn]] void throw_musa_error(int code, const std::string& what);
void check_not_bad_fork();
void register_hooks();
void install_fork_handlers();

// ---- streams ---------------------------------------------------------------------------------------
// Streams have identity, priority and a native handle, and the allocator keeps their memory apart. How their work
// runs, at once or in a queue, is the matter of work.h.

c10::Stream default_stream(int device);
c10::Stream current_stream(int device);
void set_current_stream(c10::Stream stream);
c10::Stream stream_from_pool(int device, int priority);
c10::Stream stream_from_handle(void* handle, int device); // throws for a handle nobody created
void* stream_handle(const c10::Stream& stream);           // nullptr for the default stream
int stream_priority(const c10::Stream& stream);
std::pair<int, int> priority_range(); // (least, greatest)
void* create_external_stream();
void destroy_external_stream(void* handle);

// ---- counters --------------------------------------------------------------------------------------

struct Counters {
  std::atomic<int64_t> kernel_launches{0};
  std::atomic<int64_t> host_syncs{0};
  std::atomic<int64_t> host_to_device{0};
  std::atomic<int64_t> device_to_host{0};
  std::atomic<int64_t> device_to_device{0};
  std::atomic<int64_t> host_to_device_bytes{0};
  std::atomic<int64_t> device_to_host_bytes{0};
  std::atomic<int64_t> device_to_device_bytes{0};
  std::atomic<int64_t> graph_launches{0};
  std::atomic<int64_t> graph_executables{0}; // alive now
};
Counters& counters();
inline void count(std::atomic<int64_t>& counter, int64_t n = 1) {
  counter.fetch_add(n, std::memory_order_relaxed);
}

} // namespace sim

#include "memory.h"
