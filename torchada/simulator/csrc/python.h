// Small helpers for the Python module; plain CPython, no pybind11.
#pragma once

#include <torch/csrc/python_headers.h>

#include "sim.h"

#include <exception>

namespace sim {

// Sets the Python exception that PyTorch sets for the C++ exception in flight.
void set_python_error(const std::exception& error);

// Runs f(), which returns a new reference or nullptr with a Python error set.
template <class F>
PyObject* guarded(F f) {
  try {
    return f();
  } catch (const std::exception& error) {
    set_python_error(error);
    return nullptr;
  }
}

// Runs f() without the GIL.
template <class F>
auto without_gil(F f) {
  struct Release {
    PyThreadState* state = PyEval_SaveThread();
    ~Release() { PyEval_RestoreThread(state); }
  } release;
  return f();
}

// An owned reference.
struct Ref {
  PyObject* object;
  explicit Ref(PyObject* o = nullptr) : object(o) {}
  ~Ref() { Py_XDECREF(object); }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  Ref(Ref&& other) noexcept : object(other.release()) {}
  explicit operator bool() const { return object != nullptr; }
  PyObject* release() {
    PyObject* o = object;
    object = nullptr;
    return o;
  }
};

// An attribute of a module, by import; nullptr with an error set when it is not there.
PyObject* import_attribute(const char* module, const char* name);
PyObject* not_yet(const char* what); // NotImplementedError

int64_t to_int(PyObject* object, const char* function);
int to_device(PyObject* object, const char* function); // a valid device index

// A type made from `spec`, under its name in the module.
bool add_type(PyObject* module, PyType_Spec& spec, PyObject* base = nullptr);
PyObject* no_constructor(PyTypeObject* type, PyObject*, PyObject*); // a tp_new that refuses

// Any function as PyCFunction, and an entry of a PyMethodDef for one with keywords.
#define SIM_FUNCTION(f) reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f))
#define SIM_KEYWORDS(f) SIM_FUNCTION(f), METH_VARARGS | METH_KEYWORDS, nullptr

bool add_types(PyObject* module);         // streams, events, properties, placeholders
bool add_graph(PyObject* module);         // graph.cpp
bool add_work(PyObject* module);          // module_work.cpp
bool add_memory(PyObject* module);        // module_memory.cpp
bool add_legacy_types(PyObject* module);  // FloatTensor and so on
bool add_profile(PyObject* module);       // the defects of the chosen torch_musa version
bool add_inductor(PyObject* module);      // launches of kernels that inductor compiled
PyObject* device_properties(int device);
c10::Stream unpack_stream(PyObject* stream); // throws c10::TypeError

} // namespace sim
