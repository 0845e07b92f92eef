// Graphs: torch_musa._MUSAC._MUSAGraph, and the C functions of the MUSA runtime for graph executables.
#include "memory.h"
#include "musart.h"
#include "python.h"
#include "work.h"

#include <torch/csrc/utils/pythoncapi_compat.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace sim {

std::atomic<int64_t> executables_cut_off{0};

namespace {

using TemplatePtr = std::shared_ptr<const GraphTemplate>;

// ---- templates and executables ---------------------------------------------------------------------------------------
// The driver bounds how many executables are alive. Work in flight keeps what it runs, not the place in that bound.
// Graphs reach both only through the C functions below, as torch_musa goes through libmusart: who has put its own
// functions in the place of these sees every call.

struct Executable {
  explicit Executable(TemplatePtr t) : graph(std::move(t)) {}
  const TemplatePtr graph;
  std::mutex running; // a launch waits for the one before, on whatever stream
  std::atomic<int> in_flight{0};
};
using ExecutablePtr = std::shared_ptr<Executable>;

struct Executables {
  std::mutex mutex;
  std::map<void*, ExecutablePtr> alive;
  std::map<void*, TemplatePtr> templates;
};
Executables& executables() {
  static auto* instance = new Executables();
  return *instance;
}

void* own_template(TemplatePtr graph) {
  void* handle = const_cast<GraphTemplate*>(graph.get());
  std::lock_guard<std::mutex> lock(executables().mutex);
  executables().templates.emplace(handle, std::move(graph));
  return handle;
}

TemplatePtr find_template(void* handle) {
  std::lock_guard<std::mutex> lock(executables().mutex);
  auto found = executables().templates.find(handle);
  return found == executables().templates.end() ? nullptr : found->second;
}

bool destroy_template(void* handle) {
  TemplatePtr last; // its closures go after the lock does
  std::lock_guard<std::mutex> lock(executables().mutex);
  auto found = executables().templates.find(handle);
  if (found == executables().templates.end()) return false;
  last = std::move(found->second);
  executables().templates.erase(found);
  return true;
}

void* instantiate(TemplatePtr graph) {
  std::lock_guard<std::mutex> lock(executables().mutex);
  auto& alive = executables().alive;
  if (int64_t(alive.size()) >= config().graph_execs) {
    throw_musa_error(2, "out of memory (" + std::to_string(alive.size()) + " graph executables are alive, which is what the "
                        "driver allows; simulated device: TORCHADA_SIM_GRAPH_EXECS sets the bound)");
  }
  auto executable = std::make_shared<Executable>(std::move(graph));
  void* handle = executable.get();
  alive.emplace(handle, std::move(executable));
  counters().graph_executables = int64_t(alive.size());
  return handle;
}

bool destroy_executable(void* handle) {
  ExecutablePtr last; // its closures go after the lock does
  std::lock_guard<std::mutex> lock(executables().mutex);
  auto& alive = executables().alive;
  auto found = alive.find(handle);
  if (found == alive.end()) return false;
  last = std::move(found->second);
  if (last->in_flight.load() != 0) count(executables_cut_off);
  alive.erase(found);
  counters().graph_executables = int64_t(alive.size());
  return true;
}

ExecutablePtr find_executable(void* handle) {
  std::lock_guard<std::mutex> lock(executables().mutex);
  auto found = executables().alive.find(handle);
  return found == executables().alive.end() ? nullptr : found->second;
}

void run_nodes(Executable& executable, const c10::Stream& stream, std::optional<std::pair<uint64_t, uint64_t>> numbers) {
  std::lock_guard<std::mutex> one_at_a_time(executable.running);
  std::optional<ReplayRng> rng;
  if (numbers) rng.emplace(numbers->first, numbers->second);
  for (const Node& node : executable.graph->nodes) {
    auto span = make_span(node.label.kind, [&] { return std::string(node.label.name); }, stream, node.label.bytes);
    SpanTimer timer(span);
    node.run();
  }
}

void launch(const ExecutablePtr& executable, const c10::Stream& stream) {
  const GraphTemplate& graph = *executable->graph;
  auto capture = capture_of(stream);
  if (!capture) count(counters().graph_launches);
  std::optional<std::pair<uint64_t, uint64_t>> numbers;
  if (graph.generator) {
    if (capture) refuse_in_capture(capture, "the replay of a graph that draws random numbers");
    numbers = graph.generator->advance(graph.increment);
  }
  struct Flight { // until the work is done, or dropped
    explicit Flight(ExecutablePtr e) : executable(std::move(e)) { ++executable->in_flight; }
    ~Flight() { --executable->in_flight; }
    const ExecutablePtr executable;
  };
  auto flight = capture ? nullptr : std::make_shared<Flight>(executable);
  issue(stream, {"graph"}, [executable, flight, stream, numbers] { run_nodes(*executable, stream, numbers); });
}

// What the C functions below could say only by a number.
thread_local std::exception_ptr said;
void check(int code, const char* what) {
  if (code == 0) return;
  if (auto error = std::exchange(said, nullptr)) std::rethrow_exception(error);
  throw_musa_error(code, what);
}

// ---- a graph -------------------------------------------------------------------------------------------

class Graph {
 public:
  ~Graph() { reset(); }

  void capture_begin(PoolId pool, CaptureMode mode) {
    lazy_init();
    check_not_bad_fork();
    TORCH_CHECK(!template_ && !capture_, "This MUSAGraph instance already owns a captured graph. To capture a new graph, create a new instance.");
    TORCH_CHECK(!(pool.first && pool.second), "capture_begin: pool must come from graph_pool_handle() or MUSAGraph.pool()");
    device_ = current_device();
    c10::Stream stream = current_stream(device_);
    TORCH_CHECK(stream != default_stream(device_), "MUSA graphs must be captured on a non-default stream. (However, after "
                "capture, it's ok to replay them on the default stream.)");
    auto generator = c10::intrusive_ptr<MusaGenerator>::reclaim_copy(
        static_cast<MusaGenerator*>(default_generator(device_).unsafeGetGeneratorImpl()));
    capture_ = begin_capture(stream, mode, std::move(generator));
    pool_ = pool == PoolId{0, 0} ? new_pool_id() : pool;
    begin_allocate_to_pool(device_, pool_, [mine = capture_.get()](c10::Stream s) { return capture_of(s).get() == mine; });
  }

  // False for a graph of nothing.
  bool capture_end() {
    if (!capture_) throw_musa_error(401, "the operation cannot be performed in the present state");
    TORCH_CHECK(current_stream(device_) == capture_->origin, "Capture must end on the same stream it began on.");
    if (capture_->mode != CaptureMode::relaxed && capture_->thread != std::this_thread::get_id()) {
      throw_musa_error(908, "attempt to terminate a thread-local capture sequence from another thread");
    }
    auto capture = std::move(capture_);
    capture_ = nullptr;
    end_allocate_to_pool(device_, pool_);
    bool something = false;
    try {
      auto graph = std::make_shared<const GraphTemplate>(end_capture(capture));
      something = !graph->nodes.empty();
      template_ = own_template(std::move(graph));
    } catch (...) {
      release_pool(device_, pool_);
      throw;
    }
    instantiate_template();
    return something;
  }

  void reinstantiate() {
    TORCH_CHECK(template_, "Called MUSAGraph::reinstantiate_graph without a preceding successful capture.");
    if (executable_) musaGraphExecDestroy(std::exchange(executable_, nullptr));
    instantiate_template();
  }

  void replay() {
    check_not_bad_fork();
    TORCH_CHECK(executable_, "Called MUSAGraph::replay without a preceding successful capture.");
    DeviceScope scope(device_);
    check(musaGraphLaunch(executable_, stream_handle(current_stream(device_))), "invalid resource handle");
  }

  PoolId pool() const {
    TORCH_CHECK(template_, "Called MUSAGraph::pool() without a preceding successful capture.");
    return pool_;
  }

  void reset() {
    if (capture_) { // given up
      capture_->valid = false;
      auto capture = std::move(capture_);
      capture_ = nullptr;
      end_allocate_to_pool(device_, pool_);
      try {
        end_capture(capture);
      } catch (const c10::Error&) {
        // That it failed is what we said.
      }
      release_pool(device_, pool_);
    }
    if (executable_) musaGraphExecDestroy(std::exchange(executable_, nullptr));
    if (!template_) return;
    musaGraphDestroy(std::exchange(template_, nullptr));
    release_pool(device_, pool_);
  }

  void enable_debug() { debug_ = true; }

  bool dump(const std::string& path) const {
    if (!debug_) return false;
    TORCH_CHECK(template_, "Called MUSAGraph::debug_dump without a preceding successful capture.");
    std::ofstream file(path);
    file << "digraph dot {\nsubgraph cluster_1 {\nlabel=\"graph_1\" graph[style=\"dashed\"];\n";
    auto graph = find_template(template_);
    const auto& nodes = graph->nodes;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const char* kind = nodes[i].label.kind == SpanKind::kernel ? "KERNEL" : "MEMCPY";
      file << "\"graph_1_node_" << i << "\"[style=\"solid\" shape=\"record\" label=\"{" << kind << "\\n| {ID | " << i << "}| {"
           << nodes[i].label.name << "}| {stream | " << nodes[i].stream.id() << "}}\"];\n";
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (size_t before : nodes[i].after) file << "\"graph_1_node_" << before << "\" -> \"graph_1_node_" << i << "\";\n";
    }
    file << "}\n}\n";
    file.close();
    TORCH_CHECK(file, "MUSAGraph::debug_dump: cannot write ", path, ": ", std::strerror(errno));
    return true;
  }

  std::pair<void*, void*> handles() const { return {template_, executable_}; }

 private:
  void instantiate_template() {
    DeviceScope scope(device_);
    check(musaGraphInstantiate(&executable_, template_, 0), "invalid resource handle");
  }

  std::shared_ptr<Capture> capture_; // while capturing
  void* template_ = nullptr; // musaGraph_t
  void* executable_ = nullptr; // musaGraphExec_t
  PoolId pool_{0, 0};
  int device_ = 0;
  bool debug_ = false;
};

// ---- torch_musa._MUSAC._MUSAGraph ------------------------------------------------------------------------

struct PyGraph {
  PyObject_HEAD
  Graph* graph;
};
Graph& graph_of(PyObject* self) {
  return *reinterpret_cast<PyGraph*>(self)->graph;
}

PyObject* graph_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self) reinterpret_cast<PyGraph*>(self)->graph = new Graph();
  return self;
}
void graph_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Graph* graph = reinterpret_cast<PyGraph*>(self)->graph;
  PyObject *kind = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&kind, &value, &traceback);
  try {
    without_gil([&] { delete graph; });
  } catch (const std::exception& error) {
    set_python_error(error);
    PyErr_WriteUnraisable(nullptr);
  }
  PyErr_Restore(kind, value, traceback);
  type->tp_free(self);
  Py_DECREF(type);
}

template <class F>
PyObject* void_call(F f) {
  return guarded([&]() -> PyObject* {
    without_gil(f);
    Py_RETURN_NONE;
  });
}

PyObject* capture_begin(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"pool", "capture_error_mode", nullptr};
    PoolId pool{0, 0};
    const char* mode = "global";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|(KK)s", const_cast<char**>(names), &pool.first, &pool.second, &mode)) return nullptr;
    CaptureMode parsed = CaptureMode::global;
    if (!std::strcmp(mode, "thread_local")) {
      parsed = CaptureMode::thread_local_;
    } else if (!std::strcmp(mode, "relaxed")) {
      parsed = CaptureMode::relaxed;
    } else {
      TORCH_CHECK(!std::strcmp(mode, "global"), "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got ", mode);
    }
    without_gil([&] { graph_of(self).capture_begin(pool, parsed); });
    Py_RETURN_NONE;
  });
}
PyObject* capture_end(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    bool something = without_gil([&] { return graph_of(self).capture_end(); });
    if (!something && PyErr_WarnEx(PyExc_UserWarning, "The MUSA Graph is empty. This usually means that the graph was attempted "
                                   "to be captured on wrong device or stream.", 1) != 0) {
      return nullptr;
    }
    Py_RETURN_NONE;
  });
}
PyObject* reinstantiate(PyObject* self, PyObject*) {
  return void_call([&] { graph_of(self).reinstantiate(); });
}
PyObject* replay(PyObject* self, PyObject*) {
  return void_call([&] { graph_of(self).replay(); });
}
PyObject* reset(PyObject* self, PyObject*) {
  return void_call([&] { graph_of(self).reset(); });
}
PyObject* pool(PyObject* self, PyObject*) {
  return guarded([&] {
    PoolId id = graph_of(self).pool();
    return Py_BuildValue("(KK)", id.first, id.second);
  });
}
PyObject* enable_debug_mode(PyObject* self, PyObject*) {
  return void_call([&] { graph_of(self).enable_debug(); });
}
PyObject* debug_dump(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"debug_path", nullptr};
    PyObject* path = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&", const_cast<char**>(names), PyUnicode_FSConverter, &path)) return nullptr;
    Ref bytes(path);
    if (!graph_of(self).dump(PyBytes_AS_STRING(path)) &&
        PyErr_WarnEx(PyExc_UserWarning, "MUSA Graphs debug not enabled, set with [graph].enable_debug_mode()", 1) != 0) {
      return nullptr;
    }
    Py_RETURN_NONE;
  });
}
// (musaGraph_t, musaGraphExec_t) of a captured graph as integers, for the C functions below; 0 for what is not there.
PyObject* sim_handles(PyObject* self, PyObject*) {
  return guarded([&] {
    auto [graph, executable] = graph_of(self).handles();
    return Py_BuildValue("(NN)", PyLong_FromVoidPtr(graph), PyLong_FromVoidPtr(executable));
  });
}

PyCFunction with_keywords(PyObject* (*f)(PyObject*, PyObject*, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}
PyMethodDef methods[] = {{"capture_begin", with_keywords(capture_begin), METH_VARARGS | METH_KEYWORDS, nullptr},
                         {"capture_end", capture_end, METH_NOARGS, nullptr},
                         {"reinstantiate_graph", reinstantiate, METH_NOARGS, nullptr},
                         {"replay", replay, METH_NOARGS, nullptr},
                         {"reset", reset, METH_NOARGS, nullptr},
                         {"pool", pool, METH_NOARGS, nullptr},
                         {"enable_debug_mode", enable_debug_mode, METH_NOARGS, nullptr},
                         {"debug_dump", with_keywords(debug_dump), METH_VARARGS | METH_KEYWORDS, nullptr},
                         {"_sim_handles", sim_handles, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(graph_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(graph_dealloc)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"torch_musa._MUSAC._MUSAGraph", sizeof(PyGraph), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

} // namespace

bool add_graph(PyObject* module) {
  Ref type(PyType_FromSpec(&spec));
  return type && PyObject_SetAttrString(module, "_MUSAGraph", type.object) == 0;
}

} // namespace sim

// ---- the MUSA runtime's functions --------------------------------------------------------------------------
// As in libmusart, also for programs that manage executables themselves; found with ctypes in this library.

namespace {
template <class F>
int coded(F f) {
  try {
    f();
    sim::said = nullptr;
    return 0;
  } catch (const c10::Error&) {
    sim::said = std::current_exception();
    return 2; // musaErrorMemoryAllocation, the only one a program gets from here: the bound is reached
  }
}
} // namespace

extern "C" {

// Marks for a tool that watches the process; there is none.
int musaProfilerStart() {
  return 0;
}
int musaProfilerStop() {
  return 0;
}
int musaGraphCreate(void** graph, unsigned) {
  *graph = sim::own_template(std::make_shared<const sim::GraphTemplate>());
  return 0;
}
int musaGraphDestroy(void* graph) {
  return sim::destroy_template(graph) ? 0 : 400;
}
int musaGraphInstantiate(void** executable, void* graph, unsigned long long) {
  auto found = sim::find_template(graph);
  if (!found) return 400;
  return coded([&] { *executable = sim::instantiate(std::move(found)); });
}
int musaGraphExecDestroy(void* executable) {
  return sim::destroy_executable(executable) ? 0 : 400;
}
int musaGraphLaunch(void* executable, void* stream) {
  auto found = sim::find_executable(executable);
  if (!found) return 400;
  return coded([&] { sim::launch(found, sim::stream_from_handle(stream, sim::current_device())); });
}
}
