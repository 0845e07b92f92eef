/* Answers that depend on who asks: a torch.device tells masqueraded modules "cuda" and everybody else the truth.
 *
 * Who asks is the innermost Python frame: C code in between (str(), format(), sorted(key=str), getattr(), class patterns
 * of match, a C extension) has no frame of its own. A frame is known by the `__name__` in its globals; `verdicts`, a dict
 * that Python code keeps (torchada/scope.py), says of a name
 *
 *   True, False   yes, no
 *   a dict        look up the `__file__` in the globals, or None without one (debuggers and runpy change `__main__`)
 *   otherwise, or missing, or the globals have no name (code that eval() runs):  decide(globals), asked anew each time
 *
 * State is per process and guarded by the GIL, as in _detour.c. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static struct {
    PyObject *verdicts, *decide;
    PyObject *backend, *word; /* "musa", "cuda" */
} config;
static PyObject *name_key, *file_key;

/* The texts of one type: its slots and their wrappers in the type's dict. */
static struct {
    PyTypeObject *type;
    reprfunc repr, str;
} texts;

/* 1: answer as on CUDA; 0: the truth; -1 with an exception set. */
static int asked(void)
{
    PyObject *globals = PyEval_GetGlobals();
    if (globals == NULL || config.verdicts == NULL) {
        return 0;
    }
    PyObject *name = PyDict_GetItemWithError(globals, name_key), *verdict = NULL;
    if (name != NULL && PyUnicode_CheckExact(name)) {
        verdict = PyDict_GetItemWithError(config.verdicts, name);
    }
    if (verdict != NULL && PyDict_CheckExact(verdict)) {
        PyObject *file = PyDict_GetItemWithError(globals, file_key);
        verdict = file == NULL             ? PyDict_GetItemWithError(verdict, Py_None)
                  : PyUnicode_CheckExact(file) ? PyDict_GetItemWithError(verdict, file)
                                               : NULL;
    }
    if (verdict == Py_True || verdict == Py_False) {
        return verdict == Py_True;
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    PyObject *decide = Py_NewRef(config.decide); /* it may configure anew */
    PyObject *result = PyObject_CallOneArg(decide, globals);
    Py_DECREF(decide);
    if (result == NULL) {
        return -1;
    }
    int answer = PyObject_IsTrue(result);
    Py_DECREF(result);
    return answer;
}

/* shim(value, self) of the getter of device.type. */
static PyObject *device_type(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "device_type() takes the value and the device");
        return NULL;
    }
    PyObject *value = args[0];
    if (config.backend == NULL || !PyUnicode_Check(value) || PyUnicode_Compare(value, config.backend) != 0) {
        return Py_NewRef(value);
    }
    int yes = asked();
    return yes < 0 ? NULL : Py_NewRef(yes ? config.word : value);
}

/* "musa:0" and "device(type='musa', index=0)"; the text of another device does not contain the word. */
static PyObject *as_asked(PyObject *text)
{
    if (text == NULL || config.backend == NULL || !PyUnicode_Check(text)) {
        return text;
    }
    Py_ssize_t at = PyUnicode_Find(text, config.backend, 0, PyUnicode_GET_LENGTH(text), 1);
    int yes = at == -2 ? -1 : at < 0 ? 0 : asked();
    if (yes == 0) {
        return text;
    }
    PyObject *changed = yes < 0 ? NULL : PyUnicode_Replace(text, config.backend, config.word, 1);
    Py_DECREF(text);
    return changed;
}

static PyObject *run_repr(PyObject *self)
{
    return as_asked(texts.repr(self));
}

static PyObject *run_str(PyObject *self)
{
    return as_asked(texts.str(self));
}

static int is_text_wrapper(PyObject *descr, PyTypeObject *type, reprfunc wrapped)
{
    return descr != NULL && Py_IS_TYPE(descr, &PyWrapperDescr_Type) && PyDescr_TYPE(descr) == type &&
           ((PyWrapperDescrObject *)descr)->d_wrapped == (void *)wrapped;
}

/* Write both slots and both wrappers, or nothing. */
static int swap(PyTypeObject *type, reprfunc repr, reprfunc str, reprfunc new_repr, reprfunc new_str)
{
    PyObject *r = PyObject_GetAttrString((PyObject *)type, "__repr__");
    PyObject *s = r == NULL ? NULL : PyObject_GetAttrString((PyObject *)type, "__str__");
    int done = -1;
    if (s != NULL) {
        if (type->tp_repr == repr && type->tp_str == str && is_text_wrapper(r, type, repr) &&
            is_text_wrapper(s, type, str)) {
            type->tp_repr = new_repr;
            type->tp_str = new_str;
            ((PyWrapperDescrObject *)r)->d_wrapped = (void *)new_repr;
            ((PyWrapperDescrObject *)s)->d_wrapped = (void *)new_str;
            done = 0;
        }
        else {
            PyErr_Format(PyExc_RuntimeError, "the texts of %s are not the type's own; nothing has been changed",
                         type->tp_name);
        }
    }
    Py_XDECREF(r);
    Py_XDECREF(s);
    return done;
}

static PyObject *redirect_text(PyObject *Py_UNUSED(module), PyObject *tp)
{
#ifdef Py_GIL_DISABLED
    PyErr_SetString(PyExc_RuntimeError, "free-threaded builds are not supported; use the default build");
    return NULL;
#endif
    PyTypeObject *type = (PyTypeObject *)tp;
    if (!PyType_Check(tp) || PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) ||
        PyType_HasFeature(type, Py_TPFLAGS_BASETYPE) || type->tp_repr == NULL || type->tp_str == NULL) {
        return PyErr_Format(PyExc_TypeError, "%R is no static C type without subclasses that has texts of its own", tp);
    }
    if (texts.type != NULL) {
        return PyErr_Format(PyExc_RuntimeError, "the texts of %s are redirected already", texts.type->tp_name);
    }
    reprfunc repr = type->tp_repr, str = type->tp_str;
    texts.repr = repr;
    texts.str = str;
    if (swap(type, repr, str, run_repr, run_str) < 0) {
        return NULL;
    }
    texts.type = type; /* static: it lives as long as the process */
    Py_RETURN_NONE;
}

static PyObject *restore_text(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (texts.type != NULL) {
        if (swap(texts.type, run_repr, run_str, texts.repr, texts.str) < 0) {
            return NULL;
        }
        texts.type = NULL; /* repr and str stay: a call in flight may still read them */
    }
    Py_RETURN_NONE;
}

static PyObject *configure(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *verdicts, *decide, *backend, *word;
    if (!PyArg_ParseTuple(args, "O!OUU:configure", &PyDict_Type, &verdicts, &decide, &backend, &word)) {
        return NULL;
    }
    if (!PyCallable_Check(decide)) {
        PyErr_SetString(PyExc_TypeError, "decide has to be callable");
        return NULL;
    }
    Py_XSETREF(config.verdicts, Py_NewRef(verdicts));
    Py_XSETREF(config.decide, Py_NewRef(decide));
    Py_XSETREF(config.backend, Py_NewRef(backend));
    Py_XSETREF(config.word, Py_NewRef(word));
    Py_RETURN_NONE;
}

static PyObject *py_asked(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    int yes = asked();
    return yes < 0 ? NULL : PyBool_FromLong(yes);
}

static PyMethodDef module_methods[] = {
    {"asked", py_asked, METH_NOARGS, "asked($module, /)\n--\n\nWhether the calling module is masqueraded."},
    {"configure", configure, METH_VARARGS,
     "configure($module, verdicts, decide, backend, word, /)\n--\n\n"
     "Say who is masqueraded: verdicts is read at each look-up (and kept, not copied), decide(globals) is asked where "
     "it has no answer. backend is the device type to hide, word what is said instead."},
    {"device_type", (PyCFunction)(void (*)(void))device_type, METH_FASTCALL,
     "device_type($module, value, device, /)\n--\n\nThe value of device.type for the module that asks."},
    {"redirect_text", redirect_text, METH_O,
     "redirect_text($module, tp, /)\n--\n\nLet str() and repr() of a static C type answer as asked."},
    {"restore_text", restore_text, METH_NOARGS, "restore_text($module, /)\n--\n\nUndo redirect_text()."},
    {NULL, NULL, 0, NULL}};

static int module_exec(PyObject *Py_UNUSED(module))
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "torchada._asker does not support sub-interpreters: what it redirects "
                        "belongs to the process");
        return -1;
    }
    if (name_key == NULL) {
        name_key = PyUnicode_InternFromString("__name__");
        file_key = PyUnicode_InternFromString("__file__");
    }
    return name_key == NULL || file_key == NULL ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* true: on such a build nothing can be redirected */
#endif
    {0, NULL}};

static struct PyModuleDef module_def = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "torchada._asker",
    .m_doc = "Answers that depend on the module that asks (docs/masquerade.md).",
    .m_size = 0,
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__asker(void)
{
    return PyModuleDef_Init(&module_def);
}
