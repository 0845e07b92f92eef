/* Throw-away callables and types to redirect: every calling convention as function, method, class method and static
 * method; getters; constructors and initialisers; device-like types. Each callable reports how it was called. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

#define FN(f) ((PyCFunction)(void (*)(void))(f))

static PyObject *
report(PyObject *args, PyObject *kwargs) /* steals args; (args, kwargs) */
{
    if (args == NULL) {
        return NULL;
    }
    PyObject *dict = kwargs == NULL ? PyDict_New() : PyDict_Copy(kwargs);
    PyObject *result = dict == NULL ? NULL : PyTuple_Pack(2, args, dict);
    Py_DECREF(args);
    Py_XDECREF(dict);
    if (result != NULL && PyTuple_GET_SIZE(args = PyTuple_GET_ITEM(result, 0)) && PyTuple_GET_ITEM(args, 0) == Py_Ellipsis) {
        Py_CLEAR(result);
        PyErr_SetString(PyExc_LookupError, "asked to fail");
    }
    return result;
}

static PyObject *
from_vector(PyObject *const *args, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
    }
    return tuple;
}

static PyObject *
varargs_keywords(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return report(Py_NewRef(args), kwargs);
}

static PyObject *
varargs(PyObject *self, PyObject *args)
{
    return report(Py_NewRef(args), NULL);
}

static PyObject *
fastcall(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    return report(from_vector(args, n), NULL);
}

static PyObject *
fastcall_keywords(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    PyObject *kwargs = PyDict_New(), *result = NULL;
    Py_ssize_t i, nkw = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (kwargs == NULL) {
        return NULL;
    }
    for (i = 0; i < nkw && PyDict_SetItem(kwargs, PyTuple_GET_ITEM(names, i), args[n + i]) == 0; i++) {
    }
    if (i == nkw) {
        result = report(from_vector(args, n), kwargs);
    }
    Py_DECREF(kwargs);
    return result;
}

static PyObject *
method_fastcall_keywords(PyObject *self, PyTypeObject *defining, PyObject *const *args, size_t n, PyObject *names)
{
    return fastcall_keywords(self, args, (Py_ssize_t)n, names);
}

static PyObject *
one(PyObject *self, PyObject *arg)
{
    return report(PyTuple_Pack(1, arg), NULL);
}

static PyObject *
none(PyObject *self, PyObject *ignored)
{
    return report(PyTuple_New(0), NULL);
}

#define ALL(flag)                                                                                               \
    {"varargs_keywords", FN(varargs_keywords), METH_VARARGS | METH_KEYWORDS | flag, "varargs_keywords($self, /, *a)\n--\n\nDoc."}, \
    {"varargs", FN(varargs), METH_VARARGS | flag, NULL},                                                        \
    {"fastcall", FN(fastcall), METH_FASTCALL | flag, NULL},                                                     \
    {"fastcall_keywords", FN(fastcall_keywords), METH_FASTCALL | METH_KEYWORDS | flag, NULL},                   \
    {"one", one, METH_O | flag, NULL},                                                                          \
    {"none", none, METH_NOARGS | flag, NULL}

/* ---- types -------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *made, *initialised; /* what tp_new and tp_init were called with */
    PyObject *value;
} Object;

static void
object_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((Object *)self)->made);
    Py_XDECREF(((Object *)self)->initialised);
    Py_XDECREF(((Object *)self)->value);
    type->tp_free(self);
}

static void
heap_object_dealloc(PyObject *self) /* subtype_dealloc leaves the reference to the type to a heap base */
{
    PyTypeObject *type = Py_TYPE(self);
    object_dealloc(self);
    Py_DECREF(type);
}

static PyObject *
object_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *made = report(Py_NewRef(args), kwargs);
    if (made == NULL) {
        return NULL;
    }
    Object *self = (Object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_DECREF(made);
        return NULL;
    }
    self->made = made;
    return (PyObject *)self;
}

static int
object_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    Py_XSETREF(((Object *)self)->initialised, report(Py_NewRef(args), kwargs));
    return ((Object *)self)->initialised == NULL ? -1 : 0;
}

static PyObject *
get_field(PyObject *self, void *offset)
{
    PyObject *value = *(PyObject **)((char *)self + (size_t)offset);
    return Py_NewRef(value == NULL ? Py_None : value);
}

static int
set_field(PyObject *self, PyObject *value, void *offset)
{
    Py_XSETREF(*(PyObject **)((char *)self + (size_t)offset), Py_XNewRef(value));
    return 0;
}

static PyObject *
get_false(PyObject *self, void *closure)
{
    Py_RETURN_FALSE;
}

static PyObject *
get_true(PyObject *self, void *closure)
{
    Py_RETURN_TRUE;
}

static PyObject *
get_error(PyObject *self, void *closure)
{
    PyErr_SetString(PyExc_LookupError, "no value");
    return NULL;
}

static PyGetSetDef getsets[] = {{"made", get_field, NULL, "Doc.", (void *)offsetof(Object, made)},
                                {"initialised", get_field, NULL, NULL, (void *)offsetof(Object, initialised)},
                                {"value", get_field, set_field, NULL, (void *)offsetof(Object, value)},
                                {"no", get_false, NULL, NULL, NULL},
                                {"no_other", get_false, NULL, NULL, NULL},
                                {"yes", get_true, NULL, NULL, NULL},
                                {"error", get_error, NULL, NULL, NULL},
                                {"write_only", NULL, set_field, NULL, (void *)offsetof(Object, value)},
                                {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef instance_methods[] = {
    ALL(0),
    {"defining", FN(method_fastcall_keywords), METH_METHOD | METH_FASTCALL | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};
static PyMethodDef class_methods[] = {ALL(METH_CLASS), {NULL, NULL, 0, NULL}};
static PyMethodDef static_methods[] = {ALL(METH_STATIC), {NULL, NULL, 0, NULL}};

#define STATIC_TYPE(variable, name, ...)                                                                         \
    static PyTypeObject variable = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "victim." name,                      \
                                    .tp_basicsize = sizeof(Object),                                               \
                                    .tp_dealloc = object_dealloc,                                                 \
                                    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,                         \
                                    .tp_getset = getsets,                                                         \
                                    __VA_ARGS__}
STATIC_TYPE(Thing, "Thing", .tp_methods = instance_methods, .tp_new = PyType_GenericNew);
STATIC_TYPE(ClassThing, "ClassThing", .tp_methods = class_methods, .tp_new = PyType_GenericNew);
STATIC_TYPE(StaticThing, "StaticThing", .tp_methods = static_methods, .tp_new = PyType_GenericNew);
STATIC_TYPE(Made, "Made", .tp_new = object_new);
STATIC_TYPE(StaticSub, "StaticSub", .tp_base = &Made);
STATIC_TYPE(Inited, "Inited", .tp_new = PyType_GenericNew, .tp_init = object_init);

/* a heap type with everything, a vectorcall of its own included */
static PyObject *
both_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *names)
{
    PyObject *tuple = from_vector(args, PyVectorcall_NARGS(nargsf)), *result = NULL;
    if (tuple != NULL && (result = object_new((PyTypeObject *)type, tuple, NULL)) != NULL &&
        object_init(result, tuple, NULL) < 0) {
        Py_CLEAR(result);
    }
    Py_XDECREF(tuple);
    return result;
}

static PyType_Slot both_slots[] = {{Py_tp_new, object_new},
                                   {Py_tp_init, object_init},
                                   {Py_tp_dealloc, heap_object_dealloc},
                                   {Py_tp_getset, getsets},
                                   {0, NULL}};
static PyType_Spec both_spec = {"victim.Both", sizeof(Object), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE, both_slots};

/* Devices: type and index as two bytes, as in torch, and the other way round. */
typedef struct {
    PyObject_HEAD
    signed char field[2];
} Device;

static const char *const device_names[] = {"cpu", "cuda", "musa"};
static PyTypeObject DeviceType, OddDeviceType;

static PyObject *
device_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"type", "index", NULL};
    const char *text, *colon;
    int index = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|i:Device", names, &text, &index)) {
        return NULL;
    }
    if ((colon = strchr(text, ':')) != NULL) {
        index = atoi(colon + 1);
    }
    size_t n = colon == NULL ? strlen(text) : (size_t)(colon - text);
    for (int i = 0; i < 3; i++) {
        if (strlen(device_names[i]) == n && strncmp(device_names[i], text, n) == 0) {
            Device *self = (Device *)type->tp_alloc(type, 0);
            if (self != NULL) {
                self->field[type == &OddDeviceType] = (signed char)i;
                self->field[type != &OddDeviceType] = (signed char)index;
            }
            return (PyObject *)self;
        }
    }
    PyErr_Format(PyExc_ValueError, "no such device: %s", text);
    return NULL;
}

static PyObject *
device_str(PyObject *self)
{
    int odd = Py_TYPE(self) == &OddDeviceType;
    int type = ((Device *)self)->field[odd], index = ((Device *)self)->field[!odd];
    return index < 0 ? PyUnicode_FromString(device_names[type])
                     : PyUnicode_FromFormat("%s:%d", device_names[type], index);
}

static Py_hash_t
device_hash(PyObject *self)
{
    return ((Device *)self)->field[0] * 256 + ((Device *)self)->field[1] + 1000;
}

static PyObject *
device_compare(PyObject *a, PyObject *b, int op)
{
    if (Py_TYPE(a) != Py_TYPE(b) || (op != Py_EQ && op != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    int equal = memcmp(((Device *)a)->field, ((Device *)b)->field, 2) == 0;
    return PyBool_FromLong(op == Py_EQ ? equal : !equal);
}

#define DEVICE_TYPE(variable, name)                                                                              \
    static PyTypeObject variable = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "victim." name,                      \
                                    .tp_basicsize = sizeof(Device),                                               \
                                    .tp_new = device_new,                                                         \
                                    .tp_repr = device_str,                                                        \
                                    .tp_hash = device_hash,                                                       \
                                    .tp_richcompare = device_compare,                                             \
                                    .tp_flags = Py_TPFLAGS_DEFAULT}
DEVICE_TYPE(DeviceType, "Device");
DEVICE_TYPE(OddDeviceType, "OddDevice");

/* ---- ways to call, from C ----------------------------------------------------------------------------------- */

static PyObject *
object_call(PyObject *self, PyObject *args) /* PyObject_Call */
{
    PyObject *f, *a, *k = NULL;
    return PyArg_ParseTuple(args, "OO!|O!", &f, &PyTuple_Type, &a, &PyDict_Type, &k) ? PyObject_Call(f, a, k) : NULL;
}

static PyObject *
slot_call(PyObject *self, PyObject *args) /* tp_call directly, as code compiled by Cython does */
{
    PyObject *f, *a, *k = NULL;
    return PyArg_ParseTuple(args, "OO!|O!", &f, &PyTuple_Type, &a, &PyDict_Type, &k) ? Py_TYPE(f)->tp_call(f, a, k)
                                                                                     : NULL;
}

static PyObject *
fresh_name_call(PyObject *self, PyObject *args) /* f(*a, NAME=value), the name not interned */
{
    PyObject *f, *a, *value, *result = NULL;
    const char *text;
    if (!PyArg_ParseTuple(args, "OO!sO", &f, &PyTuple_Type, &a, &text, &value)) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(a);
    PyObject *name = PyUnicode_FromString(text), *names = name == NULL ? NULL : PyTuple_Pack(1, name), *stack[16];
    if (names != NULL && n < 15) {
        for (Py_ssize_t i = 0; i < n; i++) {
            stack[i] = PyTuple_GET_ITEM(a, i);
        }
        stack[n] = value;
        result = PyObject_Vectorcall(f, stack, n, names);
    }
    Py_XDECREF(name);
    Py_XDECREF(names);
    return result;
}

static PyObject *
slots_of(PyObject *self, PyObject *type) /* addresses, to see that a type is as before */
{
    PyTypeObject *t = (PyTypeObject *)type;
    return Py_BuildValue("KKK", (unsigned long long)(size_t)t->tp_new, (unsigned long long)(size_t)t->tp_init,
                         (unsigned long long)(size_t)t->tp_vectorcall);
}

static PyObject *
many_types(PyObject *self, PyObject *args) /* n types, each with its own tp_new and one method */
{
    static PyType_Slot slots[] = {{Py_tp_new, object_new},
                                  {Py_tp_dealloc, heap_object_dealloc},
                                  {Py_tp_methods, instance_methods},
                                  {0, NULL}};
    static PyType_Spec spec = {"victim.Many", sizeof(Object), 0, Py_TPFLAGS_DEFAULT, slots};
    int n;
    PyObject *list = PyArg_ParseTuple(args, "i", &n) ? PyList_New(0) : NULL;
    for (int i = 0; list != NULL && i < n; i++) {
        PyObject *type = PyType_FromSpec(&spec);
        if (type == NULL || PyList_Append(list, type) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(type);
    }
    return list;
}

static PyMethodDef functions[] = {ALL(0),
                                  {"object_call", object_call, METH_VARARGS, NULL},
                                  {"slot_call", slot_call, METH_VARARGS, NULL},
                                  {"fresh_name_call", fresh_name_call, METH_VARARGS, NULL},
                                  {"slots_of", slots_of, METH_O, NULL},
                                  {"many_types", many_types, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "victim", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit_victim(void)
{
    PyTypeObject *types[] = {&Thing, &ClassThing, &StaticThing, &Made, &StaticSub, &Inited, &DeviceType, &OddDeviceType};
    PyObject *m = PyModule_Create(&module), *both;
    for (size_t i = 0; m != NULL && i < sizeof(types) / sizeof(types[0]); i++) {
        if (PyModule_AddType(m, types[i]) < 0) {
            Py_CLEAR(m);
        }
    }
    if (m != NULL && ((both = PyType_FromSpec(&both_spec)) == NULL || PyModule_AddObjectRef(m, "Both", both) < 0)) {
        Py_CLEAR(m);
    }
    if (m != NULL) {
        ((PyTypeObject *)both)->tp_vectorcall = both_vectorcall;
    }
    return m;
}
