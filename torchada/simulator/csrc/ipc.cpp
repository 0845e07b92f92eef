// Device memory shared between processes.
//
// The sender names its arena and a place in it; the receiver maps the arena. A counter in a memory file of the sender
// says how many receivers may still use the memory: it is not reused before they have given it up.
#include "sim.h"
#include "work.h"

#include <c10/core/StorageImpl.h>

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace sim {

namespace {

using Counter = std::atomic<int64_t>;
constexpr size_t kCounters = (size_t(1) << 20) / sizeof(Counter);

struct CounterFile {
  std::string handle;
  Counter* slots = nullptr;
};

// Memory that was sent: kept until its last receiver lets go.
struct Sent {
  c10::DataPtr memory;
  Counter* counter;
};

struct Sharing {
  std::mutex mutex;
  std::vector<CounterFile> files; // never closed: receivers may look at them at any time
  size_t used = kCounters;        // slots of the last file
  std::vector<Counter*> spare;
  std::list<Sent*> waiting; // given up here, still used by a receiver
};
Sharing& sharing() {
  static auto* instance = new Sharing();
  return *instance;
}

Counter* take_counter(Sharing& s, bool fresh = false) {
  Counter* counter = nullptr;
  if (!fresh && !s.spare.empty()) {
    counter = s.spare.back();
    s.spare.pop_back();
  } else {
    if (s.used == kCounters) {
      size_t size = kCounters * sizeof(Counter);
      int file = make_memory_file(size);
      void* memory = file < 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      TORCH_CHECK(memory != MAP_FAILED, "cannot make a memory file for shared tensors");
      s.files.push_back({file_handle(file, size), static_cast<Counter*>(memory)});
      s.used = 0;
    }
    counter = s.files.back().slots + s.used++;
  }
  counter->store(1);
  return counter;
}

void give_up(void* context) {
  auto* sent = static_cast<Sent*>(context);
  Sharing& s = sharing();
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    s.waiting.push_back(sent);
  }
  ipc_collect();
}

// A receiver's memory.
struct Received {
  std::shared_ptr<char> memory;
  std::shared_ptr<char> counters;
  size_t counter_offset;
  int device;
};
Counter& counter_at(const std::shared_ptr<char>& file, size_t offset) {
  return *reinterpret_cast<Counter*>(file.get() + offset);
}
void drop_received(void* context) {
  auto* received = static_cast<Received*>(context);
  wait_device(received->device); // queued work may still use it
  counter_at(received->counters, received->counter_offset).fetch_sub(1);
  delete received;
}

void check_counter_offset(size_t offset) {
  TORCH_CHECK_VALUE(offset % sizeof(Counter) == 0 && offset < kCounters * sizeof(Counter), "invalid reference counter offset ", offset);
}

} // namespace

SharedMemory share_storage(c10::StorageImpl* storage) {
  TORCH_CHECK(!storage->received_cuda(), "Attempted to send MUSA tensor received from another process; this is not currently "
              "supported. Consider cloning before sending.");
  TORCH_CHECK(storage->device_type() == kMusa, "_share_musa_: only available on MUSA");
  int device = storage->device().index();
  SharedMemory shared{device, "", storage->nbytes(), 0, "", 0};
  if (!storage->data()) return shared;
  wait_device(device); // what was queued before is in the memory that the receiver sees
  ArenaPlace place = arena_place(storage->data());
  shared.handle = place.handle;
  shared.offset = place.offset;
  Sharing& s = sharing();
  std::lock_guard<std::mutex> lock(s.mutex);
  Counter* counter = take_counter(s);
  for (CounterFile& file : s.files) {
    if (counter < file.slots || counter >= file.slots + kCounters) continue;
    shared.counter_handle = file.handle;
    shared.counter_offset = size_t(counter - file.slots) * sizeof(Counter);
  }
  // The storage keeps its address; its memory now goes through give_up(). One layer for each time it is sent.
  c10::Device where = storage->device();
  auto* sent = new Sent{c10::DataPtr(), counter};
  c10::DataPtr wrapped(storage->mutable_data(), sent, &give_up, where);
  sent->memory = storage->set_data_ptr(std::move(wrapped));
  return shared;
}

c10::DataPtr open_shared(const SharedMemory& shared) {
  check_device(shared.device);
  check_counter_offset(shared.counter_offset);
  auto memory = open_file(shared.handle, shared.device);
  auto counters = open_file(shared.counter_handle, -1);
  TORCH_CHECK_VALUE(shared.offset <= file_size(shared.handle) && shared.bytes <= file_size(shared.handle) - shared.offset,
                    "the memory of a shared storage ends behind the sender's");
  char* address = memory.get() + shared.offset;
  auto* received = new Received{std::move(memory), std::move(counters), shared.counter_offset, shared.device};
  return {address, received, &drop_received, c10::Device(kMusa, c10::DeviceIndex(shared.device))};
}

void release_counter(const std::string& handle, size_t offset) {
  check_counter_offset(offset);
  counter_at(open_file(handle, -1), offset).fetch_sub(1);
}

void ipc_collect() {
  Sharing& s = sharing();
  std::vector<Sent*> done;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    for (auto it = s.waiting.begin(); it != s.waiting.end();) {
      if ((*it)->counter->load() > 0) {
        ++it;
        continue;
      }
      done.push_back(*it);
      s.spare.push_back((*it)->counter);
      it = s.waiting.erase(it);
    }
  }
  for (Sent* sent : done) delete sent; // frees the memory, which may come back here
}

struct SharedEvent {
  std::string handle;
  std::shared_ptr<char> file; // of a receiver
  Counter* recorded;          // how often it was recorded
  Counter* reached;           // the last of these that its stream has come to
};

namespace {
void wait_until(const SharedEventPtr& event, int64_t turn) {
  while (event->reached->load() < turn) std::this_thread::sleep_for(std::chrono::microseconds(50));
}
} // namespace

SharedEventPtr make_shared_event() {
  Sharing& s = sharing();
  std::lock_guard<std::mutex> lock(s.mutex);
  auto event = std::make_shared<SharedEvent>();
  do { // both in one file
    event->reached = take_counter(s, /*fresh=*/true);
    event->recorded = take_counter(s, /*fresh=*/true);
  } while (event->recorded != event->reached + 1);
  event->reached->store(0);
  event->recorded->store(0);
  const CounterFile& file = s.files.back();
  event->handle = file.handle + "/" + std::to_string(size_t(event->reached - file.slots) * sizeof(Counter));
  return event;
}

SharedEventPtr open_shared_event(const std::string& handle) {
  size_t slash = handle.rfind('/');
  char* end = nullptr;
  size_t offset = slash == std::string::npos ? 0 : std::strtoull(handle.c_str() + slash + 1, &end, 10);
  if (!end || *end || end == handle.c_str() + slash + 1) throw_musa_error(400, "invalid resource handle");
  check_counter_offset(offset + sizeof(Counter));
  auto event = std::make_shared<SharedEvent>();
  event->handle = handle;
  event->file = open_file(handle.substr(0, slash), -1);
  event->reached = &counter_at(event->file, offset);
  event->recorded = event->reached + 1;
  return event;
}

std::string shared_event_handle(const SharedEventPtr& event) {
  return event->handle;
}

void record_shared_event(const SharedEventPtr& event, const c10::Stream& stream) {
  if (auto capture = capture_of(stream)) refuse_in_capture(capture, "an event shared between processes");
  int64_t turn = event->recorded->fetch_add(1) + 1;
  issue(stream, Label{"record a shared event"}, [event, turn] {
    if (event->reached->load() < turn) event->reached->store(turn);
  });
}

void wait_shared_event(const SharedEventPtr& event, const c10::Stream& stream) {
  if (auto capture = capture_of(stream)) refuse_in_capture(capture, "an event shared between processes");
  int64_t turn = event->recorded->load();
  issue(stream, Label{"wait for a shared event"}, [event, turn] { wait_until(event, turn); });
}

bool query_shared_event(const SharedEventPtr& event) {
  return event->reached->load() >= event->recorded->load();
}

void synchronize_shared_event(const SharedEventPtr& event) {
  count(counters().host_syncs);
  wait_until(event, event->recorded->load());
}

void sharing_before_fork() {
  sharing().mutex.lock();
}
void sharing_after_fork() {
  sharing().mutex.unlock();
}

} // namespace sim
