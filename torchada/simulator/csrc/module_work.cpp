// Python functions about how work runs: counters, asynchronous streams, kernels that come from Python.
#include "deferred.h"
#include "python.h"
#include "work.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace sim {
namespace {

struct Counted {
  const char* name;
  std::atomic<int64_t>* value;
  bool is_level; // how many there are now: a reset leaves it alone
};
const std::vector<Counted>& counted() {
  Counters& c = counters();
  static const std::vector<Counted> table = {
      {"kernel_launches", &c.kernel_launches, false},
      {"host_syncs", &c.host_syncs, false},
      {"host_to_device", &c.host_to_device, false},
      {"device_to_host", &c.device_to_host, false},
      {"device_to_device", &c.device_to_device, false},
      {"host_to_device_bytes", &c.host_to_device_bytes, false},
      {"device_to_host_bytes", &c.device_to_host_bytes, false},
      {"device_to_device_bytes", &c.device_to_device_bytes, false},
      {"graph_launches", &c.graph_launches, false},
      {"graph_executables", &c.graph_executables, true},
      {"graph_executables_cut_off", &executables_cut_off, false},
  };
  return table;
}

PyObject* sim_counters(PyObject*, PyObject*) {
  Ref dict(PyDict_New());
  if (!dict) return nullptr;
  for (const Counted& counter : counted()) {
    Ref value(PyLong_FromLongLong(counter.value->load()));
    if (!value || PyDict_SetItemString(dict.object, counter.name, value.object) != 0) return nullptr;
  }
  return dict.release();
}
PyObject* sim_reset_counters(PyObject*, PyObject*) {
  for (const Counted& counter : counted()) {
    if (!counter.is_level) counter.value->store(0);
  }
  Py_RETURN_NONE;
}

PyObject* sim_is_async(PyObject*, PyObject*) {
  return PyBool_FromLong(is_async());
}
// Switches between streams that are queues and work at once. Waits for all work.
PyObject* sim_set_async(PyObject*, PyObject* on) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK_TYPE(PyBool_Check(on), "_sim_set_async: expected a bool");
    check_not_bad_fork();
    without_gil([&] { set_async(on == Py_True); });
    Py_RETURN_NONE;
  });
}

// A CPU tensor over the bytes of a device tensor, for kernels that run on the CPU. It does not keep the memory alive.
PyObject* sim_cpu_alias(PyObject*, PyObject* tensor) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK_TYPE(THPVariable_Check(tensor), "_sim_cpu_alias: expected a tensor");
    at::Tensor device = THPVariable_Unpack(tensor);
    TORCH_CHECK_TYPE(device.device().type() == kMusa, "_sim_cpu_alias: expected a musa tensor, got one on ", device.device());
    return THPVariable_Wrap(unowned_alias(device.detach()));
  });
}

// A Python callable that belongs to a piece of work; it may end on a thread without the GIL.
struct Callable {
  PyObject* object;
  explicit Callable(PyObject* o) : object(o) { Py_INCREF(object); }
  ~Callable() {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(object);
    PyGILState_Release(state);
  }
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;
  void operator()() const {
    PyGILState_STATE state = PyGILState_Ensure();
    Ref result(PyObject_CallNoArgs(object));
    if (result) {
      PyGILState_Release(state);
      return;
    }
    python_error error;
    error.persist();
    PyGILState_Release(state);
    throw error;
  }
};

// _sim_launch(name, callable): work on the current stream. It runs at once, on the stream's thread, or at every replay
// of the graph that is being captured.
PyObject* sim_launch(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *name = nullptr, *callable = nullptr;
    if (!PyArg_ParseTuple(args, "UO", &name, &callable)) return nullptr;
    TORCH_CHECK_TYPE(PyCallable_Check(callable), "_sim_launch: expected a callable");
    c10::Stream stream = current_stream(current_device());
    Route how = route(stream);
    if (how != Route::captured) count(counters().kernel_launches);
    if (how == Route::now) {
      Ref result(PyObject_CallNoArgs(callable));
      return result ? Py_NewRef(Py_None) : nullptr;
    }
    const char* text = PyUnicode_AsUTF8(name);
    if (!text) return nullptr;
    auto work = std::make_shared<Callable>(callable);
    issue(stream, {lasting_string(text)}, [work] { (*work)(); });
    Py_RETURN_NONE;
  });
}

PyMethodDef functions[] = {{"_sim_counters", sim_counters, METH_NOARGS, nullptr},
                           {"_sim_reset_counters", sim_reset_counters, METH_NOARGS, nullptr},
                           {"_sim_is_async", sim_is_async, METH_NOARGS, nullptr},
                           {"_sim_set_async", sim_set_async, METH_O, nullptr},
                           {"_sim_cpu_alias", sim_cpu_alias, METH_O, nullptr},
                           {"_sim_launch", sim_launch, METH_VARARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

} // namespace

bool add_work(PyObject* module) {
  if (config().async) set_async(true);
  return PyModule_AddFunctions(module, functions) == 0;
}

} // namespace sim
