// How the device's work is carried out: at once, queued on a stream, or captured into a graph.
//
// A piece of work is a closure over raw device memory. Everything the host needs from it (shapes, memory) is known
// before it runs, so the same closure serves all three. As on real devices a closure does not keep the memory alive
// that it works on: the caching allocator may hand a freed block out again, and only the order of a stream, events
// and record_stream() keep that right.
#pragma once

#include "sim.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "generator.h"
#include "profiler.h"

namespace sim {

using Clock = std::chrono::steady_clock;
using Work = std::function<void()>;

// Non-zero while work may not simply run: asynchronous streams are on, or a graph is being captured somewhere.
extern std::atomic<int> deferring;
inline bool may_defer() {
  return deferring.load(std::memory_order_acquire) != 0;
}

enum class Route { now, queued, captured };
// What happens to work issued on the stream. Throws when the stream is part of a capture that has failed, or when
// the device has (errors of asynchronous work stay, as on CUDA).
Route route(const c10::Stream& stream);
// What a profiler, an error or a drawing of a graph calls the work. The name lasts as long as the process.
struct Label {
  const char* name;
  SpanKind kind = SpanKind::kernel;
  int64_t bytes = 0; // of copies
};
const char* lasting_string(const std::string& text);
// Runs, queues or captures.
void issue(const c10::Stream& stream, Label label, Work work);

// ---- waiting ---------------------------------------------------------------------------------------

// A point in a stream. Work issued before it is done when it is.
struct Capture;
class Mark {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  void wait() const;
  Clock::time_point when() const { return when_; } // only of a mark that is done
  void finish();

  // Set for a mark made in a capture, which has a place in the graph and none in time.
  std::shared_ptr<Capture> capture;
  std::vector<size_t> after;

 private:
  std::atomic<bool> done_{false};
  Clock::time_point when_;
};
using MarkPtr = std::shared_ptr<Mark>;

MarkPtr mark(const c10::Stream& stream);
void wait_for(const MarkPtr& mark, const c10::Stream& stream); // the stream waits, not the host

bool stream_idle(const c10::Stream& stream);
void synchronize_stream(const c10::Stream& stream); // counts a host synchronisation
void synchronize_device(int device);                // likewise
// More that synchronize_device() waits for, of an optional library; called without the GIL.
void on_synchronize(void (*wait)(int device));
bool query_mark(const MarkPtr& mark);
void synchronize_mark(const MarkPtr& mark);

// For the allocator: no checks, no counting. The caller holds no lock that work could need.
bool device_idle(int device);
void wait_device(int device);
// For operators that cannot be queued: returns when the stream has nothing left to do.
void wait_stream(const c10::Stream& stream);

// ---- asynchronous streams ----------------------------------------------------------------------------

bool is_async();
void set_async(bool on); // waits for all work first; a device's error ends with the queues
void end_async();        // at the end of the process: waits, and runs what comes later at once

// ---- captures ----------------------------------------------------------------------------------------

extern std::atomic<int64_t> executables_cut_off; // counted: destroyed while they had work in flight

struct Node {
  Label label;
  Work run;
  std::vector<size_t> after; // positions of the nodes this one follows
  c10::Stream stream;        // where it was issued
};
struct GraphTemplate {
  std::vector<Node> nodes;
  c10::intrusive_ptr<MusaGenerator> generator; // null when the graph draws no random numbers
  uint64_t increment = 0;                      // by which a replay moves the generator's offset on
};

enum class CaptureMode { global, thread_local_, relaxed };
// Whose captures forbid this thread what is unsafe in one: everybody's, its own, nobody's.
extern thread_local CaptureMode thread_capture_mode;

struct Capture {
  Capture(c10::Stream s, CaptureMode m, c10::intrusive_ptr<MusaGenerator> g);
  const c10::Stream origin;
  const CaptureMode mode;
  const std::thread::id thread;
  const c10::intrusive_ptr<MusaGenerator> generator; // the only one the captured work may draw from
  std::atomic<bool> valid{true};
  // Streams in the capture, with the nodes that later work on them follows.
  std::map<std::pair<int, c10::StreamId>, std::vector<size_t>> tails;
  GraphTemplate graph;
};

std::shared_ptr<Capture> begin_capture(const c10::Stream& stream, CaptureMode mode, c10::intrusive_ptr<MusaGenerator> generator);
// Takes all streams out of the capture. Throws for a capture that failed or has work that was not joined.
GraphTemplate end_capture(const std::shared_ptr<Capture>& capture);
std::shared_ptr<Capture> capture_of(const c10::Stream& stream); // nullptr when it is not being captured
bool captures_underway();
// Ends the capture's validity and raises what CUDA raises for something that cannot be captured.
[[noreturn]] void refuse_in_capture(const std::shared_ptr<Capture>& capture, const std::string& what);

} // namespace sim
