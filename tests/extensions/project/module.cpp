#include <Python.h>
#include "kernels.cuh"

#if !defined(NVJPEG_FOUND) || OWN_MACRO != 2
#error "macros"
#endif
#define CUDA_ONLY_NAME 1  // a rule of the project's own
#ifdef MUSA_ONLY_NAME
constexpr int own_rule = 1;
#else
constexpr int own_rule = 0;
#endif

extern "C" int nvjpegGetProperty();

static float* pointer(long long address) {
  return reinterpret_cast<float*>(address);
}

static PyObject* scale_(PyObject*, PyObject* arguments) {
  long long x;
  int n;
  float by;
  if (!PyArg_ParseTuple(arguments, "Lif", &x, &n, &by)) return nullptr;
  return PyLong_FromLong(scale(pointer(x), n, by, nullptr) != cudaSuccess);
}

static PyObject* total_(PyObject*, PyObject* arguments) {
  long long x, out;
  int n;
  if (!PyArg_ParseTuple(arguments, "LiL", &x, &n, &out)) return nullptr;
  return PyLong_FromLong(total(pointer(x), n, pointer(out), nullptr) != cudaSuccess);
}

static PyObject* facts(PyObject*, PyObject*) {
  return Py_BuildValue("ii", own_rule, nvjpegGetProperty());
}

static PyMethodDef methods[] = {
    {"scale", scale_, METH_VARARGS, ""},
    {"total", total_, METH_VARARGS, ""},
    {"facts", facts, METH_NOARGS, ""},
    {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "project_cuda", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_project_cuda() {
  return PyModule_Create(&module);
}
