// torch_musa._MUSAC: memory. Statistics, snapshots and history, pools, allocators, sharing, what graph trees need.
#include "python.h"

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_set>

namespace sim {

namespace {

using Long = unsigned long long;

bool set_item(PyObject* dict, const char* key, PyObject* value) {
  Ref owned(value);
  return value && PyDict_SetItemString(dict, key, value) == 0;
}
bool append(PyObject* list, PyObject* value) {
  Ref owned(value);
  return value && PyList_Append(list, value) == 0;
}
PyObject* string_of(const std::string& text) {
  return PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "replace");
}
PyObject* bytes_of(const std::string& text) {
  return PyBytes_FromStringAndSize(text.data(), Py_ssize_t(text.size()));
}
void* to_pointer(PyObject* object, const char* function) {
  TORCH_CHECK_TYPE(PyLong_Check(object), function, ": expected an address, got ", Py_TYPE(object)->tp_name);
  void* address = PyLong_AsVoidPtr(object);
  TORCH_CHECK_VALUE(!PyErr_Occurred(), function, ": not an address");
  return address;
}
c10::StorageImpl* to_storage_impl(PyObject* object, const char* function) {
  auto* storage = static_cast<c10::StorageImpl*>(to_pointer(object, function));
  TORCH_CHECK_VALUE(storage, function, ": the address of a storage is null");
  return storage;
}
// Calls f with each item of a sequence or set; false with a Python error.
template <class F>
bool each_item(PyObject* items, F f) {
  Ref iterator(PyObject_GetIter(items));
  if (!iterator) return false;
  while (PyObject* item = PyIter_Next(iterator.object)) {
    Ref owned(item);
    f(item);
  }
  return !PyErr_Occurred();
}

// ---- statistics ----------------------------------------------------------------------------------------

PyObject* stat_dict(const Stat& stat) {
  return Py_BuildValue("{s:L,s:L,s:L,s:L}", "current", static_cast<long long>(stat.current), "peak",
                       static_cast<long long>(stat.peak), "allocated", static_cast<long long>(stat.allocated), "freed",
                       static_cast<long long>(stat.freed));
}
PyObject* triple_dict(const StatTriple& triple) {
  Ref dict(PyDict_New());
  bool ok = dict && set_item(dict.object, "all", stat_dict(triple.all)) &&
      set_item(dict.object, "small_pool", stat_dict(triple.small)) && set_item(dict.object, "large_pool", stat_dict(triple.large));
  return ok ? dict.release() : nullptr;
}
PyObject* memory_stats_py(PyObject*, PyObject* device) {
  return guarded([&]() -> PyObject* {
    MemoryStats stats = memory_stats(to_device(device, "memory_allocated"));
    Ref dict(PyDict_New());
    bool ok = bool(dict);
    for (auto& [key, value] : {std::pair{"num_alloc_retries", stats.num_alloc_retries}, {"num_ooms", stats.num_ooms},
                               {"max_split_size", stats.max_split_size}, {"num_sync_all_streams", stats.num_sync_all_streams},
                               {"num_device_alloc", stats.num_device_alloc}, {"num_device_free", stats.num_device_free}}) {
      ok = ok && set_item(dict.object, key, PyLong_FromLongLong(value));
    }
    for (auto& [key, triple] : {std::pair{"allocation", &stats.allocation}, {"segment", &stats.segment},
                                {"active", &stats.active}, {"inactive_split", &stats.inactive_split},
                                {"allocated_bytes", &stats.allocated_bytes}, {"reserved_bytes", &stats.reserved_bytes},
                                {"active_bytes", &stats.active_bytes}, {"inactive_split_bytes", &stats.inactive_split_bytes},
                                {"requested_bytes", &stats.requested_bytes}}) {
      ok = ok && set_item(dict.object, key, triple_dict(*triple));
    }
    ok = ok && set_item(dict.object, "oversize_allocations", stat_dict(stats.oversize_allocations)) &&
        set_item(dict.object, "oversize_segments", stat_dict(stats.oversize_segments));
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
PyObject* attach_observer_py(PyObject*, PyObject* callable) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK_TYPE(PyCallable_Check(callable), "expected a callable");
    Py_INCREF(callable); // observers live as long as the process
    attach_oom_observer([callable](int device, size_t request, size_t total, size_t free) {
      PyGILState_STATE state = PyGILState_Ensure();
      Ref result(PyObject_CallFunction(callable, "iKKK", device, Long(request), Long(total), Long(free)));
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
  return PyUnicode_FromString(changed_allocator() ? "pluggable" : "native");
}
PyObject* raw_delete(PyObject*, PyObject* pointer) {
  return guarded([&]() -> PyObject* {
    raw_free(to_pointer(pointer, "raw_delete"));
    Py_RETURN_NONE;
  });
}

// ---- history and snapshots -----------------------------------------------------------------------------

void check_option(const char* value, std::initializer_list<const char*> known, const char* message) {
  for (const char* one : known) {
    if (std::string(value) == one) return;
  }
  TORCH_CHECK(false, message);
}

PyObject* record_history_py(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"enabled", "context", "stacks", "max_entries", nullptr};
    const char *enabled = nullptr, *context = nullptr, *stacks = nullptr;
    Py_ssize_t max_entries = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "zzsn", const_cast<char**>(names), &enabled, &context, &stacks, &max_entries)) {
      return nullptr;
    }
    if (enabled) check_option(enabled, {"state", "all"}, "expected state to be 'state', 'all', or None");
    if (context) check_option(context, {"state", "alloc", "all"}, "expected context to be 'state', 'alloc', 'all', or None");
    check_option(stacks, {"python", "all"}, "expected stacks to be 'python', or 'all'");
    TORCH_CHECK_VALUE(max_entries >= 0, "max_entries must not be negative");
    auto keep = !context ? KeepContext::Never
        : context == std::string("all") ? KeepContext::All
        : context == std::string("alloc") ? KeepContext::Alloc
                                          : KeepContext::State;
    lazy_init();
    bool everything = enabled && enabled == std::string("all");
    record_history(enabled != nullptr, keep, stacks == std::string("all"), everything ? size_t(max_entries) : 1);
    Py_RETURN_NONE;
  });
}
PyObject* record_history_legacy_py(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"enabled", "record_context", "alloc_trace_max_entries", "alloc_trace_record_context",
                                  "record_cpp_context", nullptr};
    int enabled = 0, context = 0, trace_context = 0, cpp = 0;
    Py_ssize_t max_entries = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ppnpp", const_cast<char**>(names), &enabled, &context, &max_entries,
                                     &trace_context, &cpp)) {
      return nullptr;
    }
    TORCH_CHECK_VALUE(max_entries >= 0, "trace_alloc_max_entries must not be negative");
    auto keep = context ? (trace_context ? KeepContext::All : KeepContext::State) : KeepContext::Never;
    lazy_init();
    record_history(enabled, keep, cpp, size_t(max_entries));
    Py_RETURN_NONE;
  });
}
PyObject* history_enabled_py(PyObject*, PyObject*) {
  return PyBool_FromLong(history_enabled());
}

const char* action_name(Action action) {
  switch (action) {
    case Action::Alloc: return "alloc";
    case Action::FreeRequested: return "free_requested";
    case Action::FreeCompleted: return "free_completed";
    case Action::SegmentAlloc: return "segment_alloc";
    case Action::SegmentFree: return "segment_free";
    case Action::SegmentMap: return "segment_map";
    case Action::SegmentUnmap: return "segment_unmap";
    case Action::Snapshot: return "snapshot";
    case Action::Oom: return "oom";
  }
  return "";
}

// Finds the source lines of all contexts at once, and puts them into the dicts that asked.
class FrameFiller {
 public:
  // False with a Python error. Without a context a block has no frames and a trace entry no key.
  bool want(PyObject* dict, const Context& context, bool empty_list) {
    if (!context) return !empty_list || set_item(dict, "frames", PyList_New(0));
    Py_INCREF(dict);
    dicts_.emplace_back(dict);
    contexts_.push_back(context);
    return true;
  }
  bool fill() {
    Frames found = symbolize(contexts_);
    std::vector<Ref> frames;
    for (auto& frame : found.frames) {
      Ref file(string_of(frame.file)), function(string_of(frame.function));
      Ref entry(file && function ? Py_BuildValue("{s:O,s:O,s:K}", "filename", file.object, "name", function.object, "line",
                                                 Long(frame.line))
                                 : nullptr);
      if (!entry) return false;
      frames.push_back(std::move(entry));
    }
    for (size_t i = 0; i < dicts_.size(); ++i) {
      Ref list(PyList_New(0));
      if (!list) return false;
      for (uint64_t index : found.stacks[i]) {
        if (PyList_Append(list.object, frames[index].object) != 0) return false;
      }
      if (PyDict_SetItemString(dicts_[i].object, "frames", list.object) != 0) return false;
    }
    return true;
  }

 private:
  std::vector<Ref> dicts_;
  std::vector<Context> contexts_;
};

PyObject* block_list(const SegmentView& segment, FrameFiller& filler) {
  Ref list(PyList_New(0));
  if (!list) return nullptr;
  for (const BlockView& block : segment.blocks) {
    const char* state = block.state == BlockView::Allocated ? "active_allocated"
        : block.state == BlockView::PendingFree           ? "active_pending_free"
                                                          : "inactive";
    Ref entry(Py_BuildValue("{s:K,s:K,s:K,s:s}", "address", Long(block.address), "size", Long(block.size), "requested_size",
                            Long(block.requested), "state", state));
    if (!entry || !filler.want(entry.object, block.context, true) || PyList_Append(list.object, entry.object) != 0) return nullptr;
  }
  return list.release();
}
PyObject* segment_list(FrameFiller& filler) {
  Ref list(PyList_New(0));
  if (!list) return nullptr;
  for (const SegmentView& segment : memory_snapshot()) {
    Ref blocks(block_list(segment, filler));
    if (!blocks) return nullptr;
    Ref entry(Py_BuildValue("{s:i,s:K,s:K,s:K,s:K,s:K,s:N,s:s,s:O,s:O}", "device", segment.device, "address",
                            Long(segment.address), "total_size", Long(segment.total), "allocated_size", Long(segment.allocated),
                            "active_size", Long(segment.active), "requested_size", Long(segment.requested), "stream",
                            PyLong_FromVoidPtr(segment.stream), "segment_type", segment.is_small ? "small" : "large",
                            "is_expandable", segment.is_expandable ? Py_True : Py_False, "blocks", blocks.object));
    if (!entry || !filler.want(entry.object, segment.context, true) || PyList_Append(list.object, entry.object) != 0) return nullptr;
  }
  return list.release();
}
PyObject* trace_list(FrameFiller& filler) {
  Ref devices(PyList_New(0));
  if (!devices) return nullptr;
  for (int i = 0; i < device_count(); ++i) {
    Ref list(PyList_New(0));
    if (!list) return nullptr;
    for (const TraceEntry& entry : device_trace(i)) {
      Ref dict(Py_BuildValue("{s:s,s:K,s:K,s:N,s:L}", "action", action_name(entry.action),
                             entry.action == Action::Oom ? "device_free" : "addr", Long(entry.address), "size",
                             Long(entry.size), "stream", PyLong_FromVoidPtr(entry.stream), "time_us",
                             static_cast<long long>(entry.time)));
      if (!dict || !filler.want(dict.object, entry.context, false) || PyList_Append(list.object, dict.object) != 0) return nullptr;
    }
    if (PyList_Append(devices.object, list.object) != 0) return nullptr;
  }
  return devices.release();
}
PyObject* annotation_list() {
  Ref list(PyList_New(0));
  if (!list) return nullptr;
  for (const Annotation& annotation : annotations()) {
    Ref name(string_of(annotation.name));
    if (!name || !append(list.object, Py_BuildValue("{s:i,s:L,s:O,s:s}", "device", annotation.device, "time_us",
                                                    static_cast<long long>(annotation.time), "name", name.object, "stage",
                                                    annotation.starts ? "START" : "END"))) {
      return nullptr;
    }
  }
  return list.release();
}
PyObject* settings_dict() {
  auto is_true = [](const char* name) { return allocator_setting(name) == "True" ? Py_True : Py_False; };
  std::string split = allocator_setting("max_split_size_mb"), threads = allocator_setting("pinned_num_register_threads");
  Ref divisions(PyDict_New());
  std::string text = allocator_setting("roundup_power2_divisions");
  if (!divisions || (!text.empty() && !set_item(divisions.object, "value", string_of(text)))) return nullptr;
  return Py_BuildValue("{s:s,s:L,s:d,s:O,s:L,s:O,s:O,s:O}", "PYTORCH_MUSA_ALLOC_CONF", allocator_settings().c_str(),
                       "max_split_size", split.empty() ? -1LL : std::strtoll(split.c_str(), nullptr, 10) << 20,
                       "garbage_collection_threshold", std::strtod(allocator_setting("garbage_collection_threshold").c_str(), nullptr),
                       "expandable_segments", is_true("expandable_segments"), "pinned_num_register_threads",
                       threads.empty() ? 1LL : std::strtoll(threads.c_str(), nullptr, 10), "release_lock_on_musamalloc",
                       is_true("release_lock_on_musamalloc"), "pinned_use_musa_host_register",
                       is_true("pinned_use_musa_host_register"), "roundup_power2_divisions", divisions.object);
}
PyObject* memory_snapshot_py(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    FrameFiller filler;
    Ref segments(segment_list(filler));
    Ref traces(segments ? trace_list(filler) : nullptr);
    Ref notes(traces ? annotation_list() : nullptr);
    Ref settings(notes ? settings_dict() : nullptr);
    if (!settings || !filler.fill()) return nullptr;
    return Py_BuildValue("{s:O,s:O,s:O,s:O}", "segments", segments.object, "device_traces", traces.object,
                         "allocator_settings", settings.object, "external_annotations", notes.object);
  });
}

// ---- allocators ----------------------------------------------------------------------------------------

struct AllocatorObject {
  PyObject_HEAD
  CustomAllocatorPtr* custom; // nullptr: the caching one
};
PyTypeObject *allocator_type = nullptr, *pluggable_type = nullptr, *pool_type = nullptr, *state_type = nullptr;

void allocator_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<AllocatorObject*>(self)->custom;
  type->tp_free(self);
  Py_DECREF(type);
}
PyObject* wrap_allocator(CustomAllocatorPtr custom) {
  PyTypeObject* type = custom ? pluggable_type : allocator_type;
  PyObject* self = type->tp_alloc(type, 0);
  if (self && custom) reinterpret_cast<AllocatorObject*>(self)->custom = new CustomAllocatorPtr(std::move(custom));
  return self;
}
CustomAllocatorPtr unwrap_allocator(PyObject* object, const char* function) {
  int is_one = PyObject_IsInstance(object, reinterpret_cast<PyObject*>(allocator_type));
  TORCH_CHECK_TYPE(is_one == 1, function, ": expected an allocator, got ", Py_TYPE(object)->tp_name);
  auto* custom = reinterpret_cast<AllocatorObject*>(object)->custom;
  return custom ? *custom : nullptr;
}
CustomAllocator& pluggable(PyObject* self) {
  return **reinterpret_cast<AllocatorObject*>(self)->custom;
}

// f(pointer) puts the function at the address into the allocator.
template <class F>
PyObject* set_function(PyObject* address, const char* name, F f) {
  return guarded([&]() -> PyObject* {
    void* pointer = to_pointer(address, name);
    TORCH_CHECK_VALUE(pointer, name, ": the address of a function is null");
    f(pointer);
    Py_RETURN_NONE;
  });
}
template <class Function>
Function* as(void* pointer) {
  return reinterpret_cast<Function*>(pointer);
}
PyObject* set_init_fn(PyObject* self, PyObject* address) {
  return set_function(address, "set_init_fn", [&](void* f) { pluggable(self).init = as<void(int)>(f); });
}
PyObject* set_reset_fn(PyObject* self, PyObject* address) {
  return set_function(address, "set_reset_fn", [&](void* f) { pluggable(self).reset = as<void()>(f); });
}
PyObject* set_fraction_fn(PyObject* self, PyObject* address) {
  return set_function(address, "set_memory_fraction_fn", [&](void* f) { pluggable(self).set_memory_fraction = as<void(double, int)>(f); });
}
PyObject* set_base_fn(PyObject* self, PyObject* address) {
  return set_function(address, "set_base_alloc_fn", [&](void* f) { pluggable(self).base_allocation = as<void*(void*, size_t*)>(f); });
}
PyObject* set_record_fn(PyObject* self, PyObject* address) {
  return set_function(address, "set_record_stream_fn", [&](void* f) { pluggable(self).record_stream = as<void(void*, void*)>(f); });
}
PyObject* set_begin_fn(PyObject* self, PyObject* address) {
  return set_function(address, "set_begin_allocate_to_pool_fn", [&](void* f) {
    pluggable(self).begin_allocate_to_pool = as<void(int, PoolId, std::function<bool(void*)>)>(f);
  });
}
PyObject* set_end_fn(PyObject* self, PyObject* address) {
  return set_function(address, "set_end_allocate_to_pool_fn", [&](void* f) { pluggable(self).end_allocate_to_pool = as<void(int, PoolId)>(f); });
}
PyObject* set_release_fn(PyObject* self, PyObject* address) {
  return set_function(address, "set_release_pool_fn", [&](void* f) { pluggable(self).release_pool = as<void(int, PoolId)>(f); });
}
PyMethodDef pluggable_methods[] = {{"set_init_fn", set_init_fn, METH_O, nullptr},
                                   {"set_reset_fn", set_reset_fn, METH_O, nullptr},
                                   {"set_memory_fraction_fn", set_fraction_fn, METH_O, nullptr},
                                   {"set_base_alloc_fn", set_base_fn, METH_O, nullptr},
                                   {"set_record_stream_fn", set_record_fn, METH_O, nullptr},
                                   {"set_begin_allocate_to_pool_fn", set_begin_fn, METH_O, nullptr},
                                   {"set_end_allocate_to_pool_fn", set_end_fn, METH_O, nullptr},
                                   {"set_release_pool_fn", set_release_fn, METH_O, nullptr},
                                   {nullptr, nullptr, 0, nullptr}};
PyType_Slot allocator_slots[] = {{Py_tp_new, reinterpret_cast<void*>(no_constructor)},
                                 {Py_tp_dealloc, reinterpret_cast<void*>(allocator_dealloc)},
                                 {0, nullptr}};
PyType_Spec allocator_spec = {"torch_musa._MUSAC._musa_MUSAAllocator", sizeof(AllocatorObject), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, allocator_slots};
PyType_Slot pluggable_slots[] = {{Py_tp_new, reinterpret_cast<void*>(no_constructor)},
                                 {Py_tp_methods, pluggable_methods},
                                 {0, nullptr}};
PyType_Spec pluggable_spec = {"torch_musa._MUSAC._MUSAPluggableAllocator", sizeof(AllocatorObject), 0, Py_TPFLAGS_DEFAULT, pluggable_slots};

PyObject* custom_allocator(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"malloc_ptr", "free_ptr", nullptr};
    PyObject *allocate = nullptr, *free = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", const_cast<char**>(names), &allocate, &free)) return nullptr;
    void *a = to_pointer(allocate, "customAllocator"), *f = to_pointer(free, "customAllocator");
    TORCH_CHECK_VALUE(a && f, "customAllocator: the address of a function is null");
    auto custom = std::make_shared<CustomAllocator>();
    custom->allocate = as<void*(size_t, int, void*)>(a);
    custom->free = as<void(void*, size_t, int, void*)>(f);
    return wrap_allocator(std::move(custom));
  });
}
PyObject* change_allocator_py(PyObject*, PyObject* allocator) {
  return guarded([&]() -> PyObject* {
    change_allocator(unwrap_allocator(allocator, "changeCurrentAllocator"));
    Py_RETURN_NONE;
  });
}
PyObject* get_allocator(PyObject*, PyObject*) {
  return guarded([] { return wrap_allocator(changed_allocator()); });
}

// ---- pools ---------------------------------------------------------------------------------------------

struct PoolObject {
  PyObject_HEAD
  PoolId id;
  int device; // -1: not initialised
  PyObject* allocator;
};
thread_local PyObject* active_pool = nullptr; // borrowed from the context object that set it

// Like pybind11's classes: arguments are looked at in __init__ only, so that a Python subclass may take others.
PyObject* pool_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self) reinterpret_cast<PoolObject*>(self)->device = -1;
  return self;
}
int pool_init(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"allocator", "is_user_created", nullptr};
  PyObject* allocator = Py_None;
  int user = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Op", const_cast<char**>(names), &allocator, &user)) return -1;
  auto* pool = reinterpret_cast<PoolObject*>(self);
  Ref done(guarded([&]() -> PyObject* {
    TORCH_CHECK(pool->device < 0, "the pool is initialised already");
    TORCH_CHECK(!changed_allocator(), "MUSAPluggableAllocator does not yet support MemPool. "
                "If you need it, please file an issue describing your use case.");
    auto custom = allocator == Py_None ? nullptr : unwrap_allocator(allocator, "MemPool");
    pool->id = new_pool_id(user);
    pool->device = current_device();
    create_pool(pool->device, pool->id, std::move(custom));
    if (allocator != Py_None) {
      Py_INCREF(allocator);
      pool->allocator = allocator;
    }
    Py_RETURN_NONE;
  }));
  return done ? 0 : -1;
}
void pool_dealloc(PyObject* self) {
  auto* pool = reinterpret_cast<PoolObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  if (pool->device >= 0) {
    Ref done(guarded([&]() -> PyObject* {
      release_pool(pool->device, pool->id);
      without_gil([&] { empty_pool(pool->device, pool->id); });
      Py_RETURN_NONE;
    }));
    if (!done) PyErr_WriteUnraisable(reinterpret_cast<PyObject*>(type));
  }
  Py_XDECREF(pool->allocator);
  type->tp_free(self);
  Py_DECREF(type);
}
PyObject* pool_get_id(PyObject* self, void*) {
  auto id = reinterpret_cast<PoolObject*>(self)->id;
  return Py_BuildValue("(KK)", id.first, id.second);
}
PyObject* pool_get_allocator(PyObject* self, void*) {
  PyObject* allocator = reinterpret_cast<PoolObject*>(self)->allocator;
  if (!allocator) Py_RETURN_NONE;
  Py_INCREF(allocator);
  return allocator;
}
PyGetSetDef pool_fields[] = {{"id", pool_get_id, nullptr, nullptr, nullptr},
                             {"allocator", pool_get_allocator, nullptr, nullptr, nullptr},
                             {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot pool_slots[] = {{Py_tp_new, reinterpret_cast<void*>(pool_new)},
                            {Py_tp_init, reinterpret_cast<void*>(pool_init)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(pool_dealloc)},
                            {Py_tp_getset, pool_fields},
                            {0, nullptr}};
PyType_Spec pool_spec = {"torch_musa._MUSAC._MemPool", sizeof(PoolObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, pool_slots};

struct PoolContext {
  PyObject_HEAD
  PyObject* pool;
  PyObject* previous;
};
PyObject* pool_context_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"mempool", nullptr};
  PyObject* pool = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", const_cast<char**>(names), pool_type, &pool)) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  auto* context = reinterpret_cast<PoolContext*>(self);
  Py_INCREF(pool);
  context->pool = pool;
  context->previous = active_pool;
  active_pool = pool;
  return self;
}
void pool_context_dealloc(PyObject* self) {
  auto* context = reinterpret_cast<PoolContext*>(self);
  PyTypeObject* type = Py_TYPE(self);
  if (active_pool == context->pool) active_pool = context->previous;
  Py_XDECREF(context->pool);
  type->tp_free(self);
  Py_DECREF(type);
}
PyObject* pool_context_active(PyObject*, PyObject*) {
  PyObject* pool = active_pool ? active_pool : Py_None;
  Py_INCREF(pool);
  return pool;
}
PyMethodDef pool_context_methods[] = {{"activate_pool", pool_context_active, METH_STATIC | METH_NOARGS, nullptr},
                                      {nullptr, nullptr, 0, nullptr}};
PyType_Slot pool_context_slots[] = {{Py_tp_new, reinterpret_cast<void*>(pool_context_new)},
                                    {Py_tp_dealloc, reinterpret_cast<void*>(pool_context_dealloc)},
                                    {Py_tp_methods, pool_context_methods},
                                    {0, nullptr}};
PyType_Spec pool_context_spec = {"torch_musa._MUSAC._MemPoolContext", sizeof(PoolContext), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, pool_context_slots};

// Parses (device, pool id) and calls f(device, id).
template <class F>
PyObject* with_pool(PyObject* args, PyObject* kwargs, F f) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"device", "mempool_id", nullptr};
    PyObject* index = nullptr;
    PoolId pool;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O(KK)", const_cast<char**>(names), &index, &pool.first, &pool.second)) {
      return nullptr;
    }
    f(to_device(index, "memory pool"), pool);
    Py_RETURN_NONE;
  });
}
PyObject* begin_pool(PyObject*, PyObject* args, PyObject* kwargs) {
  return with_pool(args, kwargs, [](int device, PoolId pool) {
    begin_allocate_to_pool(device, pool, [](c10::Stream) { return true; });
  });
}
PyObject* begin_pool_on_stream(PyObject*, PyObject* args, PyObject* kwargs) {
  return with_pool(args, kwargs, [](int device, PoolId pool) {
    c10::Stream mine = current_stream(device);
    begin_allocate_to_pool(device, pool, [mine](c10::Stream stream) { return stream == mine; });
  });
}
PyObject* end_pool(PyObject*, PyObject* args, PyObject* kwargs) {
  return with_pool(args, kwargs, [](int device, PoolId pool) { end_allocate_to_pool(device, pool); });
}
PyObject* release_pool_py(PyObject*, PyObject* args, PyObject* kwargs) {
  return with_pool(args, kwargs, [](int device, PoolId pool) { release_pool(device, pool); });
}

// ---- what graph trees need -----------------------------------------------------------------------------

struct StateObject {
  PyObject_HEAD
  PoolState* state;
};
void state_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<StateObject*>(self)->state;
  type->tp_free(self);
  Py_DECREF(type);
}
PyType_Slot state_slots[] = {{Py_tp_new, reinterpret_cast<void*>(no_constructor)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(state_dealloc)},
                             {0, nullptr}};
PyType_Spec state_spec = {"torch_musa._MUSAC._musa_MUSAAllocator_AllocatorState", sizeof(StateObject), 0, Py_TPFLAGS_DEFAULT, state_slots};

PyObject* check_live(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"device", "mempool_id", "expected_live_allocations", nullptr};
    PyObject *index = nullptr, *expected = nullptr;
    PoolId pool;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O(KK)O", const_cast<char**>(names), &index, &pool.first, &pool.second, &expected)) {
      return nullptr;
    }
    std::set<void*> pointers;
    if (!each_item(expected, [&](PyObject* item) { pointers.insert(to_pointer(item, "checkPoolLiveAllocations")); })) return nullptr;
    return PyBool_FromLong(has_live_allocations(to_device(index, "checkPoolLiveAllocations"), pool, pointers));
  });
}
PyObject* get_state(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"device", "id", nullptr};
    PyObject* index = nullptr;
    PoolId pool;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O(KK)", const_cast<char**>(names), &index, &pool.first, &pool.second)) return nullptr;
    auto state = std::make_unique<PoolState>(pool_state(to_device(index, "getCheckpointState"), pool));
    PyObject* self = state_type->tp_alloc(state_type, 0);
    if (self) reinterpret_cast<StateObject*>(self)->state = state.release();
    return self;
  });
}

bool has_device_deleter(c10::StorageImpl* storage) {
  return storage->data_ptr().get_deleter() == device_deleter();
}
void do_nothing_with(void*) {}

PyObject* set_state(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"device", "pps", "stale_storages_ptr", "storages_to_add_deleters_to_ptr", nullptr};
    PyObject *index = nullptr, *state = nullptr, *stale = nullptr, *add = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O|O", const_cast<char**>(names), &index, state_type, &state, &stale, &add)) {
      return nullptr;
    }
    int device = to_device(index, "setCheckpointPoolState");
    auto storages_of = [](PyObject* list, std::vector<c10::StorageImpl*>& into) {
      return !list || each_item(list, [&](PyObject* item) {
        auto* storage = to_storage_impl(item, "setCheckpointPoolState");
        if (std::find(into.begin(), into.end(), storage) == into.end()) into.push_back(storage);
      });
    };
    std::vector<c10::StorageImpl*> stale_storages, new_storages;
    if (!storages_of(stale, stale_storages) || !storages_of(add, new_storages)) return nullptr;
    PoolChange change = set_pool_state(device, *reinterpret_cast<StateObject*>(state)->state);
    std::unordered_set<void*> freed(change.freed.begin(), change.freed.end());
    size_t gone = freed.size();
    for (c10::DataPtr& pointer : change.allocated) gone -= freed.count(pointer.get());
    TORCH_CHECK(stale_storages.size() >= gone, "Any stale tensors which are being manually freed must be passed to set checkpoint");
    for (c10::StorageImpl* storage : stale_storages) {
      void* pointer = storage->mutable_data_ptr().get();
      if (!freed.count(pointer)) continue;
      TORCH_CHECK(storage->mutable_data_ptr().compare_exchange_deleter(device_deleter(), &do_nothing_with), "Expected standard deleter");
    }
    for (c10::StorageImpl* storage : new_storages) {
      for (c10::DataPtr& pointer : change.allocated) {
        if (pointer.get() && pointer.get() == storage->data()) {
          storage->set_data_ptr_noswap(std::move(pointer));
          pointer.clear();
        }
      }
    }
    // The others are allocated again and nobody's: their owner, if any, is gone, and raw_delete() will come for them.
    for (c10::DataPtr& pointer : change.allocated) pointer.release_context();
    Py_RETURN_NONE;
  });
}
PyObject* has_standard_deleter(PyObject*, PyObject* pointer) {
  return guarded([&] { return PyBool_FromLong(has_device_deleter(to_storage_impl(pointer, "_has_Standard_Deleter"))); });
}
PyObject* free_and_remove_deleter(PyObject*, PyObject* pointer) {
  return guarded([&]() -> PyObject* {
    auto* storage = to_storage_impl(pointer, "_free_And_Remove_DeleterFn");
    void* memory = storage->mutable_data_ptr().get();
    TORCH_CHECK(storage->mutable_data_ptr().compare_exchange_deleter(device_deleter(), &do_nothing_with), "Expected standard deleter");
    raw_free(memory);
    Py_RETURN_NONE;
  });
}
PyObject* storage_use_count(PyObject*, PyObject* pointer) {
  return guarded([&] { return PyLong_FromSize_t(c10::raw::intrusive_ptr::use_count(to_storage_impl(pointer, "_storage_Use_Count"))); });
}
const at::Tensor& to_tensor(PyObject* object, const char* function) {
  TORCH_CHECK_TYPE(THPVariable_Check(object), function, ": expected a tensor, got ", Py_TYPE(object)->tp_name);
  return THPVariable_Unpack(object);
}
PyObject* set_access_error(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"t", "s", nullptr};
    PyObject* tensor = nullptr;
    const char* text = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Os", const_cast<char**>(names), &tensor, &text)) return nullptr;
    to_tensor(tensor, "_set_storage_access_error_msg")
        .unsafeGetTensorImpl()
        ->release_storage_and_set_meta_custom_data_ptr_error_msg_(std::string(text));
    Py_RETURN_NONE;
  });
}
PyObject* data_pointers_equal(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"tensors", "data_ptrs", "indices", nullptr};
    PyObject *tensors = nullptr, *pointers = nullptr, *indices = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO", const_cast<char**>(names), &tensors, &pointers, &indices)) return nullptr;
    Ref tensor_list(PySequence_Fast(tensors, "tensors must be a sequence"));
    Ref pointer_list(tensor_list ? PySequence_Fast(pointers, "data_ptrs must be a sequence") : nullptr);
    if (!pointer_list) return nullptr;
    bool equal = true;
    bool read = each_item(indices, [&](PyObject* item) {
      int64_t i = to_int(item, "_tensors_data_ptrs_at_indices_equal");
      TORCH_CHECK_INDEX(i >= 0 && i < PySequence_Fast_GET_SIZE(tensor_list.object) && i < PySequence_Fast_GET_SIZE(pointer_list.object),
                        "index ", i, " is out of range");
      const at::Tensor& tensor = to_tensor(PySequence_Fast_GET_ITEM(tensor_list.object, i), "_tensors_data_ptrs_at_indices_equal");
      void* expected = to_pointer(PySequence_Fast_GET_ITEM(pointer_list.object, i), "_tensors_data_ptrs_at_indices_equal");
      equal = equal && tensor.data_ptr() == expected;
    });
    return read ? PyBool_FromLong(equal) : nullptr;
  });
}
bool int_list(PyObject* dict, const char* key, std::vector<int64_t>& into) {
  PyObject* value = PyDict_GetItemString(dict, key);
  TORCH_CHECK_VALUE(value, "the metadata have no '", key, "'");
  return each_item(value, [&](PyObject* item) { into.push_back(to_int(item, key)); });
}
PyObject* construct_tensor(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"metadata", "s", nullptr};
    PyObject *metadata = nullptr, *storage = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O", const_cast<char**>(names), &PyDict_Type, &metadata, &storage)) return nullptr;
    TORCH_CHECK_TYPE(torch::isStorage(storage), "expected a storage, got ", Py_TYPE(storage)->tp_name);
    PyObject *dtype = PyDict_GetItemString(metadata, "dtype"), *offset = PyDict_GetItemString(metadata, "storage_offset");
    TORCH_CHECK_VALUE(dtype && THPDtype_Check(dtype) && offset, "the metadata need 'dtype' and 'storage_offset'");
    std::vector<int64_t> size, stride;
    if (!int_list(metadata, "size", size) || !int_list(metadata, "stride", stride)) return nullptr;
    auto tensor = at::detail::make_tensor_base<c10::TensorImpl>(
        torch::createStorage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        c10::scalarTypeToTypeMeta(reinterpret_cast<THPDtype*>(dtype)->scalar_type));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, to_int(offset, "storage_offset"));
    return THPVariable_Wrap(at::Tensor(std::move(tensor)));
  });
}

// ---- sharing -------------------------------------------------------------------------------------------

c10::Storage to_storage(PyObject* object, const char* function) {
  TORCH_CHECK_TYPE(torch::isStorage(object), function, ": expected a storage, got ", Py_TYPE(object)->tp_name);
  return torch::createStorage(object);
}
PyObject* share_musa(PyObject*, PyObject* args, PyObject*) {
  return guarded([&]() -> PyObject* {
    PyObject* object = nullptr;
    if (!PyArg_ParseTuple(args, "O", &object)) return nullptr;
    c10::Storage storage = to_storage(object, "_share_musa_");
    SharedMemory shared = without_gil([&] { return share_storage(storage.unsafeGetStorageImpl()); });
    if (shared.handle.empty()) {
      return Py_BuildValue("(iOKKOiOO)", shared.device, Py_None, Long(0), Long(0), Py_None, 0, Py_None, Py_False);
    }
    // The last two: an event to wait for. share_storage() has waited.
    return Py_BuildValue("(iNKKNKNO)", shared.device, bytes_of(shared.handle), Long(shared.bytes), Long(shared.offset),
                         bytes_of(shared.counter_handle), Long(shared.counter_offset), bytes_of(""), Py_False);
  });
}
PyObject* new_shared_musa(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *index = nullptr, *handle = nullptr, *counter = nullptr, *event = nullptr;
    Long bytes = 0, offset = 0, counter_offset = 0;
    int must_wait = 0;
    if (!PyArg_ParseTuple(args, "OSKKSKOp", &index, &handle, &bytes, &offset, &counter, &counter_offset, &event, &must_wait)) {
      return nullptr;
    }
    int device = to_device(index, "_new_shared_musa");
    c10::DataPtr pointer = open_shared({device, PyBytes_AS_STRING(handle), size_t(bytes), size_t(offset),
                                        PyBytes_AS_STRING(counter), size_t(counter_offset)});
    auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), size_t(bytes), std::move(pointer),
                                                         nullptr, /*resizable=*/false);
    storage->set_received_cuda(true);
    return torch::createPyObject(c10::Storage(std::move(storage)));
  });
}
PyObject* release_ipc_counter(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject* handle = nullptr;
    Long offset = 0;
    if (!PyArg_ParseTuple(args, "SK", &handle, &offset)) return nullptr;
    release_counter(PyBytes_AS_STRING(handle), size_t(offset));
    Py_RETURN_NONE;
  });
}
PyObject* ipc_collect_py(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    without_gil([] { ipc_collect(); });
    Py_RETURN_NONE;
  });
}
// Memory that both sides read changes its name without a copy.
PyObject* edit_device(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *object = nullptr, *where = nullptr;
    if (!PyArg_ParseTuple(args, "OO", &object, &where)) return nullptr;
    c10::Storage storage = to_storage(object, "_edit_device_musa");
    c10::Device device(c10::kCPU);
    if (PyLong_Check(where)) {
      device = c10::Device(kMusa, c10::DeviceIndex(to_device(where, "edit_device")));
    } else if (PyUnicode_Check(where)) {
      device = c10::Device(PyUnicode_AsUTF8(where));
    } else {
      TORCH_CHECK_TYPE(THPDevice_Check(where), "edit_device: expected a device, got ", Py_TYPE(where)->tp_name);
      device = reinterpret_cast<THPDevice*>(where)->device;
    }
    TORCH_CHECK(device.is_cpu() || device.type() == kMusa, "edit_device: expected a cpu or musa device, got ", device);
    if (device.type() == kMusa) device = normalize(device);
    TORCH_CHECK(!storage.data() || device_of_pointer(storage.data()) >= 0, "edit_device: the memory is not unified. Make the "
                "storage inside torch.musa.use_unified_cpu_allocator().");
    storage.unsafeGetStorageImpl()->mutable_data_ptr().unsafe_set_device(device);
    Py_INCREF(object);
    return object;
  });
}

// ---- unified memory ------------------------------------------------------------------------------------
// All memory of the simulated device can be read by the CPU, so the unified device allocator is the usual one.

PyObject* register_unified(PyObject*, PyObject*) {
  Py_RETURN_NONE;
}
PyObject* register_unified_cpu(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    set_unified_cpu(true);
    Py_RETURN_NONE;
  });
}
PyObject* reset_unified_cpu(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    set_unified_cpu(false);
    Py_RETURN_NONE;
  });
}

PyMethodDef functions[] = {
    {"_musa_memoryStats", memory_stats_py, METH_O, nullptr},
    {"_musa_resetAccumulatedMemoryStats", reset_accumulated_py, METH_O, nullptr},
    {"_musa_resetPeakMemoryStats", reset_peak_py, METH_O, nullptr},
    {"_musa_memorySnapshot", memory_snapshot_py, METH_NOARGS, nullptr},
    {"_musa_record_memory_history", SIM_KEYWORDS(record_history_py)},
    {"_musa_record_memory_history_legacy", SIM_KEYWORDS(record_history_legacy_py)},
    {"_musa_isHistoryEnabled", history_enabled_py, METH_NOARGS, nullptr},
    {"_musa_attach_out_of_memory_observer", attach_observer_py, METH_O, nullptr},
    {"_musa_emptyCache", empty_cache_py, METH_NOARGS, nullptr},
    {"_musa_setMemoryFraction", set_fraction_py, METH_VARARGS, nullptr},
    {"_musa_musaCachingAllocator_set_allocator_settings", set_allocator_settings_py, METH_O, nullptr},
    {"_musa_musaCachingAllocator_raw_delete", raw_delete, METH_O, nullptr},
    {"_musa_getAllocatorBackend", allocator_backend, METH_NOARGS, nullptr},
    {"_musa_getAllocator", get_allocator, METH_NOARGS, nullptr},
    {"_musa_get_pluggable_allocator", get_allocator, METH_NOARGS, nullptr},
    {"_musa_customAllocator", SIM_KEYWORDS(custom_allocator)},
    {"_musa_changeCurrentAllocator", change_allocator_py, METH_O, nullptr},
    {"_musa_beginAllocateToPool", SIM_KEYWORDS(begin_pool)},
    {"_musa_beginAllocateCurrentStreamToPool", SIM_KEYWORDS(begin_pool_on_stream)},
    {"_musa_endAllocateCurrentStreamToPool", SIM_KEYWORDS(end_pool)},
    {"_musa_releasePool", SIM_KEYWORDS(release_pool_py)},
    {"_musa_checkPoolLiveAllocations", SIM_KEYWORDS(check_live)},
    {"_musa_getCheckpointState", SIM_KEYWORDS(get_state)},
    {"_musa_setCheckpointPoolState", SIM_KEYWORDS(set_state)},
    {"_has_Standard_Deleter", has_standard_deleter, METH_O, nullptr},
    {"_free_And_Remove_DeleterFn", free_and_remove_deleter, METH_O, nullptr},
    {"_storage_Use_Count", storage_use_count, METH_O, nullptr},
    {"_set_storage_access_error_msg", SIM_KEYWORDS(set_access_error)},
    {"_tensors_data_ptrs_at_indices_equal", SIM_KEYWORDS(data_pointers_equal)},
    {"_construct_MUSA_Tensor_From_Storage_And_Metadata", SIM_KEYWORDS(construct_tensor)},
    {"_share_musa_", SIM_KEYWORDS(share_musa)},
    {"_new_shared_musa", new_shared_musa, METH_VARARGS, nullptr},
    {"_release_ipc_counter_musa", release_ipc_counter, METH_VARARGS, nullptr},
    {"_musa_ipc_collect", ipc_collect_py, METH_NOARGS, nullptr},
    {"_edit_device_musa", edit_device, METH_VARARGS, nullptr},
    {"_musa_register_unified_allocator", register_unified, METH_NOARGS, nullptr},
    {"_musa_register_unified_cpu_allocator", register_unified_cpu, METH_NOARGS, nullptr},
    {"_musa_reset_unified_cpu_allocator", reset_unified_cpu, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

} // namespace

bool add_memory(PyObject* module) {
  auto fetch = [&](const char* name) { return reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module, name)); };
  if (!add_type(module, allocator_spec) || !(allocator_type = fetch("_musa_MUSAAllocator")) ||
      !add_type(module, pluggable_spec, reinterpret_cast<PyObject*>(allocator_type)) || !add_type(module, pool_spec) ||
      !add_type(module, pool_context_spec) || !add_type(module, state_spec)) {
    return false;
  }
  pluggable_type = fetch("_MUSAPluggableAllocator");
  pool_type = fetch("_MemPool");
  state_type = fetch("_musa_MUSAAllocator_AllocatorState");
  return pluggable_type && pool_type && state_type && PyModule_AddFunctions(module, functions) == 0;
}

} // namespace sim
