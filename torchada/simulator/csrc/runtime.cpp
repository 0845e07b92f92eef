// Configuration, devices, streams, events, counters, and the interfaces PyTorch asks a backend for:
// device guard, hooks, generators.
#include "sim.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <pthread.h>

#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <type_traits>

#include "generator.h"
#include "work.h"

namespace c10 {
class AcceleratorError; // not in every supported torch
}

namespace sim {

// ---- configuration ---------------------------------------------------------------------------------

namespace {

constexpr size_t kGiB = size_t(1) << 30;

// An eighth of the card's memory, so that a program that fills a device does not exhaust the host.
constexpr Profile kProfiles[] = {
    {"S80", "MTT S80 (simulated)", 2, 1, "mp_21", 32, 2 * kGiB},
    {"S3000", "MTT S3000 (simulated)", 2, 1, "mp_21", 32, 4 * kGiB},
    {"S4000", "MTT S4000 (simulated)", 2, 2, "mp_22", 48, 6 * kGiB},
    {"S5000", "MTT S5000 (simulated)", 3, 1, "mp_31", 56, 10 * kGiB},
};
constexpr const Profile& kDefaultProfile = kProfiles[3];

std::string env(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value ? value : "";
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  size_t start = 0;
  while (start < text.size() && std::isspace(static_cast<unsigned char>(text[start]))) ++start;
  return text.substr(start);
}

const Profile* read_profile() {
  std::string text = env("TORCHADA_SIM_DEVICE");
  if (text.empty()) return &kDefaultProfile;
  for (char& c : text) c = char(std::toupper(static_cast<unsigned char>(c)));
  for (const Profile& profile : kProfiles) {
    if (text == profile.key) return &profile;
  }
  std::string known;
  for (const Profile& profile : kProfiles) known += std::string(known.empty() ? "" : ", ") + profile.key;
  TORCH_CHECK_VALUE(false, "TORCHADA_SIM_DEVICE='", env("TORCHADA_SIM_DEVICE"), "' is not a simulated device; choose one of ", known);
}

int read_device_count() {
  std::string text = env("TORCHADA_SIM_DEVICES");
  if (text.empty()) return 2;
  char* end = nullptr;
  long n = std::strtol(text.c_str(), &end, 10);
  TORCH_CHECK_VALUE(*end == 0 && n >= 0 && n <= kMaxDevices, "TORCHADA_SIM_DEVICES='", text,
                    "' is not a number of devices; use an integer from 0 to ", kMaxDevices);
  return int(n);
}

size_t read_memory(size_t preset) {
  std::string text = env("TORCHADA_SIM_MEMORY");
  if (text.empty()) return preset;
  char* end = nullptr;
  double n = std::strtod(text.c_str(), &end);
  std::string unit;
  for (; *end; ++end) {
    if (!std::isspace(static_cast<unsigned char>(*end))) unit += char(std::toupper(static_cast<unsigned char>(*end)));
  }
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  for (const auto& [letter, bytes] : {std::pair{'K', 1024.0}, {'M', 1048576.0}, {'G', 1073741824.0}, {'T', 1099511627776.0}}) {
    std::string l(1, letter);
    if (unit == l || unit == l + "B" || unit == l + "IB") scale = bytes;
  }
  bool is_number = std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '.';
  TORCH_CHECK_VALUE(is_number && scale > 0 && std::isfinite(n) && n > 0 && n * scale < 1e18, "TORCHADA_SIM_MEMORY='", text,
                    "' is not an amount of memory; use bytes per device, with a suffix K, M, G or T (powers of "
                    "1024) if you like: 512M, 8GiB");
  return size_t(n * scale);
}

bool read_switch(const char* name) {
  std::string text = env(name);
  TORCH_CHECK_VALUE(text.empty() || text == "0" || text == "1", name, "='", text, "' is not a switch; use 0 or 1");
  return text == "1";
}

int read_graph_execs() {
  std::string text = env("TORCHADA_SIM_GRAPH_EXECS");
  if (text.empty()) return 2048; // what the driver is known to allow
  char* end = nullptr;
  long n = std::strtol(text.c_str(), &end, 10);
  TORCH_CHECK_VALUE(*end == 0 && n >= 1 && n <= 1000000000, "TORCHADA_SIM_GRAPH_EXECS='", text,
                    "' is not a number of graph executables; use an integer from 1");
  return int(n);
}

// The driver shows the devices that MUSA_VISIBLE_DEVICES lists, up to the first entry it does not know.
int visible_devices(int present) {
  const char* value = std::getenv("MUSA_VISIBLE_DEVICES");
  if (!value) return present;
  std::set<long> seen;
  std::stringstream list{std::string(value)};
  std::string entry;
  while (std::getline(list, entry, ',')) {
    char* end = nullptr;
    long n = std::strtol(entry.c_str(), &end, 10);
    while (*end == ' ') ++end;
    if (end == entry.c_str() || *end || n < 0 || n >= present) break;
    if (!seen.insert(n).second) return 0; // as CUDA: a device named twice hides all
  }
  return int(seen.size());
}

} // namespace

const Config& config() {
  static const Config instance = [] {
    const Profile* profile = read_profile();
    return Config{read_device_count(), read_memory(profile->memory), profile,
                  read_switch("TORCHADA_SIM_ASYNC") && !read_switch("MUSA_LAUNCH_BLOCKING"), read_graph_execs()};
  }();
  return instance;
}

std::string arch_flags() {
  return std::string(config().profile->arch).substr(3); // torch_musa lists bare numbers: "31"
}

// ---- errors ----------------------------------------------------------------------------------------

namespace {

template <class T, class = void>
struct is_complete : std::false_type {};
template <class T>
struct is_complete<T, std::void_t<decltype(sizeof(T))>> : std::true_type {};

template <class Accelerator>
[[noreturn]] void throw_coded(int code, const std::string& message, const c10::SourceLocation& where) {
  if constexpr (is_complete<Accelerator>::value) {
    throw Accelerator(where, code, message);
  } else {
    throw c10::Error(where, message);
  }
}

} // namespace

void throw_musa_error(int code, const std::string& what) {
  throw_coded<c10::AcceleratorError>(code, "MUSA error: " + what, {__func__, __FILE__, static_cast<uint32_t>(__LINE__)});
}

// ---- fork ------------------------------------------------------------------------------------------

namespace {
std::atomic<bool> initialized{false};
std::atomic<bool> bad_fork{false};
} // namespace

std::atomic<bool> ready{false};

bool in_bad_fork() {
  return bad_fork.load();
}
void mark_initialized() {
  initialized = true;
}
void check_not_bad_fork() {
  if (bad_fork.load()) {
    throw_musa_error(3, "initialization error: MUSA cannot be used again in a forked subprocess. "
                        "Use the 'spawn' start method of multiprocessing.");
  }
}
void install_fork_handlers() {
  static bool done = [] {
    pthread_atfork(
        [] { allocator_before_fork(); }, [] { allocator_after_fork(); },
        [] {
          allocator_after_fork();
          if (initialized.load()) {
            bad_fork = true;
            ready = false; // lazy_init() raises from here on
          }
        });
    return true;
  }();
  (void)done;
}

// ---- devices ---------------------------------------------------------------------------------------

namespace {
thread_local int current = 0;
}

int device_count() {
  static const int visible = visible_devices(config().devices); // read at the first use of the driver, and kept
  return visible;
}
int current_device() {
  return current;
}
void check_device(int64_t index) {
  if (index < 0 || index >= device_count()) {
    if (device_count() == 0) lazy_init(); // says it as torch_musa does
    if (device_count() == 0) throw_musa_error(100, "no MUSA-capable device is detected");
    throw_musa_error(101, "invalid device ordinal (" + std::to_string(index) + "; there are " +
                              std::to_string(device_count()) + " devices)");
  }
}
void set_device(int64_t index) {
  check_device(index);
  current = int(index);
}
int exchange_device(int64_t index) {
  if (index < 0) return -1;
  int previous = current;
  set_device(index);
  return previous;
}
c10::Device normalize(c10::Device device) {
  lazy_init();
  c10::Device full(kMusa, c10::DeviceIndex(device.has_index() ? device.index() : current));
  check_device(full.index());
  return full;
}

DeviceScope::DeviceScope(int index) : previous_(current) {
  if (index != current) set_device(index);
}
DeviceScope::~DeviceScope() {
  current = previous_;
}

// ---- streams ---------------------------------------------------------------------------------------

namespace {

constexpr int kPoolSize = 32; // streams per device and priority, handed out in turn, as CUDA does

struct NativeStream {
  int device;
  int priority;
};

struct Streams {
  NativeStream pool[kMaxDevices][2][kPoolSize];
  std::atomic<unsigned> next[kMaxDevices][2];
  std::mutex mutex;
  std::set<NativeStream*> external;

  Streams() {
    for (int device = 0; device < kMaxDevices; ++device) {
      for (int high = 0; high < 2; ++high) {
        next[device][high] = 0;
        for (NativeStream& stream : pool[device][high]) stream = {device, -high};
      }
    }
  }
  NativeStream* first() { return &pool[0][0][0]; }
  NativeStream* end() { return first() + kMaxDevices * 2 * kPoolSize; }
};
Streams& streams() {
  static auto* instance = new Streams();
  return *instance;
}

thread_local std::array<c10::StreamId, kMaxDevices> current_streams{};

c10::Stream make_stream(c10::StreamId id, int device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kMusa, c10::DeviceIndex(device)), id);
}

// A stream's id is its position in the pool plus one; a stream made outside has its address as id.
bool is_pool_id(c10::StreamId id) {
  return id > 0 && id <= 2 * kPoolSize;
}

} // namespace

c10::Stream default_stream(int device) {
  return make_stream(0, device);
}
c10::Stream current_stream(int device) {
  return make_stream(current_streams[size_t(device)], device);
}
void set_current_stream(c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == kMusa, "expected a musa stream, got one on ", stream.device());
  check_device(stream.device_index());
  current_streams[size_t(stream.device_index())] = stream.id();
}
c10::Stream stream_from_pool(int device, int priority) {
  lazy_init();
  check_device(device);
  int high = priority < 0;
  unsigned turn = streams().next[device][high].fetch_add(1) % kPoolSize;
  return make_stream(1 + high * kPoolSize + int(turn), device);
}
void* stream_handle(const c10::Stream& stream) {
  c10::StreamId id = stream.id();
  if (id == 0) return nullptr;
  if (is_pool_id(id)) {
    int index = int(id - 1);
    return &streams().pool[stream.device_index()][index / kPoolSize][index % kPoolSize];
  }
  return reinterpret_cast<void*>(id);
}
c10::Stream stream_from_handle(void* handle, int device) {
  check_device(device);
  if (!handle) return default_stream(device);
  Streams& all = streams();
  auto* native = static_cast<NativeStream*>(handle);
  if (native >= all.first() && native < all.end()) {
    auto position = int(native - all.first());
    return make_stream(1 + position % (2 * kPoolSize), position / (2 * kPoolSize));
  }
  std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.external.count(native)) throw_musa_error(400, "invalid resource handle");
  return make_stream(reinterpret_cast<c10::StreamId>(handle), native->device);
}
int stream_priority(const c10::Stream& stream) {
  return is_pool_id(stream.id()) && stream.id() > kPoolSize ? -1 : 0;
}
std::pair<int, int> priority_range() {
  return {0, -1};
}
void* create_external_stream() {
  auto* stream = new NativeStream{current, 0};
  std::lock_guard<std::mutex> lock(streams().mutex);
  streams().external.insert(stream);
  return stream;
}
void destroy_external_stream(void* handle) {
  auto* stream = static_cast<NativeStream*>(handle);
  {
    std::lock_guard<std::mutex> lock(streams().mutex);
    if (!streams().external.erase(stream)) throw_musa_error(400, "invalid resource handle");
  }
  wait_stream(make_stream(reinterpret_cast<c10::StreamId>(handle), stream->device));
  delete stream;
}

Counters& counters() {
  static Counters instance;
  return instance;
}

namespace {
const std::thread::id main_thread = std::this_thread::get_id();
std::atomic<bool> other_threads{false};

// PyTorch's autograd gives every device a thread, which sets its device when it starts.
void note_thread() noexcept {
  thread_local bool seen = false;
  if (seen) return;
  seen = true;
  if (std::this_thread::get_id() != main_thread) other_threads = true;
}
} // namespace

bool autograd_threads_started() {
  return other_threads.load();
}

// ---- device guard and events -------------------------------------------------------------------------

namespace {

struct Event {
  MarkPtr mark;
};
MarkPtr& mark_of(void* event) {
  return static_cast<Event*>(event)->mark;
}

// Older versions of torch do not allow these two to throw.
using GuardBase = c10::impl::DeviceGuardImplInterface;
constexpr bool kStreamNoexcept = noexcept(std::declval<const GuardBase&>().getStream(std::declval<c10::Device>()));
constexpr bool kExchangeNoexcept = noexcept(std::declval<const GuardBase&>().exchangeStream(std::declval<c10::Stream>()));

// Methods that not every supported torch declares carry no `override`.
struct GuardImpl final : GuardBase {
  c10::DeviceType type() const override { return kMusa; }
  c10::Device exchangeDevice(c10::Device device) const override {
    int previous = current;
    if (device.index() != current) set_device(device.index());
    return {kMusa, c10::DeviceIndex(previous)};
  }
  c10::Device getDevice() const override { return {kMusa, c10::DeviceIndex(current)}; }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current = device.index();
    note_thread();
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      return c10::DeviceIndex(device_count());
    } catch (const c10::Error&) {
      return 0; // the module's initialisation reports the bad setting
    }
  }

  c10::Stream getStream(c10::Device device) const noexcept(kStreamNoexcept) override {
    int index = device.has_index() ? device.index() : current;
    if constexpr (!kStreamNoexcept) {
      index = normalize(device).index();
    } else if (index >= kMaxDevices) {
      index = 0;
    }
    return current_stream(index);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return default_stream(normalize(device).index()); }
  c10::Stream getNewStream(c10::Device device, int priority = 0) const override {
    return stream_from_pool(normalize(device).index(), priority);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high = false) const override {
    return stream_from_pool(normalize(device).index(), high ? -1 : 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept(kExchangeNoexcept) override {
    c10::Stream previous = current_stream(stream.device_index());
    set_current_stream(stream);
    return previous;
  }
  bool queryStream(const c10::Stream& stream) const override { return stream_idle(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { synchronize_stream(stream); }
  virtual void synchronizeDevice(c10::DeviceIndex device) const {
    synchronize_device(normalize({kMusa, device}).index());
  }
  virtual void* getStreamNativeHandle(const c10::Stream stream) const { return stream_handle(stream); }
  virtual bool isStreamCapturing(const c10::Stream& stream) const { return capture_of(stream) != nullptr; }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device_index,
              const c10::EventFlag) const override {
    TORCH_CHECK(device_index == -1 || device_index == stream.device_index(), "Event device index ", int(device_index),
                " does not match recording stream's device index ", int(stream.device_index()), ".");
    if (!*event) *event = new Event();
    mark_of(*event) = mark(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) wait_for(mark_of(event), stream);
  }
  bool queryEvent(void* event) const override { return !event || query_mark(mark_of(event)); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void synchronizeEvent(void* event) const override { synchronize_mark(event ? mark_of(event) : nullptr); }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
    return std::chrono::duration<double, std::milli>(mark_of(end)->when() - mark_of(start)->when()).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    record_stream(pointer, stream);
  }
#if __has_include(<c10/core/DeviceCapability.h>)
  // Everything the CPU computes with, the simulated device does.
  virtual c10::DeviceCapability getDeviceCapability(c10::Device) const { return c10::DeviceCapability(); }
#endif
};

} // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

// ---- generators ------------------------------------------------------------------------------------

namespace {

uint64_t splitmix(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

constexpr int64_t kStateBytes = 16; // seed and offset, as a CUDA generator's state

std::vector<at::Generator>& default_generators() {
  static auto* instance = new std::vector<at::Generator>([] {
    std::vector<at::Generator> result;
    for (int i = 0; i < device_count(); ++i) {
      result.push_back(at::make_generator<MusaGenerator>(c10::DeviceIndex(i)));
    }
    return result;
  }());
  return *instance;
}

} // namespace

namespace {
void check_not_capturing(const char* what);
}

MusaGenerator::MusaGenerator(c10::DeviceIndex index)
    : c10::GeneratorImpl(c10::Device(kMusa, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void MusaGenerator::set_current_seed(uint64_t seed) {
  check_not_capturing("set_current_seed");
  seed_ = seed;
  offset_ = 0;
}
void MusaGenerator::set_offset(uint64_t offset) {
  check_not_capturing("set_offset");
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
  offset_ = offset;
}
uint64_t MusaGenerator::get_offset() const {
  check_not_capturing("get_offset");
  return offset_;
}
uint64_t MusaGenerator::current_seed() const {
  return seed_;
}
uint64_t MusaGenerator::seed() {
  check_not_capturing("seed");
  uint64_t fresh = c10::detail::getNonDeterministicRandom(true);
  set_current_seed(fresh);
  return fresh;
}
c10::intrusive_ptr<c10::TensorImpl> MusaGenerator::get_state() const {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), kStateBytes,
                                                       c10::GetAllocator(c10::kCPU), true);
  auto state = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                    caffe2::TypeMeta::Make<uint8_t>());
  state->set_sizes_contiguous({kStateBytes});
  auto* bytes = static_cast<char*>(storage->mutable_data());
  std::memcpy(bytes, &seed_, 8);
  std::memcpy(bytes + 8, &offset_, 8);
  return state;
}
void MusaGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.layout() == c10::kStrided && state.device_type() == c10::kCPU && state.dtype() == at::kByte,
                   "RNG state must be a torch.ByteTensor");
  check_not_capturing("set_state");
  TORCH_CHECK(state.numel() == kStateBytes && state.is_contiguous(), "RNG state is wrong size");
  uint64_t words[2];
  std::memcpy(words, state.data(), sizeof words);
  TORCH_CHECK(words[1] % 4 == 0, "offset must be a multiple of 4");
  seed_ = words[0];
  offset_ = words[1];
}
MusaGenerator* MusaGenerator::clone_impl() const {
  auto* copy = new MusaGenerator(device_.index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

namespace {

// Numbers depend on (seed, offset) alone: the whole state of the CPU engine is derived from the two.
at::mt19937 engine_at(uint64_t seed, uint64_t offset) {
  uint64_t state = seed;
  state = splitmix(state) ^ (offset * 0xd1342543de82ef95ULL);
  at::mt19937_data_pod pod = at::mt19937().data();
  for (size_t i = 0; i + 1 < pod.state_.size(); i += 2) {
    uint64_t word = splitmix(state);
    pod.state_[i] = uint32_t(word);
    pod.state_[i + 1] = uint32_t(word >> 32);
  }
  pod.seed_ = seed;
  pod.seeded_ = true;
  pod.left_ = 1;
  pod.next_ = 0;
  at::mt19937 engine;
  engine.set_data(pod);
  return engine;
}

constexpr uint64_t kOffsetStep = 4; // per operator
thread_local const ReplayRng* replay_rng = nullptr;

void check_not_capturing(const char* what) {
  if (!captures_underway()) return;
  TORCH_CHECK(!capture_of(current_stream(current)), "Cannot call MUSAGeneratorImpl::", what, " during MUSA graph capture. ",
              "If you need this call to be captured, please file an issue. Current musaStreamCaptureStatus: "
              "musaStreamCaptureStatusActive");
}

} // namespace

std::pair<uint64_t, uint64_t> MusaGenerator::advance(uint64_t increment) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto now = std::pair{seed_, offset_};
  offset_ += increment;
  return now;
}

at::mt19937 MusaGenerator::next_engine() {
  auto [seed, offset] = advance(kOffsetStep);
  return engine_at(seed, offset);
}

RngTicket MusaGenerator::reserve() {
  auto self = c10::intrusive_ptr<MusaGenerator>::reclaim_copy(this);
  auto capture = capture_of(current_stream(device_.index()));
  if (!capture) {
    auto [seed, offset] = advance(kOffsetStep);
    return {std::move(self), seed, offset, false};
  }
  TORCH_CHECK(capture->generator.get() == this,
              "philox_musa_state for an unexpected MUSA generator used during capture. In regions captured by MUSA "
              "graphs, you may only use the default MUSA RNG generator on the device that's current when capture "
              "begins. If you need a non-default (user-supplied) generator, or a generator on another device, please "
              "file an issue.");
  std::lock_guard<std::mutex> lock(mutex_);
  uint64_t offset = capture->graph.increment;
  capture->graph.increment += kOffsetStep;
  return {std::move(self), 0, offset, true};
}

at::mt19937 RngTicket::engine() const {
  if (!relative) return engine_at(seed, offset);
  TORCH_INTERNAL_ASSERT(replay_rng, "captured random numbers outside of a replay");
  return engine_at(replay_rng->seed, replay_rng->offset + offset);
}

ReplayRng::ReplayRng(uint64_t s, uint64_t o) : seed(s), offset(o), previous_(replay_rng) {
  replay_rng = this;
}
ReplayRng::~ReplayRng() {
  replay_rng = previous_;
}

const at::Generator& default_generator(int device) {
  check_device(device); // no lazy_init(): it comes here itself, for torch_musa.default_generators
  return default_generators()[size_t(device)];
}

// ---- hooks -----------------------------------------------------------------------------------------

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  virtual bool isBuilt() const { return true; }
  virtual bool isAvailable() const { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    check_device(index);
    return initialized.load();
  }
  void init() const override { lazy_init(); }
  virtual c10::DeviceIndex deviceCount() const { return c10::DeviceIndex(device_count()); }
  virtual void setCurrentDevice(c10::DeviceIndex index) const { set_device(index); }
  virtual c10::DeviceIndex getCurrentDevice() const { return c10::DeviceIndex(current); }
  virtual c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const { return c10::DeviceIndex(exchange_device(index)); }
  virtual c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const { return c10::DeviceIndex(exchange_device(index)); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    lazy_init();
    return default_generator(index < 0 ? current : index);
  }
  virtual at::Generator getNewGenerator(c10::DeviceIndex index = -1) const {
    c10::Device device = normalize({kMusa, index});
    return at::make_generator<MusaGenerator>(device.index());
  }
  at::Device getDeviceFromPtr(void* pointer) const override {
    int index = device_of_pointer(pointer);
    TORCH_CHECK(index >= 0, "The specified pointer resides on host memory and is not registered with any MUSA device.");
    return {kMusa, c10::DeviceIndex(index)};
  }
  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto* impl = storage.unsafeGetStorageImpl();
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
    DeviceScope scope(storage.device().index());
    c10::DataPtr fresh = device_allocator()->allocate(bytes);
    size_t keep = std::min(bytes, impl->nbytes());
    if (keep) {
      issue(current_stream(storage.device().index()), {"Memcpy DtoD (Device -> Device)", SpanKind::memcpy, int64_t(keep)},
            [to = fresh.get(), from = impl->data(), keep] { std::memcpy(to, from, keep); });
    }
    impl->set_data_ptr_noswap(std::move(fresh));
    impl->set_nbytes(bytes);
  }
};

} // namespace

void register_hooks() {
  if (at::isPrivateUse1HooksRegistered()) return;
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(kMusa, device_allocator());
  install_cpu_router();
  install_fork_handlers();
}

} // namespace sim
