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

namespace {

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

// ---- memory --------------------------------------------------------------------------------------------

bool set_item(PyObject* dict, const char* key, PyObject* value) {
  Ref owned(value);
  return value && PyDict_SetItemString(dict, key, value) == 0;
}
bool set_int(PyObject* dict, const char* key, int64_t value) {
  return set_item(dict, key, PyLong_FromLongLong(value));
}
PyObject* stat_dict(const Stat& stat) {
  return Py_BuildValue("{s:L,s:L,s:L,s:L}", "current", static_cast<long long>(stat.current), "peak",
                       static_cast<long long>(stat.peak), "allocated", static_cast<long long>(stat.allocated), "freed",
                       static_cast<long long>(stat.freed));
}
PyObject* triple_dict(const StatTriple& triple) {
  Ref dict(PyDict_New());
  if (!dict || !set_item(dict.object, "all", stat_dict(triple.all)) ||
      !set_item(dict.object, "small_pool", stat_dict(triple.small)) ||
      !set_item(dict.object, "large_pool", stat_dict(triple.large))) {
    return nullptr;
  }
  return dict.release();
}
PyObject* memory_stats_py(PyObject*, PyObject* device) {
  return guarded([&]() -> PyObject* {
    MemoryStats stats = memory_stats(to_device(device, "memory_allocated"));
    Ref dict(PyDict_New());
    bool ok = bool(dict);
    PyObject* d = dict.object;
    ok = ok && set_int(d, "num_alloc_retries", stats.num_alloc_retries) && set_int(d, "num_ooms", stats.num_ooms) &&
        set_int(d, "max_split_size", -1) && set_int(d, "num_sync_all_streams", stats.num_sync_all_streams) &&
        set_int(d, "num_device_alloc", stats.num_device_alloc) && set_int(d, "num_device_free", stats.num_device_free);
    for (auto& [key, triple] : {std::pair{"allocation", &stats.allocation}, {"segment", &stats.segment},
                                {"active", &stats.active}, {"inactive_split", &stats.inactive_split},
                                {"allocated_bytes", &stats.allocated_bytes}, {"reserved_bytes", &stats.reserved_bytes},
                                {"active_bytes", &stats.active_bytes}, {"inactive_split_bytes", &stats.inactive_split_bytes},
                                {"requested_bytes", &stats.requested_bytes}}) {
      ok = ok && set_item(d, key, triple_dict(*triple));
    }
    ok = ok && set_item(d, "oversize_allocations", stat_dict(stats.oversize_allocations)) &&
        set_item(d, "oversize_segments", stat_dict(stats.oversize_segments));
    return ok ? dict.release() : nullptr;
  });
}
PyObject* reset_accumulated_py(PyObject*, PyObject* device) {
  return guarded([&]() -> PyObject* {
    reset_accumulated_stats(to_device(device, "reset_accumulated_memory_stats"));
    Py_RETURN_NONE;
  });
}
PyObject* reset_peak_py(PyObject*, PyObject* device) {
  return guarded([&]() -> PyObject* {
    reset_peak_stats(to_device(device, "reset_peak_memory_stats"));
    Py_RETURN_NONE;
  });
}
PyObject* empty_cache_py(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    without_gil([] { empty_cache(); });
    Py_RETURN_NONE;
  });
}
PyObject* set_fraction_py(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    double fraction = 0;
    PyObject* device = nullptr;
    if (!PyArg_ParseTuple(args, "dO", &fraction, &device)) return nullptr;
    set_memory_fraction(fraction, to_device(device, "set_memory_fraction"));
    Py_RETURN_NONE;
  });
}
PyObject* block_list(const SegmentView& segment) {
  Ref list(PyList_New(0));
  if (!list) return nullptr;
  for (const BlockView& block : segment.blocks) {
    Ref frames(PyList_New(0));
    Ref entry(Py_BuildValue("{s:K,s:K,s:K,s:s,s:O}", "address", static_cast<unsigned long long>(block.address), "size",
                            static_cast<unsigned long long>(block.size), "requested_size",
                            static_cast<unsigned long long>(block.requested), "state",
                            block.allocated ? "active_allocated" : "inactive", "frames", frames.object));
    if (!entry || PyList_Append(list.object, entry.object) != 0) return nullptr;
  }
  return list.release();
}
PyObject* memory_snapshot_py(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    Ref segments(PyList_New(0)), traces(PyList_New(0)), annotations(PyList_New(0));
    if (!segments || !traces || !annotations) return nullptr;
    for (const SegmentView& segment : memory_snapshot()) {
      Ref blocks(block_list(segment));
      if (!blocks) return nullptr;
      Ref entry(Py_BuildValue(
          "{s:i,s:K,s:K,s:K,s:K,s:K,s:N,s:s,s:O,s:O}", "device", segment.device, "address",
          static_cast<unsigned long long>(segment.address), "total_size", static_cast<unsigned long long>(segment.total),
          "allocated_size", static_cast<unsigned long long>(segment.allocated), "active_size",
          static_cast<unsigned long long>(segment.active), "requested_size",
          static_cast<unsigned long long>(segment.requested), "stream", PyLong_FromVoidPtr(segment.stream), "segment_type",
          segment.is_small ? "small" : "large", "is_expandable", Py_False, "blocks", blocks.object));
      if (!entry || PyList_Append(segments.object, entry.object) != 0) return nullptr;
    }
    for (int i = 0; i < device_count(); ++i) {
      Ref trace(PyList_New(0));
      if (!trace || PyList_Append(traces.object, trace.object) != 0) return nullptr;
    }
    auto is_true = [](const char* name) {
      std::string value = allocator_setting(name);
      return value == "True" || value == "true" || value == "1" ? Py_True : Py_False;
    };
    std::string split = allocator_setting("max_split_size_mb"), threshold = allocator_setting("garbage_collection_threshold");
    Ref settings(Py_BuildValue(
        "{s:s,s:L,s:d,s:O,s:i,s:O,s:O,s:{}}", "PYTORCH_MUSA_ALLOC_CONF", allocator_settings().c_str(), "max_split_size",
        split.empty() ? -1LL : std::strtoll(split.c_str(), nullptr, 10) << 20, "garbage_collection_threshold",
        std::strtod(threshold.c_str(), nullptr), "expandable_segments", is_true("expandable_segments"),
        "pinned_num_register_threads", 1, "release_lock_on_musamalloc", is_true("release_lock_on_musamalloc"),
        "pinned_use_musa_host_register", is_true("pinned_use_musa_host_register"), "roundup_power2_divisions"));
    if (!settings) return nullptr;
    return Py_BuildValue("{s:O,s:O,s:O,s:O}", "segments", segments.object, "device_traces", traces.object,
                         "allocator_settings", settings.object, "external_annotations", annotations.object);
  });
}
PyObject* attach_observer_py(PyObject*, PyObject* callable) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK_TYPE(PyCallable_Check(callable), "expected a callable");
    Py_INCREF(callable); // observers live as long as the process
    attach_oom_observer([callable](int device, size_t request, size_t total, size_t free) {
      PyGILState_STATE state = PyGILState_Ensure();
      Ref result(PyObject_CallFunction(callable, "iKKK", device, static_cast<unsigned long long>(request),
                                       static_cast<unsigned long long>(total), static_cast<unsigned long long>(free)));
      if (!result) PyErr_WriteUnraisable(callable);
      PyGILState_Release(state);
    });
    Py_RETURN_NONE;
  });
}
PyObject* set_allocator_settings_py(PyObject*, PyObject* settings) {
  return guarded([&]() -> PyObject* {
    const char* text = PyUnicode_Check(settings) ? PyUnicode_AsUTF8(settings) : nullptr;
    TORCH_CHECK_TYPE(text, "set_allocator_settings: expected a str");
    set_allocator_settings(text);
    Py_RETURN_NONE;
  });
}
PyObject* allocator_backend(PyObject*, PyObject*) {
  return PyUnicode_FromString("native");
}
PyObject* raw_delete(PyObject*, PyObject* pointer) {
  return guarded([&]() -> PyObject* {
    void* address = PyLong_AsVoidPtr(pointer);
    if (PyErr_Occurred()) return nullptr;
    raw_free(address);
    Py_RETURN_NONE;
  });
}
PyObject* get_allocator(PyObject* module, PyObject*) {
  return guarded([&]() -> PyObject* {
    Ref type(PyObject_GetAttrString(module, "_musa_MUSAAllocator"));
    if (!type) return nullptr;
    auto* allocator_type = reinterpret_cast<PyTypeObject*>(type.object);
    return allocator_type->tp_alloc(allocator_type, 0);
  });
}
PyObject* history_enabled(PyObject*, PyObject*) {
  Py_RETURN_FALSE;
}

bool parse_pool(PyObject* args, int* device, PoolId* pool) {
  PyObject* index = nullptr;
  if (!PyArg_ParseTuple(args, "O(KK)", &index, &pool->first, &pool->second)) return false;
  *device = to_device(index, "memory pool");
  return true;
}
PyObject* begin_pool(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    int device = 0;
    PoolId pool;
    if (!parse_pool(args, &device, &pool)) return nullptr;
    begin_allocate_to_pool(device, pool, [](c10::Stream) { return true; });
    Py_RETURN_NONE;
  });
}
PyObject* begin_pool_on_stream(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    int device = 0;
    PoolId pool;
    if (!parse_pool(args, &device, &pool)) return nullptr;
    c10::Stream mine = current_stream(device);
    begin_allocate_to_pool(device, pool, [mine](c10::Stream stream) { return stream == mine; });
    Py_RETURN_NONE;
  });
}
PyObject* end_pool(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    int device = 0;
    PoolId pool;
    if (!parse_pool(args, &device, &pool)) return nullptr;
    end_allocate_to_pool(device, pool);
    Py_RETURN_NONE;
  });
}
PyObject* release_pool_py(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    int device = 0;
    PoolId pool;
    if (!parse_pool(args, &device, &pool)) return nullptr;
    release_pool(device, pool);
    Py_RETURN_NONE;
  });
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

PyObject* storage_use_count(PyObject*, PyObject* pointer) {
  return guarded([&]() -> PyObject* {
    auto* storage = static_cast<c10::StorageImpl*>(PyLong_AsVoidPtr(pointer));
    if (PyErr_Occurred()) return nullptr;
    return PyLong_FromSize_t(c10::raw::intrusive_ptr::use_count(storage));
  });
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
SIM_NOT_YET(no_memory_history, "the recording of memory history")
SIM_NOT_YET(no_ipc, "memory shared between processes")
SIM_NOT_YET(no_pluggable, "pluggable allocators")
SIM_NOT_YET(no_unified, "unified memory")
SIM_NOT_YET(no_graph_trees, "checkpoints of memory pools (graph trees)")
SIM_NOT_YET(no_comm, "copies between several devices in one call (DataParallel)")
SIM_NOT_YET(no_edit_device, "the change of a storage's device")

#define SIM_KEYWORDS(f) reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)), METH_VARARGS | METH_KEYWORDS, nullptr

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
    {"_musa_memoryStats", memory_stats_py, METH_O, nullptr},
    {"_musa_resetAccumulatedMemoryStats", reset_accumulated_py, METH_O, nullptr},
    {"_musa_resetPeakMemoryStats", reset_peak_py, METH_O, nullptr},
    {"_musa_memorySnapshot", memory_snapshot_py, METH_NOARGS, nullptr},
    {"_musa_attach_out_of_memory_observer", attach_observer_py, METH_O, nullptr},
    {"_musa_emptyCache", empty_cache_py, METH_NOARGS, nullptr},
    {"_musa_setMemoryFraction", set_fraction_py, METH_VARARGS, nullptr},
    {"_musa_musaCachingAllocator_set_allocator_settings", set_allocator_settings_py, METH_O, nullptr},
    {"_musa_musaCachingAllocator_raw_delete", raw_delete, METH_O, nullptr},
    {"_musa_getAllocatorBackend", allocator_backend, METH_NOARGS, nullptr},
    {"_musa_getAllocator", get_allocator, METH_NOARGS, nullptr},
    {"_musa_isHistoryEnabled", history_enabled, METH_NOARGS, nullptr},
    {"_musa_beginAllocateToPool", begin_pool, METH_VARARGS, nullptr},
    {"_musa_beginAllocateCurrentStreamToPool", begin_pool_on_stream, METH_VARARGS, nullptr},
    {"_musa_endAllocateCurrentStreamToPool", end_pool, METH_VARARGS, nullptr},
    {"_musa_releasePool", release_pool_py, METH_VARARGS, nullptr},
    {"_graph_pool_handle", graph_pool_handle, METH_NOARGS, nullptr},
    {"_musa", SIM_KEYWORDS(move_to_musa)},
    {"_is_musa", SIM_KEYWORDS(is_musa_py)},
    {"_empty_strided_musa", empty_strided_musa, METH_VARARGS, nullptr},
    {"_storage_Use_Count", storage_use_count, METH_O, nullptr},
    {"_get_allow_tf32", get_tf32, METH_NOARGS, nullptr},
    {"_set_allow_tf32", set_tf32, METH_O, nullptr},
    {"_musa_getCurrentBlasHandle", blas_handle, METH_NOARGS, nullptr},
    {"_musa_getCurrentBlasLtHandle", blas_handle, METH_NOARGS, nullptr},
    {"_musa_clearMublasWorkspaces", do_nothing, METH_NOARGS, nullptr},
    {"_musa_ipc_collect", do_nothing, METH_NOARGS, nullptr},
    {"_mudnn_version", mudnn_version, METH_NOARGS, nullptr},
    {"_mccl_version", mccl_version, METH_NOARGS, nullptr},
    {"_mccl_version_suffix", mccl_suffix, METH_NOARGS, nullptr},
    {"_musa_record_memory_history_legacy", SIM_KEYWORDS(no_memory_history)},
    {"_musa_record_memory_history", SIM_KEYWORDS(no_memory_history)},
    {"_share_musa_", SIM_KEYWORDS(no_ipc)},
    {"_new_shared_musa", SIM_KEYWORDS(no_ipc)},
    {"_release_ipc_counter_musa", SIM_KEYWORDS(no_ipc)},
    {"_edit_device_musa", SIM_KEYWORDS(no_edit_device)},
    {"_musa_get_pluggable_allocator", SIM_KEYWORDS(no_pluggable)},
    {"_musa_customAllocator", SIM_KEYWORDS(no_pluggable)},
    {"_musa_changeCurrentAllocator", SIM_KEYWORDS(no_pluggable)},
    {"_musa_register_unified_allocator", SIM_KEYWORDS(no_unified)},
    {"_musa_register_unified_cpu_allocator", SIM_KEYWORDS(no_unified)},
    {"_musa_reset_unified_cpu_allocator", SIM_KEYWORDS(no_unified)},
    {"_tensors_data_ptrs_at_indices_equal", SIM_KEYWORDS(no_graph_trees)},
    {"_construct_MUSA_Tensor_From_Storage_And_Metadata", SIM_KEYWORDS(no_graph_trees)},
    {"_musa_checkPoolLiveAllocations", SIM_KEYWORDS(no_graph_trees)},
    {"_musa_getCheckpointState", SIM_KEYWORDS(no_graph_trees)},
    {"_musa_setCheckpointPoolState", SIM_KEYWORDS(no_graph_trees)},
    {"_has_Standard_Deleter", SIM_KEYWORDS(no_graph_trees)},
    {"_set_storage_access_error_msg", SIM_KEYWORDS(no_graph_trees)},
    {"_free_And_Remove_DeleterFn", SIM_KEYWORDS(no_graph_trees)},
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
PyObject* host_register(PyObject* module, PyObject* args) {
  unsigned long long pointer = 0, size = 0, flags = 0;
  if (!PyArg_ParseTuple(args, "KKK", &pointer, &size, &flags)) return nullptr;
  register_host(reinterpret_cast<void*>(pointer), size);
  return success(module);
}
PyObject* host_unregister(PyObject* module, PyObject* pointer) {
  return guarded([&]() -> PyObject* {
    void* address = PyLong_AsVoidPtr(pointer);
    if (PyErr_Occurred()) return nullptr;
    unregister_host(address);
    return success(module);
  });
}
PyObject* stream_create(PyObject* module, PyObject* pointer) {
  return guarded([&]() -> PyObject* {
    auto** where = static_cast<void**>(PyLong_AsVoidPtr(pointer));
    if (PyErr_Occurred()) return nullptr;
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
    if (!module || !sim::add_types(module.object) || !sim::add_legacy_types(module.object) || !sim::add_musart(module.object) || !sim::add_profile(module.object) || !sim::add_inductor(module.object) || !sim::drain_at_exit() || !sim::add_work(module.object) ||
        PyModule_AddStringConstant(module.object, "_musa_version", "40300") != 0) {
      return nullptr;
    }
    return module.release();
  });
}
