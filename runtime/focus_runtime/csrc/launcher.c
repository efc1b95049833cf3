/* Launches a compiled kernel with arguments that are packed by what it declares. gpu.py says why and builds it.
 *
 * Triton's own launcher asks the driver about every pointer, each time; here they are what the caller says they are.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define MOST_ARGUMENTS 96
#define NAME "focus kernel"

typedef int (*launch_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                               void **, void **);
typedef int (*context_function)(void **);
typedef int (*error_function)(int, const char **);

static launch_function launch_kernel;
static context_function current_context;
static error_function error_name;
static PyObject *data_ptr;

typedef struct {
  void *function;
  unsigned threads, shared;
  Py_ssize_t number;
  char kinds[MOST_ARGUMENTS];
} Kernel;

static void release(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, NAME)); }

static PyObject *use_driver(PyObject *self, PyObject *path) {
  const char *name = PyUnicode_AsUTF8(path);
  if (name == NULL) return NULL;
  void *library = dlopen(name, RTLD_LAZY);
  launch_kernel = library ? (launch_function)dlsym(library, "cuLaunchKernel") : NULL;
  current_context = library ? (context_function)dlsym(library, "cuCtxGetCurrent") : NULL;
  error_name = library ? (error_function)dlsym(library, "cuGetErrorString") : NULL;
  if (launch_kernel == NULL || current_context == NULL || error_name == NULL)
    return PyErr_Format(PyExc_OSError, "%s is no CUDA driver", name);
  Py_RETURN_NONE;
}

/* (address of a function, threads of a program, bytes a program shares, kinds of its arguments): see gpu.py. */
static PyObject *prepare(PyObject *self, PyObject *arguments) {
  unsigned long long function;
  unsigned threads, shared;
  const char *kinds;
  Py_ssize_t number;
  if (!PyArg_ParseTuple(arguments, "KIIs#", &function, &threads, &shared, &kinds, &number)) return NULL;
  if (number > MOST_ARGUMENTS) return PyErr_Format(PyExc_ValueError, "%zd arguments are too many", number);
  Kernel *kernel = PyMem_Malloc(sizeof(Kernel));
  if (kernel == NULL) return PyErr_NoMemory();
  kernel->function = (void *)(uintptr_t)function;
  kernel->threads = threads;
  kernel->shared = shared;
  kernel->number = number;
  memcpy(kernel->kinds, kinds, number);
  PyObject *capsule = PyCapsule_New(kernel, NAME, release);
  if (capsule == NULL) PyMem_Free(kernel);
  return capsule;
}

static int pack(char kind, PyObject *argument, void *place) {
  if (kind == 'p') {
    PyObject *address = PyLong_CheckExact(argument) ? Py_NewRef(argument) : PyObject_CallMethodNoArgs(argument, data_ptr);
    if (address == NULL) return 0;
    *(uint64_t *)place = PyLong_AsUnsignedLongLong(address);
    Py_DECREF(address);
  } else if (kind == 'f') {
    *(float *)place = (float)PyFloat_AsDouble(argument);
  } else {
    long long number = PyLong_AsLongLong(argument);
    if (kind == 'q') {
      *(int64_t *)place = number;
    } else {
      if (number != (int32_t)number && !PyErr_Occurred())
        PyErr_SetString(PyExc_OverflowError, "a number does not fit into 32 bits, for which its kernel was compiled");
      *(int32_t *)place = (int32_t)number;
    }
  }
  return !PyErr_Occurred();
}

/* (kernel, programs in x, y and z, stream, arguments): whether this thread has a context to launch it in. */
static PyObject *launch(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  void *context = NULL, *parameters[MOST_ARGUMENTS + 2];
  uint64_t values[MOST_ARGUMENTS + 1];
  unsigned grid[3];
  if (count != 6 || !PyTuple_CheckExact(given[5])) return PyErr_Format(PyExc_TypeError, "six arguments, the last a tuple");
  Kernel *kernel = PyCapsule_GetPointer(given[0], NAME);
  if (kernel == NULL) return NULL;
  if (PyTuple_GET_SIZE(given[5]) != kernel->number)
    return PyErr_Format(PyExc_TypeError, "the kernel takes %zd arguments, not %zd", kernel->number,
                        PyTuple_GET_SIZE(given[5]));
  for (int axis = 0; axis < 3; axis++) grid[axis] = (unsigned)PyLong_AsUnsignedLong(given[1 + axis]);
  void *stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(given[4]);
  if (PyErr_Occurred()) return NULL;
  if (launch_kernel == NULL || current_context(&context) != 0 || context == NULL) Py_RETURN_FALSE;
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) Py_RETURN_TRUE;
  Py_ssize_t taken = 0;
  for (Py_ssize_t place = 0; place < kernel->number; place++) {
    if (kernel->kinds[place] == '-') continue; /* compiled in */
    if (!pack(kernel->kinds[place], PyTuple_GET_ITEM(given[5], place), &values[taken])) return NULL;
    parameters[taken] = &values[taken];
    taken++;
  }
  values[taken] = 0; /* Triton adds two addresses of working memory, which these kernels do not have */
  parameters[taken] = parameters[taken + 1] = &values[taken];
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = launch_kernel(kernel->function, grid[0], grid[1], grid[2], kernel->threads, 1, 1, kernel->shared, stream,
                         parameters, NULL);
  Py_END_ALLOW_THREADS;
  if (status != 0) {
    const char *words = NULL;
    error_name(status, &words);
    return PyErr_Format(PyExc_RuntimeError, "CUDA error: %s (a kernel was not launched)", words ? words : "unknown");
  }
  Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"use_driver", use_driver, METH_O, "Look the driver's functions up in a library."},
    {"prepare", prepare, METH_VARARGS, "What launches of a kernel have in common."},
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL, "Launch it; False without a context."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "focus_launcher", NULL, -1, methods};

PyMODINIT_FUNC PyInit_focus_launcher(void) {
  data_ptr = PyUnicode_InternFromString("data_ptr");
  return data_ptr == NULL ? NULL : PyModule_Create(&module);
}
