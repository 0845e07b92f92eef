/* Graph executable rotation: more captured graphs than the MUSA driver has room for.
 *
 * torch_musa makes, launches and destroys the executables of its graphs through C functions of the MUSA runtime, and
 * gives nobody their handles. So the entries of these functions in the import tables (GOT) of torch_musa's own
 * libraries are pointed at the functions below. They know every executable, keep the graph it was made of, and when
 * the bound is reached destroy the one that was launched longest ago; it is made again from its graph when it is
 * launched. What torch_musa holds then is a key and no handle of the driver's.
 *
 * Until the bound is reached a launch costs one counter up and down: handles are the driver's, nothing is looked up,
 * no event is recorded. Afterwards a launch leaves an event behind it, and an executable is destroyed only when all its
 * events are over.
 *
 * Nothing here needs the GIL except the Python functions at the end.
 */
#define PY_SSIZE_T_CLEAN
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <Python.h>

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#else
#define IS_SLOT(type) 0
#endif

/* ---- the runtime ----------------------------------------------------------------------------------------- */

typedef uintptr_t Word;
/* The third parameter is flags, or in an older form the first of three for an error log; registers pass them all. */
typedef int (*Instantiate)(void **executable, void *graph, Word a, Word b, Word c);

enum { INSTANTIATE, INSTANTIATE_WITH_FLAGS, DESTROY_EXEC, LAUNCH, DESTROY_GRAPH, HOOKS };
static const char *const HOOKED[HOOKS] = {"musaGraphInstantiate", "musaGraphInstantiateWithFlags", "musaGraphExecDestroy",
                                          "musaGraphLaunch", "musaGraphDestroy"};

static struct {
    Instantiate instantiate[2];
    int (*destroy_exec)(void *);
    int (*launch)(void *, void *);
    int (*destroy_graph)(void *);
    int (*create_graph)(void **, unsigned);
    int (*get_device)(int *);
    int (*set_device)(int);
    int (*synchronize_device)(void);
    int (*last_error)(void);
    int (*create_event)(void **, unsigned);
    int (*destroy_event)(void *);
    int (*record_event)(void *, void *);
    int (*query_event)(void *);
    int (*synchronize_event)(void *);
    int (*is_capturing)(void *, int *);
    int (*exchange_mode)(int *);
} real;

/* ---- what is known --------------------------------------------------------------------------------------- */

typedef struct Link { /* in a hash table, and first in what it belongs to */
    struct Link *next;
    void *key;
} Link;

typedef struct {
    Link **buckets;
    size_t size, used;
} Map;

typedef struct {
    Link link; /* key: the musaGraph_t */
    size_t executables;
    int given_up; /* its owner has destroyed it; we keep it as long as an executable may have to be made of it */
} Template;

typedef struct {
    void *stream, *event;
} Mark;

typedef struct Executable {
    Link link;  /* key: what torch_musa takes for the handle */
    void *exec; /* the driver's handle, NULL while evicted */
    Template *graph;
    Instantiate instantiate;
    Word flags;
    int device;
    int busy;   /* launches under way on the host */
    int fenced; /* whether `marks` tell of everything that was launched */
    Mark *marks;
    size_t mark_count;
    struct Executable *newer, *older; /* by last launch */
    size_t number;                    /* of a key of ours, plus one */
} Executable;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static atomic_int rotating; /* the bound was reached once */
static atomic_long plain;   /* launches under way that nobody else knows of */
static Map executables, templates;
static Executable *newest, *oldest;
static size_t live, cap, evictions, reinstantiations, overruns;

/* Keys of ours are addresses that no driver can give out: nothing else is mapped there. */
#define KEY_STRIDE 16
#define KEY_SPACE ((size_t)1 << 26)
static char *keys;
static size_t keys_used;
static size_t *free_keys, free_key_count, free_key_room;

static size_t bucket_of(const Map *map, const void *key) {
    uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 20) & (map->size - 1);
}

static void *find(const Map *map, const void *key) {
    if (map->size == 0) return NULL;
    for (Link *link = map->buckets[bucket_of(map, key)]; link; link = link->next) {
        if (link->key == key) return link;
    }
    return NULL;
}

static int put(Map *map, Link *link) {
    if (map->used + 1 > map->size) {
        Map bigger = {NULL, map->size ? map->size * 2 : 1024, map->used};
        bigger.buckets = calloc(bigger.size, sizeof *bigger.buckets);
        if (!bigger.buckets) return 0;
        for (size_t i = 0; i < map->size; ++i) {
            for (Link *moved = map->buckets[i], *next; moved; moved = next) {
                next = moved->next;
                size_t at = bucket_of(&bigger, moved->key);
                moved->next = bigger.buckets[at];
                bigger.buckets[at] = moved;
            }
        }
        free(map->buckets);
        *map = bigger;
    }
    size_t at = bucket_of(map, link->key);
    link->next = map->buckets[at];
    map->buckets[at] = link;
    map->used++;
    return 1;
}

static void take_out(Map *map, Link *link) {
    Link **at = &map->buckets[bucket_of(map, link->key)];
    while (*at != link) at = &(*at)->next;
    *at = link->next;
    map->used--;
}

static void unlink_order(Executable *e) {
    *(e->newer ? &e->newer->older : &newest) = e->older;
    *(e->older ? &e->older->newer : &oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(Executable *e) {
    e->older = newest;
    e->newer = NULL;
    *(newest ? &newest->newer : &oldest) = e;
    newest = e;
}

/* ---- making room ------------------------------------------------------------------------------------------ */

enum { OUT_OF_MEMORY = 2, RELAXED = 2, NO_TIMING = 2 };

static void forget_error(void) {
    if (real.last_error) real.last_error();
}

/* A capture on another thread must neither forbid nor be spoiled by what is done here. */
static int relax(void) {
    int mode = RELAXED;
    return real.exchange_mode && real.exchange_mode(&mode) == 0 ? mode : -1;
}

static void unrelax(int mode) {
    if (mode >= 0) real.exchange_mode(&mode);
}

static void drop_marks(Executable *e) {
    for (size_t i = 0; i < e->mark_count; ++i) real.destroy_event(e->marks[i].event);
    free(e->marks);
    e->marks = NULL;
    e->mark_count = 0;
}

/* 1: nothing of it runs. With `wait`: after waiting for it. */
static int at_rest(Executable *e, int wait) {
    if (e->busy || !e->fenced) return 0;
    for (size_t i = 0; i < e->mark_count; ++i) {
        int code = wait ? real.synchronize_event(e->marks[i].event) : real.query_event(e->marks[i].event);
        if (code != 0) {
            forget_error();
            return 0;
        }
    }
    return 1;
}

/* Destroys the executable that was launched longest ago among those at rest; waits for one where none is. */
static int evict(void) {
    for (int wait = 0; wait < 2; ++wait) {
        for (Executable *e = oldest; e; e = e->newer) {
            if (!e->exec || !at_rest(e, wait)) continue;
            if (real.destroy_exec(e->exec) != 0) {
                forget_error();
                e->fenced = 0; /* the driver will not have it: never again */
                continue;
            }
            drop_marks(e);
            e->exec = NULL;
            live--;
            evictions++;
            return 1;
        }
    }
    return 0;
}

/* What was launched before the bound was reached has left no events: all devices that have graphs are waited for,
 * once. Where a capture forbids that, nothing is evicted until a later try. */
static void fence(void) {
    int before = 0, seen[64] = {0}, done[64] = {0};
    if (real.get_device(&before) != 0) return forget_error();
    for (Executable *e = oldest; e; e = e->newer) {
        if (e->fenced || e->busy || e->device < 0 || e->device >= 64) continue;
        if (!seen[e->device]) {
            seen[e->device] = 1;
            done[e->device] = real.set_device(e->device) == 0 && real.synchronize_device() == 0;
            if (!done[e->device]) forget_error();
        }
        e->fenced = done[e->device];
    }
    real.set_device(before);
}

static void start_rotating(void) {
    if (!atomic_load(&rotating)) {
        atomic_store(&rotating, 1);
        while (atomic_load(&plain) != 0) sched_yield();
        fence();
    } else if (oldest && !oldest->fenced) {
        fence();
    }
}

/* Calls the driver's function, with room for one more. */
static int make(void **exec, Instantiate instantiate, void *graph, Word a, Word b, Word c) {
    int mode = relax();
    if (live >= cap) {
        start_rotating();
        while (live >= cap && evict()) continue;
        if (live >= cap) overruns++;
    }
    int code = instantiate(exec, graph, a, b, c);
    /* Executables of others count in the driver's bound too, so it may be reached earlier. */
    for (int tries = 0; code == OUT_OF_MEMORY && tries < 16; ++tries) {
        start_rotating();
        if (!evict()) break;
        forget_error();
        code = instantiate(exec, graph, a, b, c);
        if (code == 0 && live + 1 < cap) cap = live + 1;
    }
    unrelax(mode);
    if (code == 0) live++;
    return code;
}

/* ---- in the place of the runtime's functions --------------------------------------------------------------- */

static int new_key(Executable *e, void *exec) {
    if (!atomic_load(&rotating)) {
        e->link.key = exec;
        return 1;
    }
    if (free_key_count) {
        e->number = free_keys[--free_key_count] + 1;
    } else if (keys_used < KEY_SPACE / KEY_STRIDE) {
        e->number = ++keys_used;
    } else {
        return 0;
    }
    e->link.key = keys + (e->number - 1) * KEY_STRIDE;
    return 1;
}

static void free_key(const Executable *e) {
    if (!e->number) return;
    if (free_key_count == free_key_room) {
        size_t room = free_key_room ? free_key_room * 2 : 256;
        size_t *grown = realloc(free_keys, room * sizeof *grown);
        if (!grown) return; /* one key less */
        free_keys = grown;
        free_key_room = room;
    }
    free_keys[free_key_count++] = e->number - 1;
}

static int instantiate(Instantiate function, void **result, void *graph, Word a, Word b, Word c) {
    pthread_mutex_lock(&lock);
    void *exec = NULL;
    int code = make(&exec, function, graph, a, b, c);
    if (code != 0) goto end;
    Executable *e = calloc(1, sizeof *e);
    Template *known = find(&templates, graph);
    if (e && !known && (known = calloc(1, sizeof *known))) {
        known->link.key = graph;
        if (!put(&templates, &known->link)) {
            free(known);
            known = NULL;
        }
    }
    if (!e || !known || !new_key(e, exec) || !put(&executables, &e->link)) {
        real.destroy_exec(exec);
        live--;
        if (e) free_key(e);
        free(e);
        code = OUT_OF_MEMORY;
        goto end;
    }
    e->exec = exec;
    e->graph = known;
    known->executables++;
    e->instantiate = function;
    e->flags = a < 65536 ? a : 0; /* or the address of an error log, which is over with this call */
    e->fenced = atomic_load(&rotating); /* from now on launches leave events */
    if (real.get_device(&e->device) != 0) e->device = 0;
    link_newest(e);
    *result = e->link.key;
end:
    pthread_mutex_unlock(&lock);
    return code;
}

static int hook_instantiate(void **result, void *graph, Word a, Word b, Word c) {
    return instantiate(real.instantiate[0], result, graph, a, b, c);
}
static int hook_instantiate_with_flags(void **result, void *graph, Word a, Word b, Word c) {
    return instantiate(real.instantiate[1], result, graph, a, b, c);
}

static int restore(Executable *e) {
    int before = e->device;
    if (real.get_device(&before) == 0 && before != e->device) real.set_device(e->device);
    int code = make(&e->exec, e->instantiate, e->graph->link.key, e->flags, 0, 0);
    if (before != e->device) real.set_device(before);
    if (code == 0) {
        e->fenced = 1;
        reinstantiations++;
    }
    return code;
}

static void leave_mark(Executable *e, void *stream) {
    int capturing = 0;
    if (real.is_capturing && real.is_capturing(stream, &capturing) == 0 && capturing) return; /* nothing runs */
    Mark *mark = e->marks;
    while (mark < e->marks + e->mark_count && mark->stream != stream) mark++;
    if (mark == e->marks + e->mark_count) {
        Mark *grown = realloc(e->marks, (e->mark_count + 1) * sizeof *grown);
        if (grown) e->marks = grown;
        void *event = NULL;
        if (!grown || real.create_event(&event, NO_TIMING) != 0) {
            forget_error();
            e->fenced = 0;
            return;
        }
        mark = &grown[e->mark_count++];
        mark->stream = stream;
        mark->event = event;
    }
    if (real.record_event(mark->event, stream) != 0) {
        forget_error();
        e->fenced = 0; /* nobody can tell when it is over */
    }
}

static int hook_launch(void *key, void *stream) {
    if (!atomic_load(&rotating)) {
        atomic_fetch_add(&plain, 1);
        if (!atomic_load(&rotating)) {
            int code = real.launch(key, stream);
            atomic_fetch_sub(&plain, 1);
            return code;
        }
        atomic_fetch_sub(&plain, 1);
    }
    pthread_mutex_lock(&lock);
    Executable *e = find(&executables, key);
    if (!e) {
        pthread_mutex_unlock(&lock);
        return real.launch(key, stream);
    }
    int code = e->exec ? 0 : restore(e);
    if (code == 0) {
        unlink_order(e);
        link_newest(e);
        e->busy++;
        pthread_mutex_unlock(&lock);
        code = real.launch(e->exec, stream);
        pthread_mutex_lock(&lock);
        if (code == 0) leave_mark(e, stream);
        if (--e->busy == 0) pthread_cond_broadcast(&idle);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static int hook_destroy_exec(void *key) {
    pthread_mutex_lock(&lock);
    Executable *e = find(&executables, key);
    if (!e) {
        pthread_mutex_unlock(&lock);
        return real.destroy_exec(key);
    }
    while (e->busy) pthread_cond_wait(&idle, &lock);
    int code = 0;
    if (e->exec) {
        code = real.destroy_exec(e->exec);
        live--;
    }
    drop_marks(e);
    unlink_order(e);
    take_out(&executables, &e->link);
    free_key(e);
    Template *graph = e->graph;
    free(e);
    if (--graph->executables == 0) {
        take_out(&templates, &graph->link);
        if (graph->given_up) real.destroy_graph(graph->link.key);
        free(graph);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static int hook_destroy_graph(void *graph) {
    pthread_mutex_lock(&lock);
    Template *known = find(&templates, graph);
    if (known) known->given_up = 1;
    pthread_mutex_unlock(&lock);
    return known ? 0 : real.destroy_graph(graph);
}

static void *const REPLACEMENTS[HOOKS] = {(void *)hook_instantiate, (void *)hook_instantiate_with_flags,
                                          (void *)hook_destroy_exec, (void *)hook_launch, (void *)hook_destroy_graph};

/* ---- import tables ------------------------------------------------------------------------------------------ */

typedef struct {
    void **slot;
    void *original;
    int read_only;
} Patch;

static Patch *patches;
static size_t patch_count;

typedef struct {
    char **prefixes;
    Py_ssize_t prefix_count;
    size_t counts[HOOKS];
    char unknown[128]; /* a function of the runtime that takes executables and is not hooked */
    int apply, failed;
} Search;

static int write_slot(void **slot, void *value, int read_only) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *start = (char *)((uintptr_t)slot & ~(page - 1));
    if (read_only && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return 0;
    __atomic_store_n(slot, value, __ATOMIC_SEQ_CST);
    if (read_only) mprotect(start, page, PROT_READ);
    return 1;
}

static int takes_executables(const char *name) {
    return strncmp(name, "musaGraphExec", 13) == 0 || strcmp(name, "musaGraphUpload") == 0 ||
           strcmp(name, "musaGraphInstantiateWithParams") == 0;
}

static void search_table(Search *search, const struct dl_phdr_info *info, const ElfW(Rela) *table, size_t size,
                         const ElfW(Sym) *symbols, const char *strings, uintptr_t ro_start, uintptr_t ro_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < size / sizeof *table; ++i) {
        if (!IS_SLOT(ELF64_R_TYPE(table[i].r_info))) continue;
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(table[i].r_info)];
        const char *name = strings + symbol->st_name;
        if (strncmp(name, "musaGraph", 9) != 0) continue;
        int hook = 0;
        while (hook < HOOKS && strcmp(name, HOOKED[hook]) != 0) hook++;
        if (hook == HOOKS) {
            if (takes_executables(name)) strncpy(search->unknown, name, sizeof search->unknown - 1);
            continue;
        }
        search->counts[hook]++;
        if (!search->apply) continue;
        void **slot = (void **)(info->dlpi_addr + table[i].r_offset);
        Patch *grown = realloc(patches, (patch_count + 1) * sizeof *grown);
        if (!grown) {
            search->failed = 1;
            return;
        }
        patches = grown;
        uintptr_t at = (uintptr_t)slot & ~(page - 1);
        Patch patch = {slot, *slot, at >= (ro_start & ~(page - 1)) && at < (ro_end & ~(page - 1))};
        if (!write_slot(slot, REPLACEMENTS[hook], patch.read_only)) {
            search->failed = 1;
            return;
        }
        patches[patch_count++] = patch;
    }
}

static int search_object(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    Search *search = data;
    char path[PATH_MAX];
    if (!info->dlpi_name || !*info->dlpi_name || !realpath(info->dlpi_name, path)) return 0;
    int ours = 0;
    for (Py_ssize_t i = 0; i < search->prefix_count; ++i) {
        size_t length = strlen(search->prefixes[i]);
        ours |= strncmp(path, search->prefixes[i], length) == 0 && path[length] == '/';
    }
    if (!ours) return 0;
    const ElfW(Dyn) *dynamic = NULL;
    uintptr_t ro_start = 0, ro_end = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_DYNAMIC) dynamic = (const void *)(info->dlpi_addr + header->p_vaddr);
        if (header->p_type == PT_GNU_RELRO) {
            ro_start = info->dlpi_addr + header->p_vaddr;
            ro_end = ro_start + header->p_memsz;
        }
    }
    if (!dynamic) return 0;
    uintptr_t strings = 0, symbols = 0, plt = 0, rela = 0;
    size_t plt_size = 0, rela_size = 0;
    for (; dynamic->d_tag != DT_NULL; ++dynamic) {
        uintptr_t value = dynamic->d_un.d_ptr;
        uintptr_t address = value < info->dlpi_addr ? value + info->dlpi_addr : value; /* relocated by glibc, not by all */
        switch (dynamic->d_tag) {
            case DT_STRTAB: strings = address; break;
            case DT_SYMTAB: symbols = address; break;
            case DT_JMPREL: plt = address; break;
            case DT_PLTRELSZ: plt_size = value; break;
            case DT_RELA: rela = address; break;
            case DT_RELASZ: rela_size = value; break;
        }
    }
    if (!strings || !symbols) return 0;
    const void *names = (const void *)symbols;
    if (plt) search_table(search, info, (const void *)plt, plt_size, names, (const char *)strings, ro_start, ro_end);
    if (rela) search_table(search, info, (const void *)rela, rela_size, names, (const char *)strings, ro_start, ro_end);
    return search->failed;
}

/* ---- Python -------------------------------------------------------------------------------------------------- */

static int resolve(void *library, const char *name, void *where, int needed) {
    void *found = dlsym(library, name);
    memcpy(where, &found, sizeof found);
    if (found || !needed) return 1;
    PyErr_Format(PyExc_RuntimeError, "the MUSA runtime has no %s", name);
    return 0;
}

static int resolve_all(const char *path) {
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) {
        PyErr_Format(PyExc_RuntimeError, "%s is not loaded: %s", path, dlerror());
        return 0;
    }
    return resolve(library, "musaGraphInstantiate", &real.instantiate[0], 1) &&
           resolve(library, "musaGraphInstantiateWithFlags", &real.instantiate[1], 0) &&
           resolve(library, "musaGraphExecDestroy", &real.destroy_exec, 1) &&
           resolve(library, "musaGraphLaunch", &real.launch, 1) &&
           resolve(library, "musaGraphDestroy", &real.destroy_graph, 1) &&
           resolve(library, "musaGraphCreate", &real.create_graph, 0) &&
           resolve(library, "musaGetDevice", &real.get_device, 1) &&
           resolve(library, "musaSetDevice", &real.set_device, 1) &&
           resolve(library, "musaDeviceSynchronize", &real.synchronize_device, 1) &&
           resolve(library, "musaGetLastError", &real.last_error, 0) &&
           resolve(library, "musaEventCreateWithFlags", &real.create_event, 1) &&
           resolve(library, "musaEventDestroy", &real.destroy_event, 1) &&
           resolve(library, "musaEventRecord", &real.record_event, 1) &&
           resolve(library, "musaEventQuery", &real.query_event, 1) &&
           resolve(library, "musaEventSynchronize", &real.synchronize_event, 1) &&
           resolve(library, "musaStreamIsCapturing", &real.is_capturing, 0) &&
           resolve(library, "musaThreadExchangeStreamCaptureMode", &real.exchange_mode, 0);
}

static PyObject *start(PyObject *module, PyObject *args) {
    (void)module;
    const char *library;
    PyObject *folders;
    unsigned long bound;
    if (!PyArg_ParseTuple(args, "sO!k", &library, &PyTuple_Type, &folders, &bound)) return NULL;
    if (patch_count) Py_RETURN_NONE;
    if (!resolve_all(library)) return NULL;
    Search search = {.prefix_count = PyTuple_GET_SIZE(folders)};
    search.prefixes = calloc((size_t)search.prefix_count + 1, sizeof(char *));
    if (!search.prefixes) return PyErr_NoMemory();
    PyObject *result = NULL;
    for (Py_ssize_t i = 0; i < search.prefix_count; ++i) {
        const char *folder = PyUnicode_AsUTF8(PyTuple_GET_ITEM(folders, i));
        if (!folder) goto end;
        search.prefixes[i] = realpath(folder, NULL);
        if (!search.prefixes[i]) {
            PyErr_SetFromErrnoWithFilename(PyExc_OSError, folder);
            goto end;
        }
    }
    dl_iterate_phdr(search_object, &search);
    const char *missing = NULL;
    for (int i = 0; i < HOOKS; ++i) {
        if (!search.counts[i] && i != INSTANTIATE_WITH_FLAGS && i != INSTANTIATE) missing = HOOKED[i];
    }
    if (!search.counts[INSTANTIATE] && !search.counts[INSTANTIATE_WITH_FLAGS]) missing = HOOKED[INSTANTIATE];
    if (search.unknown[0]) {
        PyErr_Format(PyExc_RuntimeError, "torch_musa's libraries call %s, which takes executables and cannot be followed",
                     search.unknown);
        goto end;
    }
    if (missing) {
        PyErr_Format(PyExc_RuntimeError, "no library of torch_musa calls %s in a way that can be followed", missing);
        goto end;
    }
    if (!keys) {
        keys = mmap(NULL, KEY_SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (keys == MAP_FAILED) {
            keys = NULL;
            PyErr_SetFromErrno(PyExc_OSError);
            goto end;
        }
    }
    cap = bound;
    search.apply = 1;
    dl_iterate_phdr(search_object, &search);
    if (search.failed) {
        while (patch_count) {
            Patch *patch = &patches[--patch_count];
            write_slot(patch->slot, patch->original, patch->read_only);
        }
        PyErr_SetString(PyExc_RuntimeError, "the import tables of torch_musa's libraries cannot be written");
        goto end;
    }
    Py_INCREF(Py_None);
    result = Py_None;
end:
    for (Py_ssize_t i = 0; i < search.prefix_count; ++i) free(search.prefixes[i]);
    free(search.prefixes);
    return result;
}

/* False while graphs are alive: their keys are known here only, or they would be counted no more. */
static PyObject *stop(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    int possible;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&lock);
    possible = executables.used == 0;
    if (possible) {
        while (patch_count) {
            Patch *patch = &patches[--patch_count];
            write_slot(patch->slot, patch->original, patch->read_only);
        }
        atomic_store(&rotating, 0);
    }
    pthread_mutex_unlock(&lock);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(possible);
}

static PyObject *set_cap(PyObject *module, PyObject *value) {
    (void)module;
    size_t bound = PyLong_AsSize_t(value);
    if (bound == (size_t)-1 && PyErr_Occurred()) return NULL;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&lock);
    cap = bound;
    pthread_mutex_unlock(&lock);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* How many executables can be alive, by making them until the driver refuses; -1 if it never did below `limit`. */
static PyObject *probe(PyObject *module, PyObject *value) {
    (void)module;
    size_t limit = PyLong_AsSize_t(value);
    if (limit == (size_t)-1 && PyErr_Occurred()) return NULL;
    if (!real.create_graph) {
        PyErr_SetString(PyExc_RuntimeError, "the MUSA runtime has no musaGraphCreate");
        return NULL;
    }
    void **made = calloc(limit + 1, sizeof *made), *graph = NULL;
    if (!made) return PyErr_NoMemory();
    size_t count = 0;
    int code;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&lock);
    code = real.create_graph(&graph, 0);
    if (code == 0) {
        while (count < limit && real.instantiate[0](&made[count], graph, 0, 0, 0) == 0) count++;
        forget_error();
        for (size_t i = 0; i < count; ++i) real.destroy_exec(made[i]);
        real.destroy_graph(graph);
    }
    count += live;
    pthread_mutex_unlock(&lock);
    Py_END_ALLOW_THREADS
    free(made);
    if (code != 0) return PyErr_Format(PyExc_RuntimeError, "musaGraphCreate failed with MUSA error %d", code);
    return count >= limit ? PyLong_FromLong(-1) : PyLong_FromSize_t(count);
}

static PyObject *state(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    size_t known, now, bound, out, back, over;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&lock);
    known = executables.used, now = live, bound = cap, out = evictions, back = reinstantiations, over = overruns;
    pthread_mutex_unlock(&lock);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("{s:O,s:O,s:n,s:n,s:n,s:n,s:n,s:n}", "following", patch_count ? Py_True : Py_False, "rotating",
                         atomic_load(&rotating) ? Py_True : Py_False, "graphs", (Py_ssize_t)known, "live", (Py_ssize_t)now,
                         "cap", (Py_ssize_t)bound, "evictions", (Py_ssize_t)out, "reinstantiations", (Py_ssize_t)back,
                         "overruns", (Py_ssize_t)over);
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, "start(library, folders, cap): follow the graphs of the libraries in these folders."},
    {"stop", stop, METH_NOARGS, "Take everything back; False, and nothing is, while graphs are alive."},
    {"set_cap", set_cap, METH_O, "How many executables may be alive."},
    {"probe", probe, METH_O, "probe(limit): how many the driver allows, or -1 if there is no bound below the limit."},
    {"state", state, METH_NOARGS, "Numbers of now and of so far."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "torchada._rotation", "Graph executable rotation.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__rotation(void);
PyMODINIT_FUNC PyInit__rotation(void) {
    return PyModule_Create(&definition);
}
