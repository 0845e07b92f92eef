// The part of torch_musa's version profile that the compiled device follows: its defects.
#include "defects.h"
#include "python.h"

#include <array>
#include <string>

namespace sim {

std::atomic<bool> active_defects[static_cast<int>(Defect::count_)];

namespace {

constexpr const char* names[] = {
#define SIM_DEFECT_NAME(name) #name,
    SIM_DEFECTS(SIM_DEFECT_NAME)
#undef SIM_DEFECT_NAME
};
constexpr int count = static_cast<int>(Defect::count_);

// {name: whether the device shows it}, of every defect that is compiled in.
PyObject* get_defects(PyObject*, PyObject*) {
  Ref dict(PyDict_New());
  if (!dict) return nullptr;
  for (int i = 0; i < count; ++i) {
    if (PyDict_SetItemString(dict.object, names[i], active_defects[i].load() ? Py_True : Py_False) != 0) return nullptr;
  }
  return dict.release();
}

// The device's allocator behind an interface that torch.accelerator's memory functions do not accept.
struct PlainAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override { return device_allocator()->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return device_allocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    device_allocator()->copy_data(to, from, bytes);
  }
};

// From here on the device shows these defects and no others. All or nothing: an unknown name changes nothing.
PyObject* set_defects(PyObject*, PyObject* wanted) {
  Ref iterator(PyObject_GetIter(wanted));
  if (!iterator) return nullptr;
  std::array<bool, count> on{};
  while (Ref item{PyIter_Next(iterator.object)}) {
    const char* text = PyUnicode_AsUTF8(item.object);
    if (!text) return nullptr;
    int i = 0;
    while (i < count && std::string(text) != names[i]) ++i;
    if (i == count) {
      PyErr_Format(PyExc_ValueError, "the compiled device knows no defect named '%s'", text);
      return nullptr;
    }
    on[i] = true;
  }
  if (PyErr_Occurred()) return nullptr;
  for (int i = 0; i < count; ++i) active_defects[i] = on[i];
  static PlainAllocator plain;
  c10::SetAllocator(kMusa, defect(Defect::accelerator_memory) ? &plain : device_allocator());
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {{"_sim_defects", get_defects, METH_NOARGS, nullptr},
                           {"_sim_set_defects", set_defects, METH_O, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

} // namespace

bool add_profile(PyObject* module) {
  return PyModule_AddFunctions(module, functions) == 0;
}

} // namespace sim
