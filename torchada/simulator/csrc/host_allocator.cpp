// Pinned host memory: a cache of host memory blocks. A block that queued work uses is not handed out again before that
// work is done.
#include "sim.h"
#include "work.h"

#if SIM_TORCH_AT_LEAST(2, 8)
#include <ATen/core/CachingHostAllocator.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <vector>

namespace sim {

namespace {

struct HostBlock {
  char* address;
  size_t size;    // a power of two
  bool allocated = false;
  bool registered = false; // memory of the program
  std::vector<c10::Stream> users; // streams with copies that may be under way
  std::vector<MarkPtr> marks;     // freed, and these were not done
};

struct PinnedMemory {
  std::mutex mutex;
  std::map<const char*, HostBlock> blocks; // by first address
  std::multimap<size_t, HostBlock*> free;
  std::list<HostBlock*> pending; // freed, and in use by work

  HostBlock* find(const void* pointer) {
    auto* p = static_cast<const char*>(pointer);
    auto after = blocks.upper_bound(p);
    if (after == blocks.begin()) return nullptr;
    HostBlock& block = std::prev(after)->second;
    return (block.allocated || block.registered) && p < block.address + block.size ? &block : nullptr;
  }

  void finish_pending() {
    for (auto it = pending.begin(); it != pending.end();) {
      auto& marks = (*it)->marks;
      auto done = [](const MarkPtr& mark) { return mark->capture ? !captures_underway() : mark->done(); };
      marks.erase(std::remove_if(marks.begin(), marks.end(), done), marks.end());
      if (!marks.empty()) {
        ++it;
        continue;
      }
      free.emplace((*it)->size, *it);
      it = pending.erase(it);
    }
  }
};
PinnedMemory& pinned() {
  static auto* instance = new PinnedMemory();
  return *instance;
}

void free_pinned(void* pointer) {
  if (!pointer) return;
  PinnedMemory& p = pinned();
  std::lock_guard<std::mutex> lock(p.mutex);
  HostBlock& block = p.blocks.at(static_cast<char*>(pointer));
  block.allocated = false;
  if (may_defer() && !in_bad_fork()) {
    for (const c10::Stream& stream : block.users) block.marks.push_back(mark(stream));
  }
  block.users.clear();
  if (block.marks.empty()) {
    p.free.emplace(block.size, &block);
  } else {
    p.pending.push_back(&block);
  }
}

size_t power_of_two(size_t n) {
  size_t result = 4096; // the host's pages
  while (result < n) result *= 2;
  return result;
}

#if SIM_TORCH_AT_LEAST(2, 8)
// What torch.accelerator.empty_host_cache() asks. torch_musa counts no statistics of pinned memory: they stay at zero.
struct HostAllocatorBase : at::HostAllocator {
  bool record_event(void* pointer, void*, c10::Stream stream) override {
    record_pinned_use(pointer, stream);
    return is_pinned(pointer);
  }
  void empty_cache() override { empty_pinned_cache(); }
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};
#else
using HostAllocatorBase = c10::Allocator;
#endif

struct PinnedAllocator final : HostAllocatorBase {
  c10::DataPtr allocate(size_t bytes) override {
    check_not_bad_fork();
    if (bytes == 0) return {nullptr, nullptr, &free_pinned, c10::Device(c10::DeviceType::CPU)};
    if (bytes > (size_t(1) << 62)) throw_musa_error(2, "out of memory");
    PinnedMemory& p = pinned();
    std::lock_guard<std::mutex> lock(p.mutex);
    p.finish_pending();
    size_t size = power_of_two(bytes);
    void* address = nullptr;
    auto found = p.free.upper_bound(size); // behind the last one of this size
    if (found != p.free.begin() && std::prev(found)->first == size) {
      --found;
      address = found->second->address;
      found->second->allocated = true;
      p.free.erase(found);
    } else {
      if (posix_memalign(&address, 4096, size) != 0) throw_musa_error(2, "out of memory");
      p.blocks[static_cast<char*>(address)] = HostBlock{static_cast<char*>(address), size, true};
    }
    return {address, address, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

} // namespace

c10::Allocator* pinned_allocator() {
  static auto* instance = [] {
    auto* made = new PinnedAllocator();
#if SIM_TORCH_AT_LEAST(2, 8)
    at::setHostAllocator(kMusa, made);
#endif
    return made;
  }();
  return instance;
}

namespace {
[[maybe_unused]] const auto* const at_load = pinned_allocator(); // torch may ask for it before anything is pinned
} // namespace

bool is_pinned(const void* pointer) {
  std::lock_guard<std::mutex> lock(pinned().mutex);
  return pinned().find(pointer) != nullptr;
}

void record_pinned_use(const void* pointer, c10::Stream stream) {
  std::lock_guard<std::mutex> lock(pinned().mutex);
  HostBlock* block = pinned().find(pointer);
  if (!block || block->registered) return; // the program looks after its own memory
  if (std::find(block->users.begin(), block->users.end(), stream) == block->users.end()) block->users.push_back(stream);
}

void empty_pinned_cache() {
  PinnedMemory& p = pinned();
  std::lock_guard<std::mutex> lock(p.mutex);
  p.finish_pending();
  for (auto& [size, block] : p.free) {
    char* address = block->address;
    p.blocks.erase(address);
    std::free(address);
  }
  p.free.clear();
}

int register_host(void* pointer, size_t bytes) {
  if (!pointer || bytes == 0) return 1; // invalid argument
  std::lock_guard<std::mutex> lock(pinned().mutex);
  auto* address = static_cast<char*>(pointer);
  auto next = pinned().blocks.lower_bound(address);
  bool overlaps = next != pinned().blocks.end() && next->first < address + bytes;
  if (next != pinned().blocks.begin()) {
    HostBlock& before = std::prev(next)->second;
    overlaps |= address < before.address + before.size;
  }
  if (overlaps) return 712; // already registered
  pinned().blocks[address] = HostBlock{address, bytes, false, true};
  return 0;
}

int unregister_host(void* pointer) {
  std::lock_guard<std::mutex> lock(pinned().mutex);
  auto found = pinned().blocks.find(static_cast<char*>(pointer));
  if (!pointer) return 1;
  if (found == pinned().blocks.end() || !found->second.registered) return 713; // not registered
  pinned().blocks.erase(found);
  return 0;
}

void pinned_before_fork() {
  pinned().mutex.lock();
}
void pinned_after_fork() {
  pinned().mutex.unlock();
}

} // namespace sim
