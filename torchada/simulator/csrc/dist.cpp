// The process group "mccl": collectives between processes over the memory of simulated devices.
//
// A c10d::Backend of its own over a gloo group that only carries bytes. Device memory is host memory, so data
// goes from and to it without a copy where gloo allows; everything that MCCL can do and gloo cannot (AVG,
// PREMUL_SUM, half precision, uneven sizes ...) is computed here. As with the hardware's library a call only
// puts work into a queue; collectives of one group run in order on one thread ("lane"), messages between two
// ranks on a lane per peer and direction.
//
// Before the data the ranks tell each other what they are about to do. A disagreement, which on hardware is a
// hang or silent rubbish, is an error on every rank here.
//
// An optional unit: a library of its own, loaded when a process group is made.
#include <torch/csrc/python_headers.h>

#include "work.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Logging.h>

#include <pybind11/chrono.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

namespace py = pybind11;

namespace {

using c10d::Backend;
using c10d::OpType;
using c10d::ReduceOp;
using c10d::Store;
using c10d::Work;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

constexpr c10::DeviceType kMusa = c10::DeviceType::PrivateUse1;
constexpr Milliseconds kTimeout{10 * 60 * 1000}; // as the hardware's library: ten minutes
// Up to here every rank sends all it has to every other and adds up alone: one round instead of two.
constexpr int64_t kSmallBytes = 64 * 1024;

// ---- options -----------------------------------------------------------------------------------------

// Newer versions of torch have these two in the base class.
struct NamedOptions {
  std::string group_name;
  std::vector<uint64_t> global_ranks_in_group;
};
struct Nothing {};
template <class T, class = void>
struct HasNames : std::false_type {};
template <class T>
struct HasNames<T, std::void_t<decltype(std::declval<T>().group_name)>> : std::true_type {};

struct OptionsMCCL : Backend::Options, std::conditional_t<HasNames<Backend::Options>::value, Nothing, NamedOptions> {
  explicit OptionsMCCL(bool high = false) : Backend::Options("mccl", kTimeout), is_high_priority_stream(high) {}
  bool is_high_priority_stream;
  c10::intrusive_ptr<Backend> split_from;
  int64_t split_color = 0;
};

// ---- what a call is about -----------------------------------------------------------------------------

enum class Kind : int64_t { Broadcast, AllReduce, Reduce, AllGather, Gather, Scatter, ReduceScatter, AllToAll, Barrier };
constexpr const char* kKindNames[] = {"broadcast",      "all_reduce", "reduce", "all_gather", "gather", "scatter",
                                      "reduce_scatter", "all_to_all", "barrier"};
constexpr const char* kReduceNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};

int64_t numel_of(const Tensors& tensors) {
  int64_t n = 0;
  for (const at::Tensor& tensor : tensors) n += tensor.numel();
  return n;
}

bool is_float8(c10::ScalarType dtype) {
  return c10::isFloat8Type(dtype);
}

// The element types of the library; for the others its own error.
void check_dtype(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case c10::kChar:
    case c10::kByte:
    case c10::kBool:
    case c10::kInt:
    case c10::kLong:
    case c10::kHalf:
    case c10::kBFloat16:
    case c10::kFloat:
    case c10::kDouble:
      return;
    default:
      TORCH_CHECK_WITH(TypeError, is_float8(tensor.scalar_type()),
                       "Input tensor data type is not supported for MCCL process group: ", tensor.scalar_type());
  }
}

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "MCCL: a tensor is undefined");
  TORCH_CHECK_VALUE(tensor.device().type() == kMusa && tensor.layout() == c10::kStrided, "Tensors must be MUSA and dense");
  check_dtype(tensor);
}

// The library knows no complex numbers: they travel as pairs of real ones.
at::Tensor real_view(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}
Tensors real_views(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) result.push_back(real_view(tensor));
  return result;
}

at::Tensor single(const Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "Expecting one tensor only but got multiple");
  at::Tensor tensor = real_view(tensors[0]);
  check_tensor(tensor);
  TORCH_CHECK_VALUE(tensor.is_contiguous(tensor.suggest_memory_format()), "Tensors must be contiguous");
  return tensor;
}

Tensors same_device(const Tensors& given) {
  Tensors tensors = real_views(given);
  TORCH_CHECK(!tensors.empty(), "Tensor list must be nonempty");
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    TORCH_CHECK_WITH(TypeError, tensor.scalar_type() == tensors[0].scalar_type(), "Tensors must have identical type");
    TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(), "Tensors must be non-overlapping and dense");
    TORCH_CHECK_VALUE(tensor.device() == tensors[0].device(), "Tensor list must be on the same device");
  }
  return tensors;
}

struct Reduction {
  ReduceOp::RedOpType op = ReduceOp::SUM;
  at::Scalar factor = 1; // of PREMUL_SUM
};

// Whether a complex number may be reduced as its two real ones.
bool reduces_as_real(ReduceOp::RedOpType op) {
  return op == ReduceOp::SUM || op == ReduceOp::AVG || op == ReduceOp::PREMUL_SUM || op == ReduceOp::UNUSED;
}

Reduction check_reduction(const ReduceOp& op, const at::Tensor& tensor, bool was_complex = false) {
  Reduction reduction{op.op_};
  auto dtype = tensor.scalar_type();
  if (was_complex) {
    TORCH_CHECK(reduces_as_real(op.op_), "all_reduce does not support ", kReduceNames[op.op_], " on complex tensors");
  }
  TORCH_CHECK(!is_float8(dtype), "Float8 dtypes are not currently supported for MCCL reductions");
  switch (op.op_) {
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
      TORCH_CHECK_VALUE(false, "Cannot use ReduceOp.", kReduceNames[op.op_], " with MCCL");
    case ReduceOp::AVG:
      TORCH_CHECK_WITH(TypeError, dtype != c10::kBool, "Cannot use ReduceOp.AVG with Boolean inputs");
      break;
    case ReduceOp::PREMUL_SUM: {
      TORCH_CHECK(c10::isFloatingType(dtype), "PreMulSum Data type must be half, float, bfloat16 or double");
      const auto* extra = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK(extra, "PREMUL_SUM needs a factor: make it with torch.distributed._make_nccl_premul_sum()");
      reduction.factor = extra->tensor_factor.defined() ? extra->tensor_factor.item() : at::Scalar(extra->double_factor);
      break;
    }
    default:
      TORCH_CHECK_VALUE(op.op_ < ReduceOp::UNUSED, "Invalid ReduceOp");
  }
  return reduction;
}

// ---- bytes ---------------------------------------------------------------------------------------------

// The elements of a device tensor in logical order as one CPU tensor over the same memory; a dense tensor in
// another order is copied and, by store(), written back.
class Flat {
 public:
  explicit Flat(const at::Tensor& device) : device_(device) {
    host_ = at::from_blob(device.data_ptr(), device.sizes(), device.strides(), device.options().device(c10::kCPU));
    direct_ = host_.is_contiguous();
    flat_ = direct_ ? host_.view(-1) : host_.contiguous().view(-1);
  }
  const at::Tensor& get() const { return flat_; }
  void store() const {
    if (!direct_) host_.copy_(flat_.view(host_.sizes()));
  }
  void store(const at::Tensor& values) const { host_.copy_(values.view(host_.sizes())); }

 private:
  at::Tensor device_, host_, flat_;
  bool direct_;
};

at::Tensor as_bytes(const at::Tensor& flat) {
  return at::from_blob(flat.data_ptr(), {int64_t(flat.nbytes())}, at::TensorOptions(c10::kByte));
}
at::Tensor host_empty(int64_t n, c10::ScalarType dtype) {
  return at::empty({n}, at::TensorOptions(dtype));
}
at::Tensor joined(const Tensors& tensors, c10::ScalarType dtype) {
  at::Tensor all = host_empty(numel_of(tensors), dtype);
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    all.narrow(0, at, tensor.numel()).copy_(Flat(tensor).get());
    at += tensor.numel();
  }
  return all;
}
void distribute(const at::Tensor& all, const Tensors& tensors) {
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    Flat(tensor).store(all.narrow(0, at, tensor.numel()));
    at += tensor.numel();
  }
}

// All ranks' values in the order of the ranks, so that every rank computes the same bits.
at::Tensor reduce_parts(const Tensors& parts, const Reduction& reduction) {
  auto dtype = parts[0].scalar_type();
  bool half = dtype == c10::kHalf || dtype == c10::kBFloat16;
  auto op = reduction.op;
  if (dtype == c10::kBool && op == ReduceOp::SUM) op = ReduceOp::MAX;
  auto widened = [&](const at::Tensor& part) {
    if (half) return part.to(c10::kFloat);
    return dtype == c10::kBool ? part.to(c10::kByte) : part.clone();
  };
  at::Tensor total = widened(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    at::Tensor part = widened(parts[i]);
    switch (op) {
      case ReduceOp::PRODUCT: total.mul_(part); break;
      case ReduceOp::MIN: at::minimum_out(total, total, part); break;
      case ReduceOp::MAX: at::maximum_out(total, total, part); break;
      default: total.add_(part);
    }
  }
  if (op == ReduceOp::AVG) {
    if (c10::isFloatingType(dtype)) {
      total.div_(int64_t(parts.size()));
    } else {
      total.div_(int64_t(parts.size()), "trunc");
    }
  }
  return total.to(dtype);
}

at::Tensor scaled(const at::Tensor& flat, const Reduction& reduction) {
  if (reduction.op != ReduceOp::PREMUL_SUM) return flat;
  return flat.mul(reduction.factor);
}

// ---- the machine -----------------------------------------------------------------------------------------

int64_t host_id() {
  static const int64_t id = [] {
    char name[256] = {};
    gethostname(name, sizeof(name) - 1);
    std::string text = name;
    std::ifstream boot("/proc/sys/kernel/random/boot_id");
    std::string line;
    if (std::getline(boot, line)) text += line;
    return int64_t(std::hash<std::string>()(text));
  }();
  return id;
}

// The number of a device on its machine, which MUSA_VISIBLE_DEVICES may hide from the process.
int64_t physical_device(int index) {
  const char* text = std::getenv("MUSA_VISIBLE_DEVICES");
  if (!text) return index;
  std::istringstream entries(text);
  std::string entry;
  for (int i = 0; std::getline(entries, entry, ','); ++i) {
    if (i != index) continue;
    char* end = nullptr;
    long number = std::strtol(entry.c_str(), &end, 10);
    return end == entry.c_str() ? index : number;
  }
  return index;
}

c10::impl::VirtualGuardImpl guard() {
  return c10::impl::VirtualGuardImpl(kMusa);
}

// What was issued to the current stream before now; nothing when that stream has nothing to do.
class Before {
 public:
  explicit Before(c10::Device device) {
    auto impl = guard();
    c10::Stream stream = impl.getStream(device);
    if (impl.queryStream(stream)) return;
    event_ = std::make_shared<c10::Event>(kMusa);
    event_->record(stream);
  }
  void wait() const {
    if (event_) event_->synchronize();
  }

 private:
  std::shared_ptr<c10::Event> event_;
};

// Work may need the GIL to give a tensor of Python back, so nobody waits with it.
template <class F>
auto without_gil(F f) {
  std::optional<py::gil_scoped_release> no_gil;
  if (Py_IsInitialized() && PyGILState_Check()) no_gil.emplace();
  return f();
}

// ---- work --------------------------------------------------------------------------------------------------

class WorkMCCL : public Work {
 public:
  WorkMCCL(int rank, OpType type, const char* title, const Tensors& inputs, Tensors outputs, c10::Device device,
           uint64_t sequence, Milliseconds timeout)
      : Work(rank, type, title, std::optional<Tensors>(inputs)),
        outputs_(std::move(outputs)),
        device_(device),
        sequence_(sequence),
        timeout_(timeout),
        numel_in_(numel_of(inputs)),
        numel_out_(numel_of(outputs_)),
        start_(Clock::now()) {}

  bool isSuccess() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return completed_ && !exception_;
  }
  bool wait(Milliseconds timeout = kNoTimeout) override {
    return without_gil([&] { return wait_for(timeout); });
  }
  void synchronize() override { wait(); }
  Tensors result() override { return outputs_; }
  float getDuration() const override {
    return std::chrono::duration<float, std::milli>((completed_ ? end_ : Clock::now()) - start_).count();
  }
  uint64_t getSequencenumber() const override { return sequence_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future(values_, c10::ListType::create(c10::TensorType::get()), {device_});
  }
  virtual c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() {
    return future(status_, c10::IntType::get(), {});
  }

  // Called once, by the lane.
  void complete(std::exception_ptr error, const std::function<void(std::function<void()>)>& elsewhere) {
    c10::intrusive_ptr<c10::ivalue::Future> values, status;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      end_ = Clock::now();
      values = values_;
      status = status_;
      completed_ = true;
      exception_ = error;
    }
    if (recordFunctionEndCallback_) {
      recordFunctionEndCallback_();
      recordFunctionEndCallback_ = nullptr;
    }
    cv_.notify_all();
    if (!values && !status) return;
    // Callbacks may wait for other work of this group: never on the lane's own thread.
    elsewhere([this, self = c10::intrusive_ptr<WorkMCCL>::reclaim_copy(this), values, status] {
      if (values) mark(values);
      if (status) mark(status);
    });
  }
  std::string describe() const {
    return "WorkMCCL(SeqNum=" + std::to_string(sequence_) + ", OpType=" + c10d::opTypeToString(retrieveOpType()) +
        ", NumelIn=" + std::to_string(numel_in_) + ", NumelOut=" + std::to_string(numel_out_) +
        ", Timeout(ms)=" + std::to_string(timeout_.count()) + ")";
  }
  Clock::time_point deadline() const { return start_ + timeout_; }
  Milliseconds timeout() const { return timeout_; }

 private:
  using Future = c10::ivalue::Future;

  bool wait_for(Milliseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (timeout == kNoTimeout) {
      cv_.wait(lock, [&] { return completed_; }); // the lane gives up at the work's own time-out
    } else if (!cv_.wait_for(lock, timeout, [&] { return completed_; })) {
      C10_THROW_ERROR(DistBackendError, describe() + " timed out in blocking wait after " + std::to_string(timeout.count()) + " ms.");
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }

  c10::intrusive_ptr<Future> future(c10::intrusive_ptr<Future>& kept, c10::TypePtr type, std::vector<c10::Device> devices) {
    bool done = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (kept) return kept;
      kept = c10::make_intrusive<Future>(std::move(type), std::move(devices));
      done = completed_;
    }
    if (done) mark(kept);
    return kept;
  }
  void mark(const c10::intrusive_ptr<Future>& future) {
    if (future == values_) {
      if (exception_) {
        future->setError(exception_);
      } else {
        future->markCompleted(c10::IValue(outputs_));
      }
    } else {
      future->markCompleted(c10::IValue(int64_t(exception_ ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS)));
    }
  }

  Tensors outputs_;
  c10::Device device_;
  uint64_t sequence_;
  Milliseconds timeout_;
  int64_t numel_in_, numel_out_;
  Clock::time_point start_, end_;
  c10::intrusive_ptr<Future> values_, status_;
};

// Several calls that were issued between _start_coalescing and _end_coalescing.
class CoalescedWork : public Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<WorkMCCL>> works)
      : Work(rank, OpType::COALESCED), works_(std::move(works)) {}
  bool isCompleted() override {
    for (auto& work : works_) {
      if (!work->isCompleted()) return false;
    }
    return true;
  }
  bool isSuccess() const override {
    for (auto& work : works_) {
      if (!work->isSuccess()) return false;
    }
    return true;
  }
  std::exception_ptr exception() const override {
    for (auto& work : works_) {
      if (auto error = work->exception()) return error;
    }
    return nullptr;
  }
  bool wait(Milliseconds timeout = kNoTimeout) override {
    auto end = Clock::now() + timeout;
    for (auto& work : works_) {
      auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
      work->wait(timeout == kNoTimeout ? kNoTimeout : std::max(left, Milliseconds(1)));
    }
    return true;
  }
  void synchronize() override { wait(); }
  Tensors result() override {
    Tensors all;
    for (auto& work : works_) {
      for (at::Tensor& tensor : work->result()) all.push_back(tensor);
    }
    return all;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    std::vector<c10::Device> devices;
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> parts(
        c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
    for (auto& work : works_) parts.push_back(work->getFuture());
    return c10::collectAll(parts)->then(
        [works = works_](c10::ivalue::Future& all) {
          all.value();
          c10::List<at::Tensor> values;
          for (auto& work : works) {
            work->wait();
            for (at::Tensor& tensor : work->result()) values.push_back(tensor);
          }
          return c10::IValue(values);
        },
        c10::ListType::create(c10::TensorType::get()));
  }

 private:
  std::vector<c10::intrusive_ptr<WorkMCCL>> works_;
};

// ---- lanes ---------------------------------------------------------------------------------------------------

// A thread that runs what it is given, in order.
class Lane {
 public:
  ~Lane() { stop(); }
  void push(std::function<void()> task) {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait(lock, [&] { return tasks_.empty() && !busy_; });
  }
  void stop() { // after everything that was pushed
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
      lock.unlock();
      task();
      task = nullptr; // what it holds goes before the lock is taken
      lock.lock();
      busy_ = false;
      if (tasks_.empty()) idle_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
  bool stopping_ = false, busy_ = false;
};

// ---- process group ---------------------------------------------------------------------------------------------

c10::intrusive_ptr<Backend> make_gloo(const c10::intrusive_ptr<Store>& store, int rank, int size, Milliseconds timeout) {
  // Through Python: wheels of torch come without gloo's headers.
  py::gil_scoped_acquire gil;
  py::object type = py::module_::import("torch._C._distributed_c10d").attr("ProcessGroupGloo");
  return type(store, rank, size, py::arg("timeout") = timeout).cast<c10::intrusive_ptr<Backend>>();
}

class ProcessGroupMCCL;
c10::intrusive_ptr<Backend> make_group(const c10::intrusive_ptr<Store>& store, int rank, int size,
                                       const c10::intrusive_ptr<OptionsMCCL>& options);

class ProcessGroupMCCL : public Backend {
 public:
  ProcessGroupMCCL(const c10::intrusive_ptr<Store>& store, int rank, int size, c10::intrusive_ptr<OptionsMCCL> options)
      : Backend(rank, size), store_(part_of(store, *options)), options_(std::move(options)) {
    gloo_ = make_gloo(c10::make_intrusive<c10d::PrefixStore>("mccl", store_), rank, size, options_->timeout);
    init();
  }
  ~ProcessGroupMCCL() override {
    without_gil([this] { finish(); });
  }

  const std::string getBackendName() const override { return "mccl"; }
  virtual c10::intrusive_ptr<Backend::Options> getBackendOptions() { return options_; }
  c10::intrusive_ptr<OptionsMCCL> options() const { return options_; }
  virtual bool supportsSplitting() const { return true; }
  virtual bool supportsCoalescing() const { return true; }
  virtual void setTimeout(Milliseconds timeout) { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  virtual c10d::ErrorType getError() {
    std::lock_guard<std::mutex> lock(mutex_);
    return failed_.empty() ? c10d::ErrorType::SUCCESS
        : timed_out_       ? c10d::ErrorType::TIMEOUT
                           : c10d::ErrorType::COMM_ERROR;
  }
  virtual void eagerConnectSingleDevice(at::Device device) { used_device_ = device; }
  bool is_initialized() const { return used_device_.load() != c10::Device(c10::kCPU); }

  // ---- collectives

  c10::intrusive_ptr<Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts = c10d::BroadcastOptions()) override {
    at::Tensor tensor = single(tensors);
    int root = check_rank(opts.rootRank);
    return issue(OpType::BROADCAST, "mccl:broadcast", {tensor}, tensors, opts.timeout, [=](Call& call) {
      Counts send = zeros(), receive = zeros();
      if (rank_ == root) send.assign(size_, tensor.numel());
      receive[root] = tensor.numel();
      agree(call, {Kind::Broadcast, tensor.scalar_type(), -1, root}, send, receive);
      Flat flat(tensor);
      Tensors bytes{as_bytes(flat.get())};
      if (bytes[0].numel() == 0) return;
      c10d::BroadcastOptions options;
      options.rootRank = root;
      options.timeout = call.left();
      call.run(gloo()->broadcast(bytes, options));
      flat.store();
    });
  }

  c10::intrusive_ptr<Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts = c10d::AllreduceOptions()) override {
    at::Tensor tensor = single(tensors);
    Reduction reduction = check_reduction(opts.reduceOp, tensor, tensors[0].is_complex());
    return issue(OpType::ALLREDUCE, "mccl:all_reduce", {tensor}, tensors, opts.timeout,
                 [=](Call& call) { all_reduce(call, tensor, reduction); });
  }

  c10::intrusive_ptr<Work> allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts = c10d::AllreduceCoalescedOptions()) override {
    TORCH_CHECK(!tensors.empty(), "Tensor list must be nonempty");
    Tensors all;
    std::vector<Reduction> reductions;
    for (const at::Tensor& tensor : tensors) {
      all.push_back(single({tensor}));
      TORCH_CHECK_VALUE(all.back().device() == all[0].device(), "Tensor list must be on the same device");
      reductions.push_back(check_reduction(opts.reduceOp, all.back(), tensor.is_complex()));
    }
    return issue(OpType::COALESCED, "mccl:allreduce_coalesced", all, tensors, opts.timeout, [=](Call& call) {
      for (size_t i = 0; i < all.size(); ++i) all_reduce(call, all[i], reductions[i]);
    });
  }

  c10::intrusive_ptr<Work> reduce(Tensors& tensors, const c10d::ReduceOptions& opts = c10d::ReduceOptions()) override {
    at::Tensor tensor = single(tensors);
    Reduction reduction = check_reduction(opts.reduceOp, tensor, tensors[0].is_complex());
    int root = check_rank(opts.rootRank);
    return issue(OpType::REDUCE, "mccl:reduce", {tensor}, tensors, opts.timeout, [=](Call& call) {
      int64_t n = tensor.numel();
      Counts send = zeros(), receive = zeros();
      send[root] = n;
      if (rank_ == root) receive.assign(size_, n);
      agree(call, {Kind::Reduce, tensor.scalar_type(), reduction.op, root}, send, receive);
      Flat flat(tensor);
      at::Tensor all = exchange(call, scaled(flat.get(), reduction), send, receive);
      if (rank_ == root) flat.store(reduce_parts(split_even(all), reduction));
    });
  }

  c10::intrusive_ptr<Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& opts = c10d::AllgatherOptions()) override {
    at::Tensor input = single(inputs);
    TORCH_CHECK(outputs.size() == 1, "Expecting one list of output tensors");
    Tensors results = same_device(outputs[0]);
    TORCH_CHECK(int(results.size()) == size_, "Tensor list must have one tensor for each of the ", size_, " ranks");
    check_alike(input, results);
    return issue(OpType::ALLGATHER, "mccl:all_gather", {input}, outputs[0], opts.timeout, [=](Call& call) {
      Counts receive;
      for (const at::Tensor& tensor : results) receive.push_back(tensor.numel());
      all_gather(call, input, receive, results);
    });
  }

  c10::intrusive_ptr<Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& opts = c10d::AllgatherOptions()) override {
    Tensors outputs{output}, inputs{input};
    return allgather_into_tensor_coalesced(outputs, inputs, opts);
  }

  c10::intrusive_ptr<Work> allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts = c10d::AllgatherOptions()) override {
    auto [ins, outs] = pairs(inputs, outputs);
    for (size_t i = 0; i < ins.size(); ++i) {
      TORCH_CHECK_WITH(TypeError, ins[i].scalar_type() == outs[i].scalar_type(),
                       "output tensor must have the same type as input tensor");
      TORCH_CHECK_VALUE(outs[i].numel() == ins[i].numel() * size_,
                        "output tensor size must be equal to world_size times input tensor size");
    }
    bool one = ins.size() == 1;
    return issue(one ? OpType::_ALLGATHER_BASE : OpType::COALESCED, one ? "mccl:_all_gather_base" : "mccl:all_gather_into_tensor_coalesced",
                 ins, outputs, opts.timeout, [=, ins = ins, outs = outs](Call& call) {
                   for (size_t i = 0; i < ins.size(); ++i) all_gather(call, ins[i], Counts(size_, ins[i].numel()), {outs[i]});
                 });
  }

  c10::intrusive_ptr<Work> allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& opts = c10d::AllgatherOptions()) override {
    TORCH_CHECK(false, "ProcessGroupMCCL does not support allgather_coalesced");
  }

  c10::intrusive_ptr<Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::GatherOptions& opts = c10d::GatherOptions()) override {
    at::Tensor input = single(inputs);
    int root = check_rank(opts.rootRank);
    Tensors results, originals;
    if (rank_ == root) {
      TORCH_CHECK(outputs.size() == 1, "requires a single-element output list containing a list with ", size_, " tensors.");
      originals = outputs[0];
      results = same_device(originals);
      TORCH_CHECK(int(results.size()) == size_, "Incorrect output list size ", results.size(), ". Output list should be ", size_,
                  ", same as size of the process group.");
      check_alike(input, results);
    } else {
      TORCH_CHECK(outputs.empty(), "requires empty output on non-root");
    }
    return issue(OpType::GATHER, "mccl:gather", {input}, originals, opts.timeout, [=](Call& call) {
      Counts send = zeros(), receive = zeros();
      send[root] = input.numel();
      for (size_t i = 0; i < results.size(); ++i) receive[i] = results[i].numel();
      agree(call, {Kind::Gather, input.scalar_type(), -1, root}, send, receive);
      distribute(exchange(call, Flat(input).get(), send, receive), results);
    });
  }

  c10::intrusive_ptr<Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ScatterOptions& opts = c10d::ScatterOptions()) override {
    at::Tensor output = single(outputs);
    int root = check_rank(opts.rootRank);
    Tensors parts;
    if (rank_ == root) {
      TORCH_CHECK(inputs.size() == 1, "requires a single-element input list containing a list with ", size_, " tensors.");
      parts = same_device(inputs[0]);
      TORCH_CHECK(int(parts.size()) == size_, "Incorrect input list size ", parts.size(), ". Input list should be ", size_,
                  ", same as size of the process group.");
      check_alike(output, parts);
    } else {
      TORCH_CHECK(inputs.empty(), "requires empty input on non-root");
    }
    return issue(OpType::SCATTER, "mccl:scatter", parts.empty() ? Tensors{output} : parts, outputs, opts.timeout, [=](Call& call) {
      Counts send = zeros(), receive = zeros();
      for (size_t i = 0; i < parts.size(); ++i) send[i] = parts[i].numel();
      receive[root] = output.numel();
      agree(call, {Kind::Scatter, output.scalar_type(), -1, root}, send, receive);
      distribute(exchange(call, joined(parts, output.scalar_type()), send, receive), {output});
    });
  }

  c10::intrusive_ptr<Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ReduceScatterOptions& opts = c10d::ReduceScatterOptions()) override {
    at::Tensor output = single(outputs);
    TORCH_CHECK(inputs.size() == 1, "Expecting one list of input tensors");
    Tensors parts = same_device(inputs[0]);
    TORCH_CHECK(int(parts.size()) == size_, "Tensor list must have one tensor for each of the ", size_, " ranks");
    check_alike(output, parts);
    Reduction reduction = check_reduction(opts.reduceOp, output, outputs[0].is_complex());
    return issue(OpType::REDUCE_SCATTER, "mccl:reduce_scatter", parts, outputs, opts.timeout, [=](Call& call) {
      Counts send;
      for (const at::Tensor& part : parts) send.push_back(part.numel());
      reduce_scatter_flat(call, joined(parts, output.scalar_type()), send, output, reduction);
    });
  }

  c10::intrusive_ptr<Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& opts = c10d::ReduceScatterOptions()) override {
    Tensors outputs{output}, inputs{input};
    return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
  }

  c10::intrusive_ptr<Work> reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts = c10d::ReduceScatterOptions()) override {
    auto [ins, outs] = pairs(inputs, outputs);
    std::vector<Reduction> reductions;
    for (size_t i = 0; i < ins.size(); ++i) {
      TORCH_CHECK_WITH(TypeError, ins[i].scalar_type() == outs[i].scalar_type(),
                       "input tensor must be the same type as the output tensor.");
      TORCH_CHECK_VALUE(ins[i].numel() == outs[i].numel() * size_,
                        "input tensor must be the same size as output size times world size");
      reductions.push_back(check_reduction(opts.reduceOp, ins[i], inputs[i].is_complex()));
    }
    bool one = ins.size() == 1;
    return issue(one ? OpType::_REDUCE_SCATTER_BASE : OpType::COALESCED,
                 one ? "mccl:_reduce_scatter_base" : "mccl:reduce_scatter_tensor_coalesced", ins, outputs, opts.timeout,
                 [=, ins = ins, outs = outs](Call& call) {
                   for (size_t i = 0; i < ins.size(); ++i) {
                     reduce_scatter_flat(call, Flat(ins[i]).get(), Counts(size_, outs[i].numel()), outs[i], reductions[i]);
                   }
                 });
  }

  c10::intrusive_ptr<Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                         std::vector<int64_t>& input_splits,
                                         const c10d::AllToAllOptions& opts = c10d::AllToAllOptions()) override {
    at::Tensor out = single({output}), in = single({input});
    check_alike(in, {out});
    Counts send = counts(in, input_splits, "input"), receive = counts(out, output_splits, "output");
    return issue(OpType::ALLTOALL_BASE, "mccl:all_to_all", {in}, {output}, opts.timeout, [=](Call& call) {
      agree(call, {Kind::AllToAll, in.scalar_type(), -1, -1}, send, receive);
      distribute(exchange(call, Flat(in).get(), send, receive), {out});
    });
  }

  c10::intrusive_ptr<Work> alltoall(Tensors& outputs, Tensors& inputs,
                                    const c10d::AllToAllOptions& opts = c10d::AllToAllOptions()) override {
    Tensors outs = same_device(outputs), ins = same_device(inputs);
    TORCH_CHECK(int(outs.size()) == size_ && int(ins.size()) == size_, "Tensor lists must have one tensor for each of the ", size_, " ranks");
    check_alike(ins[0], outs);
    return issue(OpType::ALLTOALL, "mccl:all_to_all", ins, outputs, opts.timeout, [=](Call& call) {
      Counts send, receive;
      for (const at::Tensor& tensor : ins) send.push_back(tensor.numel());
      for (const at::Tensor& tensor : outs) receive.push_back(tensor.numel());
      agree(call, {Kind::AllToAll, ins[0].scalar_type(), -1, -1}, send, receive);
      distribute(exchange(call, joined(ins, ins[0].scalar_type()), send, receive), outs);
    });
  }

  c10::intrusive_ptr<Work> barrier(const c10d::BarrierOptions& opts = c10d::BarrierOptions()) override {
    c10::Device device(kMusa, 0);
    if (!opts.device_ids.empty()) {
      device.set_index(c10::DeviceIndex(opts.device_ids[0]));
    } else if (getBoundDeviceId()) {
      device = *getBoundDeviceId();
    } else if (opts.device && opts.device->type() == kMusa && opts.device->has_index()) {
      device = *opts.device;
    } else if (is_initialized()) {
      device = used_device_;
    } else {
      device.set_index(c10::DeviceIndex(rank_ % std::max(1, int(guard().deviceCount()))));
    }
    TORCH_CHECK_VALUE(device.index() >= 0 && device.index() < guard().deviceCount(), "Invalid device index ", int(device.index()));
    return issue(OpType::BARRIER, "mccl:all_reduce_barrier", {}, {}, opts.timeout, [=](Call& call) {
      agree(call, {Kind::Barrier, c10::kByte, -1, -1}, zeros(), zeros());
    }, device);
  }

  // ---- messages

  c10::intrusive_ptr<Work> send(Tensors& tensors, int peer, int) override {
    at::Tensor tensor = single(tensors);
    check_peer(peer, "send to");
    if (peer == rank_) {
      return issue(OpType::SEND, "mccl:send", {tensor}, {}, c10d::kUnsetTimeout, [tensor, letter = letter(sent_++)](Call&) {
        letter->set_value(Flat(tensor).get().clone());
      }, std::nullopt, &lane(peer, true));
    }
    return issue(OpType::SEND, "mccl:send", {tensor}, {}, c10d::kUnsetTimeout, [=](Call& call) {
      Flat flat(tensor);
      Tensors head{at::tensor({int64_t(tensor.scalar_type()), tensor.numel()}, at::TensorOptions(c10::kLong))};
      call.run_message(gloo()->send(head, peer, kHeadTag));
      Tensors bytes{as_bytes(flat.get())};
      if (bytes[0].numel()) call.run_message(gloo()->send(bytes, peer, kBodyTag));
    }, std::nullopt, &lane(peer, true));
  }

  c10::intrusive_ptr<Work> recv(Tensors& tensors, int peer, int) override {
    at::Tensor tensor = single(tensors);
    check_peer(peer, "receive from");
    if (peer == rank_) {
      return issue(OpType::RECV, "mccl:recv", {}, tensors, c10d::kUnsetTimeout, [=, letter = letter(received_++)](Call&) {
        at::Tensor sent = letter->get_future().get();
        check_message(tensor, peer, sent.scalar_type(), sent.numel());
        Flat(tensor).store(sent);
      }, tensor.device(), &lane(peer, false));
    }
    return issue(OpType::RECV, "mccl:recv", {}, tensors, c10d::kUnsetTimeout, [=](Call& call) {
      Tensors head{host_empty(2, c10::kLong)};
      call.run_message(gloo()->recv(head, peer, kHeadTag));
      const int64_t* values = head[0].const_data_ptr<int64_t>();
      check_message(tensor, peer, c10::ScalarType(values[0]), values[1]);
      Flat flat(tensor);
      Tensors bytes{as_bytes(flat.get())};
      if (bytes[0].numel()) call.run_message(gloo()->recv(bytes, peer, kBodyTag));
      flat.store();
    }, tensor.device(), &lane(peer, false));
  }

  c10::intrusive_ptr<Work> recvAnysource(Tensors&, int) override {
    TORCH_CHECK(false, "ProcessGroupMCCL does not support recvAnysource: give recv() a source rank");
  }

  void startCoalescing() override {
    TORCH_CHECK(!coalescing_, "coalescing has been started already on this group");
    coalescing_ = true;
    coalesced_.clear();
    letters_.clear();
    sent_ = received_ = 0;
  }
  c10::intrusive_ptr<Work> endCoalescing() override {
    TORCH_CHECK(coalescing_, "coalescing has not been started on this group");
    coalescing_ = false;
    std::string unpaired = "rank " + std::to_string(rank_) + " sends " + std::to_string(sent_) + " tensors to itself and receives " +
        std::to_string(received_) + " from itself in one batch_isend_irecv";
    for (size_t i = sent_; i < received_; ++i) letters_[i]->set_exception(std::make_exception_ptr(std::runtime_error(unpaired)));
    if (sent_ != received_) C10_THROW_ERROR(DistBackendError, unpaired);
    return c10::make_intrusive<CoalescedWork>(rank_, std::move(coalesced_));
  }

  // ---- groups

  // torch 2.7 splits a group by options, the parent's own, and gives all parts one store.
  static c10::intrusive_ptr<Store> part_of(const c10::intrusive_ptr<Store>& store, OptionsMCCL& options) {
    auto parent = c10::dynamic_intrusive_pointer_cast<ProcessGroupMCCL>(std::move(options.split_from));
    if (!parent) return store;
    ++parent->splits_;
    return c10::make_intrusive<c10d::PrefixStore>("split/" + std::to_string(options.split_color), store);
  }
  virtual c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<Store>& store, const std::vector<int>& ranks,
                                            const c10::intrusive_ptr<Backend::Options>& opts) {
    ++splits_;
    auto options = c10::dynamic_intrusive_pointer_cast<OptionsMCCL>(opts);
    TORCH_CHECK(options, "opts not a ProcessGroupMCCL.Options.");
    auto place = std::find(ranks.begin(), ranks.end(), rank_);
    if (place == ranks.end()) return nullptr;
    auto named = c10::make_intrusive<c10d::PrefixStore>("split/" + options->group_name, store);
    return make_group(named, int(place - ranks.begin()), int(ranks.size()), options);
  }
  void perform_nocolor_split(c10::Device) { ++splits_; }
  uint64_t comm_split_count() const { return splits_; }

  void wait_idle() { // for everything that has been issued; errors stay with the work
    collectives_.wait();
    std::vector<std::shared_ptr<Lane>> lanes;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto& [peer, lane] : messages_) lanes.push_back(lane);
    }
    for (auto& lane : lanes) lane->wait();
  }

  virtual void shutdown() { finish(); }
  virtual void abort() {
    fail("the process group was aborted", false);
    finish();
  }
  void add_ephemeral_timeout(Milliseconds timeout) {
    std::lock_guard<std::mutex> lock(mutex_);
    extra_timeout_ += timeout;
  }
  static bool verify_work_timeout(const c10::intrusive_ptr<Work>& work, Milliseconds timeout) {
    auto mine = c10::dynamic_intrusive_pointer_cast<WorkMCCL>(work);
    TORCH_CHECK(mine, "_verify_work_timeout needs work of this process group");
    return mine->timeout() == timeout;
  }

 private:
  using Counts = std::vector<int64_t>;
  static constexpr int kHeadTag = 1, kBodyTag = 2;

  struct What {
    Kind kind;
    c10::ScalarType dtype;
    int64_t reduction; // -1: none
    int64_t root; // -1: none
  };

  // One call while it runs on a lane.
  struct Call {
    ProcessGroupMCCL& group;
    WorkMCCL& work;
    c10::Device device;

    Milliseconds left() const {
      auto rest = std::chrono::duration_cast<Milliseconds>(work.deadline() - Clock::now());
      return std::max(rest, Milliseconds(1));
    }
    // Waits for a step of gloo; abort() ends that at once.
    void run(const c10::intrusive_ptr<Work>& step) {
      struct State {
        bool done = false;
      };
      auto state = std::make_shared<State>();
      auto shared = group.waiting_;
      step->getFuture()->addCallback([state, shared](c10::ivalue::Future&) {
        std::lock_guard<std::mutex> lock(shared->mutex);
        state->done = true;
        shared->changed.notify_all();
      });
      {
        std::unique_lock<std::mutex> lock(shared->mutex);
        shared->changed.wait(lock, [&] { return state->done || shared->aborted; });
        TORCH_CHECK(state->done, "the process group was aborted");
      }
      step->wait(); // throws what went wrong
    }
    void run_message(const c10::intrusive_ptr<Work>& step) {
      auto shared = group.waiting_;
      {
        std::lock_guard<std::mutex> lock(shared->mutex);
        TORCH_CHECK(!shared->aborted, "the process group was aborted");
        shared->messages.insert(step);
      }
      struct Forget {
        Waiting& waiting;
        const c10::intrusive_ptr<Work>& step;
        ~Forget() {
          std::lock_guard<std::mutex> lock(waiting.mutex);
          waiting.messages.erase(step);
        }
      } forget{*shared, step};
      bool done = step->wait(left());
      TORCH_CHECK(done, "the process group was aborted");
    }
  };

  struct Waiting {
    std::mutex mutex;
    std::condition_variable changed;
    bool aborted = false;
    std::set<c10::intrusive_ptr<Work>> messages;
  };

  // ---- arguments

  Counts zeros() const { return Counts(size_, 0); }
  int check_rank(int64_t rank) const {
    TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "invalid root rank ", rank, ": the group has ", size_, " ranks");
    return int(rank);
  }
  void check_peer(int64_t rank, const char* what) const {
    TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "invalid rank ", rank, " to ", what, ": the group has ", size_, " ranks");
    TORCH_CHECK_VALUE(rank != rank_ || coalescing_, "rank ", rank_, " cannot ", what, " itself outside of batch_isend_irecv");
  }
  void check_message(const at::Tensor& tensor, int peer, c10::ScalarType type, int64_t numel) const {
    TORCH_CHECK(type == tensor.scalar_type() && numel == tensor.numel(), "rank ", peer, " sent ", numel, " elements of type ",
                c10::toString(type), ", and rank ", rank_, " receives into ", tensor.numel(), " of type ",
                c10::toString(tensor.scalar_type()));
  }
  static void check_alike(const at::Tensor& one, const Tensors& others) {
    for (const at::Tensor& other : others) {
      TORCH_CHECK_WITH(TypeError, other.scalar_type() == one.scalar_type(), "Tensors must have identical type");
      TORCH_CHECK_VALUE(other.device() == one.device(), "Expected all tensors to be on the same device, but got ", one.device(),
                        " and ", other.device());
    }
  }
  std::pair<Tensors, Tensors> pairs(const Tensors& inputs, const Tensors& outputs) const {
    TORCH_CHECK(!inputs.empty() && inputs.size() == outputs.size(), "Tensor lists must be nonempty and of one length");
    Tensors ins, outs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ins.push_back(single({inputs[i]}));
      outs.push_back(single({outputs[i]}));
      TORCH_CHECK_VALUE(ins[i].device() == ins[0].device() && outs[i].device() == ins[0].device(),
                        "Tensor list must be on the same device");
    }
    return {ins, outs};
  }
  Counts counts(const at::Tensor& tensor, const std::vector<int64_t>& splits, const char* which) const {
    if (splits.empty()) {
      TORCH_CHECK(tensor.dim() > 0 && tensor.size(0) % size_ == 0, "Tensor's dim 0 does not divide equally across group size");
      return Counts(size_, tensor.numel() / size_);
    }
    TORCH_CHECK(int(splits.size()) == size_, "Number of tensor splits not equal to group size");
    int64_t rows = 0;
    for (int64_t split : splits) {
      TORCH_CHECK_VALUE(split >= 0, "Split sizes must not be negative");
      rows += split;
    }
    TORCH_CHECK(tensor.dim() > 0 && rows == tensor.size(0), "Split sizes doesn't match total dim 0 size of the ", which, " tensor");
    Counts result;
    for (int64_t split : splits) result.push_back(rows ? split * (tensor.numel() / rows) : 0);
    return result;
  }
  Tensors split_even(const at::Tensor& all) const { return all.view({size_, -1}).unbind(0); }

  // ---- steps of a collective

  // What all ranks are about to do; an error on all of them if that does not fit together.
  void agree(Call& call, const What& what, const Counts& send, const Counts& receive) {
    const int64_t width = 6 + 2 * size_;
    at::Tensor mine = host_empty(width, c10::kLong), all = host_empty(width * size_, c10::kLong);
    int64_t* values = mine.mutable_data_ptr<int64_t>();
    const int64_t head[] = {int64_t(what.kind), int64_t(what.dtype), what.reduction, what.root, host_id(), physical_device(call.device.index())};
    std::copy(std::begin(head), std::end(head), values);
    std::copy(send.begin(), send.end(), values + 6);
    std::copy(receive.begin(), receive.end(), values + 6 + size_);
    c10d::AllgatherOptions options;
    options.timeout = call.left();
    call.run(gloo()->_allgather_base(all, mine, options));

    const int64_t* table = all.const_data_ptr<int64_t>();
    auto row = [&](int rank) { return table + rank * width; };
    for (int rank = 1; rank < size_; ++rank) {
      if (std::equal(row(0), row(0) + 4, row(rank))) continue;
      TORCH_CHECK(false, "the ranks do not call the same collective: rank 0 calls ", tell(row(0)), ", rank ", rank, " calls ", tell(row(rank)));
    }
    for (int a = 0; a < size_; ++a) {
      for (int b = a + 1; b < size_; ++b) {
        TORCH_CHECK(row(a)[4] != row(b)[4] || row(a)[5] != row(b)[5], "Duplicate GPU detected : rank ", a, " and rank ", b,
                    " both on MUSA device ", row(a)[5], ". Give every process a device of its own, "
                    "for example with torch.musa.set_device(local_rank)");
      }
    }
    for (int a = 0; a < size_; ++a) {
      for (int b = 0; b < size_; ++b) {
        int64_t sent = row(a)[6 + b], expected = row(b)[6 + size_ + a];
        TORCH_CHECK(sent == expected, "the sizes do not fit in ", tell(row(0)), ": rank ", a, " sends ", sent, " elements to rank ", b,
                    ", which expects ", expected);
      }
    }
    used_device_ = call.device;
  }
  static std::string tell(const int64_t* row) {
    std::string text = kKindNames[row[0]];
    if (Kind(row[0]) == Kind::Barrier) return text;
    text += std::string("(") + c10::toString(c10::ScalarType(row[1]));
    if (row[2] >= 0) text += std::string(", ") + kReduceNames[row[2]];
    if (row[3] >= 0) text += ", root " + std::to_string(row[3]);
    return text + ")";
  }

  // send[i] elements to rank i; returns what came, in the order of the ranks.
  at::Tensor exchange(Call& call, const at::Tensor& flat, const Counts& send, const Counts& receive) {
    int64_t total = 0, item = int64_t(flat.itemsize());
    Counts send_bytes, receive_bytes;
    for (int64_t n : send) send_bytes.push_back(n * item);
    for (int64_t n : receive) {
      receive_bytes.push_back(n * item);
      total += n;
    }
    at::Tensor result = host_empty(total, flat.scalar_type());
    at::Tensor in = as_bytes(flat), out = as_bytes(result);
    c10d::AllToAllOptions options;
    options.timeout = call.left();
    call.run(gloo()->alltoall_base(out, in, receive_bytes, send_bytes, options));
    return result;
  }
  at::Tensor collect(Call& call, const at::Tensor& flat) { // the same number of elements from every rank
    at::Tensor result = host_empty(flat.numel() * size_, flat.scalar_type());
    if (flat.numel() == 0) return result;
    at::Tensor in = as_bytes(flat), out = as_bytes(result);
    c10d::AllgatherOptions options;
    options.timeout = call.left();
    call.run(gloo()->_allgather_base(out, in, options));
    return result;
  }
  void all_reduce(Call& call, const at::Tensor& tensor, const Reduction& reduction) {
    int64_t n = tensor.numel();
    agree(call, {Kind::AllReduce, tensor.scalar_type(), reduction.op, -1}, Counts(size_, n), Counts(size_, n));
    if (n == 0) return;
    Flat flat(tensor);
    at::Tensor mine = scaled(flat.get(), reduction);
    if (int64_t(mine.nbytes()) <= kSmallBytes) {
      flat.store(reduce_parts(split_even(collect(call, mine)), reduction));
      return;
    }
    int64_t share = (n + size_ - 1) / size_; // of one rank; the last one is padded
    at::Tensor padded = at::zeros({share * size_}, mine.options());
    padded.narrow(0, 0, n).copy_(mine);
    Counts even(size_, share);
    at::Tensor parts = exchange(call, padded, even, even);
    at::Tensor result = collect(call, reduce_parts(split_even(parts), reduction));
    flat.store(result.narrow(0, 0, n));
  }
  void all_gather(Call& call, const at::Tensor& input, const Counts& receive, const Tensors& outputs) {
    agree(call, {Kind::AllGather, input.scalar_type(), -1, -1}, Counts(size_, input.numel()), receive);
    int64_t longest = *std::max_element(receive.begin(), receive.end());
    at::Tensor mine = Flat(input).get();
    if (mine.numel() < longest) {
      at::Tensor padded = at::zeros({longest}, mine.options());
      padded.narrow(0, 0, mine.numel()).copy_(mine);
      mine = padded;
    }
    at::Tensor all = collect(call, mine);
    if (outputs.size() == 1) { // one tensor for all of them
      Flat(outputs[0]).store(all);
      return;
    }
    for (int rank = 0; rank < size_; ++rank) Flat(outputs[rank]).store(all.narrow(0, rank * longest, receive[rank]));
  }
  void reduce_scatter_flat(Call& call, const at::Tensor& flat, const Counts& send, const at::Tensor& output, const Reduction& reduction) {
    Counts receive(size_, output.numel());
    agree(call, {Kind::ReduceScatter, flat.scalar_type(), reduction.op, -1}, send, receive);
    at::Tensor parts = exchange(call, scaled(flat, reduction), send, receive);
    if (output.numel()) Flat(output).store(reduce_parts(split_even(parts), reduction));
  }

  // ---- queueing

  c10::intrusive_ptr<Work> issue(OpType type, const char* title, const Tensors& inputs, const Tensors& outputs, Milliseconds timeout,
                                 std::function<void(Call&)> body, std::optional<c10::Device> on = std::nullopt, Lane* lane = nullptr) {
    c10::Device device = on ? *on : inputs[0].device();
    if (timeout == c10d::kUnsetTimeout) timeout = options_->timeout;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!failed_.empty()) {
        C10_THROW_ERROR(DistBackendError, "MCCL communicator was aborted on rank " + std::to_string(rank_) +
                                              ". Original reason for failure was: " + failed_);
      }
      if (!gloo_) C10_THROW_ERROR(DistBackendError, "The MCCL process group has been shut down; make a new one");
      timeout += extra_timeout_;
      extra_timeout_ = Milliseconds(0);
    }
    auto work = c10::make_intrusive<WorkMCCL>(rank_, type, title, inputs, outputs, device, ++sequence_, timeout);
    Before before(device);
    (lane ? *lane : collectives_).push([this, work, before, device, body = std::move(body)] {
      std::exception_ptr error;
      try {
        {
          std::lock_guard<std::mutex> lock(mutex_);
          TORCH_CHECK(failed_.empty(), "an earlier operation of the group failed: ", failed_);
        }
        before.wait();
        Call call{*this, *work, device};
        body(call);
      } catch (const std::exception& problem) {
        error = translate(*work, problem);
      }
      work->complete(error, [this](std::function<void()> task) { elsewhere(std::move(task)); });
    });
    if (coalescing_) coalesced_.push_back(work);
    return work;
  }

  std::exception_ptr translate(const WorkMCCL& work, const std::exception& problem) {
    const auto* of_torch = dynamic_cast<const c10::Error*>(&problem);
    std::string reason = of_torch ? of_torch->what_without_backtrace() : problem.what();
    auto ran = std::chrono::duration_cast<Milliseconds>(Clock::now() - work.deadline() + work.timeout());
    bool late = ran + Milliseconds(5) >= work.timeout();
    for (const char* lost : {"Connection closed by peer", "Connection reset by peer", "Broken pipe"}) {
      if (reason.find(lost) != std::string::npos) {
        reason = "a rank has died or left the group: " + reason;
        break;
      }
    }
    std::string text = "[Rank " + std::to_string(rank_) + "] ";
    if (late) {
      text += "Watchdog caught collective operation timeout: " + work.describe() + " ran for " + std::to_string(ran.count()) +
          " milliseconds before timing out. A rank is missing, dead or late: " + reason;
    } else {
      text += work.describe() + " failed: " + reason;
    }
    if (fail(text, late)) LOG(ERROR) << text; // told even if nobody waits for the work
    return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, uint32_t(__LINE__)}, text));
  }
  bool fail(const std::string& reason, bool late) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_.empty()) return false;
    failed_ = reason;
    timed_out_ = late;
    return true;
  }

  void elsewhere(std::function<void()> task) {
    std::lock_guard<std::mutex> lock(mutex_);
    callbacks_.erase(std::remove_if(callbacks_.begin(), callbacks_.end(),
                                    [](std::future<void>& f) { return f.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }),
                     callbacks_.end());
    callbacks_.push_back(std::async(std::launch::async, std::move(task)));
  }

  Lane& lane(int peer, bool sending) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& found = messages_[{peer, sending}];
    if (!found) found = std::make_shared<Lane>();
    return *found;
  }
  c10::intrusive_ptr<Backend> gloo() {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(gloo_, "the process group was shut down");
    return gloo_;
  }

  // Ends the lanes and the connection. After a failure nothing is waited for: gloo's own threads can only be
  // joined when their time-out has passed, so they are left to a thread of their own.
  void finish() {
    bool failed = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!gloo_) return;
      failed = !failed_.empty();
    }
    if (failed) {
      std::lock_guard<std::mutex> lock(waiting_->mutex);
      waiting_->aborted = true;
      waiting_->changed.notify_all();
      for (const auto& message : waiting_->messages) message->abort();
    }
    collectives_.stop();
    std::map<std::pair<int, bool>, std::shared_ptr<Lane>> messages;
    std::vector<std::future<void>> callbacks;
    c10::intrusive_ptr<Backend> gloo;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      messages.swap(messages_);
    }
    messages.clear();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      callbacks.swap(callbacks_);
      gloo.swap(gloo_);
      failed = !failed_.empty();
    }
    callbacks.clear(); // waits for them
    if (failed) std::thread([gloo = std::move(gloo)]() mutable { gloo.reset(); }).detach();
  }

  c10::intrusive_ptr<Store> store_;
  c10::intrusive_ptr<OptionsMCCL> options_;
  std::mutex mutex_; // of what follows
  c10::intrusive_ptr<Backend> gloo_;
  std::string failed_; // why the group is of no use any more
  bool timed_out_ = false;
  Milliseconds extra_timeout_{0};
  std::vector<std::future<void>> callbacks_;
  std::map<std::pair<int, bool>, std::shared_ptr<Lane>> messages_;

  std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
  Lane collectives_;
  std::atomic<uint64_t> sequence_{0}, splits_{0};
  std::atomic<c10::Device> used_device_{c10::Device(c10::kCPU)};
  // What a rank sends to itself: the n-th receive of a batch gets the n-th send.
  using Letter = std::shared_ptr<std::promise<at::Tensor>>;
  Letter letter(size_t i) {
    if (i == letters_.size()) letters_.push_back(std::make_shared<std::promise<at::Tensor>>());
    return letters_[i];
  }
  std::vector<Letter> letters_;
  size_t sent_ = 0, received_ = 0;

  bool coalescing_ = false;
  std::vector<c10::intrusive_ptr<WorkMCCL>> coalesced_;
};

// ---- the end of the process -----------------------------------------------------------------------------------

struct Living {
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<ProcessGroupMCCL>> groups;
};
Living& living() {
  static auto* instance = new Living();
  return *instance;
}

c10::intrusive_ptr<Backend> make_group(const c10::intrusive_ptr<Store>& store, int rank, int size,
                                       const c10::intrusive_ptr<OptionsMCCL>& options) {
  auto group = c10::make_intrusive<ProcessGroupMCCL>(store, rank, size, options);
  std::lock_guard<std::mutex> lock(living().mutex);
  auto& groups = living().groups;
  groups.erase(std::remove_if(groups.begin(), groups.end(), [](auto& group) { return group.expired(); }), groups.end());
  groups.emplace_back(group);
  return group;
}

std::vector<c10::intrusive_ptr<ProcessGroupMCCL>> living_groups() {
  std::vector<c10::intrusive_ptr<ProcessGroupMCCL>> groups;
  std::lock_guard<std::mutex> lock(living().mutex);
  for (auto& group : living().groups) {
    if (auto alive = group.lock()) groups.push_back(alive);
  }
  return groups;
}

// A lane that asks for the GIL while the interpreter is taken down would bring the process down: groups that
// nobody destroyed end before that.
void end_groups() {
  sim::on_synchronize(nullptr);
  for (auto& group : living_groups()) group->abort();
}

// The collectives' own streams are streams of the device too.
void wait_for_groups(int) {
  for (auto& group : living_groups()) group->wait_idle();
}

} // namespace

PYBIND11_MODULE(_MCCL, module) {
  py::object c10d_module = py::module_::import("torch._C._distributed_c10d");
  py::object backend = c10d_module.attr("Backend");

  py::class_<ProcessGroupMCCL, c10::intrusive_ptr<ProcessGroupMCCL>, Backend> group(module, "ProcessGroupMCCL");
  auto create = [](const c10::intrusive_ptr<Store>& store, int rank, int size, const c10::intrusive_ptr<OptionsMCCL>& options) {
    return c10::static_intrusive_pointer_cast<ProcessGroupMCCL>(make_group(store, rank, size, options));
  };
  group.def(py::init(create), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), py::call_guard<py::gil_scoped_release>())
      .def(py::init([create](const c10::intrusive_ptr<Store>& store, int rank, int size, Milliseconds timeout) {
             auto options = c10::make_intrusive<OptionsMCCL>();
             options->timeout = timeout;
             return create(store, rank, size, options);
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = kTimeout, py::call_guard<py::gil_scoped_release>())
      .def("_group_start", [](ProcessGroupMCCL&) {})
      .def("_group_end", [](ProcessGroupMCCL&) {})
      .def("comm_split_count", &ProcessGroupMCCL::comm_split_count)
      .def("_set_default_timeout", &ProcessGroupMCCL::setTimeout, py::arg("timeout"))
      .def("_add_ephemeral_timeout", &ProcessGroupMCCL::add_ephemeral_timeout, py::arg("timeout"))
      .def("_verify_work_timeout",
           [](ProcessGroupMCCL&, const c10::intrusive_ptr<Work>& work, Milliseconds timeout) {
             return ProcessGroupMCCL::verify_work_timeout(work, timeout);
           },
           py::arg("work"), py::arg("timeout"))
      .def_property_readonly("options", &ProcessGroupMCCL::options)
      .def_property_readonly("uid", &Backend::getGroupUid)
      .def_property("bound_device_id", &Backend::getBoundDeviceId, &Backend::setBoundDeviceId)
      .def("perform_nocolor_split", &ProcessGroupMCCL::perform_nocolor_split, py::arg("device"))
      .def("_is_initialized", &ProcessGroupMCCL::is_initialized)
      .def("get_error", &ProcessGroupMCCL::getError);

  py::class_<OptionsMCCL, c10::intrusive_ptr<OptionsMCCL>, Backend::Options>(group, "Options")
      .def(py::init<bool>(), py::arg("is_high_priority_stream") = false)
      .def_readwrite("is_high_priority_stream", &OptionsMCCL::is_high_priority_stream)
      .def_readwrite("split_from", &OptionsMCCL::split_from)
      .def_readwrite("split_color", &OptionsMCCL::split_color)
      .def_readwrite("global_ranks_in_group", &OptionsMCCL::global_ranks_in_group)
      .def_readwrite("group_name", &OptionsMCCL::group_name)
      .def("__copy__", [](const OptionsMCCL& self) { return c10::make_intrusive<OptionsMCCL>(self); })
      .def("__deepcopy__", [](const OptionsMCCL& self, py::dict) { return c10::make_intrusive<OptionsMCCL>(self); }, py::arg("memo"));

  sim::on_synchronize(&wait_for_groups);
  py::module_::import("atexit").attr("register")(py::cpp_function(&end_groups, py::call_guard<py::gil_scoped_release>()));
}
