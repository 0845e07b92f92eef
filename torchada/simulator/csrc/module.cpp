// The Python module torch_musa._MUSAC: the functions torch_musa's Python code calls.
#include "profiler.h"
#include "python.h"

#include "generator.h"
#include "work.h"

#include <c10/core/StorageImpl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/Stream.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>

namespace c10 {
class AcceleratorError; // not in every supported torch
}

namespace sim {

namespace {

template <class T, class = void>
struct is_complete : std::false_type {};
template <class T>
struct is_complete<T, std::void_t<decltype(sizeof(T))>> : std::true_type {};

template <class Accelerator>
bool set_accelerator_error(const std::exception& error) {
  if constexpr (is_complete<Accelerator>::value) {
    if (auto* coded = dynamic_cast<const Accelerator*>(&error)) {
      Ref type(import_attribute("torch", "AcceleratorError"));
      if (!type) return true;
      Ref exception(PyObject_CallFunction(type.object, "s", coded->what_without_backtrace()));
      Ref code(PyLong_FromLong(coded->get_error_code()));
      if (!exception || !code || PyObject_SetAttrString(exception.object, "error_code", code.object) != 0) return true;
      PyErr_SetObject(type.object, exception.object);
      return true;
    }
  }
  return false;
}

} // namespace

void set_python_error(const std::exception& error) {
  if (auto* raised = dynamic_cast<const python_error*>(&error)) {
    const_cast<python_error*>(raised)->restore(); // what Python code we called raised
    return;
  }
  if (PyErr_Occurred()) return;
  if (set_accelerator_error<c10::AcceleratorError>(error)) return;
  PyObject* type = PyExc_RuntimeError;
  Ref oom;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error)) {
    oom.object = import_attribute("torch", "OutOfMemoryError");
    if (!oom) return;
    type = oom.object;
  } else if (dynamic_cast<const c10::IndexError*>(&error)) {
    type = PyExc_IndexError;
  } else if (dynamic_cast<const c10::ValueError*>(&error)) {
    type = PyExc_ValueError;
  } else if (dynamic_cast<const c10::TypeError*>(&error)) {
    type = PyExc_TypeError;
  } else if (dynamic_cast<const c10::NotImplementedError*>(&error)) {
    type = PyExc_NotImplementedError;
  }
  auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  PyErr_SetString(type, torch_error ? torch_error->what_without_backtrace() : error.what());
}

PyObject* import_attribute(const char* module, const char* name) {
  Ref imported(PyImport_ImportModule(module));
  return imported ? PyObject_GetAttrString(imported.object, name) : nullptr;
}

PyObject* not_yet(const char* what) {
  PyErr_Format(PyExc_NotImplementedError, "the simulated device does not do %s yet", what);
  return nullptr;
}

void lazy_init_slow() {
  PyGILState_STATE state = PyGILState_Ensure();
  bool raised = true;
  {
    Ref module(PyImport_ImportModule("torch_musa"));
    Ref done(module ? PyObject_CallMethod(module.object, "_lazy_init", nullptr) : nullptr);
    // False while the calls that waited for the initialisation run: they come back here.
    Ref complete(done ? PyObject_CallMethod(module.object, "is_initialized", nullptr) : nullptr);
    if (complete) {
      raised = false;
      if (complete.object == Py_True) ready.store(true, std::memory_order_release);
    }
  }
  if (!raised) {
    PyGILState_Release(state);
    return;
  }
  python_error error;
  error.persist();
  PyGILState_Release(state);
  throw error;
}

int64_t to_int(PyObject* object, const char* function) {
  TORCH_CHECK_TYPE(PyLong_Check(object), "invalid argument to ", function, ": expected an int, got ", Py_TYPE(object)->tp_name);
  long long value = PyLong_AsLongLong(object);
  TORCH_CHECK_VALUE(!(value == -1 && PyErr_Occurred()), "invalid argument to ", function);
  return value;
}

int to_device(PyObject* object, const char* function) {
  int64_t index = to_int(object, function);
  check_device(index);
  return int(index);
}

namespace {

// ---- initialisation and devices ------------------------------------------------------------------------

PyObject* get_device_properties(PyObject*, PyObject* device) {
  return guarded([&] { return device_properties(to_device(device, "_get_device_properties")); });
}
PyMethodDef get_device_properties_def = {"_get_device_properties", get_device_properties, METH_O, nullptr};

PyObject* init(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    check_not_bad_fork();
    int count = device_count();
    if (count == 0) throw_musa_error(100, "no MUSA-capable device is detected");
    Ref module(PyImport_ImportModule("torch_musa"));
    if (!module) return nullptr;
    Ref generators(PyTuple_New(count));
    if (!generators) return nullptr;
    for (int i = 0; i < count; ++i) {
      PyObject* generator = THPGenerator_initDefaultGenerator(default_generator(i));
      if (!generator) return nullptr;
      PyTuple_SET_ITEM(generators.object, i, generator);
    }
    Ref properties(PyCFunction_New(&get_device_properties_def, nullptr));
    if (!properties || PyObject_SetAttrString(module.object, "_get_device_properties", properties.object) != 0 ||
        PyObject_SetAttrString(module.object, "has_half", Py_True) != 0 ||
        PyObject_SetAttrString(module.object, "default_generators", generators.object) != 0) {
      return nullptr;
    }
    allocator_init();
    mark_initialized();
    Py_RETURN_NONE;
  });
}

PyObject* register_device_hook(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    register_hooks();
    Py_RETURN_NONE;
  });
}
PyObject* get_device(PyObject*, PyObject*) {
  return PyLong_FromLong(current_device());
}
PyObject* get_device_count(PyObject*, PyObject*) {
  return guarded([] { return PyLong_FromLong(device_count()); });
}
PyObject* set_device_py(PyObject*, PyObject* device) {
  return guarded([&]() -> PyObject* {
    lazy_init();
    set_device(to_int(device, "setDevice"));
    Py_RETURN_NONE;
  });
}
PyObject* exchange_device_py(PyObject*, PyObject* device) {
  return guarded([&] {
    int64_t index = to_int(device, "exchangeDevice");
    if (index >= 0) lazy_init();
    return PyLong_FromLong(exchange_device(index));
  });
}
// A function of its own: built-in functions over one C function are equal, and tables keyed by them mix them up.
PyObject* maybe_exchange_device_py(PyObject* module, PyObject* device) {
  return exchange_device_py(module, device);
}
PyObject* can_access_peer(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *device = nullptr, *peer = nullptr;
    if (!PyArg_ParseTuple(args, "OO", &device, &peer)) return nullptr;
    return PyBool_FromLong(to_device(device, "canDeviceAccessPeer") != to_device(peer, "canDeviceAccessPeer"));
  });
}
PyObject* is_in_bad_fork(PyObject*, PyObject*) {
  return PyBool_FromLong(in_bad_fork());
}
PyObject* get_arch_flags(PyObject*, PyObject*) {
  return guarded([] { return PyUnicode_FromString(arch_flags().c_str()); });
}
PyObject* synchronize(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    check_not_bad_fork();
    without_gil([] { synchronize_device(current_device()); });
    Py_RETURN_NONE;
  });
}
PyObject* sleep(PyObject*, PyObject* cycles) {
  return guarded([&]() -> PyObject* {
    int64_t n = to_int(cycles, "torch.musa._sleep");
    // One simulated cycle takes a nanosecond.
    without_gil([&] {
      issue(current_stream(current_device()), {"spin_kernel"}, [n] { std::this_thread::sleep_for(std::chrono::nanoseconds(n)); });
    });
    Py_RETURN_NONE;
  });
}

// ---- streams -------------------------------------------------------------------------------------------

PyObject* stream_tuple(const c10::Stream& stream) {
  return Py_BuildValue("(LLL)", static_cast<long long>(stream.id()), static_cast<long long>(stream.device_index()),
                       static_cast<long long>(stream.device_type()));
}
PyObject* get_current_stream(PyObject*, PyObject* device) {
  return guarded([&] { return stream_tuple(current_stream(to_device(device, "getCurrentStream"))); });
}
PyObject* get_default_stream(PyObject*, PyObject* device) {
  return guarded([&] { return stream_tuple(default_stream(to_device(device, "getDefaultStream"))); });
}
PyObject* get_current_raw_stream(PyObject*, PyObject* device) {
  return guarded([&] { return PyLong_FromVoidPtr(stream_handle(current_stream(to_device(device, "getCurrentRawStream")))); });
}
PyObject* set_stream(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"stream_id", "device_index", "device_type", nullptr};
    long long id = 0, index = 0, type = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|LLL", const_cast<char**>(names), &id, &index, &type)) return nullptr;
    TORCH_CHECK(type == int64_t(kMusa), "setStream: expected a musa stream");
    check_device(index);
    set_current_stream(c10::Stream::unpack3(id, c10::DeviceIndex(index), kMusa));
    set_device(index); // as CUDA: setting a stream makes its device the current one
    Py_RETURN_NONE;
  });
}
PyObject* is_capturing(PyObject*, PyObject*) {
  return PyBool_FromLong(capture_of(current_stream(current_device())) != nullptr);
}

bool set_item(PyObject* dict, const char* key, PyObject* value) {
  Ref owned(value);
  return value && PyDict_SetItemString(dict, key, value) == 0;
}
bool set_int(PyObject* dict, const char* key, int64_t value) {
  return set_item(dict, key, PyLong_FromLongLong(value));
}

PyObject* graph_pool_handle(PyObject*, PyObject*) {
  PoolId id = new_pool_id();
  return Py_BuildValue("(KK)", id.first, id.second);
}

// ---- tensors and storages --------------------------------------------------------------------------------

// The `.to` of the tensor type itself: torch_musa replaces Tensor.to by a Python function.
PyObject* native_to(PyObject* tensor, PyObject* device, PyObject* non_blocking, PyObject* format) {
  Ref base(import_attribute("torch._C", "TensorBase"));
  if (!base) return nullptr;
  Ref method(PyObject_GetAttrString(base.object, "to"));
  Ref args(PyTuple_Pack(2, tensor, device));
  Ref kwargs(PyDict_New());
  if (!method || !args || !kwargs || PyDict_SetItemString(kwargs.object, "non_blocking", non_blocking) != 0) return nullptr;
  if (format != Py_None && PyDict_SetItemString(kwargs.object, "memory_format", format) != 0) return nullptr;
  return PyObject_Call(method.object, args.object, kwargs.object);
}

PyObject* move_to_musa(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"self", "device", "non_blocking", "memory_format", nullptr};
  PyObject *self = nullptr, *device = Py_None, *non_blocking = Py_False, *format = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOO", const_cast<char**>(names), &self, &device, &non_blocking, &format)) {
    return nullptr;
  }
  Ref target;
  if (device == Py_None) {
    target.object = PyUnicode_FromFormat("musa:%d", current_device());
  } else if (PyLong_Check(device)) {
    target.object = PyUnicode_FromFormat("musa:%S", device);
  } else {
    Py_INCREF(device);
    target.object = device;
  }
  if (!target) return nullptr;
  Ref storage_type(import_attribute("torch", "UntypedStorage"));
  if (!storage_type) return nullptr;
  int is_storage = PyObject_IsInstance(self, storage_type.object);
  if (is_storage < 0) return nullptr;
  if (!is_storage) return native_to(self, target.object, non_blocking, format);
  Ref bytes(PyObject_CallMethod(self, "nbytes", nullptr));
  Ref size(bytes ? PyTuple_Pack(1, bytes.object) : nullptr), options(PyDict_New());
  if (!size || !options || PyDict_SetItemString(options.object, "device", target.object) != 0) return nullptr;
  Ref result(PyObject_Call(storage_type.object, size.object, options.object));
  return result ? PyObject_CallMethod(result.object, "copy_", "OO", self, non_blocking) : nullptr;
}

PyObject* is_musa_py(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"self", nullptr};
  PyObject* self = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &self)) return nullptr;
  Ref device(PyObject_GetAttrString(self, "device"));
  Ref type(device ? PyObject_GetAttrString(device.object, "type") : nullptr);
  return type ? PyBool_FromLong(PyUnicode_CompareWithASCIIString(type.object, "musa") == 0) : nullptr;
}

PyObject* empty_strided_musa(PyObject*, PyObject* args) {
  PyObject *size = nullptr, *stride = nullptr, *dtype = nullptr;
  if (!PyArg_ParseTuple(args, "OOO", &size, &stride, &dtype)) return nullptr;
  Ref function(import_attribute("torch", "empty_strided"));
  Ref positional(PyTuple_Pack(2, size, stride));
  Ref keywords(Py_BuildValue("{s:O,s:s}", "dtype", dtype, "device", "musa"));
  return function && positional && keywords ? PyObject_Call(function.object, positional.object, keywords.object) : nullptr;
}

// ---- settings, versions, counters ------------------------------------------------------------------------

std::atomic<bool> allow_tf32{false};

PyObject* get_tf32(PyObject*, PyObject*) {
  return PyBool_FromLong(allow_tf32.load());
}
PyObject* set_tf32(PyObject*, PyObject* value) {
  if (!PyBool_Check(value)) {
    PyErr_Format(PyExc_TypeError, "set_allow_tf32 expects a bool, but got %s", Py_TYPE(value)->tp_name);
    return nullptr;
  }
  allow_tf32 = value == Py_True;
  Py_RETURN_NONE;
}
PyObject* blas_handle(PyObject*, PyObject*) {
  static char handle; // an address of our own: the handle must be non-zero and the same each time
  return PyLong_FromVoidPtr(&handle);
}
PyObject* do_nothing(PyObject*, PyObject*) {
  Py_RETURN_NONE;
}
PyObject* mudnn_version(PyObject*, PyObject*) {
  return PyLong_FromLong(3000);
}
PyObject* mccl_version(PyObject*, PyObject*) {
  return PyLong_FromLongLong((2LL << 32) | (11LL << 16) | 4);
}
PyObject* mccl_suffix(PyObject*, PyObject*) {
  return PyBytes_FromString(""); // as torch's NCCL one
}

PyObject* drain(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    without_gil([] {
      end_async();
      drain_autograd();
    });
    Py_RETURN_NONE;
  });
}
PyMethodDef drain_def = {"_sim_drain_autograd", drain, METH_NOARGS, nullptr};

bool drain_at_exit() {
  Ref registry(import_attribute("atexit", "register"));
  Ref function(PyCFunction_New(&drain_def, nullptr));
  if (!registry || !function) return false;
  Ref result(PyObject_CallFunctionObjArgs(registry.object, function.object, nullptr));
  return bool(result);
}

// ---- names for later ---------------------------------------------------------------------------------------

#define SIM_NOT_YET(function, what)                             \
  PyObject* function(PyObject*, PyObject*, PyObject*) {         \
    return not_yet(what);                                       \
  }
SIM_NOT_YET(no_comm, "copies between several devices in one call (DataParallel)")

PyMethodDef functions[] = {
    {"_musa_init", init, METH_NOARGS, nullptr},
    {"_musa_register_device_hook", register_device_hook, METH_NOARGS, nullptr},
    {"_musa_getDevice", get_device, METH_NOARGS, nullptr},
    {"_musa_getDeviceCount", get_device_count, METH_NOARGS, nullptr},
    {"_musa_setDevice", set_device_py, METH_O, nullptr},
    {"_musa_exchangeDevice", exchange_device_py, METH_O, nullptr},
    {"_musa_maybeExchangeDevice", maybe_exchange_device_py, METH_O, nullptr},
    {"_musa_canDeviceAccessPeer", can_access_peer, METH_VARARGS, nullptr},
    {"_musa_isInBadFork", is_in_bad_fork, METH_NOARGS, nullptr},
    {"_musa_getArchFlags", get_arch_flags, METH_NOARGS, nullptr},
    {"_musa_synchronize", synchronize, METH_NOARGS, nullptr},
    {"_musa_sleep", sleep, METH_O, nullptr},
    {"_musa_getCurrentStream", get_current_stream, METH_O, nullptr},
    {"_musa_getDefaultStream", get_default_stream, METH_O, nullptr},
    {"_musa_getCurrentRawStream", get_current_raw_stream, METH_O, nullptr},
    {"_musa_setStream", SIM_KEYWORDS(set_stream)},
    {"_musa_isCurrentStreamCapturing", is_capturing, METH_NOARGS, nullptr},
    {"_graph_pool_handle", graph_pool_handle, METH_NOARGS, nullptr},
    {"_musa", SIM_KEYWORDS(move_to_musa)},
    {"_is_musa", SIM_KEYWORDS(is_musa_py)},
    {"_empty_strided_musa", empty_strided_musa, METH_VARARGS, nullptr},
    {"_get_allow_tf32", get_tf32, METH_NOARGS, nullptr},
    {"_set_allow_tf32", set_tf32, METH_O, nullptr},
    {"_musa_getCurrentBlasHandle", blas_handle, METH_NOARGS, nullptr},
    {"_musa_getCurrentBlasLtHandle", blas_handle, METH_NOARGS, nullptr},
    {"_musa_clearMublasWorkspaces", do_nothing, METH_NOARGS, nullptr},
    {"_mudnn_version", mudnn_version, METH_NOARGS, nullptr},
    {"_mccl_version", mccl_version, METH_NOARGS, nullptr},
    {"_mccl_version_suffix", mccl_suffix, METH_NOARGS, nullptr},
    {"_broadcast_coalesced", SIM_KEYWORDS(no_comm)},
    {"_broadcast", SIM_KEYWORDS(no_comm)},
    {"_scatter", SIM_KEYWORDS(no_comm)},
    {"_gather", SIM_KEYWORDS(no_comm)},
    {nullptr, nullptr, 0, nullptr}};

// ---- torch_musa._MUSAC._musart -----------------------------------------------------------------------------

PyObject* mem_get_info(PyObject*, PyObject* device) {
  return guarded([&] {
    auto info = memory_info(to_device(device, "musaMemGetInfo"));
    return Py_BuildValue("(KK)", static_cast<unsigned long long>(info.first), static_cast<unsigned long long>(info.second));
  });
}
const char* error_text(long code) {
  switch (code) {
    case 0: return "no error";
    case 1: return "invalid argument";
    case 2: return "out of memory";
    case 3: return "initialization error";
    case 100: return "no MUSA-capable device is detected";
    case 101: return "invalid device ordinal";
    case 400: return "invalid resource handle";
    case 712: return "part or all of the requested memory range is already mapped";
    case 713: return "pointer does not correspond to a registered memory region";
    default: return "unrecognized error code";
  }
}
PyObject* get_error_string(PyObject*, PyObject* code) {
  Ref number(PyNumber_Index(code));
  if (!number) return nullptr;
  return PyUnicode_FromString(error_text(PyLong_AsLong(number.object)));
}
// Errors are the integers of musaError, as an enum member for success.
PyObject* success(PyObject* module) {
  Ref type(PyObject_GetAttrString(module, "musaError"));
  return type ? PyObject_GetAttrString(type.object, "success") : nullptr;
}
PyObject* error_code(PyObject* module, int code) {
  Ref type(PyObject_GetAttrString(module, "musaError"));
  return type ? PyObject_CallFunction(type.object, "i", code) : nullptr;
}
PyObject* host_register(PyObject* module, PyObject* args) {
  unsigned long long pointer = 0, size = 0, flags = 0;
  if (!PyArg_ParseTuple(args, "KKK", &pointer, &size, &flags)) return nullptr;
  return error_code(module, register_host(reinterpret_cast<void*>(pointer), size));
}
PyObject* host_unregister(PyObject* module, PyObject* pointer) {
  return guarded([&]() -> PyObject* {
    void* address = PyLong_AsVoidPtr(pointer);
    if (PyErr_Occurred()) return nullptr;
    return error_code(module, unregister_host(address));
  });
}
PyObject* stream_create(PyObject* module, PyObject* pointer) {
  return guarded([&]() -> PyObject* {
    auto** where = static_cast<void**>(PyLong_AsVoidPtr(pointer));
    if (PyErr_Occurred()) return nullptr;
    TORCH_CHECK_VALUE(where != nullptr, "musaStreamCreate wants the address of a musaStream_t, not 0");
    *where = create_external_stream();
    return success(module);
  });
}
PyObject* stream_destroy(PyObject* module, PyObject* pointer) {
  return guarded([&]() -> PyObject* {
    void* handle = PyLong_AsVoidPtr(pointer);
    if (PyErr_Occurred()) return nullptr;
    destroy_external_stream(handle);
    return success(module);
  });
}
PyMethodDef musart_functions[] = {{"musaMemGetInfo", mem_get_info, METH_O, nullptr},
                                  {"musaGetErrorString", get_error_string, METH_O, nullptr},
                                  {"musaHostRegister", host_register, METH_VARARGS, nullptr},
                                  {"musaHostUnregister", host_unregister, METH_O, nullptr},
                                  {"musaStreamCreate", stream_create, METH_O, nullptr},
                                  {"musaStreamDestroy", stream_destroy, METH_O, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};

PyModuleDef musart_def = {PyModuleDef_HEAD_INIT, "torch_musa._MUSAC._musart", nullptr, -1, musart_functions, nullptr, nullptr, nullptr, nullptr};
PyModuleDef aoti_def = {PyModuleDef_HEAD_INIT, "torch_musa._MUSAC._aoti", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "torch_musa._MUSAC", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

bool add_musart(PyObject* module) {
  Ref musart(PyModule_Create(&musart_def)), aoti(PyModule_Create(&aoti_def));
  if (!musart || !aoti) return false;
  Ref make_enum(import_attribute("enum", "IntFlag")); // any integer is a value, as with pybind11's enumerations
  Ref errors(make_enum ? PyObject_CallFunction(make_enum.object, "s{s:i}", "musaError", "success", 0) : nullptr);
  if (!errors || PyObject_SetAttrString(musart.object, "musaError", errors.object) != 0) return false;
  Ref runner(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(O){}", "AOTIModelContainerRunnerMusa", &PyBaseObject_Type));
  static PyMethodDef refuse = {"__new__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(
                                   +[](PyObject*, PyObject*, PyObject*) -> PyObject* { return not_yet("ahead-of-time compiled models (AOTInductor)"); })),
                               METH_VARARGS | METH_KEYWORDS, nullptr};
  Ref constructor(PyCFunction_New(&refuse, nullptr));
  Ref fixed(constructor ? PyStaticMethod_New(constructor.object) : nullptr);
  return runner && fixed && PyObject_SetAttrString(runner.object, "__new__", fixed.object) == 0 &&
      PyObject_SetAttrString(aoti.object, "AOTIModelContainerRunnerMusa", runner.object) == 0 &&
      PyObject_SetAttrString(module, "_musart", musart.object) == 0 && PyObject_SetAttrString(module, "_aoti", aoti.object) == 0;
}

} // namespace
} // namespace sim

PyMODINIT_FUNC PyInit__MUSAC() {
  return sim::guarded([]() -> PyObject* {
    sim::config(); // a bad setting is an error here and not at the first tensor
    if (const char* text = std::getenv("PYTORCH_MUSA_ALLOC_CONF")) sim::set_allocator_settings(text);
    sim::register_hooks();
    sim::register_profiler();
    torch::utils::set_requires_device_init(sim::kMusa, false); // see lazy_init()
    sim::register_layout_kernels();
    sim::Ref module(PyModule_Create(&sim::module_def));
    if (!module || !sim::add_types(module.object) || !sim::add_legacy_types(module.object) || !sim::add_memory(module.object) || !sim::add_musart(module.object) || !sim::add_profile(module.object) || !sim::add_inductor(module.object) || !sim::drain_at_exit() || !sim::add_work(module.object) || !sim::add_graph(module.object) ||
        PyModule_AddStringConstant(module.object, "_musa_version", "40300") != 0) {
      return nullptr;
    }
    return module.release();
  });
}
