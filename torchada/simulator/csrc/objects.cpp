// Python types of torch_musa._MUSAC: streams, events, device properties, memory pools, legacy tensor types.
#include "python.h"
#include "work.h"

#include <c10/core/Event.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Event.h>
#include <torch/csrc/Stream.h>
#include <torch/csrc/utils/python_arg_parser.h>
#include <structmember.h>

#include <array>
#include <cstring>
#include <new>

namespace sim {

bool add_type(PyObject* module, PyType_Spec& spec, PyObject* base) {
  Ref bases(base ? PyTuple_Pack(1, base) : nullptr);
  Ref type(PyType_FromSpecWithBases(&spec, bases.object));
  if (!type) return false;
  const char* name = std::strrchr(spec.name, '.') + 1;
  return PyObject_SetAttrString(module, name, type.object) == 0;
}

PyObject* no_constructor(PyTypeObject* type, PyObject*, PyObject*) {
  PyErr_Format(PyExc_TypeError, "%s: No constructor defined!", type->tp_name);
  return nullptr;
}

namespace {

// ---- streams -----------------------------------------------------------------------------------------

c10::Stream stream_of(PyObject* self) {
  auto* stream = reinterpret_cast<THPStream*>(self);
  return c10::Stream::unpack3(stream->stream_id, c10::DeviceIndex(stream->device_index), c10::DeviceType(stream->device_type));
}

PyObject* stream_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"priority", "stream_id", "device_index", "device_type", "stream_ptr", nullptr};
    int priority = 0;
    long long stream_id = 0, device_index = 0, device_type = 0;
    unsigned long long pointer = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|iLLLK", const_cast<char**>(names), &priority, &stream_id,
                                     &device_index, &device_type, &pointer)) {
      return nullptr;
    }
    if (pointer) TORCH_CHECK(priority == 0, "Priority was explicitly set for a external stream");
    if (stream_id || device_index || device_type) {
      TORCH_CHECK(device_type == int64_t(kMusa), "expected a musa stream");
      check_device(device_index);
    }
    c10::Stream stream = (stream_id || device_index || device_type)
        ? c10::Stream::unpack3(stream_id, c10::DeviceIndex(device_index), c10::DeviceType(device_type))
        : pointer ? stream_from_handle(reinterpret_cast<void*>(pointer), current_device())
                  : stream_from_pool(current_device(), priority);
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    auto* fields = reinterpret_cast<THPStream*>(self);
    fields->stream_id = stream.id();
    fields->device_index = stream.device_index();
    fields->device_type = int64_t(kMusa);
    return self;
  });
}

PyObject* stream_query(PyObject* self, PyObject*) {
  return guarded([&] { return PyBool_FromLong(stream_idle(stream_of(self))); });
}
PyObject* stream_synchronize(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    without_gil([&] { synchronize_stream(stream_of(self)); });
    Py_RETURN_NONE;
  });
}
PyObject* stream_priority_range(PyObject*, PyObject*) {
  auto range = priority_range();
  return Py_BuildValue("(ii)", range.first, range.second);
}
PyObject* stream_get_handle(PyObject* self, void*) {
  return guarded([&] { return PyLong_FromVoidPtr(stream_handle(stream_of(self))); });
}
PyObject* stream_get_priority(PyObject* self, void*) {
  return guarded([&] { return PyLong_FromLong(stream_priority(stream_of(self))); });
}

PyMethodDef stream_methods[] = {
    {"query", stream_query, METH_NOARGS, nullptr},
    {"synchronize", stream_synchronize, METH_NOARGS, nullptr},
    {"priority_range", stream_priority_range, METH_STATIC | METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef stream_fields[] = {
    {"musa_stream", stream_get_handle, nullptr, nullptr, nullptr},
    {"priority", stream_get_priority, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot stream_slots[] = {{Py_tp_new, reinterpret_cast<void*>(stream_new)},
                              {Py_tp_methods, stream_methods},
                              {Py_tp_getset, stream_fields},
                              {0, nullptr}};
PyType_Spec stream_spec = {"torch_musa._MUSAC._MusaStreamBase", sizeof(THPStream), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, stream_slots};

// ---- events ------------------------------------------------------------------------------------------

struct MusaEvent {
  THPEvent base;
  bool interprocess;
  c10::DeviceIndex made_on; // by its handle, before any record; -1 where only records say it
  SharedEventPtr shared; // set once a handle was made of it, or it from one
};

c10::Event& event_of(PyObject* self) {
  return reinterpret_cast<THPEvent*>(self)->event;
}
SharedEventPtr& shared_of(PyObject* self) {
  return reinterpret_cast<MusaEvent*>(self)->shared;
}
c10::DeviceIndex device_of(PyObject* self) {
  c10::DeviceIndex recorded = event_of(self).device_index();
  return recorded < 0 ? reinterpret_cast<MusaEvent*>(self)->made_on : recorded;
}
PyObject* make_event(PyTypeObject* type, bool timing, bool interprocess, SharedEventPtr shared, c10::DeviceIndex device = -1) {
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  new (&event_of(self)) c10::Event(kMusa, timing ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
  reinterpret_cast<MusaEvent*>(self)->interprocess = interprocess;
  reinterpret_cast<MusaEvent*>(self)->made_on = device;
  new (&shared_of(self)) SharedEventPtr(std::move(shared));
  return self;
}
void event_dealloc(PyObject* self) {
  shared_of(self).~SharedEventPtr();
  reinterpret_cast<PyTypeObject*>(THPEventClass)->tp_dealloc(self);
}

PyObject* event_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"enable_timing", "blocking", "interprocess", nullptr};
    int timing = 0, blocking = 0, interprocess = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|ppp", const_cast<char**>(names), &timing, &blocking, &interprocess)) {
      return nullptr;
    }
    TORCH_CHECK(!(timing && interprocess), "an interprocess event cannot take timestamps");
    return make_event(type, timing, interprocess, nullptr);
  });
}

PyObject* event_record(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"stream", nullptr};
    PyObject* stream = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &stream)) return nullptr;
    c10::Stream where = stream == Py_None ? current_stream(current_device()) : unpack_stream(stream);
    TORCH_CHECK(device_of(self) < 0 || device_of(self) == where.device_index(), "Event device ", int(device_of(self)),
                " does not match recording stream's device ", int(where.device_index()), ".");
    event_of(self).record(where);
    if (shared_of(self)) record_shared_event(shared_of(self), where);
    Py_RETURN_NONE;
  });
}
PyObject* event_wait(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"stream", nullptr};
    PyObject* stream = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &stream)) return nullptr;
    c10::Stream waiting = stream == Py_None ? current_stream(current_device()) : unpack_stream(stream);
    without_gil([&] { shared_of(self) ? wait_shared_event(shared_of(self), waiting) : event_of(self).block(waiting); });
    Py_RETURN_NONE;
  });
}
PyObject* event_query(PyObject* self, PyObject*) {
  return guarded([&] {
    return PyBool_FromLong(shared_of(self) ? query_shared_event(shared_of(self)) : event_of(self).query());
  });
}
PyObject* event_synchronize(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    without_gil([&] { shared_of(self) ? synchronize_shared_event(shared_of(self)) : event_of(self).synchronize(); });
    Py_RETURN_NONE;
  });
}
PyObject* event_elapsed_time(PyObject* self, PyObject* other) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK_TYPE(THPEvent_Check(other), "elapsed_time: expected an event");
    c10::Event &start = event_of(self), &end = event_of(other);
    TORCH_CHECK_VALUE(start.flag() == c10::EventFlag::BACKEND_DEFAULT && end.flag() == c10::EventFlag::BACKEND_DEFAULT,
                      "Both events must be created with argument 'enable_timing=True'.");
    TORCH_CHECK_VALUE(start.was_marked_for_recording() && end.was_marked_for_recording(),
                      "Both events must be recorded before calculating elapsed time.");
    return PyFloat_FromDouble(start.elapsedTime(end));
  });
}
PyObject* event_ipc_handle(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    if (!reinterpret_cast<MusaEvent*>(self)->interprocess) throw_musa_error(1, "invalid argument");
    if (!shared_of(self)) {
      SharedEventPtr shared = make_shared_event();
      if (event_of(self).was_marked_for_recording()) { // before it was shared: that has to be over
        without_gil([&] { event_of(self).synchronize(); });
      }
      shared_of(self) = std::move(shared);
      if (device_of(self) < 0) reinterpret_cast<MusaEvent*>(self)->made_on = current_device();
    }
    std::string handle = shared_event_handle(shared_of(self));
    return PyBytes_FromStringAndSize(handle.data(), Py_ssize_t(handle.size()));
  });
}
PyObject* event_from_ipc_handle(PyObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    // torch's parser, as CUDA's function has it: a device, its name or its index.
    static torch::PythonArgParser parser({"from_ipc_handle(Device device, std::string handle)"});
    torch::ParsedArgs<2> parsed;
    torch::PythonArgs given = parser.parse(args, kwargs, parsed);
    c10::Device where = given.device(0);
    std::string handle = given.string(1);
    TORCH_CHECK_VALUE(where.type() == kMusa, "from_ipc_handle: expected a musa device, got ", where);
    if (where.has_index()) check_device(where.index());
    return make_event(reinterpret_cast<PyTypeObject*>(type), false, true, open_shared_event(handle),
                      where.has_index() ? where.index() : current_device());
  });
}
PyObject* event_get_device(PyObject* self, void*) {
  return guarded([&]() -> PyObject* {
    c10::DeviceIndex index = device_of(self);
    if (index < 0) Py_RETURN_NONE;
    return THPDevice_New(c10::Device(kMusa, index));
  });
}
PyObject* event_get_handle(PyObject* self, void*) {
  return PyLong_FromVoidPtr(event_of(self).eventId());
}

PyMethodDef event_methods[] = {
    {"record", SIM_FUNCTION(event_record), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"wait", SIM_FUNCTION(event_wait), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"query", event_query, METH_NOARGS, nullptr},
    {"synchronize", event_synchronize, METH_NOARGS, nullptr},
    {"elapsed_time", event_elapsed_time, METH_O, nullptr},
    {"ipc_handle", event_ipc_handle, METH_NOARGS, nullptr},
    {"from_ipc_handle", SIM_FUNCTION(event_from_ipc_handle), METH_CLASS | METH_VARARGS | METH_KEYWORDS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef event_fields[] = {
    {"device", event_get_device, nullptr, nullptr, nullptr},
    {"musa_event", event_get_handle, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot event_slots[] = {{Py_tp_new, reinterpret_cast<void*>(event_new)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(event_dealloc)},
                             {Py_tp_methods, event_methods},
                             {Py_tp_getset, event_fields},
                             {0, nullptr}};
PyType_Spec event_spec = {"torch_musa._MUSAC._MusaEventBase", sizeof(MusaEvent), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, event_slots};

// ---- device properties -------------------------------------------------------------------------------

struct Properties {
  PyObject_HEAD
  PyObject* name;
  int major, minor, multi_processor_count;
  char is_multi_gpu_board, is_integrated;
  unsigned long long total_memory;
};

PyTypeObject* properties_type = nullptr;

void properties_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<Properties*>(self)->name);
  type->tp_free(self);
  Py_DECREF(type);
}
PyObject* properties_repr(PyObject* self) {
  auto* p = reinterpret_cast<Properties*>(self);
  return PyUnicode_FromFormat("_MusaDeviceProperties(name=%R, major=%d, minor=%d, total_memory=%lluMB, multi_processor_count=%d)",
                              p->name, p->major, p->minor, p->total_memory >> 20, p->multi_processor_count);
}
PyMemberDef properties_members[] = {
    {"name", T_OBJECT, offsetof(Properties, name), READONLY, nullptr},
    {"major", T_INT, offsetof(Properties, major), READONLY, nullptr},
    {"minor", T_INT, offsetof(Properties, minor), READONLY, nullptr},
    {"is_multi_gpu_board", T_BOOL, offsetof(Properties, is_multi_gpu_board), READONLY, nullptr},
    {"is_integrated", T_BOOL, offsetof(Properties, is_integrated), READONLY, nullptr},
    {"multi_processor_count", T_INT, offsetof(Properties, multi_processor_count), READONLY, nullptr},
    {"total_memory", T_ULONGLONG, offsetof(Properties, total_memory), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot properties_slots[] = {{Py_tp_new, reinterpret_cast<void*>(no_constructor)},
                                  {Py_tp_dealloc, reinterpret_cast<void*>(properties_dealloc)},
                                  {Py_tp_repr, reinterpret_cast<void*>(properties_repr)},
                                  {Py_tp_members, properties_members},
                                  {0, nullptr}};
PyType_Spec properties_spec = {"torch_musa._MUSAC._MusaDeviceProperties", sizeof(Properties), 0, Py_TPFLAGS_DEFAULT, properties_slots};

// ---- legacy tensor types -------------------------------------------------------------------------------
// Static-looking type objects, because Tensor.type(cls) reads the full dotted name out of tp_name.

struct LegacyType {
  PyTypeObject type;
  char name[40];  // torch.musa.FloatTensor
  char dtype[12]; // float32
};
std::array<LegacyType, 10> legacy_types{};
PyTypeObject* legacy_metatype = nullptr;

LegacyType* legacy(PyObject* type) {
  return reinterpret_cast<LegacyType*>(type);
}
const char* short_name(const LegacyType* type) {
  return std::strrchr(type->name, '.') + 1;
}

PyObject* legacy_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  // The CPU type of the same name understands every form of arguments; its result moves to the device.
  Ref native(import_attribute("torch", short_name(legacy(reinterpret_cast<PyObject*>(type)))));
  if (!native) return nullptr;
  Ref copy(kwargs ? PyDict_Copy(kwargs) : PyDict_New());
  if (!copy) return nullptr;
  Ref device(PyUnicode_FromString("musa"));
  if (PyObject* given = PyDict_GetItemString(copy.object, "device")) {
    if (given != Py_None) {
      Py_INCREF(given);
      Py_DECREF(device.release());
      device.object = given;
    }
    if (PyDict_DelItemString(copy.object, "device") != 0) return nullptr;
  }
  if (PyTuple_GET_SIZE(args) == 1) {
    int same = PyObject_IsInstance(PyTuple_GET_ITEM(args, 0), reinterpret_cast<PyObject*>(type));
    if (same < 0) return nullptr;
    if (same) return PyObject_CallMethod(PyTuple_GET_ITEM(args, 0), "detach", nullptr);
  }
  Ref tensor(PyObject_Call(native.object, args, copy.object));
  return tensor ? PyObject_CallMethod(tensor.object, "to", "O", device.object) : nullptr;
}

PyObject* legacy_dtype(PyObject* type, void*) {
  return import_attribute("torch", legacy(type)->dtype);
}
PyObject* legacy_layout(PyObject*, void*) {
  return import_attribute("torch", "strided");
}
PyObject* legacy_false(PyObject*, void*) {
  Py_RETURN_FALSE;
}
// Looks at the fields and not at Tensor.type(), which others replace.
PyObject* legacy_instancecheck(PyObject* type, PyObject* object) {
  Ref tensor_type(import_attribute("torch", "Tensor"));
  if (!tensor_type) return nullptr;
  int is_tensor = PyObject_IsInstance(object, tensor_type.object);
  if (is_tensor < 0) return nullptr;
  if (!is_tensor) Py_RETURN_FALSE;
  Ref dtype(PyObject_GetAttrString(object, "dtype")), wanted_dtype(legacy_dtype(type, nullptr));
  Ref layout(PyObject_GetAttrString(object, "layout")), wanted_layout(legacy_layout(type, nullptr));
  Ref device(PyObject_GetAttrString(object, "device"));
  Ref device_type(device ? PyObject_GetAttrString(device.object, "type") : nullptr);
  if (!dtype || !wanted_dtype || !layout || !wanted_layout || !device_type) return nullptr;
  return PyBool_FromLong(dtype.object == wanted_dtype.object && layout.object == wanted_layout.object &&
                         PyUnicode_CompareWithASCIIString(device_type.object, "musa") == 0);
}

PyMethodDef legacy_methods[] = {{"__instancecheck__", legacy_instancecheck, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyGetSetDef legacy_fields[] = {{"dtype", legacy_dtype, nullptr, nullptr, nullptr},
                               {"layout", legacy_layout, nullptr, nullptr, nullptr},
                               {"is_cuda", legacy_false, nullptr, nullptr, nullptr},
                               {"is_sparse", legacy_false, nullptr, nullptr, nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};

} // namespace

c10::Stream unpack_stream(PyObject* stream) {
  TORCH_CHECK_TYPE(THPStream_Check(stream), "expected a stream");
  c10::Stream result = stream_of(stream);
  TORCH_CHECK_TYPE(result.device_type() == kMusa, "expected a musa stream, got one on ", result.device());
  return result;
}

PyObject* device_properties(int device) {
  check_device(device);
  auto* p = reinterpret_cast<Properties*>(properties_type->tp_alloc(properties_type, 0));
  if (!p) return nullptr;
  const Profile& profile = *config().profile;
  p->name = PyUnicode_FromString(profile.name);
  p->major = profile.major;
  p->minor = profile.minor;
  p->multi_processor_count = profile.multiprocessors;
  p->total_memory = config().memory;
  return reinterpret_cast<PyObject*>(p);
}

bool add_types(PyObject* module) {
  if (!add_type(module, stream_spec, reinterpret_cast<PyObject*>(THPStreamClass)) ||
      !add_type(module, event_spec, reinterpret_cast<PyObject*>(THPEventClass)) || !add_type(module, properties_spec)) {
    return false;
  }
  auto fetch = [&](const char* name) { return reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module, name)); };
  properties_type = fetch("_MusaDeviceProperties");
  return properties_type != nullptr;
}

bool add_legacy_types(PyObject* module) {
  static PyTypeObject metatype = {PyVarObject_HEAD_INIT(nullptr, 0)};
  metatype.tp_name = "torch.tensortype";
  metatype.tp_basicsize = sizeof(LegacyType);
  metatype.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
  metatype.tp_base = &PyType_Type;
  metatype.tp_methods = legacy_methods;
  metatype.tp_getset = legacy_fields;
  if (PyType_Ready(&metatype) < 0) return false;
  legacy_metatype = &metatype;

  static const char* const names[][2] = {
      {"Bool", "bool"}, {"Byte", "uint8"}, {"Char", "int8"}, {"Double", "float64"}, {"Float", "float32"},
      {"Int", "int32"}, {"Long", "int64"}, {"Short", "int16"}, {"Half", "float16"}, {"BFloat16", "bfloat16"}};
  Ref all(PyDict_New());
  if (!all) return false;
  for (size_t i = 0; i < legacy_types.size(); ++i) {
    LegacyType& entry = legacy_types[i];
    std::snprintf(entry.name, sizeof entry.name, "torch.musa.%sTensor", names[i][0]);
    std::snprintf(entry.dtype, sizeof entry.dtype, "%s", names[i][1]);
    entry.type.ob_base.ob_base.ob_refcnt = 1;
    Py_SET_TYPE(&entry.type, legacy_metatype);
    entry.type.tp_name = entry.name;
    entry.type.tp_basicsize = sizeof(PyObject);
    entry.type.tp_flags = Py_TPFLAGS_DEFAULT;
    entry.type.tp_new = legacy_new;
    if (PyType_Ready(&entry.type) < 0) return false;
    if (PyDict_SetItemString(all.object, short_name(&entry), reinterpret_cast<PyObject*>(&entry.type)) != 0) return false;
  }
  return PyObject_SetAttrString(module, "_sim_tensor_types", all.object) == 0;
}

} // namespace sim
