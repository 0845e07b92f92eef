// The memory of the simulated devices: per device one large address range over a memory file.
//
// A file and no anonymous memory, because another process can map it: /proc/<pid>/fd/<n> opens it as long as its owner
// runs, and a mapping outlives the owner. Only pages that are used cost memory.
#include "sim.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

namespace sim {

namespace {

constexpr size_t kGranule = size_t(2) << 20;

struct Arena {
  int file = -1;
  char* base = nullptr;
  size_t size = 0;
  std::map<size_t, size_t> free; // offset -> size, no two adjacent

  bool holds(const void* address) const {
    auto* p = static_cast<const char*>(address);
    return base && p >= base && p < base + size;
  }
};

struct Arenas {
  std::mutex mutex;
  std::array<Arena, kMaxDevices> by_device;
  std::map<std::string, std::weak_ptr<char>> opened; // memory files of other processes
  struct Mapping {
    size_t size;
    int device;
  };
  std::map<const char*, Mapping> mappings; // of those
};
Arenas& arenas() {
  static auto* instance = new Arenas();
  return *instance;
}

} // namespace

int make_memory_file(size_t size) {
  int file = memfd_create("torchada-simulated-musa", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, off_t(size)) != 0) {
    close(file);
    return -1;
  }
  return file;
}

namespace {

// More addresses than memory, so that a hole of the right size is found although memory was taken and given in any
// order. Less where the process may not have so many.
bool reserve(Arena& arena) {
  size_t capacity = (config().memory + kGranule - 1) / kGranule * kGranule;
  for (size_t size : {std::max(4 * capacity, size_t(1) << 30), capacity + capacity / 4 / kGranule * kGranule, capacity}) {
    int file = make_memory_file(size);
    if (file < 0) continue;
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (base == MAP_FAILED) {
      close(file);
      continue;
    }
    arena.file = file;
    arena.base = static_cast<char*>(base);
    arena.size = size;
    arena.free[0] = size;
    return true;
  }
  return false;
}

} // namespace

namespace {
char* cut(Arena& arena, std::map<size_t, size_t>::iterator hole, size_t offset, size_t size) {
  auto [start, room] = *hole;
  arena.free.erase(hole);
  if (offset > start) arena.free[start] = offset - start;
  if (offset + size < start + room) arena.free[offset + size] = start + room - offset - size;
  return arena.base + offset;
}
} // namespace

char* arena_take(int device, size_t size, bool apart) {
  std::lock_guard<std::mutex> lock(arenas().mutex);
  Arena& arena = arenas().by_device[size_t(device)];
  if (!arena.base && !reserve(arena)) return nullptr;
  auto best = arena.free.end();
  for (auto it = arena.free.begin(); it != arena.free.end(); ++it) {
    if (it->second < size || (best != arena.free.end() && it->second <= best->second)) continue;
    best = it;
    if (!apart) break;
  }
  if (best == arena.free.end()) return nullptr;
  size_t offset = best->first;
  if (apart) offset += (best->second - size) / 2 / kGranule * kGranule;
  return cut(arena, best, offset, size);
}

bool arena_extend(int device, char* end, size_t size) {
  if (size == 0) return true;
  std::lock_guard<std::mutex> lock(arenas().mutex);
  Arena& arena = arenas().by_device[size_t(device)];
  auto hole = arena.free.find(size_t(end - arena.base));
  if (hole == arena.free.end() || hole->second < size) return false;
  cut(arena, hole, hole->first, size);
  return true;
}

void arenas_before_fork() {
  arenas().mutex.lock();
}
void arenas_after_fork() {
  arenas().mutex.unlock();
}

void arena_give(int device, char* address, size_t size) {
  std::lock_guard<std::mutex> lock(arenas().mutex);
  Arena& arena = arenas().by_device[size_t(device)];
  size_t offset = size_t(address - arena.base);
  // The pages go back to the host, and read as zero when they are used again.
  if (fallocate(arena.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(offset), off_t(size)) != 0) {
    TORCH_CHECK(madvise(address, size, MADV_REMOVE) == 0, "cannot give memory back to the host: ", std::strerror(errno));
  }
  auto next = arena.free.lower_bound(offset);
  if (next != arena.free.end() && offset + size == next->first) {
    size += next->second;
    next = arena.free.erase(next);
  }
  if (next != arena.free.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  arena.free[offset] = size;
}

int arena_device(const void* address) {
  std::lock_guard<std::mutex> lock(arenas().mutex);
  for (size_t i = 0; i < kMaxDevices; ++i) {
    if (arenas().by_device[i].holds(address)) return int(i);
  }
  auto* p = static_cast<const char*>(address);
  auto after = arenas().mappings.upper_bound(p);
  if (after == arenas().mappings.begin()) return -1;
  auto& [start, mapping] = *std::prev(after);
  return p < start + mapping.size ? mapping.device : -1;
}

std::string file_handle(int file, size_t size) {
  struct stat status {};
  TORCH_CHECK(fstat(file, &status) == 0, "cannot share memory: ", std::strerror(errno));
  char handle[128];
  std::snprintf(handle, sizeof handle, "sim:%ld:%d:%llu:%llu:%zu", long(getpid()), file,
                static_cast<unsigned long long>(status.st_dev), static_cast<unsigned long long>(status.st_ino), size);
  return handle;
}

ArenaPlace arena_place(const void* address) {
  std::lock_guard<std::mutex> lock(arenas().mutex);
  for (Arena& arena : arenas().by_device) {
    if (!arena.holds(address)) continue;
    return {file_handle(arena.file, arena.size), size_t(static_cast<const char*>(address) - arena.base)};
  }
  throw_musa_error(1, "invalid argument"); // memory of a custom allocator, or not the device's
}

namespace {
struct Handle {
  long pid = 0;
  int file = -1;
  unsigned long long device = 0, inode = 0;
  size_t size = 0;
};
Handle parse(const std::string& handle) {
  Handle h;
  int used = 0;
  int n = std::sscanf(handle.c_str(), "sim:%ld:%d:%llu:%llu:%zu%n", &h.pid, &h.file, &h.device, &h.inode, &h.size, &used);
  if (n != 5 || size_t(used) != handle.size()) throw_musa_error(400, "invalid resource handle");
  return h;
}
} // namespace

size_t file_size(const std::string& handle) {
  return parse(handle).size;
}

std::shared_ptr<char> open_file(const std::string& handle, int device) {
  Handle h = parse(handle);
  if (h.pid == long(getpid())) throw_musa_error(201, "invalid device context"); // as the driver: it is here already
  std::lock_guard<std::mutex> lock(arenas().mutex);
  std::weak_ptr<char>& known = arenas().opened[handle];
  if (auto mapping = known.lock()) return mapping;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%ld/fd/%d", h.pid, h.file);
  int file = open(path, O_RDWR | O_CLOEXEC);
  TORCH_CHECK(file >= 0, "MUSA error: the memory of process ", h.pid, " cannot be opened (", std::strerror(errno),
              "). The process that sent a tensor must live until it is received, and belong to the same user.");
  struct stat status {};
  bool same = fstat(file, &status) == 0 && status.st_dev == h.device && status.st_ino == h.inode &&
      size_t(status.st_size) >= h.size;
  void* base = same ? mmap(nullptr, h.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0) : MAP_FAILED;
  close(file); // the mapping keeps it
  if (base == MAP_FAILED) throw_musa_error(400, "invalid resource handle");
  size_t size = h.size;
  arenas().mappings[static_cast<char*>(base)] = {size, device};
  std::shared_ptr<char> mapping(static_cast<char*>(base), [size](char* p) {
    std::lock_guard<std::mutex> unmapping(arenas().mutex);
    arenas().mappings.erase(p);
    munmap(p, size);
  });
  known = mapping;
  return mapping;
}

} // namespace sim
