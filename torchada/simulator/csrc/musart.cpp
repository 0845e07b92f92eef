// The MUSA runtime's C functions for devices, events and captures (those for graphs: graph.cpp).
#include "musart.h"
#include "work.h"

#include <map>
#include <mutex>
#include <utility>

namespace {

struct Events {
  std::mutex mutex;
  std::map<void*, sim::MarkPtr> alive; // null: never recorded
};
Events& events() {
  static auto* instance = new Events();
  return *instance;
}

thread_local int last_error = 0;
int remember(int code) {
  if (code != 0) last_error = code;
  return code;
}

template <class F>
int coded(int failure, F f) {
  try {
    return remember(f());
  } catch (const c10::Error&) {
    return remember(failure);
  }
}

// f(mark) for an event that is alive.
template <class F>
int with_event(void* event, int failure, F f) {
  sim::MarkPtr mark;
  {
    std::lock_guard<std::mutex> lock(events().mutex);
    auto found = events().alive.find(event);
    if (found == events().alive.end()) return remember(400);
    mark = found->second;
  }
  return coded(failure, [&] { return f(mark); });
}

} // namespace

extern "C" {

int musaGetDevice(int* device) {
  *device = sim::current_device();
  return 0;
}
int musaSetDevice(int device) {
  return coded(101, [&] {
    sim::set_device(device);
    return 0;
  });
}
int musaDeviceSynchronize() {
  return coded(900, [&] {
    sim::synchronize_device(sim::current_device());
    return 0;
  });
}
int musaGetLastError() {
  int code = last_error;
  last_error = 0;
  return code;
}
int musaEventCreateWithFlags(void** event, unsigned) {
  auto* handle = new char(); // only its address counts
  std::lock_guard<std::mutex> lock(events().mutex);
  events().alive.emplace(handle, nullptr);
  *event = handle;
  return 0;
}
int musaEventDestroy(void* event) {
  std::lock_guard<std::mutex> lock(events().mutex);
  if (!events().alive.erase(event)) return remember(400);
  delete static_cast<char*>(event);
  return 0;
}
int musaEventRecord(void* event, void* stream) {
  return with_event(event, 400, [&](const sim::MarkPtr&) {
    auto mark = sim::mark(sim::stream_from_handle(stream, sim::current_device()));
    std::lock_guard<std::mutex> lock(events().mutex);
    auto found = events().alive.find(event);
    if (found == events().alive.end()) return 400;
    found->second = std::move(mark);
    return 0;
  });
}
int musaEventQuery(void* event) {
  return with_event(event, 900, [](const sim::MarkPtr& mark) { return sim::query_mark(mark) ? 0 : 600; });
}
int musaEventSynchronize(void* event) {
  return with_event(event, 900, [](const sim::MarkPtr& mark) {
    sim::synchronize_mark(mark);
    return 0;
  });
}
int musaStreamIsCapturing(void* stream, int* status) {
  return coded(400, [&] {
    auto capture = sim::may_defer() ? sim::capture_of(sim::stream_from_handle(stream, sim::current_device())) : nullptr;
    *status = !capture ? 0 : capture->valid.load() ? 1 : 2;
    return 0;
  });
}
int musaThreadExchangeStreamCaptureMode(int* mode) {
  if (*mode < 0 || *mode > 2) return remember(1);
  *mode = int(std::exchange(sim::thread_capture_mode, sim::CaptureMode(*mode)));
  return 0;
}
}
