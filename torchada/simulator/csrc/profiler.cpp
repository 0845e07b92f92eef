// Device activity for torch.profiler, through kineto's plug-in interface, and the event stubs of the legacy profiler
// (torch.autograd.profiler.profile(use_device="musa") without kineto).
#define FMT_HEADER_ONLY // torch's copy of fmt exports no symbols
#include "profiler.h"

#include <c10/core/Event.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#if __has_include(<kineto/libkineto.h>) && __has_include(<fmt/format.h>) // torch 2.7 ships kineto's headers without fmt
#include <kineto/GenericTraceActivity.h>
#include <kineto/IActivityProfiler.h>
#include <kineto/libkineto.h>
#include <kineto/output_base.h>
#define SIM_KINETO 1
#endif

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

namespace sim {

std::atomic<bool> profiling{false};

namespace {

struct Recorded {
  Span span;
  int64_t start, end; // nanoseconds since the epoch
};

std::mutex mutex;
std::vector<Recorded> recorded;
std::atomic<uint64_t> session_id{0};
thread_local std::vector<uint64_t> correlations; // operators the profiler has open on this thread

} // namespace

std::optional<Span> new_span(SpanKind kind, std::string name, c10::Stream stream, int64_t bytes) {
  Span span;
  span.kind = kind;
  span.name = std::move(name);
  span.device = stream.device_index();
  span.stream = stream.id();
  span.bytes = bytes;
  span.correlation = correlations.empty() ? 0 : correlations.back();
  span.session = session_id.load();
  span.issued = c10::getTime();
#ifdef SIM_KINETO
  span.thread = libkineto::systemThreadId();
#else
  span.thread = 0;
#endif
  return span;
}

int64_t SpanTimer::now() {
  return c10::getTime();
}

void SpanTimer::finish() {
  int64_t end = now();
  std::lock_guard<std::mutex> lock(mutex);
  if (profiling && span_->session == session_id) recorded.push_back({*span_, start_, end});
}

#ifdef SIM_KINETO
namespace {

using libkineto::ActivityType;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(std::set<ActivityType> wanted) : wanted_(std::move(wanted)) {}

  void start() override {
    std::lock_guard<std::mutex> lock(mutex);
    recorded.clear();
    ++session_id;
    profiling = true;
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    std::lock_guard<std::mutex> lock(mutex);
    profiling = false;
    spans_.swap(recorded);
    recorded.clear();
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    process(logger, [](int32_t) -> const libkineto::ITraceActivity* { return nullptr; }, 0, INT64_MAX);
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t start,
                    int64_t end) override {
    process(logger, linked, start, end);
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; } // more than one: see process()
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { correlations.push_back(id); }
  void popCorrelationId() override {
    if (!correlations.empty()) correlations.pop_back(); // an operator that was open when the profiler started
  }

 private:
  libkineto::GenericTraceActivity& add(ActivityType type, const std::string& name, int64_t start, int64_t end,
                                       int32_t id) {
    buffer_->emplace_activity(buffer_->span, type, name);
    auto& activity = libkineto::CpuTraceBuffer::toRef(buffer_->activities.back());
    activity.startTime = start;
    activity.endTime = end;
    activity.id = id;
    activity.flow.id = uint32_t(id);
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.addMetadata("correlation", id);
    return activity;
  }

  void process(libkineto::ActivityLogger& logger, const libkineto::getLinkedActivityCallback& linked, int64_t start,
               int64_t end) {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start, end, "MUSA (simulated)");
    buffer_->gpuOpCount = int(spans_.size());
    std::stable_sort(spans_.begin(), spans_.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
    std::map<std::pair<int, int64_t>, int64_t> busy_until;
    int32_t launch = 0;
    for (Recorded& work : spans_) {
      const Span& span = work.span;
      if (work.end < start || work.start > end) continue;
      bool is_kernel = span.kind == SpanKind::kernel, is_copy = span.kind == SpanKind::memcpy;
      auto type = is_kernel ? ActivityType::CONCURRENT_KERNEL : is_copy ? ActivityType::GPU_MEMCPY : ActivityType::GPU_MEMSET;
      if (!wanted_.count(type)) continue; // neither the work nor what started it
      // A stream runs one thing after the other, also where a kernel calls another one.
      int64_t& free_at = busy_until[{span.device, span.stream}];
      int64_t begin = std::max(work.start, free_at), finish = std::max(work.end, begin + 1);
      free_at = finish;
      ++launch;
      auto* source = linked(int32_t(span.correlation));
      auto& host = add(ActivityType::PRIVATEUSE1_RUNTIME,
                       is_kernel ? "musaLaunchKernel" : is_copy ? "musaMemcpyAsync" : "musaMemsetAsync", span.issued,
                       std::max(span.issued + 1, std::min(work.start, span.issued + 5000)), launch);
      host.device = libkineto::processId();
      host.resource = host.threadId = span.thread;
      host.flow.start = 1;
      host.linked = source;
      host.log(logger);
      auto& device = add(type, span.name, begin, finish, launch);
      device.device = span.device;
      device.resource = int32_t(span.stream);
      device.threadId = span.thread;
      device.flow.start = 0;
      device.linked = source;
      device.addMetadata("device", span.device);
      device.addMetadata("stream", span.stream);
      if (!is_kernel) device.addMetadata("bytes", span.bytes);
      device.log(logger);
    }
    std::set<int> devices;
    for (const auto& [where, until] : busy_until) {
      if (devices.insert(where.first).second) {
        logger.handleDeviceInfo({where.first, libkineto::kExceedMaxPid + where.first, "python",
                                 "MUSA " + std::to_string(where.first) + " (simulated)"},
                                start);
      }
      logger.handleResourceInfo({where.second, where.second, where.first, "stream " + std::to_string(where.second)}, start);
    }
    spans_.clear();
  }

  std::set<ActivityType> wanted_;
  std::vector<Recorded> spans_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return activities_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config&) override {
    for (auto type : {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET}) {
      if (wanted.count(type)) return std::make_unique<Session>(wanted);
    }
    return nullptr; // the host's side only
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config& config) override {
    return configure(wanted, config);
  }

 private:
  std::string name_ = "musa_simulated";
  std::set<ActivityType> activities_ = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
                                        ActivityType::PRIVATEUSE1_RUNTIME};
};

} // namespace
#endif

namespace {

// The legacy profiler marks the begin and the end of each operator with an event of the device.
struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, torch::profiler::impl::ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    int index = current_device();
    if (device) *device = c10::DeviceIndex(index);
    auto made = std::make_shared<c10::Event>(kMusa, c10::EventFlag::BACKEND_DEFAULT);
    made->record(current_stream(index));
    *event = made;
    if (cpu_ns) *cpu_ns = c10::getTime();
  }
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub* first,
                const torch::profiler::impl::ProfilerVoidEventStub* second) const override {
    auto* from = static_cast<c10::Event*>(first->get());
    auto* to = static_cast<c10::Event*>(second->get());
    from->synchronize();
    to->synchronize();
    return float(from->elapsedTime(*to) * 1000.0); // microseconds
  }
  // Ranges of an external tool: none listens on a simulated device.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override {
    for (int i = 0; i < device_count(); ++i) {
      DeviceScope scope(i);
      op(i);
    }
  }
  void synchronize() const override {
    c10::Stream stream = current_stream(current_device());
    stream.synchronize();
  }
};

} // namespace

void register_profiler() {
  static Stubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
#ifdef SIM_KINETO
  // torch's newer REGISTER_PRIVATEUSE1_PROFILER comes down to this call, which older ones have as well.
  libkineto::api().registerProfilerFactory(
      []() -> std::unique_ptr<libkineto::IActivityProfiler> { return std::make_unique<Profiler>(); });
#endif
}

} // namespace sim
