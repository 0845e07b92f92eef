// Device memory of the simulated device: a caching allocator over the arenas.
//
// It keeps the bookkeeping of PyTorch's CUDA caching allocator (size classes, segments that are split into
// blocks, one free list per stream, statistics, private pools, reuse that waits for other streams), because programs
// and their tests look at it: memory_stats(), peak memory, snapshots, OutOfMemoryError and recovery.
#include "sim.h"
#include "work.h"

#include <c10/core/CPUAllocator.h>
#if SIM_TORCH_AT_LEAST(2, 9)
#include <c10/core/CachingDeviceAllocator.h>
#endif

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iomanip>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
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
constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
constexpr PoolId kOrdinary{0, 0};

size_t round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}
char* align(char* p, size_t unit, bool up) {
  auto value = reinterpret_cast<size_t>(p);
  return reinterpret_cast<char*>(up ? round_up(value, unit) : value / unit * unit);
}

// ---- options -----------------------------------------------------------------------------------------

struct Options {
  std::string text;
  std::map<std::string, std::string> values;
  size_t max_split = kNoLimit;
  double collect_above = 0; // part of the allowed memory; 0: never
  bool expandable = false;
  std::array<size_t, 16> divisions{}; // of the powers of two from 1 MiB to 64 GiB
};

constexpr const char* kOptionNames[] = {"backend", "cpu", "expandable_segments", "garbage_collection_threshold",
                                        "max_split_size_mb", "pinned_num_register_threads", "pinned_use_background_threads",
                                        "pinned_use_cuda_host_register", "pinned_use_musa_host_register",
                                        "release_lock_on_cudamalloc", "release_lock_on_musamalloc", "roundup_power2_divisions"};

size_t option_number(const std::string& name, const std::string& text) {
  char* end = nullptr;
  unsigned long long n = std::strtoull(text.c_str(), &end, 10);
  TORCH_CHECK(!text.empty() && *end == 0 && text[0] != '-', "Error parsing CachingAllocator settings: ", name, ":", text,
              " is not a number");
  return size_t(n);
}

size_t option_divisions(const std::string& text) {
  size_t n = option_number("roundup_power2_divisions", text);
  TORCH_CHECK((n & (n - 1)) == 0, "For roundups, the divisons has to be power of 2 or 0 to disable roundup ");
  return n;
}

size_t division_slot(size_t mib) {
  size_t slot = 0;
  while (slot + 1 < 16 && (size_t(2) << slot) <= mib) ++slot;
  return slot;
}

// "4", or "[256:1,512:2,1024:4,>:8]": sizes in MiB
void parse_divisions(const std::string& text, Options& into) {
  if (text[0] != '[') {
    into.divisions.fill(option_divisions(text));
    return;
  }
  TORCH_CHECK(text.back() == ']', "Error parsing CachingAllocator settings: expected ] in roundup_power2_divisions");
  std::stringstream list(text.substr(1, text.size() - 2));
  std::string entry;
  size_t last = 0;
  bool first = true;
  while (std::getline(list, entry, ',')) {
    size_t colon = entry.find(':');
    TORCH_CHECK(colon != std::string::npos, "Error parsing CachingAllocator settings: expected size:divisions, got ", entry);
    size_t value = option_divisions(entry.substr(colon + 1));
    if (entry.substr(0, colon) == ">") {
      std::fill(into.divisions.begin() + long(last), into.divisions.end(), value);
      continue;
    }
    size_t mib = option_number("roundup_power2_divisions", entry.substr(0, colon));
    TORCH_CHECK(mib > 0 && (mib & (mib - 1)) == 0, "For roundups, the intervals have to be power of 2 ");
    size_t slot = division_slot(mib);
    std::fill(into.divisions.begin() + long(first ? 0 : slot), into.divisions.begin() + long(slot) + 1, value);
    first = false;
    last = slot + 1;
  }
}

void parse_option(const std::string& name, const std::string& value, Options& into) {
  if (name == "max_split_size_mb") {
    size_t mib = option_number(name, value);
    TORCH_CHECK(mib > kLargeSegment / kMiB, "CachingAllocator option max_split_size_mb too small, must be > ", kLargeSegment / kMiB);
    into.max_split = std::min(mib, kNoLimit / kMiB) * kMiB;
  } else if (name == "garbage_collection_threshold") {
    char* end = nullptr;
    into.collect_above = std::strtod(value.c_str(), &end);
    TORCH_CHECK(*end == 0 && into.collect_above > 0, "garbage_collect_threshold too small, set it 0.0~1.0");
    TORCH_CHECK(into.collect_above < 1, "garbage_collect_threshold too big, set it 0.0~1.0");
  } else if (name == "roundup_power2_divisions") {
    parse_divisions(value, into);
  } else if (name == "pinned_num_register_threads") {
    size_t n = option_number(name, value);
    TORCH_CHECK((n & (n - 1)) == 0, "Number of register threads has to be power of 2 ");
    TORCH_CHECK(n <= 128, "Number of register threads should be less than or equal to 128");
  } else if (name == "backend") {
    TORCH_CHECK(value == "native" || value == "musaMallocAsync", "Unknown allocator backend, options are native and musaMallocAsync");
  } else if (name != "cpu") {
    TORCH_CHECK(value == "True" || value == "False", "Expected a single True/False argument for ", name);
    if (name == "expandable_segments") into.expandable = value == "True";
  }
}

Options parse_options(const std::string& text) {
  Options options;
  options.text = text;
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
    bool known = std::find(std::begin(kOptionNames), std::end(kOptionNames), name) != std::end(kOptionNames);
    TORCH_CHECK(known, "Unrecognized CachingAllocator option: ", name);
    TORCH_CHECK(colon != std::string::npos && colon + 1 < option.size(), "Error parsing CachingAllocator settings: '", option,
                "' has no value");
    options.values[name] = option.substr(colon + 1);
    parse_option(name, options.values[name], options);
    start = end + 1;
  }
  return options;
}

// As PyTorch's own variable: whatever its value, and read once.
bool caching_is_off() {
  static const bool off = std::getenv("PYTORCH_NO_MUSA_MEMORY_CACHING") != nullptr;
  return off;
}

// ---- blocks ------------------------------------------------------------------------------------------

struct Block;
struct FreeOrder {
  bool operator()(const Block* a, const Block* b) const;
};
using FreeList = std::set<Block*, FreeOrder>;

struct Pool {
  FreeList small, large;
  int users = 0; // how often it was created or begun and not released
  int segments = 0;
  size_t searches = 0; // counts the age of free blocks
  CustomAllocatorPtr custom;
};

// Memory taken from the device in one piece.
struct Segment {
  int device;
  c10::StreamId stream;
  char* address;
  size_t size;
  bool is_small, is_expandable;
  PoolId pool;
  CustomAllocatorPtr custom; // it came from there
  Context context;
  Block* first = nullptr;
  size_t granule() const { return is_small ? kSmallSegment : kLargeSegment; }
};

struct Block {
  Segment* segment;
  size_t size;
  char* address;
  size_t requested = 0;
  bool allocated = false;
  std::vector<c10::Stream> users; // other streams whose work uses it
  int marks = 0;                  // how many of them were not done when it was freed
  size_t born = 0;                // Pool::searches when it became free
  Context context;
  Block* previous = nullptr;
  Block* next = nullptr;
  bool is_split() const { return previous || next; }
  bool is_free() const { return !allocated && marks == 0; }
};

bool FreeOrder::operator()(const Block* a, const Block* b) const {
  if (a->segment->stream != b->segment->stream) return a->segment->stream < b->segment->stream;
  if (a->size != b->size) return a->size < b->size;
  return a->address < b->address;
}

struct Device {
  MemoryStats stats;
  double fraction = 1.0;
  bool fraction_set = false;
  size_t taken = 0; // bytes of the device this process has
  std::map<PoolId, Pool> pools;
  std::vector<std::pair<PoolId, std::function<bool(c10::Stream)>>> active_pools;
  std::list<std::pair<MarkPtr, Block*>> pending; // freed, and in use by work of another stream
};

// Memory that did not go through the cache.
struct Foreign {
  size_t size;
  int device;
  c10::Stream stream;
  bool custom;
};

struct Request {
  int device;
  size_t size;
  c10::Stream stream;
  bool is_small;
  PoolId pool;
  Context context;
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

  void* allocate(int index, size_t requested, c10::Stream stream) {
    check_not_bad_fork();
    Context context = gather_context(KeepContext::State); // not under the lock: it takes the GIL
    std::unique_lock<std::mutex> lock(mutex);
    if (custom_) return allocate_foreign(lock, index, requested, stream, true);
    if (caching_is_off()) return allocate_foreign(lock, index, requested, stream, false);
    Device& device = devices_[index];
    finish_pending(device);
    if (requested <= kNoLimit / 2) {
      size_t size = rounded(requested);
      Request request{index, size, stream, size <= kSmallSize, pool_for(device, stream), context};
      Block* block = find_free(device, request);
      if (!block) block = new_segment(device, request);
      if (!block && release_oversize(device, request)) block = new_segment(device, request);
      if (!block) {
        lock.unlock();
        ipc_collect();
        lock.lock();
        if (settle(device, index, lock)) {
          release_cached(device, context);
          device.stats.num_alloc_retries += 1;
          block = new_segment(device, request);
        }
        if (!block) block = find_free(device, request); // what others gave back meanwhile
      }
      if (block) {
        hand_out(device, block, request, requested);
        return block->address;
      }
    }
    out_of_memory(lock, index, requested, stream, context);
  }

  void free(void* pointer) {
    if (!pointer) return;
    Context context = gather_context(KeepContext::All);
    std::unique_lock<std::mutex> lock(mutex);
    auto found = live_.find(pointer);
    if (found == live_.end()) {
      free_foreign(lock, pointer);
      return;
    }
    Block* block = found->second;
    live_.erase(found);
    request_free(block, context);
  }

  void record_stream(void* pointer, c10::Stream stream) {
    std::unique_lock<std::mutex> lock(mutex);
    if (custom_ && custom_->record_stream) {
      auto custom = custom_;
      lock.unlock();
      custom->record_stream(pointer, stream_handle(stream));
      return;
    }
    auto found = live_.find(pointer);
    if (found == live_.end()) return; // received from another process, or not of this allocator
    Block* block = found->second;
    if (stream.id() == block->segment->stream && stream.device_index() == block->segment->device) return;
    for (const c10::Stream& user : block->users) {
      if (user == stream) return;
    }
    block->users.push_back(stream);
  }

  void empty_cache() {
    Context context = gather_context(KeepContext::All);
    CustomAllocatorPtr custom;
    std::vector<int> used;
    {
      std::lock_guard<std::mutex> lock(mutex);
      custom = custom_;
      for (auto& entry : devices_) used.push_back(entry.first);
    }
    if (custom) {
      if (custom->reset) custom->reset();
      return;
    }
    std::unique_lock<std::mutex> lock(mutex);
    for (int index : used) {
      Device& device = devices_[index];
      TORCH_CHECK(settle(device, index, lock), "MUSA error: operation not permitted when stream is capturing (the cache was emptied)");
      release_cached(device, context);
    }
  }

  MemoryStats stats(int index) {
    std::lock_guard<std::mutex> lock(mutex);
    check_caching("getDeviceStats");
    MemoryStats result = devices_[index].stats;
    result.max_split_size = options_.max_split == kNoLimit ? -1 : int64_t(options_.max_split);
    return result;
  }

  template <class F>
  void each_stat(int index, F f, const char* name) {
    std::lock_guard<std::mutex> lock(mutex);
    check_caching(name);
    MemoryStats& s = devices_[index].stats;
    for (StatTriple* triple : {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes, &s.reserved_bytes,
                               &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes}) {
      f(triple->all);
      f(triple->small);
      f(triple->large);
    }
    f(s.oversize_allocations);
    f(s.oversize_segments);
  }

  void reset_accumulated(int index) {
    each_stat(index, [](Stat& stat) { stat.allocated = stat.freed = 0; }, "resetAccumulatedStats");
    std::lock_guard<std::mutex> lock(mutex);
    MemoryStats& s = devices_[index].stats;
    s.num_alloc_retries = s.num_ooms = s.num_sync_all_streams = 0;
    s.num_device_alloc = s.num_device_free = 0;
  }

  void set_fraction(int index, double fraction) {
    std::unique_lock<std::mutex> lock(mutex);
    if (custom_) {
      auto custom = custom_;
      lock.unlock();
      if (custom->set_memory_fraction) custom->set_memory_fraction(fraction, index);
      return;
    }
    devices_[index].fraction = fraction;
    devices_[index].fraction_set = true;
  }

  std::pair<size_t, size_t> info(int index) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t total = config().memory;
    size_t used = devices_[index].taken;
    return {total > used ? total - used : 0, total};
  }

  std::vector<SegmentView> snapshot() {
    Context context = gather_context(KeepContext::All);
    std::lock_guard<std::mutex> lock(mutex);
    check_caching("snapshot");
    std::vector<SegmentView> result;
    std::map<int, size_t> active;
    for (auto& [address, segment] : segments_) {
      SegmentView view{segment->device, size_t(address), segment->size, 0, 0, 0, stream_handle(stream_of(segment.get())),
                       segment->is_small, segment->is_expandable, segment->pool, segment->context, {}};
      for (Block* block = segment->first; block; block = block->next) {
        auto state = block->allocated ? BlockView::Allocated : block->marks ? BlockView::PendingFree : BlockView::Inactive;
        if (block->allocated) view.allocated += block->size;
        if (!block->is_free()) {
          view.active += block->size;
          view.requested += block->requested;
        }
        view.blocks.push_back({size_t(block->address), block->size, block->requested, state, block->context});
      }
      active[view.device] += view.active;
      result.push_back(std::move(view));
    }
    for (int i = 0; history_enabled() && i < device_count(); ++i) {
      trace(i, Action::Snapshot, 0, active[i], default_stream(i), context);
    }
    return result;
  }

  int device_of(const void* pointer) {
    int index = arena_device(pointer);
    if (index >= 0) return index;
    std::lock_guard<std::mutex> lock(mutex);
    auto* p = static_cast<char*>(const_cast<void*>(pointer));
    auto after = foreign_.upper_bound(p);
    if (after != foreign_.begin()) {
      auto& [address, foreign] = *std::prev(after);
      if (p < address + foreign.size) return foreign.device;
    }
    auto later = segments_.upper_bound(p); // segments of a pool's own allocator
    if (later == segments_.begin()) return -1;
    Segment& segment = *std::prev(later)->second;
    return p < segment.address + segment.size ? segment.device : -1;
  }

  bool is_live(const void* pointer) {
    auto* p = const_cast<void*>(pointer);
    std::lock_guard<std::mutex> lock(mutex);
    return live_.count(p) != 0 || foreign_.count(static_cast<char*>(p)) != 0;
  }

  // ---- private pools

  void create_pool(int index, PoolId id, CustomAllocatorPtr custom) {
    std::lock_guard<std::mutex> lock(mutex);
    Pool& pool = devices_[index].pools[id];
    pool.users += 1;
    if (custom) pool.custom = std::move(custom);
  }

  void begin_pool(int index, PoolId id, std::function<bool(c10::Stream)> filter) {
    std::unique_lock<std::mutex> lock(mutex);
    if (custom_) {
      auto custom = custom_;
      lock.unlock();
      TORCH_CHECK(custom->begin_allocate_to_pool, "MUSAPluggableAllocator: no begin_allocate_to_pool function was set.");
      custom->begin_allocate_to_pool(index, id, [filter, index](void* handle) { return filter(stream_from_handle(handle, index)); });
      return;
    }
    Device& device = devices_[index];
    for (auto& active : device.active_pools) {
      TORCH_CHECK(active.first != id, "beginAllocateToPool: already recording to mempool_id");
    }
    Pool& pool = device.pools[id];
    pool.users += 1;
    for (auto& [other, state] : devices_) { // a pool's own allocator serves every device
      auto found = state.pools.find(id);
      if (found != state.pools.end() && found->second.custom) pool.custom = found->second.custom;
    }
    device.active_pools.emplace_back(id, std::move(filter));
  }

  void end_pool(int index, PoolId id) {
    std::unique_lock<std::mutex> lock(mutex);
    if (custom_) {
      auto custom = custom_;
      lock.unlock();
      if (custom->end_allocate_to_pool) custom->end_allocate_to_pool(index, id);
      return;
    }
    auto& active = devices_[index].active_pools;
    auto found = std::find_if(active.begin(), active.end(), [&](auto& entry) { return entry.first == id; });
    TORCH_CHECK(found != active.end(), "endAllocatePool: not currently recording to mempool_id");
    active.erase(found);
  }

  void release_pool(int index, PoolId id) {
    std::unique_lock<std::mutex> lock(mutex);
    if (custom_) {
      auto custom = custom_;
      lock.unlock();
      if (custom->release_pool) custom->release_pool(index, id);
      return;
    }
    Device& device = devices_[index];
    auto found = device.pools.find(id);
    TORCH_CHECK(found != device.pools.end() && found->second.users > 0, "releasePool: the pool (", id.first, ", ", id.second,
                ") is not in use on device ", index);
    found->second.users -= 1;
    if (found->second.users == 0 && found->second.segments == 0) device.pools.erase(found);
  }

  void empty_pool(int index, PoolId id) {
    Context context = gather_context(KeepContext::All);
    std::unique_lock<std::mutex> lock(mutex);
    Device& device = devices_[index];
    // During a capture the next empty_cache() does it.
    if (settle(device, index, lock) && device.pools.count(id)) release_free(device, id, context);
  }

  bool has_live(int index, PoolId id, const std::set<void*>& expected) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t seen = 0;
    for (Block* block : blocks_of(index, id)) {
      if (!block->allocated) continue;
      if (!expected.count(block->address)) return false;
      seen += 1;
    }
    return seen == expected.size();
  }

  PoolState state_of(int index, PoolId id) {
    std::lock_guard<std::mutex> lock(mutex);
    check_pool(index, id);
    PoolState result{id, {}};
    for (auto& [address, segment] : segments_) {
      if (segment->device != index || segment->pool != id) continue;
      result.segments.emplace_back();
      for (Block* block = segment->first; block; block = block->next) {
        TORCH_CHECK(block->marks == 0, "a block of the pool is still in use by another stream");
        result.segments.back().push_back({block->address, block->size, block->requested, block->allocated});
      }
    }
    return result;
  }

  PoolChange set_state(int index, const PoolState& state) {
    Context context = gather_context(KeepContext::All);
    PoolChange change;
    std::lock_guard<std::mutex> lock(mutex);
    check_pool(index, state.pool);
    Device& device = devices_[index];
    std::vector<void*> live;
    for (Block* block : blocks_of(index, state.pool)) {
      TORCH_CHECK(block->marks == 0, "a block of the pool is still in use by another stream");
      if (block->allocated) live.push_back(block->address);
    }
    for (auto& pieces : state.segments) {
      auto found = segments_.find(pieces.front().address);
      size_t size = 0;
      for (auto& piece : pieces) size += piece.size;
      TORCH_CHECK(found != segments_.end() && found->second->pool == state.pool && found->second->size == size,
                  "a segment of the checkpoint is gone");
    }
    for (void* pointer : live) {
      Block* block = live_.at(pointer);
      live_.erase(pointer);
      request_free(block, context);
      change.freed.push_back(pointer);
    }
    for (auto& pieces : state.segments) {
      Segment* segment = segments_.at(pieces.front().address).get();
      Block* block = segment->first;
      remove_free(device, block);
      for (size_t i = 0; i + 1 < pieces.size(); ++i) block = split(block, pieces[i].size);
      block = segment->first;
      for (auto& piece : pieces) {
        if (piece.allocated) {
          mark_allocated(device, block, piece.requested, context);
          change.allocated.emplace_back(block->address, block->address, device_deleter(),
                                        c10::Device(kMusa, c10::DeviceIndex(index)));
        } else {
          put_free(device, block);
        }
        block = block->next;
      }
    }
    return change;
  }

  // ---- the rest

  void attach(OomObserver observer) {
    std::lock_guard<std::mutex> lock(mutex);
    observers_.push_back(std::move(observer));
  }

  void change(CustomAllocatorPtr custom) {
    std::lock_guard<std::mutex> lock(mutex);
    TORCH_CHECK(!initialized_, "Can't swap an already initialized allocator");
    custom_ = std::move(custom);
  }
  CustomAllocatorPtr custom() {
    std::lock_guard<std::mutex> lock(mutex);
    return custom_;
  }
  void init() {
    CustomAllocatorPtr custom;
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (initialized_) return;
      initialized_ = true;
      custom = custom_;
    }
    if (custom && custom->init) custom->init(device_count());
  }

  void set_options(Options options) {
    std::lock_guard<std::mutex> lock(mutex);
    options_ = std::move(options);
  }
  Options options() {
    std::lock_guard<std::mutex> lock(mutex);
    return options_;
  }

 private:
  static c10::Stream stream_of(const Segment* segment) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kMusa, c10::DeviceIndex(segment->device)), segment->stream);
  }

  void check_caching(const char* what) {
    TORCH_CHECK(!custom_, "MUSAPluggableAllocator does not yet support ", what,
                ". If you need it, please file an issue describing your use case.");
  }

  void check_pool(int index, PoolId id) {
    TORCH_CHECK(devices_[index].pools.count(id), "Could not find private pool (", id.first, ", ", id.second, ") on device ", index);
  }

  std::vector<Block*> blocks_of(int index, PoolId id) {
    std::vector<Block*> result;
    for (auto& [address, segment] : segments_) {
      if (segment->device != index || segment->pool != id) continue;
      for (Block* block = segment->first; block; block = block->next) result.push_back(block);
    }
    return result;
  }

  PoolId pool_for(Device& device, c10::Stream stream) {
    for (auto& [id, filter] : device.active_pools) {
      if (filter(stream)) return id;
    }
    return kOrdinary;
  }

  size_t rounded(size_t requested) {
    if (requested < kMinBlock) return kMinBlock;
    size_t divisions = options_.divisions[division_slot(requested / kMiB)];
    if (divisions > 1 && requested > kMinBlock * divisions) {
      if ((requested & (requested - 1)) == 0) return requested;
      size_t power = 1;
      while (power * 2 < requested) power *= 2;
      return std::max(round_up(requested, power / divisions), kMinBlock);
    }
    return round_up(requested, kMinBlock);
  }

  FreeList& list_of(Device& device, const Block* block) {
    Pool& pool = device.pools[block->segment->pool];
    return block->segment->is_small ? pool.small : pool.large;
  }

  void put_free(Device& device, Block* block) {
    block->born = device.pools[block->segment->pool].searches;
    list_of(device, block).insert(block);
    if (block->is_split()) {
      device.stats.inactive_split.add(1, block->segment->is_small);
      device.stats.inactive_split_bytes.add(int64_t(block->size), block->segment->is_small);
    }
  }

  void remove_free(Device& device, Block* block) {
    list_of(device, block).erase(block);
    if (block->is_split()) {
      device.stats.inactive_split.sub(1, block->segment->is_small);
      device.stats.inactive_split_bytes.sub(int64_t(block->size), block->segment->is_small);
    }
  }

  // Joins a free neighbour into the block, which is in no free list at this moment.
  void merge(Device& device, Block* block, Block* neighbour) {
    if (!neighbour || !neighbour->is_free()) return;
    remove_free(device, neighbour);
    if (neighbour == block->previous) {
      if (neighbour->previous) {
        neighbour->previous->next = block;
      } else {
        block->segment->first = block;
      }
      block->address = neighbour->address;
      block->previous = neighbour->previous;
    } else {
      if (neighbour->next) neighbour->next->previous = block;
      block->next = neighbour->next;
    }
    block->size += neighbour->size;
    delete neighbour;
  }

  // Cuts the block after `size` bytes and returns the rest. Neither is in a free list.
  Block* split(Block* block, size_t size) {
    auto* rest = new Block{block->segment, block->size - size, block->address + size};
    rest->previous = block;
    rest->next = block->next;
    if (rest->next) rest->next->previous = rest;
    block->next = rest;
    block->size = size;
    return rest;
  }

  // A free block for the request, out of its free list.
  Block* find_free(Device& device, const Request& request) {
    Pool& pool = device.pools[request.pool];
    pool.searches += 1;
    FreeList& list = request.is_small ? pool.small : pool.large;
    Segment like{request.device, request.stream.id(), nullptr, 0, request.is_small, false, request.pool, nullptr, nullptr};
    Block key{&like, request.size, nullptr};
    auto found = list.lower_bound(&key);
    if (found == list.end() || (*found)->segment->stream != request.stream.id()) return nullptr;
    Block* block = *found;
    // With max_split_size_mb large blocks are not broken up: one may not serve a request that is much smaller.
    if (request.size < options_.max_split && block->size >= options_.max_split) return nullptr;
    if (request.size >= options_.max_split && block->size >= request.size + kLargeSegment) return nullptr;
    remove_free(device, block);
    return block;
  }

  size_t limit(Device& device) { return size_t(double(config().memory) * device.fraction); }

  bool has_room(Device& device, size_t size) {
    size_t most = limit(device);
    return size <= most && device.taken <= most - size;
  }

  Block* new_segment(Device& device, const Request& request) {
    if (device.fraction_set && options_.collect_above > 0) collect(device, request.context);
    Pool& pool = device.pools[request.pool];
    if (options_.expandable && !pool.custom) return expand(device, request);
    size_t size = request.is_small ? kSmallSegment
        : request.size < kMinOwnSegment ? kLargeSegment
                                        : round_up(request.size, kSegmentRound);
    char* memory = nullptr;
    if (pool.custom) {
      memory = static_cast<char*>(pool.custom->allocate(size, request.device, stream_handle(request.stream)));
    } else if (has_room(device, size)) {
      memory = arena_take(request.device, size, false);
      if (memory) device.taken += size;
    }
    if (!memory) return nullptr;
    Block* block = add_segment(request, memory, size, false, pool.custom);
    pool.segments += 1;
    device.stats.num_device_alloc += 1;
    device.stats.segment.add(1, request.is_small);
    device.stats.reserved_bytes.add(int64_t(size), request.is_small);
    if (size >= options_.max_split) device.stats.oversize_segments.add(1);
    note(block->segment, Action::SegmentAlloc, memory, size, request.context);
    return block;
  }

  Block* add_segment(const Request& request, char* memory, size_t size, bool expandable, CustomAllocatorPtr custom) {
    auto segment = std::make_unique<Segment>(Segment{request.device, request.stream.id(), memory, size, request.is_small,
                                                     expandable, request.pool, std::move(custom), request.context});
    auto* block = new Block{segment.get(), size, memory};
    segment->first = block;
    segments_[memory] = std::move(segment);
    return block;
  }

  // Expandable segments grow in place as long as the addresses behind them are free.
  Block* expand(Device& device, const Request& request) {
    Pool& pool = device.pools[request.pool];
    for (auto& [address, segment] : segments_) {
      if (!segment->is_expandable || segment->device != request.device || segment->pool != request.pool ||
          segment->stream != request.stream.id() || segment->is_small != request.is_small) {
        continue;
      }
      Block* last = segment->first;
      while (last->next) last = last->next;
      size_t have = last->is_free() ? last->size : 0;
      size_t more = round_up(request.size - std::min(have, request.size), segment->granule());
      char* end = segment->address + segment->size;
      if (!has_room(device, more) || !arena_extend(request.device, end, more)) continue;
      if (have) {
        remove_free(device, last);
        last->size += more;
      } else {
        auto* fresh = new Block{segment.get(), more, end};
        fresh->previous = last;
        last->next = fresh;
        last = fresh;
      }
      segment->size += more;
      map_pages(device, segment.get(), end, more, request.context);
      return last;
    }
    size_t size = round_up(request.size, request.is_small ? kSmallSegment : kLargeSegment);
    char* memory = has_room(device, size) ? arena_take(request.device, size, true) : nullptr;
    if (!memory) return nullptr;
    Block* block = add_segment(request, memory, size, true, nullptr);
    pool.segments += 1;
    map_pages(device, block->segment, memory, size, request.context);
    return block;
  }

  void map_pages(Device& device, Segment* segment, char* address, size_t size, const Context& context) {
    device.taken += size;
    device.stats.num_device_alloc += 1;
    device.stats.reserved_bytes.add(int64_t(size), segment->is_small);
    note(segment, Action::SegmentMap, address, size, context);
  }

  // Gives the whole pages of a free block back. What is left before and behind becomes two segments.
  void unmap_pages(Device& device, Block* block, const Context& context) {
    Segment* segment = block->segment;
    // Segments begin at any place in the arena, so pages are counted from there.
    size_t granule = segment->granule(), start = size_t(block->address - segment->address);
    size_t from = round_up(start, granule), to = (start + block->size) / granule * granule;
    if (to <= from) return;
    remove_free(device, block);
    char *first = segment->address + from, *last = segment->address + to;
    Block* tail = last < block->address + block->size ? split(block, size_t(last - block->address)) : nullptr;
    Block* head = first > block->address ? block : nullptr;
    Block* middle = head ? split(block, size_t(first - block->address)) : block;
    Block *before = middle->previous, *behind = middle->next;
    size_t size = middle->size;
    delete middle;
    note(segment, Action::SegmentUnmap, first, size, context);
    device.taken -= size;
    device.stats.num_device_free += 1;
    device.stats.reserved_bytes.sub(int64_t(size), segment->is_small);
    arena_give(segment->device, first, size);
    if (before) before->next = nullptr;
    if (behind) {
      behind->previous = nullptr;
      auto rest = std::make_unique<Segment>(*segment);
      rest->address = last;
      rest->size = size_t(segment->address + segment->size - last);
      rest->first = behind;
      for (Block* b = behind; b; b = b->next) b->segment = rest.get();
      device.pools[segment->pool].segments += 1;
      segments_[last] = std::move(rest);
    }
    segment->size = from;
    if (head) put_free(device, head);
    if (tail) put_free(device, tail);
    if (!before) {
      device.pools[segment->pool].segments -= 1;
      segments_.erase(segment->address);
    }
  }

  void hand_out(Device& device, Block* block, const Request& request, size_t requested) {
    Segment* segment = block->segment;
    size_t rest = block->size - request.size;
    bool cut = segment->is_small || segment->is_expandable ? rest >= kMinBlock
                                                           : request.size < options_.max_split && rest > kSmallSize;
    if (cut) put_free(device, split(block, request.size));
    mark_allocated(device, block, requested, request.context);
  }

  void mark_allocated(Device& device, Block* block, size_t requested, const Context& context) {
    bool is_small = block->segment->is_small;
    block->allocated = true;
    block->requested = requested;
    block->context = context;
    live_[block->address] = block;
    device.stats.allocation.add(1, is_small);
    device.stats.allocated_bytes.add(int64_t(block->size), is_small);
    device.stats.requested_bytes.add(int64_t(requested), is_small);
    device.stats.active.add(1, is_small);
    device.stats.active_bytes.add(int64_t(block->size), is_small);
    if (block->size >= options_.max_split) device.stats.oversize_allocations.add(1);
    note(block->segment, Action::Alloc, block->address, requested, context);
    tell_profiler(device, block, int64_t(block->size));
  }

  // For profile_memory of torch's profiler; looks at one pointer of the thread when none runs.
  static void tell_profiler(const Device& device, const Block* block, int64_t bytes) {
    c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(block->address), bytes,
                                     size_t(device.stats.allocated_bytes.all.current),
                                     size_t(device.stats.reserved_bytes.all.current),
                                     c10::Device(kMusa, c10::DeviceIndex(block->segment->device)));
  }

  void request_free(Block* block, const Context& context) {
    Device& device = devices_[block->segment->device];
    bool is_small = block->segment->is_small;
    device.stats.allocation.sub(1, is_small);
    device.stats.allocated_bytes.sub(int64_t(block->size), is_small);
    if (block->size >= options_.max_split) device.stats.oversize_allocations.sub(1);
    note(block->segment, Action::FreeRequested, block->address, block->requested, context ? context : block->context);
    tell_profiler(device, block, -int64_t(block->size));
    block->allocated = false;
    if (block->users.empty()) {
      complete_free(device, block, context);
      return;
    }
    if (in_bad_fork()) { // no work here, and the queues are the parent's
      block->users.clear();
      complete_free(device, block, context);
      return;
    }
    block->marks = int(block->users.size());
    for (const c10::Stream& stream : block->users) device.pending.emplace_back(mark(stream), block);
    block->users.clear();
  }

  void complete_free(Device& device, Block* block, const Context& context) {
    bool is_small = block->segment->is_small;
    note(block->segment, Action::FreeCompleted, block->address, block->requested, context ? context : block->context);
    device.stats.active.sub(1, is_small);
    device.stats.active_bytes.sub(int64_t(block->size), is_small);
    device.stats.requested_bytes.sub(int64_t(block->requested), is_small);
    block->requested = 0;
    block->context = nullptr;
    merge(device, block, block->previous);
    merge(device, block, block->next);
    put_free(device, block);
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
    finish_pending(device);
    return true;
  }

  // Frees what other streams have finished with. A mark made in a capture has no place in time, so such memory waits
  // for the end of all captures.
  void finish_pending(Device& device) {
    for (auto it = device.pending.begin(); it != device.pending.end();) {
      if (it->first->capture ? captures_underway() : !it->first->done()) {
        ++it;
        continue;
      }
      Block* block = it->second;
      it = device.pending.erase(it);
      if (--block->marks == 0) complete_free(device, block, nullptr);
    }
  }

  void note(Segment* segment, Action action, char* address, size_t size, const Context& context) {
    if (history_enabled()) trace(segment->device, action, size_t(address), size, stream_of(segment), context);
  }

  void release_block(Device& device, Block* block, const Context& context) {
    Segment* segment = block->segment;
    remove_free(device, block);
    note(segment, Action::SegmentFree, block->address, block->size, context);
    if (segment->custom) {
      segment->custom->free(block->address, block->size, segment->device, stream_handle(stream_of(segment)));
    } else {
      arena_give(segment->device, block->address, block->size);
      device.taken -= block->size;
    }
    device.pools[segment->pool].segments -= 1;
    device.stats.num_device_free += 1;
    device.stats.segment.sub(1, segment->is_small);
    device.stats.reserved_bytes.sub(int64_t(block->size), segment->is_small);
    if (block->size >= options_.max_split) device.stats.oversize_segments.sub(1);
    char* address = segment->address;
    delete block;
    segments_.erase(address);
  }

  void release_free(Device& device, PoolId id, const Context& context) {
    Pool& pool = device.pools[id];
    for (FreeList* list : {&pool.small, &pool.large}) {
      std::vector<Block*> blocks(list->begin(), list->end());
      for (Block* block : blocks) {
        if (block->segment->is_expandable) {
          unmap_pages(device, block, context);
        } else if (!block->is_split()) {
          release_block(device, block, context);
        }
      }
    }
    if (id != kOrdinary && pool.users <= 0 && pool.segments == 0) device.pools.erase(id);
  }

  // Pools that somebody uses keep their memory: a graph that was captured into one has its addresses.
  void release_cached(Device& device, const Context& context) {
    device.stats.num_sync_all_streams += 1;
    std::vector<PoolId> ids;
    for (auto& [id, pool] : device.pools) {
      if (id == kOrdinary || pool.users <= 0) ids.push_back(id);
    }
    for (PoolId id : ids) release_free(device, id, context);
  }

  // With max_split_size_mb: gives back whole large blocks, the smallest that is enough or the largest ones.
  bool release_oversize(Device& device, const Request& request) {
    if (options_.max_split == kNoLimit) return false;
    FreeList& list = device.pools[request.pool].large;
    size_t wanted = std::max(request.size, options_.max_split), released = 0;
    std::vector<Block*> candidates;
    for (Block* block : list) {
      if (block->segment->stream == request.stream.id() && block->size >= options_.max_split && !block->is_split() &&
          !block->segment->is_expandable) {
        candidates.push_back(block);
      }
    }
    auto enough = std::find_if(candidates.begin(), candidates.end(), [&](Block* block) { return block->size >= wanted; });
    if (enough != candidates.end()) {
      release_block(device, *enough, request.context);
      return true;
    }
    for (auto it = candidates.rbegin(); it != candidates.rend() && released < wanted; ++it) {
      released += (*it)->size;
      release_block(device, *it, request.context);
    }
    return released >= wanted;
  }

  // With garbage_collection_threshold: gives old large blocks back before more memory is taken.
  void collect(Device& device, const Context& context) {
    auto threshold = size_t(options_.collect_above * double(limit(device)));
    if (device.taken <= threshold) return;
    size_t wanted = device.taken - threshold, released = 0;
    Pool& pool = device.pools[kOrdinary];
    auto age = [&](Block* block) { return pool.searches - block->born; };
    for (bool again = true; again && released < wanted;) {
      std::vector<Block*> whole;
      size_t total = 0;
      for (Block* block : pool.large) {
        if (block->is_split() || block->segment->is_expandable) continue;
        whole.push_back(block);
        total += age(block);
      }
      again = false;
      if (whole.empty()) return;
      size_t average = total / whole.size();
      for (Block* block : whole) {
        if (released >= wanted || age(block) < average) continue;
        released += block->size;
        release_block(device, block, context);
        again = true;
      }
    }
  }

  void* allocate_foreign(std::unique_lock<std::mutex>& lock, int index, size_t requested, c10::Stream stream, bool custom) {
    Device& device = devices_[index];
    char* memory = nullptr;
    size_t size = requested;
    if (custom) {
      auto allocator = custom_;
      lock.unlock(); // their code may come back here
      memory = static_cast<char*>(allocator->allocate(requested, index, stream_handle(stream)));
      lock.lock();
      if (!memory) return nullptr; // as PyTorch's: what the functions return is not looked at
    } else {
      give_back();
      size = requested <= kNoLimit / 2 ? round_up(requested, kSegmentRound) : requested;
      if (has_room(device, size)) memory = arena_take(index, size, false);
      if (!memory) throw_musa_error(2, "out of memory");
      device.taken += size;
    }
    foreign_.insert_or_assign(memory, Foreign{size, index, stream, custom});
    return memory;
  }

  void free_foreign(std::unique_lock<std::mutex>& lock, void* pointer) {
    auto found = foreign_.find(static_cast<char*>(pointer));
    TORCH_CHECK(found != foreign_.end(), "MUSA error: invalid device pointer: ", pointer);
    Foreign foreign = found->second;
    foreign_.erase(found);
    auto allocator = custom_;
    if (foreign.custom) {
      lock.unlock();
      allocator->free(pointer, foreign.size, foreign.device, stream_handle(foreign.stream));
      return;
    }
    devices_[foreign.device].taken -= foreign.size;
    given_up_.push_back({static_cast<char*>(pointer), foreign});
    give_back();
  }

  // Uncached memory goes back when its device is idle. Nobody waits for that: a thread that works for the device may
  // come here.
  void give_back() {
    for (size_t i = 0; i < given_up_.size();) {
      auto [address, foreign] = given_up_[i];
      if (captures_underway() || (!in_bad_fork() && !device_idle(foreign.device))) {
        ++i;
        continue;
      }
      given_up_.erase(given_up_.begin() + std::ptrdiff_t(i));
      arena_give(foreign.device, address, foreign.size);
    }
  }

  [[noreturn]] void out_of_memory(std::unique_lock<std::mutex>& lock, int index, size_t requested, c10::Stream stream,
                                  const Context& context) {
    Device& device = devices_[index];
    device.stats.num_ooms += 1;
    std::string message = oom_message(device, index, requested);
    size_t most = limit(device), total = config().memory;
    size_t free = total > device.taken ? total - device.taken : 0;
    auto observers = observers_;
    lock.unlock();
    trace(index, Action::Oom, free, requested, stream, context);
    for (auto& observer : observers) observer(index, requested, most, free);
    throw c10::OutOfMemoryError({"allocate", __FILE__, static_cast<uint32_t>(__LINE__)}, message);
  }

  std::string oom_message(Device& device, int index, size_t requested) {
    size_t total = config().memory;
    size_t reserved = size_t(device.stats.reserved_bytes.all.current);
    size_t allocated = size_t(device.stats.allocated_bytes.all.current);
    size_t in_pools = 0;
    for (auto& [address, segment] : segments_) {
      if (segment->device != index || segment->pool == kOrdinary) continue;
      for (Block* block = segment->first; block; block = block->next) in_pools += block->allocated ? block->size : 0;
    }
    std::ostringstream out;
    out << "MUSA out of memory. Tried to allocate " << format_size(requested) << ". GPU " << index
        << " has a total capacity of " << format_size(total) << " of which "
        << format_size(total > device.taken ? total - device.taken : 0) << " is free. This process has "
        << format_size(device.taken) << " memory in use. ";
    if (device.fraction_set) {
      out << format_size(limit(device)) << " allowed; ";
    }
    out << "Of the allocated memory " << format_size(allocated) << " is allocated by PyTorch, ";
    if (in_pools) out << "with " << format_size(in_pools) << " allocated in private pools (e.g., MUSA Graphs), ";
    out << "and " << format_size(reserved - allocated) << " is reserved by PyTorch but unallocated. If reserved but "
        << "unallocated memory is large try setting PYTORCH_MUSA_ALLOC_CONF=expandable_segments:True to avoid "
        << "fragmentation. (Simulated device: TORCHADA_SIM_MEMORY sets its capacity.)";
    return out.str();
  }

  std::map<int, Device> devices_;
  std::unordered_map<void*, Block*> live_;
  std::map<char*, std::unique_ptr<Segment>> segments_; // by first address
  std::map<char*, Foreign> foreign_;
  std::vector<std::pair<char*, Foreign>> given_up_; // uncached memory on its way back
  std::vector<OomObserver> observers_;
  CustomAllocatorPtr custom_;
  bool initialized_ = false;
  Options options_;
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
  bool initialized() override { return ready; }
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

// ---- CPU allocations made on behalf of the device ----------------------------------------------------

thread_local int route_to = -1;
std::atomic<bool> unified_cpu{false};
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
    if (route_to < 0 && !unified_cpu) return plain_cpu->allocate(bytes);
    c10::DataPtr pointer = allocate_on(route_to < 0 ? current_device() : route_to, bytes);
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
  memory().each_stat(device, [](Stat& stat) { stat.peak = stat.current; }, "resetPeakStats");
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
  if (pointer.get()) memory().record_stream(pointer.get(), stream);
}
void attach_oom_observer(OomObserver observer) {
  memory().attach(std::move(observer));
}
void set_allocator_settings(const std::string& text) {
  memory().set_options(parse_options(text));
}
std::string allocator_settings() {
  return memory().options().text;
}
std::string allocator_setting(const std::string& name) {
  auto values = memory().options().values;
  auto found = values.find(name);
  return found == values.end() ? "" : found->second;
}
void change_allocator(CustomAllocatorPtr allocator) {
  memory().change(std::move(allocator));
}
CustomAllocatorPtr changed_allocator() {
  return memory().custom();
}
void allocator_init() {
  memory().init();
}

PoolId new_pool_id(bool made_by_user) {
  static std::atomic<unsigned long long> user{1}, graph{1};
  return made_by_user ? PoolId{0, user.fetch_add(1)} : PoolId{graph.fetch_add(1), 0};
}
void create_pool(int device, PoolId pool, CustomAllocatorPtr allocator) {
  memory().create_pool(device, pool, std::move(allocator));
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
void empty_pool(int device, PoolId pool) {
  memory().empty_pool(device, pool);
}
bool has_live_allocations(int device, PoolId pool, const std::set<void*>& expected) {
  return memory().has_live(device, pool, expected);
}
PoolState pool_state(int device, PoolId pool) {
  return memory().state_of(device, pool);
}
PoolChange set_pool_state(int device, const PoolState& state) {
  return memory().set_state(device, state);
}

void allocator_before_fork() {
  sharing_before_fork();
  memory().mutex.lock();
  arenas_before_fork();
  pinned_before_fork();
  history_before_fork();
}
void allocator_after_fork() {
  history_after_fork();
  pinned_after_fork();
  arenas_after_fork();
  memory().mutex.unlock();
  sharing_after_fork();
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
void set_unified_cpu(bool unified) {
  if (unified) lazy_init();
  unified_cpu = unified;
}

} // namespace sim
