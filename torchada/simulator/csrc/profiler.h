// What the profiler learns about device work. Costs one relaxed load per launch while no profiler runs.
//
// Where work is issued:  auto span = make_span(SpanKind::kernel, name, stream);
// Where it runs, which may be later and on another thread:  { SpanTimer timer(span); ... }
#pragma once

#include "sim.h"

#include <optional>
#include <string>

namespace sim {

enum class SpanKind { kernel, memcpy, memset };

struct Span {
  SpanKind kind;
  std::string name;
  int device;
  int64_t stream;       // id of the stream
  int64_t bytes;        // of copies, else 0
  uint64_t correlation; // id of the profiler's operator that issued the work, 0 for none
  uint64_t session;     // profiler run the work was issued in
  int64_t issued;       // nanoseconds since the epoch
  int32_t thread;       // that issued it
};

extern std::atomic<bool> profiling;
std::optional<Span> new_span(SpanKind kind, std::string name, c10::Stream stream, int64_t bytes);

// None while no profiler runs; `name` is a callable then not called: making a name may cost.
template <class Name>
std::optional<Span> make_span(SpanKind kind, Name&& name, c10::Stream stream, int64_t bytes = 0) {
  if (!profiling.load(std::memory_order_relaxed)) return std::nullopt;
  return new_span(kind, name(), stream, bytes);
}

class SpanTimer {
 public:
  explicit SpanTimer(const std::optional<Span>& span) : span_(span ? &*span : nullptr), start_(span ? now() : 0) {}
  ~SpanTimer() {
    if (span_) finish();
  }
  SpanTimer(const SpanTimer&) = delete;
  SpanTimer& operator=(const SpanTimer&) = delete;

 private:
  static int64_t now(); // the profiler's clock, nanoseconds
  void finish();
  const Span* span_;
  int64_t start_;
};

void register_profiler();

} // namespace sim
