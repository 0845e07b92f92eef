// Streams as queues, events, captures: when the device's work runs.
#include "work.h"

#include "python.h"

#include <torch/csrc/Exceptions.h>

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <set>
#include <sstream>

namespace sim {

std::atomic<int> deferring{0};

namespace {

using StreamKey = std::pair<int, c10::StreamId>;
StreamKey key_of(const c10::Stream& stream) {
  return {stream.device_index(), stream.id()};
}

// Work may need the GIL, so nobody waits with it.
template <class F>
void wait_without_gil(F f) {
  if (Py_IsInitialized() && PyGILState_Check()) {
    without_gil(f);
  } else {
    f();
  }
}

// ---- errors of asynchronous work -----------------------------------------------------------------------

struct DeviceError {
  std::atomic<bool> set{false};
  bool reported = false;
  std::string text;
};
std::mutex& error_mutex() {
  static auto* instance = new std::mutex();
  return *instance;
}
DeviceError& device_error(int device) {
  static auto* instance = new std::array<DeviceError, kMaxDevices>();
  return (*instance)[size_t(device)];
}

void keep_error(int device, const char* name, const char* what) {
  std::lock_guard<std::mutex> lock(error_mutex());
  DeviceError& error = device_error(device);
  if (error.set.load()) return; // the first one is the cause of the others
  error.text = std::string("device-side assert triggered: ") + name + ": " + what +
      "\nErrors of asynchronous work are reported at some later call, and the device cannot be used any more, as with "
      "CUDA. For the call that is to blame run with MUSA_LAUNCH_BLOCKING=1.";
  error.set = true;
}

void check_device_error(int device) {
  DeviceError& error = device_error(device);
  if (!error.set.load(std::memory_order_acquire)) return;
  std::string text;
  {
    std::lock_guard<std::mutex> lock(error_mutex());
    error.reported = true;
    text = error.text;
  }
  throw_musa_error(710, text);
}

// ---- one stream ----------------------------------------------------------------------------------------

struct Item {
  const char* name; // lives as long as the process
  Work run;
  bool always; // also after an error: marks
  std::optional<Span> span;
};

class Queue {
 public:
  explicit Queue(int device, c10::StreamId id) : device_(device), id_(id) {}

  void push(Item item) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!started_) {
      started_ = true;
      std::thread([this] { work(); }).detach(); // blocked in wait() when the process ends
    }
    items_.push_back(std::move(item));
    changed_.notify_one();
  }
  bool idle() {
    std::lock_guard<std::mutex> lock(mutex_);
    return items_.empty() && !busy_;
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    drained_.wait(lock, [this] { return items_.empty() && !busy_; });
  }

 private:
  void work() {
    char name[16];
    std::snprintf(name, sizeof name, "musa:%d/%lld", device_, static_cast<long long>(id_ & 0xffff));
    pthread_setname_np(pthread_self(), name);
    set_device(device_);
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !items_.empty(); });
      Item item = std::move(items_.front());
      items_.pop_front();
      busy_ = true;
      lock.unlock();
      run(item);
      item.run = nullptr; // what it holds goes before anybody hears that it is done
      lock.lock();
      busy_ = false;
      if (items_.empty()) drained_.notify_all();
    }
  }
  void run(const Item& item) {
    if (!item.always && device_error(device_).set.load()) return;
    try {
      SpanTimer timer(item.span);
      item.run();
    } catch (const c10::Error& error) {
      keep_error(device_, item.name, error.what_without_backtrace());
    } catch (const std::exception& error) {
      keep_error(device_, item.name, error.what());
    }
  }

  const int device_;
  const c10::StreamId id_;
  std::mutex mutex_;
  std::condition_variable changed_, drained_;
  std::deque<Item> items_;
  bool busy_ = false, started_ = false;
};

struct Queues {
  std::mutex mutex;
  std::map<StreamKey, Queue*> all; // never destroyed: their threads use them
};
Queues& queues() {
  static auto* instance = new Queues();
  return *instance;
}
Queue& queue_of(const c10::Stream& stream) {
  std::lock_guard<std::mutex> lock(queues().mutex);
  Queue*& queue = queues().all[key_of(stream)];
  if (!queue) queue = new Queue(stream.device_index(), stream.id());
  return *queue;
}
std::vector<Queue*> queues_of(int device) { // a negative one: of all devices
  std::lock_guard<std::mutex> lock(queues().mutex);
  std::vector<Queue*> result;
  for (auto& [key, queue] : queues().all) {
    if (device < 0 || key.first == device) result.push_back(queue);
  }
  return result;
}

std::atomic<bool> async{false};

// ---- captures ------------------------------------------------------------------------------------------

struct Captures {
  std::mutex mutex;
  std::map<StreamKey, std::shared_ptr<Capture>> streams;
  std::set<std::shared_ptr<Capture>> active;
};
Captures& captures() {
  static auto* instance = new Captures();
  return *instance;
}
std::atomic<int> underway{0};

void invalidate(const std::shared_ptr<Capture>& capture) {
  capture->valid = false;
}

// Adds `more` to the nodes that later work follows, without those that stand in it already.
void join(std::vector<size_t>& tail, const std::vector<size_t>& more) {
  for (size_t node : more) {
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
}

void append(const std::shared_ptr<Capture>& capture, const c10::Stream& stream, Label label, Work work) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto& tail = capture->tails[key_of(stream)];
  auto& nodes = capture->graph.nodes;
  nodes.push_back({label, std::move(work), tail, stream});
  tail = {nodes.size() - 1};
}

// The capture that a question about `device` (or, without one, about anything) would disturb.
template <class F>
std::shared_ptr<Capture> find_capture(F wanted) {
  if (!underway.load()) return nullptr;
  std::lock_guard<std::mutex> lock(captures().mutex);
  for (auto& capture : captures().active) {
    if (wanted(*capture)) return capture;
  }
  return nullptr;
}

constexpr const char* kNotWhenCapturing = "operation not permitted when stream is capturing";

void check_not_captured(const c10::Stream& stream, const char* what) {
  if (auto capture = capture_of(stream)) refuse_in_capture(capture, what);
}

} // namespace

// ---- marks -----------------------------------------------------------------------------------------------

namespace {
// One condition for all marks: they are few, and waiting on one is rare.
struct MarkSignal {
  std::mutex mutex;
  std::condition_variable changed;
};
MarkSignal& signal() {
  static auto* instance = new MarkSignal();
  return *instance;
}
} // namespace

void Mark::finish() {
  when_ = Clock::now();
  if (!async.load(std::memory_order_relaxed)) {
    done_.store(true, std::memory_order_release);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(signal().mutex);
    done_.store(true, std::memory_order_release);
  }
  signal().changed.notify_all();
}
void Mark::wait() const {
  if (done()) return;
  std::unique_lock<std::mutex> lock(signal().mutex);
  signal().changed.wait(lock, [this] { return done(); });
}

MarkPtr mark(const c10::Stream& stream) {
  auto result = std::make_shared<Mark>();
  if (may_defer()) {
    if (auto capture = capture_of(stream)) {
      std::lock_guard<std::mutex> lock(captures().mutex);
      result->capture = capture;
      result->after = capture->tails[key_of(stream)];
      return result;
    }
    if (async.load()) {
      queue_of(stream).push({"event", [result] { result->finish(); }, true, {}});
      return result;
    }
  }
  result->finish();
  return result;
}

void wait_for(const MarkPtr& mark, const c10::Stream& stream) {
  if (!mark || !(mark->capture || may_defer())) return;
  auto waiting = capture_of(stream);
  if (mark->capture) {
    std::lock_guard<std::mutex> lock(captures().mutex);
    if (!captures().active.count(mark->capture)) {
      throw_musa_error(907, "operation not permitted on an event last recorded in a capturing stream");
    }
    if (!mark->capture->valid.load()) throw_musa_error(901, "operation failed due to a previous error during capture");
    if (waiting && waiting != mark->capture) {
      invalidate(waiting);
      invalidate(mark->capture);
      throw_musa_error(903, "operation would result in a merge of separate capture sequences");
    }
    TORCH_CHECK(stream.id() != 0, "MUSA error: operation would make the legacy stream depend on a capturing blocking stream");
    captures().streams[key_of(stream)] = mark->capture; // forks into the capture
    join(mark->capture->tails[key_of(stream)], mark->after);
    return;
  }
  if (waiting) {
    invalidate(waiting);
    throw_musa_error(905, "dependency created on uncaptured work in another stream");
  }
  if (mark->done() || !async.load()) return;
  queue_of(stream).push({"wait", [mark] { mark->wait(); }, true, {}});
}

thread_local CaptureMode thread_capture_mode = CaptureMode::global;

bool query_mark(const MarkPtr& mark) {
  if (!mark) return true;
  if (mark->capture) {
    invalidate(mark->capture);
    throw_musa_error(907, "operation not permitted on an event last recorded in a capturing stream");
  }
  if (may_defer()) {
    auto capture = find_capture([](const Capture& c) {
      if (c.mode == CaptureMode::relaxed || thread_capture_mode == CaptureMode::relaxed) return false;
      bool others = c.mode == CaptureMode::global && thread_capture_mode == CaptureMode::global;
      return others || c.thread == std::this_thread::get_id();
    });
    if (capture) refuse_in_capture(capture, "an event was queried");
  }
  return mark->done();
}

void synchronize_mark(const MarkPtr& mark) {
  count(counters().host_syncs);
  if (!mark) return;
  if (mark->capture) {
    invalidate(mark->capture);
    throw_musa_error(907, "operation not permitted on an event last recorded in a capturing stream");
  }
  if (!mark->done()) wait_without_gil([&] { mark->wait(); });
  if (async.load()) {
    for (int i = 0; i < device_count(); ++i) check_device_error(i);
  }
}

// ---- issuing -----------------------------------------------------------------------------------------------

Route route(const c10::Stream& stream) {
  if (!may_defer()) return Route::now;
  if (auto capture = capture_of(stream)) {
    if (!capture->valid.load()) throw_musa_error(901, "operation failed due to a previous error during capture");
    return Route::captured;
  }
  if (!async.load()) return Route::now;
  check_device_error(stream.device_index());
  return Route::queued;
}

const char* lasting_string(const std::string& text) {
  static auto* mutex = new std::mutex();
  static auto* strings = new std::set<std::string>();
  std::lock_guard<std::mutex> lock(*mutex);
  return strings->insert(text).first->c_str();
}

void issue(const c10::Stream& stream, Label label, Work work) {
  Route how = route(stream);
  if (how == Route::captured) return append(capture_of(stream), stream, label, std::move(work));
  auto span = make_span(label.kind, [&] { return std::string(label.name); }, stream, label.bytes);
  if (how == Route::queued) return queue_of(stream).push({label.name, std::move(work), false, std::move(span)});
  SpanTimer timer(span);
  work();
}

// ---- waiting -----------------------------------------------------------------------------------------------

bool stream_idle(const c10::Stream& stream) {
  if (!may_defer()) return true;
  check_not_captured(stream, "the stream was queried");
  if (!async.load()) return true;
  check_device_error(stream.device_index());
  return queue_of(stream).idle();
}

void wait_stream(const c10::Stream& stream) {
  if (!async.load()) return;
  Queue& queue = queue_of(stream);
  if (!queue.idle()) wait_without_gil([&] { queue.wait(); });
  check_device_error(stream.device_index());
}

void synchronize_stream(const c10::Stream& stream) {
  count(counters().host_syncs);
  if (!may_defer()) return;
  check_not_captured(stream, "the stream was synchronized");
  wait_stream(stream);
}

bool device_idle(int device) {
  if (!async.load()) return true;
  for (Queue* queue : queues_of(device)) {
    if (!queue->idle()) return false;
  }
  return true;
}

void wait_device(int device) {
  if (!async.load()) return;
  // A stream that is waited for may get work from one that waits for it no more; so look again.
  wait_without_gil([&] {
    while (!device_idle(device)) {
      for (Queue* queue : queues_of(device)) queue->wait();
    }
  });
}

namespace {
std::atomic<void (*)(int)> more_to_wait_for{nullptr};
} // namespace

void on_synchronize(void (*wait)(int device)) {
  more_to_wait_for = wait;
}

void synchronize_device(int device) {
  count(counters().host_syncs);
  if (auto wait = more_to_wait_for.load(std::memory_order_acquire)) wait_without_gil([&] { wait(device); });
  if (!may_defer()) return;
  auto capture = find_capture([device](const Capture& c) { return c.origin.device_index() == device; });
  if (capture) refuse_in_capture(capture, "the device was synchronized");
  wait_device(device);
  check_device_error(device);
}

// ---- asynchronous streams ------------------------------------------------------------------------------------

bool is_async() {
  return async.load();
}

void set_async(bool on) {
  TORCH_CHECK(!captures_underway(), "asynchronous streams cannot be switched while a graph is captured");
  if (on == async.load()) return;
  if (on) {
    static bool registered = std::atexit([] { end_async(); }) == 0; // before the libraries' own destructors
    TORCH_CHECK(registered, "no place for an exit handler");
    async = true;
    deferring.fetch_add(1);
  } else {
    wait_device(-1);
    deferring.fetch_sub(1);
    async = false;
    std::lock_guard<std::mutex> lock(error_mutex());
    for (int i = 0; i < device_count(); ++i) {
      DeviceError& error = device_error(i);
      error.set = error.reported = false;
    }
  }
}

void end_async() {
  if (!async.load() || in_bad_fork()) return;
  wait_device(-1);
  for (int i = 0; i < device_count(); ++i) {
    std::lock_guard<std::mutex> lock(error_mutex());
    DeviceError& error = device_error(i);
    if (error.set.load() && !error.reported) {
      std::fprintf(stderr, "torch_musa (simulated): the process ends with an error that no call reported: MUSA error: %s\n", error.text.c_str());
      error.reported = true;
    }
  }
  deferring.fetch_sub(1);
  async = false;
}

// ---- captures --------------------------------------------------------------------------------------------------

Capture::Capture(c10::Stream s, CaptureMode m, c10::intrusive_ptr<MusaGenerator> g)
    : origin(s), mode(m), thread(std::this_thread::get_id()), generator(std::move(g)) {}

bool captures_underway() {
  return underway.load() != 0;
}

std::shared_ptr<Capture> capture_of(const c10::Stream& stream) {
  if (!underway.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto found = captures().streams.find(key_of(stream));
  return found == captures().streams.end() ? nullptr : found->second;
}

std::shared_ptr<Capture> begin_capture(const c10::Stream& stream, CaptureMode mode, c10::intrusive_ptr<MusaGenerator> generator) {
  check_device_error(stream.device_index());
  auto capture = std::make_shared<Capture>(stream, mode, std::move(generator));
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto found = captures().streams.find(key_of(stream));
  if (found != captures().streams.end()) {
    throw_musa_error(401, "the operation cannot be performed in the present state");
  }
  capture->tails[key_of(stream)];
  captures().streams[key_of(stream)] = capture;
  captures().active.insert(capture);
  underway.fetch_add(1);
  deferring.fetch_add(1);
  return capture;
}

GraphTemplate end_capture(const std::shared_ptr<Capture>& capture) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  captures().active.erase(capture);
  for (auto it = captures().streams.begin(); it != captures().streams.end();) {
    it = it->second == capture ? captures().streams.erase(it) : std::next(it);
  }
  underway.fetch_sub(1);
  deferring.fetch_sub(1);
  if (!capture->valid.load()) throw_musa_error(901, "operation failed due to a previous error during capture");

  // Every node must be reachable backwards from where the first stream stands.
  auto& nodes = capture->graph.nodes;
  std::vector<bool> joined(nodes.size(), false);
  std::vector<size_t> open = capture->tails[key_of(capture->origin)];
  while (!open.empty()) {
    size_t node = open.back();
    open.pop_back();
    if (joined[node]) continue;
    joined[node] = true;
    open.insert(open.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (joined[i]) continue;
    capture->valid = false;
    std::ostringstream where;
    where << "capturing stream has unjoined work (" << nodes[i].label.name << " on " << nodes[i].stream << ")";
    throw_musa_error(904, where.str());
  }
  if (capture->graph.increment) capture->graph.generator = capture->generator;
  return std::move(capture->graph);
}

void refuse_in_capture(const std::shared_ptr<Capture>& capture, const std::string& what) {
  invalidate(capture);
  throw_musa_error(900, std::string(kNotWhenCapturing) + " (" + what + ")");
}

} // namespace sim
