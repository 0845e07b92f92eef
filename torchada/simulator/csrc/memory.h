// Memory of the simulated device; included by sim.h.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace c10 {
struct StorageImpl;
}

namespace sim {

// ---- statistics --------------------------------------------------------------------------------------

struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
  void add(int64_t n);
  void sub(int64_t n);
};
struct StatTriple {
  Stat all, small, large;
  void add(int64_t n, bool is_small);
  void sub(int64_t n, bool is_small);
};
struct MemoryStats {
  StatTriple allocation, segment, active, inactive_split;
  StatTriple allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  int64_t num_alloc_retries = 0, num_ooms = 0, num_sync_all_streams = 0;
  int64_t num_device_alloc = 0, num_device_free = 0;
  int64_t max_split_size = -1; // -1: every block may be split
  Stat oversize_allocations, oversize_segments;
};

using PoolId = std::pair<unsigned long long, unsigned long long>; // {0, 0}: the ordinary pool

// ---- arena.cpp: address ranges that stand for the device's own memory ---------------------------------
// One memory file per device, so that another process can map it: that is how memory is shared between processes.

// A zeroed range of `size` bytes (a multiple of the page size); nullptr when the host has no room.
// `apart`: away from other ranges, so that it can grow.
char* arena_take(int device, size_t size, bool apart);
bool arena_extend(int device, char* end, size_t size); // the addresses behind a range, when they are free
void arena_give(int device, char* address, size_t size); // its content is lost
int arena_device(const void* address);                   // -1: not in an arena
struct ArenaPlace {
  std::string handle; // names the arena to other processes
  size_t offset;
};
ArenaPlace arena_place(const void* address);
int make_memory_file(size_t size); // -1: the host refused
std::string file_handle(int file, size_t size);
size_t file_size(const std::string& handle);
// Maps another process's file, memory of `device` (-1: none). The mapping lives as long as the pointer.
std::shared_ptr<char> open_file(const std::string& handle, int device);
void arenas_before_fork();
void arenas_after_fork();

// ---- history.cpp -------------------------------------------------------------------------------------

using Context = std::shared_ptr<c10::GatheredContext>; // where in the program something happened
enum class KeepContext { Never, State, Alloc, All };

enum class Action { Alloc, FreeRequested, FreeCompleted, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap, Snapshot, Oom };
struct TraceEntry {
  Action action;
  size_t address; // of an Oom: bytes that were free
  size_t size;
  void* stream;
  int64_t time; // microseconds since 1970
  Context context;
};
struct Annotation { // a record_function range begins or ends
  int device;
  int64_t time;
  std::string name;
  bool starts;
};
struct Frames {
  struct Frame {
    std::string file, function;
    uint64_t line;
  };
  std::vector<Frame> frames;
  std::vector<std::vector<uint64_t>> stacks; // positions in `frames`, innermost first
};

void record_history(bool enabled, KeepContext when, bool cpp_frames, size_t max_entries);
bool history_enabled();
// Takes the GIL when it looks at Python: never call it with a lock of the allocator.
Context gather_context(KeepContext needed);
void trace(int device, Action action, size_t address, size_t size, c10::Stream stream, Context context);
std::vector<TraceEntry> device_trace(int device);
std::vector<Annotation> annotations();
Frames symbolize(const std::vector<Context>& contexts); // with the GIL
void history_before_fork();
void history_after_fork();

// ---- allocator.cpp -----------------------------------------------------------------------------------

// The functions of a shared library that stand in for the allocator, of the whole process or of a pool.
struct CustomAllocator {
  std::function<void*(size_t, int, void*)> allocate; // bytes, device, stream handle
  std::function<void(void*, size_t, int, void*)> free;
  std::function<void(int)> init; // number of devices
  std::function<void()> reset;   // empty_cache()
  std::function<void(double, int)> set_memory_fraction;
  std::function<void*(void*, size_t*)> base_allocation;
  std::function<void(void*, void*)> record_stream;
  std::function<void(int, PoolId, std::function<bool(void*)>)> begin_allocate_to_pool; // with a filter of streams
  std::function<void(int, PoolId)> end_allocate_to_pool;
  std::function<void(int, PoolId)> release_pool;
};
using CustomAllocatorPtr = std::shared_ptr<CustomAllocator>;

struct BlockView {
  size_t address, size, requested;
  enum { Inactive, Allocated, PendingFree } state;
  Context context;
};
struct SegmentView {
  int device;
  size_t address, total, allocated, active, requested;
  void* stream;
  bool is_small, is_expandable;
  PoolId pool;
  Context context;
  std::vector<BlockView> blocks;
};

c10::Allocator* device_allocator(); // allocates on the current device, for its current stream
// The device a pointer's memory belongs to; -1 for memory that is not ours.
int device_of_pointer(const void* pointer);
c10::DeleterFnPtr device_deleter();
void raw_free(void* pointer);

MemoryStats memory_stats(int device);
void reset_peak_stats(int device);
void reset_accumulated_stats(int device);
void empty_cache();
void set_memory_fraction(double fraction, int device);
std::pair<size_t, size_t> memory_info(int device); // (free, total) bytes
std::vector<SegmentView> memory_snapshot();
void record_stream(const c10::DataPtr& pointer, c10::Stream stream);

// Options of PYTORCH_MUSA_ALLOC_CONF, "name:value,name:value". Throws c10::Error for what torch_musa rejects.
void set_allocator_settings(const std::string& text);
std::string allocator_settings();
std::string allocator_setting(const std::string& name); // "" when it is not set

using OomObserver = std::function<void(int device, size_t request, size_t total, size_t free)>;
void attach_oom_observer(OomObserver observer);

void change_allocator(CustomAllocatorPtr allocator); // throws once the device is initialised
CustomAllocatorPtr changed_allocator();              // nullptr: the caching one
void allocator_init();                               // the device is initialised now

// Private pools. A pool lives until it is released as often as it was created and begun; its memory goes back with the
// next empty_cache().
PoolId new_pool_id(bool made_by_user = true); // otherwise by a capture
void create_pool(int device, PoolId pool, CustomAllocatorPtr allocator);
void begin_allocate_to_pool(int device, PoolId pool, std::function<bool(c10::Stream)> filter);
void end_allocate_to_pool(int device, PoolId pool);
void release_pool(int device, PoolId pool);
void empty_pool(int device, PoolId pool); // gives the free memory of a released pool back

// What graph trees need: the blocks of a pool at one moment, and a pool put back to that.
struct PoolState {
  PoolId pool;
  struct Piece {
    char* address;
    size_t size, requested;
    bool allocated;
  };
  std::vector<std::vector<Piece>> segments;
};
struct PoolChange {
  std::vector<void*> freed;
  std::vector<c10::DataPtr> allocated;
};
bool has_live_allocations(int device, PoolId pool, const std::set<void*>& expected); // these and no others
PoolState pool_state(int device, PoolId pool);
PoolChange set_pool_state(int device, const PoolState& state);

void allocator_before_fork();
void allocator_after_fork();

// While one of these lives, memory that PyTorch's CPU kernels ask for on this thread comes from the given
// device: outputs of the fallback are device memory from the start, temporaries count as workspaces, and
// running out of memory happens before the work and not after it.
struct RouteCpuAllocations {
  explicit RouteCpuAllocations(int device);
  ~RouteCpuAllocations();
  RouteCpuAllocations(const RouteCpuAllocations&) = delete;
  RouteCpuAllocations& operator=(const RouteCpuAllocations&) = delete;

 private:
  int previous_;
};
void install_cpu_router();
void set_unified_cpu(bool unified); // CPU tensors are in memory of the current device

// ---- host_allocator.cpp ------------------------------------------------------------------------------

c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);
// A copy on the stream uses this pinned memory: it is not handed out again before the copy is done.
void record_pinned_use(const void* pointer, c10::Stream stream);
void empty_pinned_cache();
int register_host(void* pointer, size_t bytes); // memory of the program, pinned from now on; 0 or an error code
int unregister_host(void* pointer);
void pinned_before_fork();
void pinned_after_fork();

// ---- ipc.cpp -----------------------------------------------------------------------------------------

struct SharedMemory {
  int device;
  std::string handle;
  size_t bytes, offset;
  std::string counter_handle; // where the number of the receivers is
  size_t counter_offset;
};
SharedMemory share_storage(c10::StorageImpl* storage);
c10::DataPtr open_shared(const SharedMemory& shared);
void release_counter(const std::string& handle, size_t offset);
void ipc_collect(); // frees what all receivers have given up

// An event that processes share: two counters in a memory file, which live as long as the process that made them.
struct SharedEvent;
using SharedEventPtr = std::shared_ptr<SharedEvent>;
SharedEventPtr make_shared_event();
SharedEventPtr open_shared_event(const std::string& handle);
std::string shared_event_handle(const SharedEventPtr& event);
void record_shared_event(const SharedEventPtr& event, const c10::Stream& stream);
void wait_shared_event(const SharedEventPtr& event, const c10::Stream& stream); // the stream waits
bool query_shared_event(const SharedEventPtr& event);
void synchronize_shared_event(const SharedEventPtr& event);
void sharing_before_fork();
void sharing_after_fork();

} // namespace sim
