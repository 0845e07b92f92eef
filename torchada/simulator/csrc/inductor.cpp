// Kernels that inductor compiled, as launches on the device: Python hands over the address of
// `void entry(void* const* arguments)` in a loaded library and gets a callable object back.
#include "python.h"
#include "work.h"

#include <torch/csrc/autograd/python_variable.h>

#include <structmember.h>

#include <string>
#include <vector>

namespace sim {
namespace {

using Entry = void (*)(void* const*);

struct Kernel {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject* library; // keeps the code loaded
  Entry entry;
  const char* label; // the name, for work that outlives this object
  std::string* name;
  std::string* kinds; // for each argument: p tensor, i int64, f float, d double
};

union Value {
  int64_t integer;
  float single;
  double real;
  void* pointer;
};

PyObject* kernel_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    auto* self = reinterpret_cast<Kernel*>(object);
    size_t given = PyVectorcall_NARGS(flags);
    TORCH_CHECK_TYPE(!keywords || PyTuple_GET_SIZE(keywords) == 0, *self->name, "() takes no keyword arguments");
    TORCH_CHECK_TYPE(given == self->kinds->size(), *self->name, "() takes ", self->kinds->size(), " arguments, not ", given);
    std::vector<Value> values(given);
    std::vector<at::Tensor> host;
    int device = current_device();
    for (size_t i = 0; i < given; ++i) {
      char kind = (*self->kinds)[i];
      if (kind == 'p') {
        TORCH_CHECK_TYPE(THPVariable_Check(args[i]), *self->name, "(): argument ", i + 1, " must be a tensor");
        at::Tensor tensor = THPVariable_Unpack(args[i]);
        if (tensor.device().type() == kMusa) {
          device = tensor.device().index();
        } else {
          // A scalar of the host, which a device gets by value.
          if (may_defer()) tensor = tensor.clone();
          host.push_back(tensor);
        }
        values[i].pointer = tensor.data_ptr();
      } else if (kind == 'i') {
        values[i].integer = PyLong_AsLongLong(args[i]);
      } else {
        double real = PyFloat_AsDouble(args[i]);
        if (kind == 'f') {
          values[i].single = static_cast<float>(real);
        } else {
          values[i].real = real;
        }
      }
      if (PyErr_Occurred()) return nullptr;
    }
    DeviceScope scope(device);
    c10::Stream stream = current_stream(device);
    if (route(stream) != Route::captured) count(counters().kernel_launches);
    // Called from Python with the library at hand; ctypes never unloads one, so later calls find the code, too.
    Work work = [entry = self->entry, values = std::move(values), host = std::move(host)] {
      std::vector<void*> pointers;
      for (const Value& value : values) pointers.push_back(const_cast<Value*>(&value));
      entry(pointers.data());
    };
    without_gil([&] { issue(stream, {self->label}, std::move(work)); });
    Py_RETURN_NONE;
  });
}

void kernel_free(PyObject* object) {
  auto* self = reinterpret_cast<Kernel*>(object);
  PyTypeObject* type = Py_TYPE(object);
  delete self->name;
  delete self->kinds;
  Py_XDECREF(self->library);
  type->tp_free(object);
  Py_DECREF(type);
}
PyObject* kernel_repr(PyObject* object) {
  return PyUnicode_FromFormat("<compiled MUSA kernel %s (simulated)>", reinterpret_cast<Kernel*>(object)->name->c_str());
}

PyMemberDef kernel_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Kernel, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot kernel_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(&kernel_free)},
    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
    {Py_tp_repr, reinterpret_cast<void*>(&kernel_repr)},
    {Py_tp_members, kernel_members},
    {0, nullptr},
};
PyType_Spec kernel_spec = {"torch_musa._MUSAC._SimKernel", sizeof(Kernel), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, kernel_slots};
PyTypeObject* kernel_type = nullptr;

PyObject* make_kernel(PyObject*, PyObject* args) {
  const char *name = nullptr, *kinds = nullptr;
  PyObject *address = nullptr, *library = nullptr;
  if (!PyArg_ParseTuple(args, "sO!sO", &name, &PyLong_Type, &address, &kinds, &library)) return nullptr;
  void* entry = PyLong_AsVoidPtr(address);
  if (PyErr_Occurred()) return nullptr;
  if (!entry || std::string(kinds).find_first_not_of("pifd") != std::string::npos) {
    PyErr_SetString(PyExc_ValueError, "_sim_kernel: needs an address and the kinds of the arguments, letters of 'pifd'");
    return nullptr;
  }
  PyObject* object = kernel_type->tp_alloc(kernel_type, 0);
  if (!object) return nullptr;
  auto* self = reinterpret_cast<Kernel*>(object);
  self->call = &kernel_call;
  self->library = Py_NewRef(library);
  self->entry = reinterpret_cast<Entry>(entry);
  self->label = lasting_string(name);
  self->name = new std::string(name);
  self->kinds = new std::string(kinds);
  return object;
}

// torch_musa puts this in the place of torch's own, which inductor and fake tensors call.
PyObject* native_conv_format = nullptr;
PyObject* conv_format(PyObject*, PyObject* args, PyObject* kwargs) {
  return PyObject_Call(native_conv_format, args, kwargs);
}

PyMethodDef functions[] = {{"_conv_determine_backend_memory_format",
                            reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&conv_format)),
                            METH_VARARGS | METH_KEYWORDS, nullptr},
                           {"_sim_kernel", make_kernel, METH_VARARGS,
                            "_sim_kernel(name, address, kinds, library): a compiled kernel as a launch on the device."},
                           {nullptr, nullptr, 0, nullptr}};

} // namespace

bool add_inductor(PyObject* module) {
  kernel_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kernel_spec));
  native_conv_format = import_attribute("torch._C", "_conv_determine_backend_memory_format");
  return native_conv_format && kernel_type && PyModule_AddFunctions(module, functions) == 0;
}

} // namespace sim
