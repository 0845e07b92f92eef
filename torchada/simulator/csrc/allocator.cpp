// Device memory of the simulated device: a caching allocator over host memory.
//
// It keeps the bookkeeping of PyTorch's CUDA caching allocator (size classes, segments that are split into
// blocks, one free list per stream, statistics per pool), because programs and their tests look at it:
// memory_stats(), peak memory, OutOfMemoryError and recovery after empty_cache().
#include "sim.h"
#include "work.h"

#include <c10/core/CPUAllocator.h>
#if SIM_TORCH_AT_LEAST(2, 9)
#include <c10/core/CachingDeviceAllocator.h>
#endif

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <iomanip>
#include <unordered_map>

namespace sim {

void Stat::add(int64_t n) {
  current += n;
  allocated += n;
  if (current > peak) peak = current;
}
void Stat::sub(int64_t n) {
  current -= n;
  freed += n;
}
void StatTriple::add(int64_t n, bool is_small) {
  all.add(n);
  (is_small ? small : large).add(n);
}
void StatTriple::sub(int64_t n, bool is_small) {
  all.sub(n);
  (is_small ? small : large).sub(n);
}

namespace {

constexpr size_t kMiB = size_t(1) << 20;
constexpr size_t kMinBlock = 512;         // every size is a multiple of it
constexpr size_t kSmallSize = kMiB;       // the largest request of the small pool
constexpr size_t kSmallSegment = 2 * kMiB;
constexpr size_t kLargeSegment = 20 * kMiB; // requests below kMinOwnSegment share these
constexpr size_t kMinOwnSegment = 10 * kMiB;
constexpr size_t kSegmentRound = 2 * kMiB;

size_t round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

struct Block;
struct FreeOrder {
  bool operator()(const Block* a, const Block* b) const;
};
using FreeList = std::set<Block*, FreeOrder>;

struct Pool {
  FreeList small, large;
  int users = 1;      // how many times it was begun and not released
  int segments = 0;
};

struct Block {
  int device;
  c10::StreamId stream;
  size_t size;
  char* address;
  bool is_small;
  PoolId pool;
  size_t requested = 0;
  bool allocated = false;
  std::set<c10::StreamId> uses;   // streams that record_stream() named
  std::vector<MarkPtr> waits_for; // freed, but those streams may still work on it
  bool is_busy() const { return allocated || !waits_for.empty(); }
  Block* previous = nullptr;
  Block* next = nullptr;
  bool is_split() const { return previous || next; }
};

bool FreeOrder::operator()(const Block* a, const Block* b) const {
  if (a->stream != b->stream) return a->stream < b->stream;
  if (a->size != b->size) return a->size < b->size;
  return a->address < b->address;
}

struct Device {
  MemoryStats stats;
  double fraction = 1.0;
  bool fraction_set = false;
  std::map<PoolId, Pool> pools; // {0, 0} is the ordinary one
  std::vector<std::pair<PoolId, std::function<bool(c10::Stream)>>> active_pools;
  std::vector<Block*> leaving;    // freed, see Block::waits_for
  std::set<PoolId> unused_pools;  // to be given back
};

std::string format_size(size_t n) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  if (n < 1024) {
    out << n << " bytes";
  } else if (n < kMiB) {
    out << double(n) / 1024 << " KiB";
  } else if (n < kMiB * 1024) {
    out << double(n) / double(kMiB) << " MiB";
  } else {
    out << double(n) / double(kMiB) / 1024 << " GiB";
  }
  return out.str();
}

class DeviceMemory {
 public:
  std::mutex mutex;

  void* allocate(int device_index, size_t requested, c10::Stream stream) {
    check_not_bad_fork();
    std::string oom;
    {
      std::unique_lock<std::mutex> lock(mutex);
      Device& device = devices_[device_index];
      if (!device.leaving.empty()) finish_leaving(device);
      if (!device.unused_pools.empty()) drop_unused(device, device_index);
      if (requested <= std::numeric_limits<size_t>::max() / 2) {
        size_t size = requested < kMinBlock ? kMinBlock : round_up(requested, kMinBlock);
        if (Block* block = take_block(device, device_index, size, stream, lock)) {
          hand_out(device, block, size, requested);
          return block->address;
        }
      }
      device.stats.num_ooms += 1;
      oom = oom_message(device, device_index, requested);
    }
    auto info = memory_info(device_index);
    for (auto& observer : observers_) {
      observer(device_index, requested, info.second, info.first);
    }
    throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, oom);
  }

  void free(void* pointer) {
    if (!pointer) return;
    std::lock_guard<std::mutex> lock(mutex);
    auto found = live_.find(pointer);
    TORCH_CHECK(found != live_.end(), "MUSA error: invalid device pointer: ", pointer);
    Block* block = found->second;
    live_.erase(found);
    Device& device = devices_[block->device];
    MemoryStats& stats = device.stats;
    stats.allocation.sub(1, block->is_small);
    stats.allocated_bytes.sub(int64_t(block->size), block->is_small);
    stats.requested_bytes.sub(int64_t(block->requested), block->is_small);
    block->allocated = false;
    block->requested = 0;
    std::set<c10::StreamId> uses = std::move(block->uses);
    block->uses.clear();
    if (may_defer() && !in_bad_fork()) {
      for (c10::StreamId id : uses) {
        MarkPtr passed = mark(c10::Stream(c10::Stream::UNSAFE, c10::Device(kMusa, c10::DeviceIndex(block->device)), id));
        if (passed->capture || !passed->done()) block->waits_for.push_back(std::move(passed));
      }
    }
    if (block->waits_for.empty()) {
      int index = block->device;
      free_now(device, block);
      if (!device.unused_pools.empty()) drop_unused(device, index);
    } else {
      device.leaving.push_back(block);
    }
  }

  // The stream works on the memory: it is not handed out again before that is done.
  void record(void* pointer, c10::Stream stream) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = live_.find(pointer);
    if (found == live_.end() || found->second->stream == stream.id()) return;
    found->second->uses.insert(stream.id());
  }

  void empty_cache() {
    std::unique_lock<std::mutex> lock(mutex);
    for (auto& [index, device] : devices_) {
      TORCH_CHECK(settle(device, index, lock), "MUSA error: operation not permitted when stream is capturing (the cache was emptied)");
      release_cached(device);
      drop_unused(device, index);
    }
  }

  MemoryStats stats(int index) {
    std::lock_guard<std::mutex> lock(mutex);
    return devices_[index].stats;
  }

  template <class F>
  void each_stat(int index, F f) {
    std::lock_guard<std::mutex> lock(mutex);
    MemoryStats& s = devices_[index].stats;
    for (StatTriple* t : {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes,
                          &s.reserved_bytes, &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes}) {
      f(t->all);
      f(t->small);
      f(t->large);
    }
    f(s.oversize_allocations);
    f(s.oversize_segments);
  }

  void reset_accumulated(int index) {
    each_stat(index, [](Stat& stat) { stat.allocated = stat.freed = 0; });
    std::lock_guard<std::mutex> lock(mutex);
    MemoryStats& s = devices_[index].stats;
    s.num_alloc_retries = s.num_ooms = s.num_sync_all_streams = 0;
    s.num_device_alloc = s.num_device_free = 0;
  }

  void set_fraction(int index, double fraction) {
    std::lock_guard<std::mutex> lock(mutex);
    devices_[index].fraction = fraction;
    devices_[index].fraction_set = true;
  }

  std::pair<size_t, size_t> info(int index) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t total = config().memory;
    size_t used = size_t(devices_[index].stats.reserved_bytes.all.current);
    return {total > used ? total - used : 0, total};
  }

  std::vector<SegmentView> snapshot() {
    std::lock_guard<std::mutex> lock(mutex);
    std::vector<SegmentView> result;
    for (auto& [address, head] : segments_) {
      c10::Stream stream(c10::Stream::UNSAFE, c10::Device(kMusa, c10::DeviceIndex(head->device)), head->stream);
      SegmentView view{head->device, size_t(address), 0, 0, 0, 0, stream_handle(stream), head->is_small, head->pool, {}};
      for (Block* block = head; block; block = block->next) {
        view.total += block->size;
        if (block->allocated) {
          view.allocated += block->size;
          view.active += block->size;
          view.requested += block->requested;
        }
        view.blocks.push_back({size_t(block->address), block->size, block->requested, block->allocated});
      }
      result.push_back(std::move(view));
    }
    return result;
  }

  int device_of(const void* pointer) {
    std::lock_guard<std::mutex> lock(mutex);
    auto after = segments_.upper_bound(static_cast<char*>(const_cast<void*>(pointer)));
    if (after == segments_.begin()) return -1;
    Block* head = std::prev(after)->second;
    size_t total = 0;
    for (Block* block = head; block; block = block->next) total += block->size;
    return static_cast<const char*>(pointer) < head->address + total ? head->device : -1;
  }

  bool is_live(const void* pointer) {
    std::lock_guard<std::mutex> lock(mutex);
    return live_.count(const_cast<void*>(pointer)) != 0;
  }

  void begin_pool(int index, PoolId id, std::function<bool(c10::Stream)> filter) {
    std::lock_guard<std::mutex> lock(mutex);
    Device& device = devices_[index];
    auto [found, is_new] = device.pools.try_emplace(id);
    if (!is_new) found->second.users += 1;
    device.active_pools.emplace_back(id, std::move(filter));
  }

  void end_pool(int index, PoolId id) {
    std::lock_guard<std::mutex> lock(mutex);
    auto& active = devices_[index].active_pools;
    for (auto it = active.rbegin(); it != active.rend(); ++it) {
      if (it->first == id) {
        active.erase(std::next(it).base());
        return;
      }
    }
    TORCH_CHECK(false, "endAllocatePool: the pool is not in use on device ", index);
  }

  void release_pool(int index, PoolId id) {
    std::unique_lock<std::mutex> lock(mutex);
    Device& device = devices_[index];
    auto found = device.pools.find(id);
    if (found == device.pools.end()) return; // released with its last segment
    found->second.users -= 1;
    if (found->second.users > 0) return;
    device.unused_pools.insert(id);
    settle(device, index, lock);
    drop_unused(device, index);
  }

  void attach(OomObserver observer) {
    observers_.push_back(std::move(observer));
  }

 private:
  FreeList& list_of(Device& device, const Block* block) {
    Pool& pool = device.pools[block->pool];
    return block->is_small ? pool.small : pool.large;
  }

  void free_now(Device& device, Block* block) {
    block->waits_for.clear();
    device.stats.active.sub(1, block->is_small);
    device.stats.active_bytes.sub(int64_t(block->size), block->is_small);
    merge(device, block, block->previous);
    merge(device, block, block->next);
    put_free(device, block);
    // A pool that nobody uses gives its memory back, though not here, where the device may still work on it.
    if (device.pools[block->pool].users <= 0) device.unused_pools.insert(block->pool);
  }

  // Frees what other streams have finished with. A mark made in a capture has no place in time, so such memory waits
  // for the end of all captures.
  void finish_leaving(Device& device) {
    auto& leaving = device.leaving;
    for (size_t i = 0; i < leaving.size();) {
      bool passed = true;
      for (const MarkPtr& mark : leaving[i]->waits_for) {
        passed = passed && (mark->capture ? !captures_underway() : mark->done());
      }
      if (!passed) {
        ++i;
        continue;
      }
      Block* block = leaving[i];
      leaving.erase(leaving.begin() + std::ptrdiff_t(i));
      free_now(device, block);
    }
  }

  // Before memory goes back to the host: nothing on the device may be at work. Work may free tensors, so it is waited
  // for without the lock. False during a capture, which cannot be waited for.
  bool settle(Device& device, int index, std::unique_lock<std::mutex>& lock) {
    if (captures_underway()) return false;
    if (in_bad_fork()) return true;
    while (!device_idle(index)) {
      lock.unlock();
      wait_device(index);
      lock.lock();
    }
    finish_leaving(device);
    return true;
  }

  void put_free(Device& device, Block* block) {
    list_of(device, block).insert(block);
    if (block->is_split()) {
      device.stats.inactive_split.add(1, block->is_small);
      device.stats.inactive_split_bytes.add(int64_t(block->size), block->is_small);
    }
  }

  void remove_free(Device& device, Block* block) {
    list_of(device, block).erase(block);
    if (block->is_split()) {
      device.stats.inactive_split.sub(1, block->is_small);
      device.stats.inactive_split_bytes.sub(int64_t(block->size), block->is_small);
    }
  }

  // Joins a free neighbour into the block, which is in no free list at this moment.
  void merge(Device& device, Block* block, Block* neighbour) {
    if (!neighbour || neighbour->is_busy()) return;
    remove_free(device, neighbour);
    if (neighbour == block->previous) {
      if (neighbour->previous) neighbour->previous->next = block;
      if (!neighbour->previous) segments_[neighbour->address] = block;
      block->address = neighbour->address;
      block->previous = neighbour->previous;
    } else {
      if (neighbour->next) neighbour->next->previous = block;
      block->next = neighbour->next;
    }
    block->size += neighbour->size;
    delete neighbour;
  }

  // A free block of at least `size` bytes, out of its free list; nullptr when memory is exhausted.
  Block* take_block(Device& device, int index, size_t size, c10::Stream stream, std::unique_lock<std::mutex>& lock) {
    PoolId id{0, 0};
    for (auto it = device.active_pools.rbegin(); it != device.active_pools.rend(); ++it) {
      if (it->second(stream)) {
        id = it->first;
        break;
      }
    }
    bool is_small = size <= kSmallSize;
    Pool& pool = device.pools[id];
    FreeList& list = is_small ? pool.small : pool.large;
    Block key{index, stream.id(), size, nullptr, is_small, id};
    auto found = list.lower_bound(&key);
    if (found != list.end() && (*found)->stream == stream.id()) {
      Block* block = *found;
      remove_free(device, block);
      return block;
    }
    size_t segment = is_small ? kSmallSegment : size < kMinOwnSegment ? kLargeSegment : round_up(size, kSegmentRound);
    Block* block = new_segment(device, index, segment, stream, is_small, id);
    if (!block && settle(device, index, lock)) {
      release_cached(device);
      device.stats.num_alloc_retries += 1;
      block = new_segment(device, index, segment, stream, is_small, id);
    }
    return block;
  }

  Block* new_segment(Device& device, int index, size_t size, c10::Stream stream, bool is_small, PoolId id) {
    size_t limit = size_t(double(config().memory) * device.fraction);
    size_t used = size_t(device.stats.reserved_bytes.all.current);
    if (size > limit || used > limit - size) return nullptr;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr; // the host has no memory either
    auto* block = new Block{index, stream.id(), size, static_cast<char*>(memory), is_small, id};
    segments_[block->address] = block;
    device.pools[id].segments += 1;
    device.stats.num_device_alloc += 1;
    device.stats.segment.add(1, is_small);
    device.stats.reserved_bytes.add(int64_t(size), is_small);
    return block;
  }

  void hand_out(Device& device, Block* block, size_t size, size_t requested) {
    size_t rest = block->size - size;
    if (block->is_small ? rest >= kMinBlock : rest > kSmallSize) {
      auto* tail = new Block{block->device, block->stream, rest, block->address + size, block->is_small, block->pool};
      tail->previous = block;
      tail->next = block->next;
      if (tail->next) tail->next->previous = tail;
      block->next = tail;
      block->size = size;
      put_free(device, tail);
    }
    block->allocated = true;
    block->requested = requested;
    live_[block->address] = block;
    device.stats.allocation.add(1, block->is_small);
    device.stats.allocated_bytes.add(int64_t(block->size), block->is_small);
    device.stats.requested_bytes.add(int64_t(requested), block->is_small);
    device.stats.active.add(1, block->is_small);
    device.stats.active_bytes.add(int64_t(block->size), block->is_small);
  }

  void release_list(Device& device, FreeList& list) {
    for (auto it = list.begin(); it != list.end();) {
      Block* block = *it++;
      if (block->is_split()) continue;
      remove_free(device, block);
      segments_.erase(block->address);
      munmap(block->address, block->size);
      device.pools[block->pool].segments -= 1;
      device.stats.num_device_free += 1;
      device.stats.segment.sub(1, block->is_small);
      device.stats.reserved_bytes.sub(int64_t(block->size), block->is_small);
      delete block;
    }
  }

  void release_cached(Device& device) {
    device.stats.num_sync_all_streams += 1;
    for (auto& [id, pool] : device.pools) {
      release_list(device, pool.small);
      release_list(device, pool.large);
    }
  }

  // Private pools that nobody can allocate from any more give their free segments back, once the device is idle: a
  // thread that works for the device may come here, so nobody waits.
  void drop_unused(Device& device, int index) {
    if (captures_underway() || (!in_bad_fork() && !device_idle(index))) return;
    for (PoolId id : std::exchange(device.unused_pools, {})) {
      auto found = device.pools.find(id);
      if (id == PoolId{0, 0} || found == device.pools.end() || found->second.users > 0) continue;
      release_list(device, found->second.small);
      release_list(device, found->second.large);
      if (found->second.segments == 0) device.pools.erase(found);
    }
  }

  std::string oom_message(Device& device, int index, size_t requested) {
    size_t total = config().memory;
    size_t reserved = size_t(device.stats.reserved_bytes.all.current);
    size_t allocated = size_t(device.stats.allocated_bytes.all.current);
    std::ostringstream out;
    out << "MUSA out of memory. Tried to allocate " << format_size(requested) << ". GPU " << index
        << " has a total capacity of " << format_size(total) << " of which "
        << format_size(total > reserved ? total - reserved : 0) << " is free. This process has "
        << format_size(reserved) << " memory in use. ";
    if (device.fraction_set) {
      out << format_size(size_t(double(total) * device.fraction)) << " allowed by the memory fraction; ";
    }
    out << "Of the allocated memory " << format_size(allocated) << " is allocated by PyTorch, and "
        << format_size(reserved - allocated) << " is reserved by PyTorch but unallocated. "
        << "(Simulated device: TORCHADA_SIM_MEMORY sets its capacity.)";
    return out.str();
  }

  std::map<int, Device> devices_;
  std::unordered_map<void*, Block*> live_;
  std::map<char*, Block*> segments_; // first address -> first block
  std::vector<OomObserver> observers_;
};

// Never destroyed: tensors may outlive static destruction at interpreter exit.
DeviceMemory& memory() {
  static auto* instance = new DeviceMemory();
  return *instance;
}

void free_device(void* pointer) {
  memory().free(pointer);
}

c10::DataPtr allocate_on(int device_index, size_t bytes) {
  c10::Device device(kMusa, c10::DeviceIndex(device_index));
  if (bytes == 0) return {nullptr, nullptr, &free_device, device};
  void* pointer = memory().allocate(device_index, bytes, current_stream(device_index));
  return {pointer, pointer, &free_device, device};
}

#if SIM_TORCH_AT_LEAST(2, 9)
void export_stat(const Stat& from, c10::CachingAllocator::Stat& to) {
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
}
void export_triple(const StatTriple& from, c10::CachingAllocator::StatArray& to) {
  using c10::CachingAllocator::StatType;
  export_stat(from.all, to[size_t(StatType::AGGREGATE)]);
  export_stat(from.small, to[size_t(StatType::SMALL_POOL)]);
  export_stat(from.large, to[size_t(StatType::LARGE_POOL)]);
}
using AllocatorBase = c10::DeviceAllocator;
#else
using AllocatorBase = c10::Allocator;
#endif

struct MusaAllocator final : AllocatorBase {
  c10::DataPtr allocate(size_t bytes) override {
    lazy_init();
    return allocate_on(current_device(), bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_device; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

#if SIM_TORCH_AT_LEAST(2, 9)
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override { empty_cache(); }
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override { record_stream(pointer, stream); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    check_device(index);
    MemoryStats from = memory_stats(index);
    c10::CachingDeviceAllocator::DeviceStats to;
    export_triple(from.allocation, to.allocation);
    export_triple(from.segment, to.segment);
    export_triple(from.active, to.active);
    export_triple(from.inactive_split, to.inactive_split);
    export_triple(from.allocated_bytes, to.allocated_bytes);
    export_triple(from.reserved_bytes, to.reserved_bytes);
    export_triple(from.active_bytes, to.active_bytes);
    export_triple(from.inactive_split_bytes, to.inactive_split_bytes);
    export_triple(from.requested_bytes, to.requested_bytes);
    export_stat(from.oversize_allocations, to.oversize_allocations);
    export_stat(from.oversize_segments, to.oversize_segments);
    to.num_alloc_retries = from.num_alloc_retries;
    to.num_ooms = from.num_ooms;
    to.num_sync_all_streams = from.num_sync_all_streams;
    to.num_device_alloc = from.num_device_alloc;
    to.num_device_free = from.num_device_free;
    return to;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    check_device(index);
    reset_accumulated_stats(index);
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    check_device(index);
    reset_peak_stats(index);
  }
  // No `override`: the base has it from some later version on.
  virtual std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) {
    check_device(index);
    return memory_info(index);
  }
#endif
};

// ---- pinned host memory ----------------------------------------------------------------------------

struct PinnedRange {
  size_t bytes;
  std::map<std::pair<int, c10::StreamId>, c10::Stream> uses; // streams with copies that may still be under way
};
struct PinnedRanges {
  std::mutex mutex;
  std::map<const char*, PinnedRange> ranges;
  std::vector<std::pair<void*, std::vector<MarkPtr>>> leaving; // freed while copies were under way

  PinnedRange* find(const void* pointer) {
    auto after = ranges.upper_bound(static_cast<const char*>(pointer));
    if (after == ranges.begin()) return nullptr;
    auto range = std::prev(after);
    return static_cast<const char*>(pointer) < range->first + range->second.bytes ? &range->second : nullptr;
  }
  void finish_leaving() {
    for (size_t i = 0; i < leaving.size();) {
      bool passed = true;
      for (const MarkPtr& mark : leaving[i].second) passed = passed && (mark->capture ? !captures_underway() : mark->done());
      if (!passed) {
        ++i;
        continue;
      }
      std::free(leaving[i].first);
      leaving.erase(leaving.begin() + std::ptrdiff_t(i));
    }
  }
};
PinnedRanges& pinned() {
  static auto* instance = new PinnedRanges();
  return *instance;
}

void free_pinned(void* pointer) {
  if (!pointer) return;
  {
    std::lock_guard<std::mutex> lock(pinned().mutex);
    auto found = pinned().ranges.find(static_cast<char*>(pointer));
    std::vector<MarkPtr> marks;
    if (found != pinned().ranges.end()) {
      if (may_defer() && !in_bad_fork()) {
        for (auto& [key, stream] : found->second.uses) marks.push_back(mark(stream));
      }
      pinned().ranges.erase(found);
    }
    pinned().finish_leaving();
    if (!marks.empty()) {
      pinned().leaving.emplace_back(pointer, std::move(marks));
      return;
    }
  }
  std::free(pointer);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    check_not_bad_fork();
    void* pointer = nullptr;
    if (bytes != 0) {
      if (posix_memalign(&pointer, 4096, bytes) != 0) throw_musa_error(2, "out of memory");
      std::lock_guard<std::mutex> lock(pinned().mutex);
      pinned().finish_leaving();
      pinned().ranges[static_cast<char*>(pointer)] = {bytes, {}};
    }
    return {pointer, pointer, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

// ---- CPU allocations made on behalf of the device ----------------------------------------------------

thread_local int route_to = -1;
c10::Allocator* plain_cpu = nullptr;

// raw_deallocate() says nothing about where memory came from, so look it up.
void free_routed(void* pointer) {
  if (memory().is_live(pointer)) {
    free_device(pointer);
  } else {
    plain_cpu->raw_deleter()(pointer);
  }
}

struct CpuRouter final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (route_to < 0) return plain_cpu->allocate(bytes);
    c10::DataPtr pointer = allocate_on(route_to, bytes);
    pointer.unsafe_set_device(c10::Device(c10::DeviceType::CPU));
    return pointer;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_routed; }
  bool is_simple_data_ptr(const c10::DataPtr& pointer) const override { return plain_cpu->is_simple_data_ptr(pointer); }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

} // namespace

c10::Allocator* device_allocator() {
  static auto* instance = new MusaAllocator();
  return instance;
}
c10::Allocator* pinned_allocator() {
  static auto* instance = new PinnedAllocator();
  return instance;
}
bool is_pinned(const void* pointer) {
  std::lock_guard<std::mutex> lock(pinned().mutex);
  return pinned().find(pointer) != nullptr;
}
void record_pinned_use(const void* pointer, c10::Stream stream) {
  std::lock_guard<std::mutex> lock(pinned().mutex);
  if (PinnedRange* range = pinned().find(pointer)) {
    range->uses.emplace(std::pair{int(stream.device_index()), stream.id()}, stream);
  }
}
void register_host(void* pointer, size_t bytes) {
  std::lock_guard<std::mutex> lock(pinned().mutex);
  pinned().ranges[static_cast<char*>(pointer)] = {bytes, {}};
}
void unregister_host(void* pointer) {
  std::lock_guard<std::mutex> lock(pinned().mutex);
  if (!pinned().ranges.erase(static_cast<char*>(pointer))) throw_musa_error(1, "invalid argument");
}
int device_of_pointer(const void* pointer) {
  return memory().device_of(pointer);
}
c10::DeleterFnPtr device_deleter() {
  return &free_device;
}
void raw_free(void* pointer) {
  memory().free(pointer);
}
MemoryStats memory_stats(int device) {
  return memory().stats(device);
}
void reset_peak_stats(int device) {
  memory().each_stat(device, [](Stat& stat) { stat.peak = stat.current; });
}
void reset_accumulated_stats(int device) {
  memory().reset_accumulated(device);
}
void empty_cache() {
  memory().empty_cache();
}
void set_memory_fraction(double fraction, int device) {
  TORCH_CHECK(fraction >= 0 && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
  memory().set_fraction(device, fraction);
}
std::pair<size_t, size_t> memory_info(int device) {
  return memory().info(device);
}
std::vector<SegmentView> memory_snapshot() {
  return memory().snapshot();
}
void record_stream(const c10::DataPtr& pointer, c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == kMusa, "record_stream: expected a musa stream, got one on ", stream.device());
  if (may_defer() && pointer.get_context()) memory().record(pointer.get_context(), stream);
}
void attach_oom_observer(OomObserver observer) {
  memory().attach(std::move(observer));
}
namespace {
constexpr const char* kSettings[] = {"backend", "cpu", "expandable_segments", "garbage_collection_threshold",
                                     "max_split_size_mb", "pinned_num_register_threads", "pinned_use_background_threads",
                                     "pinned_use_cuda_host_register", "pinned_use_musa_host_register",
                                     "release_lock_on_cudamalloc", "release_lock_on_musamalloc", "roundup_power2_divisions"};
struct Settings {
  std::mutex mutex;
  std::string text;
  std::map<std::string, std::string> values;
};
Settings& settings() {
  static auto* instance = new Settings();
  return *instance;
}
} // namespace

void set_allocator_settings(const std::string& text) {
  std::map<std::string, std::string> values;
  size_t start = 0;
  while (start < text.size()) {
    // A comma ends an option unless it stands in brackets: roundup_power2_divisions:[256:1,512:2]
    size_t end = start;
    for (int depth = 0; end < text.size() && (depth > 0 || text[end] != ','); ++end) {
      depth += (text[end] == '[') - (text[end] == ']');
    }
    std::string option = text.substr(start, end - start);
    size_t colon = option.find(':');
    std::string name = option.substr(0, colon);
    bool known = std::find(std::begin(kSettings), std::end(kSettings), name) != std::end(kSettings);
    TORCH_CHECK(known, "Unrecognized CachingAllocator option: ", name);
    TORCH_CHECK(colon != std::string::npos && colon + 1 < option.size(), "Error parsing CachingAllocator settings: '", option,
                "' has no value");
    values[name] = option.substr(colon + 1);
    start = end + 1;
  }
  std::lock_guard<std::mutex> lock(settings().mutex);
  settings().text = text;
  settings().values = std::move(values);
}
std::string allocator_settings() {
  std::lock_guard<std::mutex> lock(settings().mutex);
  return settings().text;
}
std::string allocator_setting(const std::string& name) {
  std::lock_guard<std::mutex> lock(settings().mutex);
  auto found = settings().values.find(name);
  return found == settings().values.end() ? "" : found->second;
}
PoolId new_pool_id() {
  static std::atomic<unsigned long long> next{1};
  return {0, next.fetch_add(1)};
}
void begin_allocate_to_pool(int device, PoolId pool, std::function<bool(c10::Stream)> filter) {
  memory().begin_pool(device, pool, std::move(filter));
}
void end_allocate_to_pool(int device, PoolId pool) {
  memory().end_pool(device, pool);
}
void release_pool(int device, PoolId pool) {
  memory().release_pool(device, pool);
}
void allocator_before_fork() {
  memory().mutex.lock();
  pinned().mutex.lock();
}
void allocator_after_fork() {
  pinned().mutex.unlock();
  memory().mutex.unlock();
}

RouteCpuAllocations::RouteCpuAllocations(int device) : previous_(route_to) {
  route_to = device;
}
RouteCpuAllocations::~RouteCpuAllocations() {
  route_to = previous_;
}
void install_cpu_router() {
  if (plain_cpu) return;
  plain_cpu = c10::GetCPUAllocator();
  c10::SetCPUAllocator(new CpuRouter(), /*priority=*/1);
}

} // namespace sim
