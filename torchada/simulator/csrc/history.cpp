// What the allocator did, and where in the program that was asked for: the data of memory_snapshot() and of PyTorch's
// memory viewer.
#include "sim.h"

#include <ATen/record_function.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>

namespace sim {

namespace {

struct History {
  std::atomic<bool> enabled{false};
  std::atomic<KeepContext> keep{KeepContext::Never};
  std::atomic<bool> cpp_frames{false};
  std::mutex mutex;
  size_t limit = 1;
  std::array<std::deque<TraceEntry>, kMaxDevices> traces;
  std::deque<Annotation> annotations;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
};
History& history() {
  static auto* instance = new History();
  return *instance;
}

int64_t now() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

template <class T>
void append(std::deque<T>& list, T entry, size_t limit) {
  list.push_back(std::move(entry));
  if (list.size() > limit) list.pop_front();
}

void annotate(const at::RecordFunction& range, bool starts) {
  History& h = history();
  if (!h.enabled) return;
  std::lock_guard<std::mutex> lock(h.mutex);
  append(h.annotations, Annotation{current_device(), now(), range.name(), starts}, h.limit);
}

std::unique_ptr<at::ObserverContext> range_starts(const at::RecordFunction& range) {
  annotate(range, true);
  return nullptr;
}
void range_ends(const at::RecordFunction& range, at::ObserverContext*) {
  annotate(range, false);
}

} // namespace

void record_history(bool enabled, KeepContext when, bool cpp_frames, size_t max_entries) {
  History& h = history();
  std::lock_guard<std::mutex> lock(h.mutex);
  h.enabled = enabled;
  h.keep = enabled ? when : KeepContext::Never;
  h.cpp_frames = cpp_frames;
  h.limit = std::max<size_t>(max_entries, 1);
  if (!enabled) {
    for (auto& trace : h.traces) trace.clear();
    h.annotations.clear();
  }
  if (enabled && h.callback == at::INVALID_CALLBACK_HANDLE) {
    h.callback = at::addGlobalCallback(
        at::RecordFunctionCallback(&range_starts, &range_ends).scopes({at::RecordScope::USER_SCOPE}));
  } else if (!enabled && h.callback != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(h.callback);
    h.callback = at::INVALID_CALLBACK_HANDLE;
  }
}

bool history_enabled() {
  return history().enabled;
}

Context gather_context(KeepContext needed) {
  History& h = history();
  if (h.keep.load() < needed || needed == KeepContext::Never) return nullptr;
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, h.cpp_frames);
}

void trace(int device, Action action, size_t address, size_t size, c10::Stream stream, Context context) {
  History& h = history();
  if (!h.enabled) return;
  if (h.keep.load() < KeepContext::Alloc) context = nullptr;
  std::lock_guard<std::mutex> lock(h.mutex);
  append(h.traces[size_t(device)],
         TraceEntry{action, address, size, stream_handle(stream), now(), std::move(context)}, h.limit);
}

std::vector<TraceEntry> device_trace(int device) {
  History& h = history();
  std::lock_guard<std::mutex> lock(h.mutex);
  auto& trace = h.traces[size_t(device)];
  return {trace.begin(), trace.end()};
}

std::vector<Annotation> annotations() {
  History& h = history();
  std::lock_guard<std::mutex> lock(h.mutex);
  return {h.annotations.begin(), h.annotations.end()};
}

Frames symbolize(const std::vector<Context>& contexts) {
  std::vector<torch::CapturedTraceback*> tracebacks;
  for (const Context& context : contexts) tracebacks.push_back(static_cast<torch::CapturedTraceback*>(context.get()));
  torch::SymbolizedTracebacks found = torch::symbolize(tracebacks);
  Frames result;
  for (auto& frame : found.all_frames) result.frames.push_back({frame.filename, frame.funcname, frame.lineno});
  result.stacks = std::move(found.tracebacks);
  return result;
}

void history_before_fork() {
  history().mutex.lock();
}
void history_after_fork() {
  history().mutex.unlock();
}

} // namespace sim
