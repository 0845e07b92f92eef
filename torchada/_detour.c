/* In-place redirection of C callables and types (design, section 6).
 *
 * A place in torch that takes a device is not replaced by a wrapper: the object stays the object it is (identity,
 * hash, pickle, tables keyed by it), only what it runs changes. Per kind of object:
 *
 *   function   the object gets a private PyMethodDef (same name, same ml_meth, hence the same hash) and our
 *              vectorcall. The private flags belong to no calling convention, so cfunction_call delegates to
 *              vectorcall and no specialised bytecode, whose guards compare these flags, takes the old way.
 *   method     the descriptor gets a private PyMethodDef whose ml_meth is one trampoline of a fixed pool, of the same
 *              calling convention, so that whatever CPython has read before the change still fits. Bound methods are
 *              made from it. The original PyMethodDef, maybe shared, is never written.
 *   getter     the descriptor gets a private PyGetSetDef whose closure is the detour.
 *   new, init  the type's slot, and the slots of subclasses that hold a copied pointer, become a trampoline; for init
 *              the `__init__` slot wrapper too.
 *
 * The original is run through a native object of the same kind made from the original definition, so every calling
 * convention, check and error message stays CPython's own.
 *
 * Lifetime: an active detour is kept alive by the place it redirects; a call in flight holds its own reference. Method
 * slots and type entries are never given back (a bound method made while redirected keeps its trampoline for ever);
 * they are reused when the same target is redirected again.
 *
 * State is per process and guarded by the GIL. Sub-interpreters and free-threaded builds are refused.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <string.h>

#define MAX_METHODS 512
#define MAX_TYPES 64
#define MAX_ARGS 8 /* positions, and keywords, of one detour */

#define CONTAINER(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define CONVENTION (METH_VARARGS | METH_KEYWORDS | METH_NOARGS | METH_O | METH_FASTCALL | METH_METHOD)

enum kind { FUNCTION, METHOD, GETTER, NEW, INIT };
static const char *const kind_names[] = {"function", "method", "getter", "new", "init"};

typedef struct {
    PyObject_HEAD
    enum kind kind;
    int active;
    int to_device; /* torch's own parser reads the arguments: it takes names and devices */
    int npos, nkw;
    Py_ssize_t pos[MAX_ARGS]; /* positions to translate, self not counted */
    PyObject *kw[MAX_ARGS];   /* interned names to translate */
    PyObject *target;
    PyObject *shim;
    PyObject *if_keyword; /* interned; the shim runs only when it is passed */
    Py_ssize_t if_position; /* ... or when there is an argument at this position (self not counted) */
    PyObject *original;   /* native callable over the original definition (function, method) */
    PyObject *cache;      /* new: exact string -> ready object */
    PyObject *other;      /* getter: descriptor asked when the original says False */
    int slot;             /* index into methods[] or types[] */
    PyMethodDef def, *native_def;
    vectorcallfunc native_vectorcall;
    PyGetSetDef getset, *native_getset;
} Handle;

typedef struct {
    PyMethodDescrObject *descr; /* strong, for ever */
    PyMethodDef def, *native_def;
    PyObject *original;
    Handle *handle; /* strong while active */
} MethodSlot;

typedef struct {
    PyTypeObject *type; /* strong, for ever */
    newfunc native_new;
    initproc native_init;
    vectorcallfunc native_vectorcall;
    PyWrapperDescrObject *init_wrapper; /* strong, for ever */
    Handle *new_handle, *init_handle;   /* strong while active */
} TypeEntry;

static MethodSlot methods[MAX_METHODS];
static int nmethods;
static TypeEntry types[MAX_TYPES];
static int ntypes;
static PyTypeObject *HandleType;

/* ---- translation -------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *strings; /* our copy; NULL: not configured */
    PyObject *word;    /* strings["cuda"] */
    PyTypeObject *device_type;
    PyObject *devices; /* our copy: native cuda device -> translated device */
    PyTypeObject *plain; /* methods of its own instances get devices, not their names */
    PyObject *modes;     /* builtin without arguments: does something watch calls on plain instances now? */
    int by_payload;    /* layout proven: byte 0 of the payload is the type, byte 1 the index */
    unsigned char type_byte, translated_byte;
    PyObject *by_index[256]; /* borrowed from devices */
#define NO_INDEX 255     /* -1 in a byte */
} Config;
static Config config;

static inline const unsigned char *
payload(PyObject *device)
{
    return (const unsigned char *)device + sizeof(PyObject);
}

/* Is this text a cuda device? By content, so str subclasses count too. */
static inline int is_cuda_text(PyObject *s)
{
#if PY_VERSION_HEX < 0x030C0000
    if (!PyUnicode_IS_READY(s)) {
        return 0; /* only the removed wchar_t API makes such strings, and torch does not read them either */
    }
#endif
    Py_ssize_t n = PyUnicode_GET_LENGTH(s);
    if (n < 4 || !PyUnicode_IS_ASCII(s)) {
        return 0;
    }
    const Py_UCS1 *c = PyUnicode_1BYTE_DATA(s);
    if (memcmp(c, "cuda", 4) != 0) {
        return 0;
    }
    if (n == 4) {
        return 1;
    }
    if (n == 5 || c[4] != ':' || (n > 6 && c[5] == '0')) {
        return 0; /* torch refuses a leading zero, and shall name the string it was given */
    }
    for (Py_ssize_t i = 5; i < n; i++) {
        if (c[i] < '0' || c[i] > '9') {
            return 0;
        }
    }
    return 1;
}

/* For the three functions below: 1 and a new reference in *out when translated, 0 when there is nothing to do, -1 with
 * an exception set. */
static int translate_text(PyObject *s, PyObject **out)
{
    if (config.word == NULL || !is_cuda_text(s)) {
        return 0;
    }
    if (PyUnicode_GET_LENGTH(s) == 4) {
        *out = Py_NewRef(config.word);
        return 1;
    }
    PyObject *exact = PyUnicode_FromObject(s); /* a subclass may have its own hash; its content counts */
    if (exact == NULL) {
        return -1;
    }
    PyObject *found = PyDict_GetItemWithError(config.strings, exact);
    if (found != NULL) {
        *out = Py_NewRef(found);
    }
    else if (PyErr_Occurred()) {
        *out = NULL;
    }
    else {
        PyObject *tail = PyUnicode_Substring(exact, 4, PyUnicode_GET_LENGTH(exact));
        *out = tail == NULL ? NULL : PyUnicode_Concat(config.word, tail);
        Py_XDECREF(tail);
    }
    Py_DECREF(exact);
    return *out == NULL ? -1 : 1;
}

/* A device that configure() was not given, or all of them when the layout is unknown: by equality, then by name. */
static int translate_device_slowly(PyObject *o, PyObject **out)
{
    PyObject *devices = Py_NewRef(config.devices), *type = (PyObject *)Py_TYPE(o); /* comparing may run any code */
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(devices, o));
    Py_DECREF(devices);
    if (found != NULL) {
        *out = found;
        return 1;
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    PyObject *text = PyObject_Str(o), *translated = NULL;
    if (text == NULL) {
        return -1;
    }
    int changed = translate_text(text, &translated);
    Py_DECREF(text);
    if (changed <= 0) {
        return changed;
    }
    *out = PyObject_CallOneArg(type, translated);
    Py_DECREF(translated);
    return *out == NULL ? -1 : 1;
}

/* A few ns: can translate() have something to do? torch takes bytes wherever it takes a string. */
static inline int is_candidate(PyObject *o)
{
    if (PyUnicode_Check(o)) {
        return is_cuda_text(o);
    }
    if (PyBytes_CheckExact(o)) {
        return PyBytes_GET_SIZE(o) >= 4 && memcmp(PyBytes_AS_STRING(o), "cuda", 4) == 0;
    }
    return Py_TYPE(o) == config.device_type && (!config.by_payload || payload(o)[0] == config.type_byte);
}

static int translate(PyObject *o, PyObject **out)
{
    if (!is_candidate(o)) {
        return 0;
    }
    if (PyUnicode_Check(o)) {
        return translate_text(o, out);
    }
    if (PyBytes_CheckExact(o)) {
        PyObject *text = PyUnicode_DecodeLatin1(PyBytes_AS_STRING(o), PyBytes_GET_SIZE(o), NULL);
        int changed = text == NULL ? -1 : translate_text(text, out);
        Py_XDECREF(text);
        return changed;
    }
    if (config.by_payload && config.by_index[payload(o)[1]] != NULL) {
        *out = Py_NewRef(config.by_index[payload(o)[1]]);
        return 1;
    }
    return translate_device_slowly(o, out);
}

/* The device in place of its name, which torch has to parse: for the usual names. */
static int translate_to_device(PyObject *o, PyObject **out)
{
    if (!PyUnicode_CheckExact(o) || !is_cuda_text(o) || PyUnicode_GET_LENGTH(o) > 6) {
        return translate(o, out);
    }
    int index = PyUnicode_GET_LENGTH(o) == 4 ? NO_INDEX : PyUnicode_1BYTE_DATA(o)[5] - '0';
    *out = Py_XNewRef(config.by_index[index]);
    return *out == NULL ? translate(o, out) : 1;
}

/* Do the first two bytes after the object head hold type and index? The objects at hand must say so: all keys share a
 * type byte, all values share another one, keys differ in the index byte, and a value has the index byte of its key. */
static void prove_payload(Config *c)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0, n = PyDict_GET_SIZE(c->devices);
    unsigned char from = 0, to = 0;
    if (n < 2 || c->device_type->tp_basicsize < (Py_ssize_t)sizeof(PyObject) + 2 || c->device_type->tp_itemsize) {
        return;
    }
    for (Py_ssize_t i = 0; PyDict_Next(c->devices, &pos, &key, &value); i++) {
        const unsigned char *k = payload(key), *v = payload(value);
        if (i == 0) {
            from = k[0];
            to = v[0];
        }
        if (k[0] != from || v[0] != to || from == to || k[1] != v[1] || c->by_index[k[1]] != NULL) {
            memset(c->by_index, 0, sizeof(c->by_index));
            return;
        }
        c->by_index[k[1]] = value;
    }
    c->type_byte = from;
    c->translated_byte = to;
    c->by_payload = 1;
}

static const char *unsupported(void)
{
#ifdef Py_GIL_DISABLED
    return "free-threaded builds are not supported: in-place redirection relies on the GIL; use the default build";
#else
    return NULL;
#endif
}

static int refuse_unsupported(void)
{
    if (unsupported() != NULL) {
        PyErr_SetString(PyExc_RuntimeError, unsupported());
        return -1;
    }
    return 0;
}

static int fill_config(Config *c, PyObject *strings, PyObject *device_type, PyObject *devices, PyObject *plain,
                       PyObject *modes)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    if ((c->strings = PyDict_Copy(strings)) == NULL) {
        return -1;
    }
    while (PyDict_Next(c->strings, &pos, &key, &value)) {
        if (!PyUnicode_CheckExact(key) || !PyUnicode_CheckExact(value) || !is_cuda_text(key)) {
            PyErr_Format(PyExc_ValueError,
                         "strings: %R -> %R: keys are \"cuda\" or \"cuda:<digits>\", values are str", key, value);
            return -1;
        }
        if (PyUnicode_GET_LENGTH(key) == 4) {
            Py_XSETREF(c->word, Py_NewRef(value));
        }
    }
    if (c->word == NULL && PyDict_GET_SIZE(c->strings)) {
        PyErr_SetString(PyExc_ValueError, "strings: the key \"cuda\" is missing; it names the device type to use");
        return -1;
    }
    if (device_type == Py_None) {
        if (devices != Py_None || plain != Py_None || modes != Py_None) {
            PyErr_SetString(PyExc_ValueError, "devices, plain or modes are given without a device_type");
            return -1;
        }
        return 0;
    }
    if (!PyType_Check(device_type) || !PyDict_Check(devices) || c->word == NULL) {
        PyErr_SetString(PyExc_TypeError, "device_type is a type and comes with strings and with a dict of devices");
        return -1;
    }
    if ((c->devices = PyDict_Copy(devices)) == NULL) {
        return -1;
    }
    c->device_type = (PyTypeObject *)Py_NewRef(device_type);
    for (pos = 0; PyDict_Next(c->devices, &pos, &key, &value);) {
        if (Py_TYPE(key) != c->device_type || Py_TYPE(value) != c->device_type) {
            PyErr_Format(PyExc_TypeError, "devices: %R -> %R: both must be %s objects", key, value,
                         c->device_type->tp_name);
            return -1;
        }
    }
    prove_payload(c);
    if (plain != Py_None) {
        if (!PyType_Check(plain)) {
            PyErr_Format(PyExc_TypeError, "plain is a type, not %R", plain);
            return -1;
        }
        c->plain = (PyTypeObject *)Py_NewRef(plain);
    }
    if (modes != Py_None) {
        if (!PyCFunction_CheckExact(modes) || PyCFunction_GET_FLAGS(modes) != METH_NOARGS) {
            PyErr_Format(PyExc_TypeError, "modes is a builtin function without arguments, not %R", modes);
            return -1;
        }
        c->modes = Py_NewRef(modes);
    }
    return 0;
}

static void drop_config(Config *c)
{
    Py_XDECREF(c->strings);
    Py_XDECREF(c->word);
    Py_XDECREF(c->devices);
    Py_XDECREF(c->device_type);
    Py_XDECREF(c->plain);
    Py_XDECREF(c->modes);
}

static PyObject *configure(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"strings", "device_type", "devices", "plain", "modes", NULL};
    PyObject *strings, *device_type = Py_None, *devices = Py_None, *plain = Py_None, *modes = Py_None;
    if (refuse_unsupported() < 0 ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OOOO:configure", names, &PyDict_Type, &strings, &device_type,
                                     &devices, &plain, &modes)) {
        return NULL;
    }
    Config fresh, old = config;
    memset(&fresh, 0, sizeof(fresh));
    if (fill_config(&fresh, strings, device_type, devices, plain, modes) < 0) {
        drop_config(&fresh);
        return NULL;
    }
    config = fresh; /* at once: no call ever sees half of it */
    drop_config(&old);
    return PyUnicode_FromString(fresh.device_type == NULL ? "none" : fresh.by_payload ? "payload" : "lookup");
}

static PyObject *py_translate(PyObject *Py_UNUSED(module), PyObject *o)
{
    PyObject *out;
    int changed = translate(o, &out);
    return changed < 0 ? NULL : changed ? out : Py_NewRef(o);
}

/* ---- running a detour --------------------------------------------------------------------------------------- */

/* Equality of argument names. Ours is interned; a caller's may not be, or may be a str subclass. */
static inline int same_name(PyObject *ours, PyObject *theirs)
{
    return ours == theirs || (!PyUnicode_CHECK_INTERNED(theirs) && PyUnicode_Compare(ours, theirs) == 0);
}

/* Does this call concern the detour? If not it goes straight on; that is the usual case and has to be cheap. */
static inline int concerns(Handle *h, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Py_ssize_t nkw = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    if (h->shim != NULL && h->if_keyword == NULL) {
        return 1;
    }
    if (h->if_keyword != NULL && n > h->if_position) {
        return 1;
    }
    for (int i = 0; i < h->npos; i++) {
        if (h->pos[i] < n && is_candidate(args[h->pos[i]])) {
            return 1;
        }
    }
    for (Py_ssize_t i = 0; i < nkw; i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (h->if_keyword != NULL && same_name(h->if_keyword, name)) {
            return 1;
        }
        if (is_candidate(args[n + i])) { /* rarer than a name that matches: ask it first */
            for (int k = 0; k < h->nkw; k++) {
                if (same_name(h->kw[k], name)) {
                    return 1;
                }
            }
        }
    }
    return 0;
}

/* The same for a tuple and a dict; -1 with an exception set. */
static inline int concerns_call(Handle *h, PyObject *args, PyObject *kwargs)
{
    if (h->shim != NULL && h->if_keyword == NULL) {
        return 1;
    }
    if (h->if_keyword != NULL && PyTuple_GET_SIZE(args) > h->if_position) {
        return 1;
    }
    for (int i = 0; i < h->npos; i++) {
        if (h->pos[i] < PyTuple_GET_SIZE(args) && is_candidate(PyTuple_GET_ITEM(args, h->pos[i]))) {
            return 1;
        }
    }
    for (int i = 0; kwargs != NULL && i < h->nkw; i++) {
        PyObject *value = PyDict_GetItemWithError(kwargs, h->kw[i]);
        if (value != NULL ? is_candidate(value) : PyErr_Occurred() != NULL) {
            return value != NULL ? 1 : -1;
        }
    }
    return kwargs == NULL || h->if_keyword == NULL ? 0 : PyDict_Contains(kwargs, h->if_keyword);
}

/* A vector of arguments as the tuple and dict that the native call would build too; new references. */
static int pack(PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject **tuple, PyObject **dict)
{
    Py_ssize_t nkw = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    *dict = NULL;
    if ((*tuple = PyTuple_New(n)) == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyTuple_SET_ITEM(*tuple, i, Py_NewRef(args[i]));
    }
    if (nkw && (*dict = PyDict_New()) == NULL) {
        Py_DECREF(*tuple);
        return -1;
    }
    for (Py_ssize_t i = 0; i < nkw; i++) {
        if (PyDict_SetItem(*dict, PyTuple_GET_ITEM(kwnames, i), args[n + i]) < 0) {
            Py_DECREF(*tuple);
            Py_DECREF(*dict);
            return -1;
        }
    }
    return 0;
}

static PyObject *copy_tuple(PyObject *tuple)
{
    PyObject *copy = PyTuple_New(PyTuple_GET_SIZE(tuple));
    for (Py_ssize_t i = 0; copy != NULL && i < PyTuple_GET_SIZE(tuple); i++) {
        PyTuple_SET_ITEM(copy, i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
    }
    return copy;
}

/* Translate in *args and *kwargs, which become new references. `ours` says that pack() made them; a caller's are never
 * written but copied on the first change. `to_device`: torch's own code reads the argument, and takes a device. */
static int translate_call(Handle *h, PyObject **args, PyObject **kwargs, int ours, int to_device)
{
    int (*const translate_one)(PyObject *, PyObject **) = to_device ? translate_to_device : translate;
    PyObject *a = Py_NewRef(*args), *k = Py_XNewRef(*kwargs), *old, *t;
    int changed;
    for (int i = 0; i < h->npos; i++) {
        Py_ssize_t at = h->pos[i];
        if (at >= PyTuple_GET_SIZE(a) || (changed = translate_one(old = PyTuple_GET_ITEM(a, at), &t)) == 0) {
            continue;
        }
        if (changed < 0) {
            goto error;
        }
        if (!ours && a == *args) {
            PyObject *copy = copy_tuple(a);
            if (copy == NULL) {
                Py_DECREF(t);
                goto error;
            }
            Py_SETREF(a, copy);
        }
        PyTuple_SET_ITEM(a, at, t);
        Py_DECREF(old);
    }
    for (int i = 0; k != NULL && i < h->nkw; i++) {
        if ((old = PyDict_GetItemWithError(k, h->kw[i])) == NULL) {
            if (PyErr_Occurred()) {
                goto error;
            }
            continue;
        }
        Py_INCREF(old); /* comparing devices may run any code */
        changed = translate_one(old, &t);
        Py_DECREF(old);
        if (changed == 0) {
            continue;
        }
        if (changed < 0) {
            goto error;
        }
        if (!ours && k == *kwargs) {
            PyObject *copy = PyDict_Copy(k);
            if (copy == NULL) {
                Py_DECREF(t);
                goto error;
            }
            Py_SETREF(k, copy);
        }
        changed = PyDict_SetItem(k, h->kw[i], t);
        Py_DECREF(t);
        if (changed < 0) {
            goto error;
        }
    }
    *args = a;
    *kwargs = k;
    return 0;
error:
    Py_DECREF(a);
    Py_XDECREF(k);
    return -1;
}

/* 1 when the shim is to run, 0 when not, -1 on error */
static int wants_shim(Handle *h, PyObject *args, PyObject *kwargs)
{
    if (h->shim == NULL || h->if_keyword == NULL) {
        return h->shim != NULL;
    }
    if (PyTuple_GET_SIZE(args) > h->if_position) {
        return 1;
    }
    return kwargs == NULL ? 0 : PyDict_Contains(kwargs, h->if_keyword);
}

/* callable(first?, second, *args, **kwargs) */
static PyObject *call_with(PyObject *callable, PyObject *first, PyObject *second, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t n = PyTuple_GET_SIZE(args), lead = first == NULL ? 1 : 2;
    PyObject *all = PyTuple_New(n + lead);
    if (all == NULL) {
        return NULL;
    }
    if (first != NULL) {
        PyTuple_SET_ITEM(all, 0, Py_NewRef(first));
    }
    PyTuple_SET_ITEM(all, lead - 1, Py_NewRef(second));
    for (Py_ssize_t i = 0; i < n; i++) {
        PyTuple_SET_ITEM(all, lead + i, Py_NewRef(PyTuple_GET_ITEM(args, i)));
    }
    PyObject *result = PyObject_Call(callable, all, kwargs);
    Py_DECREF(all);
    return result;
}

/* The original method. CPython has done the recursion check for the trampoline. */
static PyObject *call_native_method(MethodSlot *s, PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyMethodDef *def = s->native_def;
    switch (def->ml_flags & CONVENTION) {
    case METH_VARARGS | METH_KEYWORDS:
        return ((PyCFunctionWithKeywords)(void (*)(void))def->ml_meth)(self, args, kwargs);
    case METH_VARARGS:
        return def->ml_meth(self, args);
    case METH_O:
        return def->ml_meth(self, PyTuple_GET_ITEM(args, 0));
    case METH_NOARGS:
        return def->ml_meth(self, NULL);
    default: {
        PyTypeObject *defining = def->ml_flags & METH_METHOD ? PyDescr_TYPE(s->descr) : NULL;
        PyObject *bound = PyCMethod_New(def, self, NULL, defining);
        PyObject *result = bound == NULL ? NULL : PyObject_Call(bound, args, kwargs);
        Py_XDECREF(bound);
        return result;
    }
    }
}

static PyObject *run_method(MethodSlot *s, PyObject *self, PyObject *args, PyObject *kwargs)
{
    Handle *h = s->handle; /* NULL: a bound method that outlived the detour */
    PyObject *result = NULL;
    int concerned = h == NULL ? 0 : concerns_call(h, args, kwargs);
    if (concerned <= 0) {
        return concerned < 0 ? NULL : call_native_method(s, self, args, kwargs);
    }
    Py_INCREF(h); /* the call may restore and drop this very detour */
    if (translate_call(h, &args, &kwargs, 0, Py_TYPE(self) == config.plain && h->shim == NULL) == 0) {
        int shim = wants_shim(h, args, kwargs);
        if (shim >= 0) {
            result = shim ? call_with(h->shim, h->original, self, args, kwargs)
                          : call_native_method(s, self, args, kwargs);
        }
        Py_DECREF(args);
        Py_XDECREF(kwargs);
    }
    Py_DECREF(h);
    return result;
}

/* METH_VARARGS, METH_O and METH_NOARGS have one signature. */
static PyObject *run_plain(MethodSlot *s, PyObject *self, PyObject *arg)
{
    int convention = s->native_def->ml_flags & CONVENTION;
    if (convention == METH_VARARGS) {
        return run_method(s, self, arg, NULL);
    }
    PyObject *args = convention == METH_O ? PyTuple_Pack(1, arg) : PyTuple_New(0);
    PyObject *result = args == NULL ? NULL : run_method(s, self, args, NULL);
    Py_XDECREF(args);
    return result;
}

static PyObject *run_vector(MethodSlot *s, PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    PyObject *tuple, *dict, *result;
    if (pack(args, n, kwnames, &tuple, &dict) < 0) {
        return NULL;
    }
    result = run_method(s, self, tuple, dict);
    Py_DECREF(tuple);
    Py_XDECREF(dict);
    return result;
}

/* Does no mode see the calls of torch's functions? -1 with an exception set. */
static int is_unwatched(void)
{
    if (config.modes == NULL) {
        return 0;
    }
    PyObject *watched = PyCFunction_GET_FUNCTION(config.modes)(PyCFunction_GET_SELF(config.modes), NULL);
    Py_XDECREF(watched);
    return watched == NULL ? -1 : watched == Py_False;
}

static PyObject *function_concerned(Handle *h, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    PyObject *tuple, *dict, *result = NULL;
    Py_INCREF(h); /* first: an allocation may start a collection, and that may run code that restores */
    if (pack(args, n, kwnames, &tuple, &dict) == 0) {
        PyObject *a = tuple, *k = dict;
        int to_device = h->to_device && h->shim == NULL ? is_unwatched() : 0;
        if (to_device >= 0 && translate_call(h, &a, &k, 1, to_device) == 0) {
            int shim = wants_shim(h, a, k);
            if (shim >= 0) {
                result = shim ? call_with(h->shim, NULL, h->original, a, k) : PyObject_Call(h->original, a, k);
            }
            Py_DECREF(a);
            Py_XDECREF(k);
        }
        Py_DECREF(tuple);
        Py_XDECREF(dict);
    }
    Py_DECREF(h);
    return result;
}

static PyObject *function_vectorcall(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyCFunctionObject *function = (PyCFunctionObject *)f;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (function->vectorcall != function_vectorcall) {
        return PyObject_Vectorcall(f, args, nargsf, kwnames);
    }
    Handle *h = CONTAINER(function->m_ml, Handle, def);
    if (concerns(h, args, n, kwnames)) {
        return function_concerned(h, args, n, kwnames);
    }
    PyObject *original = Py_NewRef(h->original); /* the call may restore and drop the detour */
    PyObject *result = PyObject_Vectorcall(original, args, nargsf, kwnames);
    Py_DECREF(original);
    return result;
}

static PyGetSetDef *native_getset(PyObject *descr);

/* Is this device one of those that cuda devices become? -1 with an exception set. */
static int is_translated_device(PyObject *device)
{
    if (config.by_payload) {
        return payload(device)[0] == config.translated_byte;
    }
    PyObject *text = PyObject_Str(device), *word = Py_NewRef(config.word);
    Py_ssize_t n = PyUnicode_GET_LENGTH(word);
    int same = text == NULL ? -1 : (int)PyUnicode_Tailmatch(text, word, 0, n, -1);
    if (same > 0 && PyUnicode_GET_LENGTH(text) > n) {
        same = PyUnicode_READ_CHAR(text, n) == ':';
    }
    Py_XDECREF(text);
    Py_DECREF(word);
    return same;
}

static PyObject *ask_other(Handle *h, PyObject *self)
{
    PyGetSetDef *other = native_getset(h->other);
    PyObject *value = other->get(self, other->closure);
    if (value != NULL && Py_TYPE(value) == config.device_type) {
        int same = is_translated_device(value);
        Py_SETREF(value, same < 0 ? NULL : PyBool_FromLong(same));
    }
    return value;
}

static PyObject *run_getter(PyObject *self, void *closure)
{
    Handle *h = closure;
    Py_INCREF(h);
    int plain = h->other != NULL && Py_TYPE(self) == config.plain;
    int other_first = plain ? is_unwatched() : 0; /* most are on the device: one question, not two */
    PyObject *value = other_first < 0 ? NULL : other_first ? ask_other(h, self) : Py_NewRef(Py_False);
    if (value == Py_False) {
        Py_SETREF(value, h->native_getset->get(self, h->native_getset->closure));
    }
    if (value == Py_False && h->other != NULL && !other_first) {
        Py_SETREF(value, ask_other(h, self));
    }
    if (value != NULL && h->shim != NULL) {
        Py_SETREF(value, PyObject_CallFunctionObjArgs(h->shim, value, self, NULL));
    }
    Py_DECREF(h);
    return value;
}

static int run_setter(PyObject *self, PyObject *value, void *closure)
{
    Handle *h = closure;
    return h->native_getset->set(self, value, h->native_getset->closure);
}

static PyGetSetDef *native_getset(PyObject *descr)
{
    PyGetSetDef *def = ((PyGetSetDescrObject *)descr)->d_getset;
    return def->get == run_getter ? ((Handle *)def->closure)->native_getset : def;
}

/* `original` for the shim of a constructor: a builtin whose self is the detour. */
static PyObject *original_new(PyObject *handle, PyObject *args, PyObject *kwargs);
static PyObject *original_init(PyObject *handle, PyObject *args, PyObject *kwargs);
#define WITH_KEYWORDS(f) ((PyCFunction)(void (*)(void))(f))
static PyMethodDef original_new_def = {"__new__", WITH_KEYWORDS(original_new), METH_VARARGS | METH_KEYWORDS,
                                       "The constructor as it was before redirection: original(cls, ...)."};
static PyMethodDef original_init_def = {"__init__", WITH_KEYWORDS(original_init), METH_VARARGS | METH_KEYWORDS,
                                        "The initialiser as it was before redirection: original(self, ...)."};

static PyObject *run_type_shim(Handle *h, PyMethodDef *def, PyObject *subject, PyObject *args, PyObject *kwargs)
{
    PyObject *original = PyCFunction_NewEx(def, (PyObject *)h, NULL);
    if (original == NULL) {
        return NULL;
    }
    PyObject *result = call_with(h->shim, original, subject, args, kwargs);
    Py_DECREF(original);
    return result;
}

static PyObject *run_new(int slot, PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    TypeEntry *e = &types[slot];
    Handle *h = e->new_handle;
    PyObject *result = NULL;
    if (h == NULL) {
        return e->native_new(type, args, kwargs);
    }
    if (h->cache != NULL && type == e->type && PyTuple_GET_SIZE(args) == 1 &&
        PyUnicode_CheckExact(PyTuple_GET_ITEM(args, 0)) && (kwargs == NULL || PyDict_GET_SIZE(kwargs) == 0)) {
        result = PyDict_GetItemWithError(h->cache, PyTuple_GET_ITEM(args, 0));
        if (result != NULL || PyErr_Occurred()) {
            return Py_XNewRef(result);
        }
    }
    Py_INCREF(h);
    if (translate_call(h, &args, &kwargs, 0, 0) == 0) {
        int shim = wants_shim(h, args, kwargs);
        if (shim >= 0) {
            result = shim ? run_type_shim(h, &original_new_def, (PyObject *)type, args, kwargs)
                          : e->native_new(type, args, kwargs);
        }
        Py_DECREF(args);
        Py_XDECREF(kwargs);
    }
    Py_DECREF(h);
    return result;
}

static int run_init(int slot, PyObject *self, PyObject *args, PyObject *kwargs)
{
    TypeEntry *e = &types[slot];
    Handle *h = e->init_handle;
    int status = -1;
    if (h == NULL) {
        return e->native_init(self, args, kwargs);
    }
    Py_INCREF(h);
    if (translate_call(h, &args, &kwargs, 0, 0) == 0) {
        int shim = wants_shim(h, args, kwargs);
        if (shim > 0) {
            PyObject *result = run_type_shim(h, &original_init_def, self, args, kwargs);
            if (result != NULL && result != Py_None) {
                PyErr_Format(PyExc_TypeError, "shim for __init__ should return None, not '%.200s'",
                             Py_TYPE(result)->tp_name);
            }
            else if (result != NULL) {
                status = 0;
            }
            Py_XDECREF(result);
        }
        else if (shim == 0) {
            status = e->native_init(self, args, kwargs);
        }
        Py_DECREF(args);
        Py_XDECREF(kwargs);
    }
    Py_DECREF(h);
    return status;
}

/* args = (subject, ...) -> the rest as a new tuple, subject checked */
static PyObject *split_subject(TypeEntry *e, PyObject *args, int is_type, PyObject **subject)
{
    *subject = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL;
    if (*subject == NULL ||
        (is_type ? !PyType_Check(*subject) || !PyType_IsSubtype((PyTypeObject *)*subject, e->type)
                 : !PyObject_TypeCheck(*subject, e->type))) {
        PyErr_Format(PyExc_TypeError, "the first argument must be %s %s", is_type ? "a subtype of" : "an instance of",
                     e->type->tp_name);
        return NULL;
    }
    return PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
}

static PyObject *original_new(PyObject *handle, PyObject *args, PyObject *kwargs)
{
    TypeEntry *e = &types[((Handle *)handle)->slot];
    PyObject *subject, *rest = split_subject(e, args, 1, &subject);
    if (rest == NULL) {
        return NULL;
    }
    PyObject *result = e->native_new((PyTypeObject *)subject, rest, kwargs);
    Py_DECREF(rest);
    return result;
}

static PyObject *original_init(PyObject *handle, PyObject *args, PyObject *kwargs)
{
    TypeEntry *e = &types[((Handle *)handle)->slot];
    PyObject *subject, *rest = split_subject(e, args, 0, &subject);
    if (rest == NULL) {
        return NULL;
    }
    int status = e->native_init(subject, rest, kwargs);
    Py_DECREF(rest);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* The trampolines: C functions that know their slot. */
#define EACH8(M, n) M(n##0) M(n##1) M(n##2) M(n##3) M(n##4) M(n##5) M(n##6) M(n##7)
#define EACH64(M, n) EACH8(M, n##0) EACH8(M, n##1) EACH8(M, n##2) EACH8(M, n##3) EACH8(M, n##4) EACH8(M, n##5) \
    EACH8(M, n##6) EACH8(M, n##7)
#define EACH512(M) EACH64(M, 00) EACH64(M, 01) EACH64(M, 02) EACH64(M, 03) EACH64(M, 04) EACH64(M, 05) EACH64(M, 06) \
    EACH64(M, 07)
/* the numbers are octal constants, 0000 to 0777 */
#define DEFINE_METHOD(i) \
    static PyObject *varargs_##i(PyObject *s, PyObject *a, PyObject *k) { return run_method(&methods[i], s, a, k); } \
    static PyObject *plain_##i(PyObject *s, PyObject *a) { return run_plain(&methods[i], s, a); } \
    static PyObject *fast_##i(PyObject *s, PyObject *const *a, Py_ssize_t n) \
    { return run_vector(&methods[i], s, a, n, NULL); } \
    static PyObject *fast_keywords_##i(PyObject *s, PyObject *const *a, Py_ssize_t n, PyObject *k) \
    { return run_vector(&methods[i], s, a, n, k); } \
    static PyObject *defining_##i(PyObject *s, PyTypeObject *t, PyObject *const *a, size_t n, PyObject *k) \
    { return run_vector(&methods[i], s, a, (Py_ssize_t)n, k); }
#define DEFINE_NEW(i) \
    static PyObject *new_##i(PyTypeObject *t, PyObject *a, PyObject *k) { return run_new(i, t, a, k); }
#define DEFINE_INIT(i) \
    static int init_##i(PyObject *s, PyObject *a, PyObject *k) { return run_init(i, s, a, k); }
#define NAME_METHOD(i) \
    {WITH_KEYWORDS(varargs_##i), plain_##i, WITH_KEYWORDS(fast_##i), WITH_KEYWORDS(fast_keywords_##i), \
     WITH_KEYWORDS(defining_##i)},
#define NAME_NEW(i) new_##i,
#define NAME_INIT(i) init_##i,
EACH512(DEFINE_METHOD)
EACH64(DEFINE_NEW, 00)
EACH64(DEFINE_INIT, 00)
static const struct {
    PyCFunction varargs_keywords, plain, fastcall, fastcall_keywords, defining;
} method_trampolines[MAX_METHODS] = {EACH512(NAME_METHOD)};
static const newfunc new_trampolines[MAX_TYPES] = {EACH64(NAME_NEW, 00)};
static const initproc init_trampolines[MAX_TYPES] = {EACH64(NAME_INIT, 00)};

/* ---- making and undoing a detour ---------------------------------------------------------------------------- */

/* Borrowed; NULL without an exception when the type itself has no such attribute. */
static PyObject *own_attribute(PyTypeObject *type, const char *name)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *dict = PyType_GetDict(type);
#else
    PyObject *dict = Py_XNewRef(type->tp_dict);
#endif
    PyObject *key = PyUnicode_FromString(name);
    PyObject *found = key == NULL || dict == NULL ? NULL : PyDict_GetItemWithError(dict, key);
    Py_XDECREF(key);
    Py_XDECREF(dict);
    return found;
}

/* The interpreter inlines some of these (len, isinstance, list.append, str(x) ...), so none is touched. */
static int refuse_interpreter_type(PyTypeObject *type)
{
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && strchr(type->tp_name, '.') == NULL) {
        PyErr_Format(PyExc_TypeError, "type %s belongs to the interpreter, which inlines some of its own; redirect a "
                     "type of an extension module", type->tp_name);
        return -1;
    }
    return 0;
}

static PyObject *already(PyObject *target)
{
    PyErr_Format(PyExc_RuntimeError, "%R is already redirected; restore() that detour first", target);
    return NULL;
}

static Handle *new_handle(enum kind kind, PyObject *target, PyObject *positions, PyObject *keywords, PyObject *shim,
                          PyObject *if_keyword)
{
    if (refuse_unsupported() < 0) {
        return NULL;
    }
    Handle *h = PyObject_GC_New(Handle, HandleType);
    if (h == NULL) {
        return NULL;
    }
    memset((char *)h + sizeof(PyObject), 0, sizeof(Handle) - sizeof(PyObject));
    h->kind = kind;
    h->if_position = PY_SSIZE_T_MAX;
    h->target = Py_NewRef(target);
    Py_ssize_t npos = positions == NULL ? 0 : PyTuple_GET_SIZE(positions);
    Py_ssize_t nkw = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);
    if (npos > MAX_ARGS || nkw > MAX_ARGS) {
        PyErr_Format(PyExc_ValueError, "at most %d positions and %d keywords", MAX_ARGS, MAX_ARGS);
        goto error;
    }
    for (; h->npos < npos; h->npos++) {
        Py_ssize_t at = PyNumber_AsSsize_t(PyTuple_GET_ITEM(positions, h->npos), PyExc_OverflowError);
        if (at < 0 || at > 1000) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_ValueError, "position %zd is outside 0..1000", at);
            }
            goto error;
        }
        for (int i = 0; i < h->npos; i++) {
            if (h->pos[i] == at) {
                PyErr_Format(PyExc_ValueError, "position %zd is given twice", at);
                goto error;
            }
        }
        h->pos[h->npos] = at;
    }
    for (; h->nkw < nkw; h->nkw++) {
        PyObject *name = PyTuple_GET_ITEM(keywords, h->nkw);
        if (!PyUnicode_CheckExact(name)) {
            PyErr_Format(PyExc_TypeError, "keywords are str, not %.200s", Py_TYPE(name)->tp_name);
            goto error;
        }
        h->kw[h->nkw] = Py_NewRef(name);
        PyUnicode_InternInPlace(&h->kw[h->nkw]);
    }
    if ((npos || nkw) && config.word == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "configure() first: there is no translation for positions or keywords");
        goto error;
    }
    if (shim != NULL && shim != Py_None) {
        if (!PyCallable_Check(shim)) {
            PyErr_Format(PyExc_TypeError, "shim must be callable, not %.200s", Py_TYPE(shim)->tp_name);
            goto error;
        }
        h->shim = Py_NewRef(shim);
    }
    if (if_keyword != NULL && if_keyword != Py_None) {
        if (!PyUnicode_CheckExact(if_keyword) || h->shim == NULL) {
            PyErr_SetString(PyExc_ValueError, "if_keyword is a str and needs a shim: it says when the shim runs");
            goto error;
        }
        h->if_keyword = Py_NewRef(if_keyword);
        PyUnicode_InternInPlace(&h->if_keyword);
    }
    PyObject_GC_Track((PyObject *)h);
    return h;
error:
    Py_DECREF(h);
    return NULL;
}

/* The caller has put the reference it owns into the place; the returned one is new. */
static PyObject *activate(Handle *h)
{
    h->active = 1;
    return Py_NewRef((PyObject *)h);
}

static PyObject *redirect_function(Handle *h)
{
    PyCFunctionObject *f = (PyCFunctionObject *)h->target;
    PyMethodDef *def = f->m_ml;
    if ((def->ml_flags & CONVENTION & ~METH_METHOD) == METH_KEYWORDS) { /* by us, or by another copy of this module */
        return already(h->target);
    }
    if (f->m_self != NULL && PyModule_Check(f->m_self) && f->m_module != NULL && PyUnicode_Check(f->m_module) &&
        PyUnicode_CompareWithASCIIString(f->m_module, "builtins") == 0) {
        PyErr_Format(PyExc_TypeError, "%R belongs to the interpreter, which inlines some of its own; redirect a "
                     "function of an extension module", h->target);
        return NULL;
    }
    h->original = PyCMethod_New(def, f->m_self, f->m_module, PyCFunction_GET_CLASS(f));
    if (h->original == NULL) {
        return NULL;
    }
    h->native_def = def;
    h->native_vectorcall = f->vectorcall;
    h->def = *def; /* the same ml_meth: it is part of the hash */
    h->def.ml_flags = (def->ml_flags & ~CONVENTION) | METH_KEYWORDS | (def->ml_flags & METH_METHOD);
    f->m_ml = &h->def;
    f->vectorcall = function_vectorcall;
    return activate(h);
}

static PyCFunction trampoline(int slot, int convention)
{
    switch (convention) {
    case METH_VARARGS | METH_KEYWORDS:
        return method_trampolines[slot].varargs_keywords;
    case METH_FASTCALL:
        return method_trampolines[slot].fastcall;
    case METH_FASTCALL | METH_KEYWORDS:
        return method_trampolines[slot].fastcall_keywords;
    case METH_METHOD | METH_FASTCALL | METH_KEYWORDS:
        return method_trampolines[slot].defining;
    default: /* METH_VARARGS, METH_O, METH_NOARGS; CPython makes no descriptor of anything else */
        return method_trampolines[slot].plain;
    }
}

static PyObject *redirect_method(Handle *h)
{
    PyMethodDescrObject *descr = (PyMethodDescrObject *)h->target;
    int is_class_method = Py_TYPE(descr) == &PyClassMethodDescr_Type, i;
    if (refuse_interpreter_type(PyDescr_TYPE(descr)) < 0) {
        return NULL;
    }
    for (i = 0; i < nmethods && methods[i].descr != descr; i++) {
    }
    if (i == MAX_METHODS) {
        PyErr_Format(PyExc_RuntimeError, "no room for %R: %d methods have been redirected, as many as there are "
                     "trampolines (MAX_METHODS in _detour.c)", h->target, MAX_METHODS);
        return NULL;
    }
    MethodSlot *s = &methods[i];
    if (i == nmethods) {
        PyMethodDef *def = descr->d_method;
        s->original = is_class_method ? PyDescr_NewClassMethod(PyDescr_TYPE(descr), def)
                                      : PyDescr_NewMethod(PyDescr_TYPE(descr), def);
        if (s->original == NULL) {
            return NULL;
        }
        s->descr = (PyMethodDescrObject *)Py_NewRef(h->target);
        s->native_def = def;
        s->def = *def;
        s->def.ml_meth = trampoline(i, def->ml_flags & CONVENTION);
        nmethods++;
    }
    if (s->handle != NULL) {
        return already(h->target);
    }
    if (descr->d_method != s->native_def) {
        PyErr_Format(PyExc_RuntimeError, "%R was changed by somebody else", h->target);
        return NULL;
    }
    h->slot = i;
    h->original = Py_NewRef(s->original);
    s->handle = h;
    descr->d_method = &s->def;
    return activate(h);
}

/* Can a bound method over `def` come from this descriptor, as it is now or was before? */
static int defined_by(PyMethodDescrObject *descr, PyMethodDef *def)
{
    for (int i = 0; i < nmethods; i++) {
        if (methods[i].descr == descr && (def == methods[i].native_def || def == &methods[i].def)) {
            return 1;
        }
    }
    return descr->d_method == def;
}

/* What stands behind an object that attribute access has made or wrapped; a new reference. */
static PyObject *resolve_target(PyObject *target)
{
    if (Py_TYPE(target) == &PyStaticMethod_Type) {
        return PyObject_GetAttrString(target, "__func__");
    }
    if (!PyCFunction_Check(target)) {
        return Py_NewRef(target);
    }
    /* A bound method is made afresh by each attribute access: the descriptor is what counts. */
    PyObject *self = ((PyCFunctionObject *)target)->m_self;
    PyMethodDef *def = ((PyCFunctionObject *)target)->m_ml;
    if (def->ml_flags & METH_STATIC || self == NULL) {
        return Py_NewRef(target);
    }
    int class_method = (def->ml_flags & METH_CLASS) && PyType_Check(self);
    PyObject *mro = (class_method ? (PyTypeObject *)self : Py_TYPE(self))->tp_mro;
    for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); i++) {
        PyObject *found = own_attribute((PyTypeObject *)PyTuple_GET_ITEM(mro, i), def->ml_name);
        if (found == NULL && PyErr_Occurred()) {
            return NULL;
        }
        if (found == NULL || (Py_TYPE(found) != &PyMethodDescr_Type && Py_TYPE(found) != &PyClassMethodDescr_Type) ||
            !defined_by((PyMethodDescrObject *)found, def)) {
            continue;
        }
        if (class_method) {
            return Py_NewRef(found);
        }
        PyErr_Format(PyExc_TypeError, "%R is one bound method; redirect the descriptor %R", target, found);
        return NULL;
    }
    return Py_NewRef(target);
}

static PyObject *redirect(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"target",     "positions",   "keywords",  "shim",
                            "if_keyword", "if_position", "to_device", NULL};
    PyObject *target, *positions = NULL, *keywords = NULL, *shim = NULL, *if_keyword = NULL, *result = NULL;
    Py_ssize_t if_position = PY_SSIZE_T_MAX;
    int to_device = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O!O!OOnp:redirect", names, &target, &PyTuple_Type, &positions,
                                     &PyTuple_Type, &keywords, &shim, &if_keyword, &if_position, &to_device) ||
        (target = resolve_target(target)) == NULL) {
        return NULL;
    }
    if (if_position < 0 || (if_position != PY_SSIZE_T_MAX && (if_keyword == NULL || if_keyword == Py_None))) {
        PyErr_SetString(PyExc_ValueError, "if_position is where the argument if_keyword can stand too, from 0");
        Py_DECREF(target);
        return NULL;
    }
    int is_function = PyCFunction_Check(target);
    if (!is_function && Py_TYPE(target) != &PyMethodDescr_Type && Py_TYPE(target) != &PyClassMethodDescr_Type) {
        PyErr_Format(PyExc_TypeError, "%R (%s) cannot be redirected in place: a built-in function, a method descriptor "
                     "or a class method descriptor of a C type can; wrap Python functions instead",
                     target, Py_TYPE(target)->tp_name);
    }
    else {
        Handle *h = new_handle(is_function ? FUNCTION : METHOD, target, positions, keywords, shim, if_keyword);
        if (h != NULL) {
            h->if_position = if_position;
            h->to_device = to_device;
        }
        if (h != NULL && (result = is_function ? redirect_function(h) : redirect_method(h)) == NULL) {
            Py_DECREF(h);
        }
    }
    Py_DECREF(target);
    return result;
}

static PyObject *redirect_getter(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"descr", "other", "shim", NULL};
    PyObject *descr, *other = Py_None, *shim = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OO:redirect_getter", names, &PyGetSetDescr_Type, &descr, &other,
                                     &shim)) {
        return NULL;
    }
    PyGetSetDescrObject *d = (PyGetSetDescrObject *)descr;
    if (refuse_interpreter_type(PyDescr_TYPE(d)) < 0) {
        return NULL;
    }
    if (d->d_getset->get == run_getter) {
        return already(descr);
    }
    if (d->d_getset->get == NULL) {
        PyErr_Format(PyExc_TypeError, "%R has no getter", descr);
        return NULL;
    }
    if (other != Py_None &&
        (Py_TYPE(other) != &PyGetSetDescr_Type || other == descr || native_getset(other)->get == NULL ||
         !PyType_IsSubtype(PyDescr_TYPE(d), PyDescr_TYPE(other)))) {
        PyErr_Format(PyExc_TypeError, "other must be another getset descriptor with a getter, of the same type as %R",
                     descr);
        return NULL;
    }
    if (other == Py_None && (shim == NULL || shim == Py_None)) {
        PyErr_SetString(PyExc_ValueError, "give other, shim or both");
        return NULL;
    }
    Handle *h = new_handle(GETTER, descr, NULL, NULL, shim, NULL);
    if (h == NULL) {
        return NULL;
    }
    h->other = other == Py_None ? NULL : Py_NewRef(other);
    h->native_getset = d->d_getset;
    h->getset = *d->d_getset;
    h->getset.get = run_getter;
    h->getset.set = d->d_getset->set == NULL ? NULL : run_setter;
    h->getset.closure = h;
    d->d_getset = &h->getset;
    return activate(h);
}

/* `type` and all its subclasses, appended to list. */
static int collect_types(PyTypeObject *type, PyObject *list)
{
    if (PyList_Append(list, (PyObject *)type) < 0) {
        return -1;
    }
    PyObject *subclasses = PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type);
    int status = subclasses == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(subclasses); i++) {
        status = collect_types((PyTypeObject *)PyList_GET_ITEM(subclasses, i), list);
    }
    Py_XDECREF(subclasses);
    return status;
}

/* Write the slot at `offset` of every type that holds `from`. The list comes first: from there on nothing can fail. */
static int swap_slot(PyTypeObject *type, size_t offset, void *from, void *to)
{
    PyObject *list = PyList_New(0);
    if (list == NULL || collect_types(type, list) < 0) {
        Py_XDECREF(list);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        void **slot = (void **)((char *)PyList_GET_ITEM(list, i) + offset);
        if (*slot == from) {
            *slot = to;
        }
    }
    Py_DECREF(list);
    return 0;
}

/* A type's own vectorcall would pass by tp_new and tp_init: it rests while either is redirected. */
static void update_vectorcall(TypeEntry *e)
{
    e->type->tp_vectorcall = e->new_handle == NULL && e->init_handle == NULL ? e->native_vectorcall : NULL;
}

static int check_cache(PyTypeObject *type, PyObject *cache)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    if (!PyDict_Check(cache)) {
        PyErr_SetString(PyExc_TypeError, "cache is a dict or None");
        return -1;
    }
    if (type->tp_init != PyBaseObject_Type.tp_init) {
        PyErr_Format(PyExc_TypeError, "%s initialises its objects after creation: ready ones cannot be shared",
                     type->tp_name);
        return -1;
    }
    while (PyDict_Next(cache, &pos, &key, &value)) {
        if (!PyUnicode_CheckExact(key) || Py_TYPE(value) != type) {
            PyErr_Format(PyExc_TypeError, "cache: %R -> %R: keys are str, values are %s objects", key, value,
                         type->tp_name);
            return -1;
        }
    }
    return 0;
}

static PyObject *redirect_type(enum kind kind, PyObject *args, PyObject *kwargs)
{
    static char *names_new[] = {"tp", "positions", "keywords", "cache", "shim", NULL};
    static char *names_init[] = {"tp", "positions", "keywords", "shim", NULL};
    PyObject *target, *positions = NULL, *keywords = NULL, *cache = Py_None, *shim = NULL;
    if (kind == NEW ? !PyArg_ParseTupleAndKeywords(args, kwargs, "O!|O!O!OO:redirect_new", names_new, &PyType_Type,
                                                   &target, &PyTuple_Type, &positions, &PyTuple_Type, &keywords,
                                                   &cache, &shim)
                    : !PyArg_ParseTupleAndKeywords(args, kwargs, "O!|O!O!O:redirect_init", names_init, &PyType_Type,
                                                   &target, &PyTuple_Type, &positions, &PyTuple_Type, &keywords,
                                                   &shim)) {
        return NULL;
    }
    PyTypeObject *type = (PyTypeObject *)target;
    if (refuse_interpreter_type(type) < 0) {
        return NULL;
    }
    int i;
    for (i = 0; i < ntypes && types[i].type != type; i++) {
    }
    if (i < ntypes && (kind == NEW ? types[i].new_handle : types[i].init_handle) != NULL) {
        return already(target);
    }
    /* Only where the slot is the type's own C function: an inherited one belongs to the base, and super().__new__()
     * compares the pointers of the two. */
    const char *name = kind == NEW ? "__new__" : "__init__";
    PyObject *own = own_attribute(type, name);
    int is_own = own != NULL &&
                 (kind == NEW ? PyCFunction_Check(own) && PyCFunction_GET_SELF(own) == target
                              : Py_TYPE(own) == &PyWrapperDescr_Type &&
                                    ((PyWrapperDescrObject *)own)->d_wrapped == (void *)type->tp_init);
    if (!is_own && PyErr_Occurred()) {
        return NULL;
    }
    if (!is_own) {
        PyErr_Format(PyExc_TypeError, "%s.%s is not a C function of its own: it is inherited (redirect the base) or "
                     "written in Python (wrap it)", type->tp_name, name);
        return NULL;
    }
    if (i == MAX_TYPES) {
        PyErr_Format(PyExc_RuntimeError, "no room for %s: %d types have been redirected (MAX_TYPES in _detour.c)",
                     type->tp_name, MAX_TYPES);
        return NULL;
    }
    if (cache != Py_None && check_cache(type, cache) < 0) {
        return NULL;
    }
    Handle *h = new_handle(kind, target, positions, keywords, shim, NULL);
    if (h == NULL || (cache != Py_None && (h->cache = PyDict_Copy(cache)) == NULL)) {
        Py_XDECREF(h);
        return NULL;
    }
    TypeEntry *e = &types[i];
    h->slot = i;
    if (i == ntypes) {
        e->type = (PyTypeObject *)Py_NewRef(target);
        ntypes++;
    }
    if (e->new_handle == NULL && e->init_handle == NULL) {
        e->native_vectorcall = type->tp_vectorcall;
    }
    if (kind == NEW) {
        e->native_new = type->tp_new;
    }
    else {
        e->native_init = type->tp_init;
        Py_XSETREF(e->init_wrapper, (PyWrapperDescrObject *)Py_NewRef(own));
    }
    if (kind == NEW ? swap_slot(type, offsetof(PyTypeObject, tp_new), e->native_new, new_trampolines[i])
                    : swap_slot(type, offsetof(PyTypeObject, tp_init), e->native_init, init_trampolines[i])) {
        Py_DECREF(h);
        return NULL;
    }
    if (kind == NEW) {
        e->new_handle = h;
    }
    else {
        e->init_handle = h;
        e->init_wrapper->d_wrapped = (void *)init_trampolines[i];
    }
    update_vectorcall(e);
    return activate(h);
}

static PyObject *redirect_new(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    return redirect_type(NEW, args, kwargs);
}

static PyObject *redirect_init(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    return redirect_type(INIT, args, kwargs);
}

/* 0 when the place is as before the detour, -1 with an exception set and nothing changed */
static int undo(Handle *h)
{
    int ours = 0;
    switch (h->kind) {
    case FUNCTION: {
        PyCFunctionObject *f = (PyCFunctionObject *)h->target;
        if ((ours = f->m_ml == &h->def && f->vectorcall == function_vectorcall)) {
            f->m_ml = h->native_def;
            f->vectorcall = h->native_vectorcall;
        }
        break;
    }
    case METHOD: {
        PyMethodDescrObject *d = (PyMethodDescrObject *)h->target;
        MethodSlot *s = &methods[h->slot];
        if ((ours = d->d_method == &s->def)) {
            d->d_method = s->native_def;
            s->handle = NULL;
        }
        break;
    }
    case GETTER: {
        PyGetSetDescrObject *d = (PyGetSetDescrObject *)h->target;
        if ((ours = d->d_getset == &h->getset)) {
            d->d_getset = h->native_getset;
        }
        break;
    }
    case NEW: {
        TypeEntry *e = &types[h->slot];
        if ((ours = e->type->tp_new == new_trampolines[h->slot])) {
            if (swap_slot(e->type, offsetof(PyTypeObject, tp_new), new_trampolines[h->slot], e->native_new) < 0) {
                return -1;
            }
            e->new_handle = NULL;
            update_vectorcall(e);
        }
        break;
    }
    case INIT: {
        TypeEntry *e = &types[h->slot];
        if ((ours = e->type->tp_init == init_trampolines[h->slot])) {
            if (swap_slot(e->type, offsetof(PyTypeObject, tp_init), init_trampolines[h->slot], e->native_init) < 0) {
                return -1;
            }
            e->init_wrapper->d_wrapped = (void *)e->native_init;
            e->init_handle = NULL;
            update_vectorcall(e);
        }
        break;
    }
    }
    if (!ours) {
        PyErr_Format(PyExc_RuntimeError, "%R was changed by somebody else since; nothing has been restored", h->target);
        return -1;
    }
    return 0;
}

static PyObject *handle_restore(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    Handle *h = (Handle *)self;
    if (h->active) {
        if (undo(h) < 0) {
            return NULL;
        }
        h->active = 0;
        Py_DECREF(self); /* the reference the place held; the caller has its own */
    }
    Py_RETURN_NONE;
}

static PyObject *handle_active(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Handle *)self)->active);
}

static PyObject *handle_target(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *target = ((Handle *)self)->target;
    return Py_NewRef(target == NULL ? Py_None : target); /* NULL: being collected */
}

static PyObject *handle_kind(PyObject *self, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(kind_names[((Handle *)self)->kind]);
}

static PyObject *handle_repr(PyObject *self)
{
    Handle *h = (Handle *)self;
    return PyUnicode_FromFormat("<%s detour (%s) of %R>", h->active ? "active" : "restored", kind_names[h->kind],
                                h->target);
}

static int handle_traverse(PyObject *self, visitproc visit, void *arg)
{
    Handle *h = (Handle *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(h->target);
    Py_VISIT(h->shim);
    Py_VISIT(h->original);
    Py_VISIT(h->cache);
    Py_VISIT(h->other);
    return 0;
}

static int handle_clear(PyObject *self) /* only ever for restored ones: an active one is held by its place */
{
    Handle *h = (Handle *)self;
    Py_CLEAR(h->target);
    Py_CLEAR(h->shim);
    Py_CLEAR(h->original);
    Py_CLEAR(h->cache);
    Py_CLEAR(h->other);
    Py_CLEAR(h->if_keyword);
    for (int i = 0; i < MAX_ARGS; i++) {
        Py_CLEAR(h->kw[i]);
    }
    return 0;
}

static void handle_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    handle_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef handle_methods[] = {
    {"restore", handle_restore, METH_NOARGS,
     "restore($self, /)\n--\n\nUndo the detour. Doing it twice is fine. RuntimeError when somebody else has written "
     "the place since."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef handle_getset[] = {
    {"active", handle_active, NULL, "True until restore().", NULL},
    {"target", handle_target, NULL, "The object that is redirected.", NULL},
    {"kind", handle_kind, NULL, "One of function, method, getter, new, init.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot handle_slots[] = {{Py_tp_dealloc, handle_dealloc},
                                     {Py_tp_traverse, handle_traverse},
                                     {Py_tp_clear, handle_clear},
                                     {Py_tp_repr, handle_repr},
                                     {Py_tp_methods, handle_methods},
                                     {Py_tp_getset, handle_getset},
                                     {Py_tp_doc, "One redirected place. Dropping the handle does not undo it."},
                                     {0, NULL}};

static PyType_Spec handle_spec = {"torchada._detour.Handle", sizeof(Handle), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                                      Py_TPFLAGS_IMMUTABLETYPE,
                                  handle_slots};

/* ---- module ------------------------------------------------------------------------------------------------- */

/* Throw-away callables and types for self_check(): each gives its argument back. */
static PyObject *probe_varargs(PyObject *Py_UNUSED(self), PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    return Py_NewRef(PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : Py_None);
}

static PyObject *probe_fastcall(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    return Py_NewRef(nargs ? args[0] : Py_None);
}

static PyObject *probe_fastcall_keywords(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs,
                                         PyObject *Py_UNUSED(kwnames))
{
    return Py_NewRef(nargs ? args[0] : Py_None);
}

static PyObject *probe_o(PyObject *Py_UNUSED(self), PyObject *arg)
{
    return Py_NewRef(arg);
}

static PyMethodDef probe_functions[] = {
    {"varargs", WITH_KEYWORDS(probe_varargs), METH_VARARGS | METH_KEYWORDS, NULL},
    {"fastcall", WITH_KEYWORDS(probe_fastcall), METH_FASTCALL, NULL},
    {"fastcall_keywords", WITH_KEYWORDS(probe_fastcall_keywords), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"o", probe_o, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

typedef struct {
    PyObject_HEAD
    PyObject *made, *initialised;
} Probe;

static PyObject *probe_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    Probe *p = (Probe *)type->tp_alloc(type, 0);
    if (p != NULL) {
        p->made = probe_varargs(NULL, args, NULL);
    }
    return (PyObject *)p;
}

static int probe_init(PyObject *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    Py_XSETREF(((Probe *)self)->initialised, probe_varargs(NULL, args, NULL));
    return 0;
}

static void probe_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((Probe *)self)->made);
    Py_XDECREF(((Probe *)self)->initialised);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *probe_get(PyObject *self, void *closure)
{
    PyObject *value = closure == NULL ? ((Probe *)self)->made : ((Probe *)self)->initialised;
    return Py_NewRef(value == NULL ? Py_None : value);
}

static PyGetSetDef probe_getset[] = {{"made", probe_get, NULL, NULL, NULL},
                                     {"initialised", probe_get, NULL, NULL, "initialised"},
                                     {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot probe_slots[] = {{Py_tp_new, probe_new},         {Py_tp_init, probe_init},
                                    {Py_tp_dealloc, probe_dealloc}, {Py_tp_methods, probe_functions},
                                    {Py_tp_getset, probe_getset},   {0, NULL}};

static PyType_Spec probe_spec = {"torchada._detour.Probe", sizeof(Probe), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                 probe_slots};

/* The proof is Python, because what it has to prove is how the interpreter calls: warmed-up call sites above all. */
static const char proof[] =
    "def expect(what, got, wanted):\n"
    "    if got != wanted:\n"
    "        raise RuntimeError(f'{what}: {got!r} instead of {wanted!r}')\n"
    "def prove(detour, direct, others):\n"
    "    def site():\n"
    "        return direct()\n"
    "    def all_ways():\n"
    "        return [site() for _ in range(200)][-1], *[f() for f in others]\n"
    "    n = 1 + len(others)\n"
    "    expect('before', all_ways(), (1,) * n)\n"
    "    handle = detour()\n"
    "    try:\n"
    "        expect('redirected', all_ways(), (2,) * n)\n"
    "    finally:\n"
    "        handle.restore()\n"
    "    expect('restored', all_ways(), (1,) * n)\n"
    "def function():\n"
    "    for f in functions:\n"
    "        key = {f: 1}\n"
    "        def detour():\n"
    "            handle = redirect(f, shim=lambda original, x: original(x) + 1)\n"
    "            expect('hash', key.get(f), 1)\n"
    "            return handle\n"
    "        prove(detour, lambda: f(1), [lambda: f(*[1]), lambda: f.__call__(1), lambda: list(map(f, [1]))[0]])\n"
    "def method():\n"
    "    p = Probe()\n"
    "    for name in names:\n"
    "        d = Probe.__dict__[name]\n"
    "        prove(lambda: redirect(d, shim=lambda original, self, x: original(self, x) + 1),\n"
    "              eval(f'lambda p: lambda: p.{name}(1)')(p),\n"
    "              [lambda: d(p, 1), lambda: d.__call__(p, 1), lambda: getattr(p, name)(*[1])])\n"
    "def getter():\n"
    "    p = Probe(1)\n"
    "    prove(lambda: redirect_getter(Probe.made, shim=lambda value, self: value + 1), lambda: p.made,\n"
    "          [lambda: getattr(p, 'made'), lambda: Probe.made.__get__(p)])\n"
    "def made(redirect_it, field):\n"
    "    class Sub(Probe):\n"
    "        pass\n"
    "    class Own(Probe):\n"
    "        def __new__(cls, x):\n"
    "            return super().__new__(cls, x)\n"
    "        def __init__(self, x):\n"
    "            super().__init__(x)\n"
    "    prove(redirect_it, lambda: getattr(Probe(1), field),\n"
    "          [lambda: getattr(Sub(1), field), lambda: getattr(Own(1), field), lambda: getattr(Probe(*[1]), field)])\n"
    "def new():\n"
    "    made(lambda: redirect_new(Probe, shim=lambda original, cls, x: original(cls, x + 1)), 'made')\n"
    "def init():\n"
    "    made(lambda: redirect_init(Probe, shim=lambda original, self, x: original(self, x + 1)), 'initialised')\n"
    "def run(check):\n"
    "    try:\n"
    "        check()\n"
    "    except Exception as e:\n"
    "        return f'{type(e).__name__}: {e}'\n"
    "    return 'ok'\n"
    "result = {check.__name__: run(check) for check in (function, method, getter, new, init)}\n";

static PyObject *self_check_result; /* a dict, once the proof has run */

static PyObject *prove_all(PyObject *module)
{
    PyObject *result = NULL, *functions = PyList_New(0), *names = PyList_New(0), *type = PyType_FromSpec(&probe_spec);
    PyObject *globals = PyDict_Copy(PyModule_GetDict(module)), *ran = NULL;
    if (functions == NULL || names == NULL || type == NULL || globals == NULL) {
        goto done;
    }
    for (PyMethodDef *def = probe_functions; def->ml_name != NULL; def++) {
        PyObject *f = PyCFunction_NewEx(def, NULL, NULL), *name = PyUnicode_FromString(def->ml_name);
        int failed = f == NULL || name == NULL || PyList_Append(functions, f) < 0 || PyList_Append(names, name) < 0;
        Py_XDECREF(f);
        Py_XDECREF(name);
        if (failed) {
            goto done;
        }
    }
    if (PyDict_SetItemString(globals, "functions", functions) == 0 &&
        PyDict_SetItemString(globals, "names", names) == 0 && PyDict_SetItemString(globals, "Probe", type) == 0 &&
        PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0 &&
        (ran = PyRun_String(proof, Py_file_input, globals, globals)) != NULL) {
        result = Py_XNewRef(PyDict_GetItemString(globals, "result"));
    }
done:
    if (globals != NULL) {
        PyDict_Clear(globals); /* its functions refer to it */
    }
    Py_XDECREF(ran);
    Py_XDECREF(globals);
    Py_XDECREF(type);
    Py_XDECREF(names);
    Py_XDECREF(functions);
    return result;
}

static PyObject *self_check(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    if (unsupported() != NULL) {
        const char *r = unsupported();
        return Py_BuildValue("{s:s,s:s,s:s,s:s,s:s}", kind_names[0], r, kind_names[1], r, kind_names[2], r,
                             kind_names[3], r, kind_names[4], r);
    }
    if (self_check_result == NULL) { /* once: each run would use up trampolines for its own Probe type */
        PyObject *result = prove_all(module);
        if (result == NULL) {
            return NULL;
        }
        Py_XSETREF(self_check_result, result);
    }
    return PyDict_Copy(self_check_result);
}

static PyMethodDef module_methods[] = {
    {"configure", WITH_KEYWORDS(configure), METH_VARARGS | METH_KEYWORDS,
     "configure($module, /, strings, device_type=None, devices=None, plain=None, modes=None)\n--\n\n"
     "Say what is translated: strings maps \"cuda\" and \"cuda:<digits>\" to their replacements, devices maps objects "
     "of exactly device_type. Returns how a cuda device object is told: payload, lookup or none."},
    {"translate", py_translate, METH_O,
     "translate($module, obj, /)\n--\n\nThe translation of a cuda string or device; any other object itself."},
    {"redirect", WITH_KEYWORDS(redirect), METH_VARARGS | METH_KEYWORDS,
     "redirect($module, /, target, positions=(), keywords=(), shim=None, if_keyword=None, if_position=9223372036854775807, to_device=False)\n--\n\n"
     "Redirect a built-in function, a method descriptor or a class method descriptor: translate the arguments at "
     "positions (self not counted) and under keywords, then run shim(original, [self,] *args, **kwargs) or, without a "
     "shim or when if_keyword is passed neither by name nor at if_position, the original. to_device: a function without "
     "a shim is handed the device itself, which it need not parse, where no mode sees the call."},
    {"redirect_getter", WITH_KEYWORDS(redirect_getter), METH_VARARGS | METH_KEYWORDS,
     "redirect_getter($module, /, descr, other=None, shim=None)\n--\n\n"
     "Redirect the getter of a getset descriptor: when it gives False, ask other (a device counts as whether cuda "
     "devices become such a one); then shim(value, self)."},
    {"redirect_new", WITH_KEYWORDS(redirect_new), METH_VARARGS | METH_KEYWORDS,
     "redirect_new($module, /, tp, positions=(), keywords=(), cache=None, shim=None)\n--\n\n"
     "Redirect the constructor of a C type and of the subclasses that inherit it. cache: a single str argument -> the "
     "object to return. shim(original, cls, *args, **kwargs)."},
    {"redirect_init", WITH_KEYWORDS(redirect_init), METH_VARARGS | METH_KEYWORDS,
     "redirect_init($module, /, tp, positions=(), keywords=(), shim=None)\n--\n\n"
     "Redirect the initialiser of a C type and of the subclasses that inherit it. "
     "shim(original, self, *args, **kwargs)."},
    {"self_check", self_check, METH_NOARGS,
     "self_check($module, /)\n--\n\nProve each kind on throw-away objects of this interpreter: kind -> \"ok\" or the "
     "reason why not."},
    {NULL, NULL, 0, NULL}};

static int module_exec(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "torchada._detour does not support sub-interpreters: what it redirects "
                        "belongs to the process");
        return -1;
    }
    if (HandleType == NULL) { /* state is per process: a second import shares it */
        HandleType = (PyTypeObject *)PyType_FromSpec(&handle_spec);
    }
    return HandleType == NULL ? -1 : PyModule_AddObjectRef(module, "Handle", (PyObject *)HandleType);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* true: on such a build everything but translate and self_check refuses */
#endif
    {0, NULL}};

static struct PyModuleDef module_def = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "torchada._detour",
    .m_doc = "In-place redirection of C callables and types (docs/detour.md).",
    .m_size = 0,
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__detour(void)
{
    return PyModuleDef_Init(&module_def);
}
