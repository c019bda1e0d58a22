"""cephalo through its C interface, on the memory of NumPy arrays."""

import ctypes
import pathlib

import numpy as np

LIBRARY = pathlib.Path(__file__).resolve().parents[1] / "build/shared/libcephalo.so"
DTYPES = {"float32": 0, "float64": 1, "float16": 3, "int64": 4, "int32": 5, "int16": 6, "int8": 7,
          "uint8": 8, "bool": 9}
MEMORY = 4  # CEPHALO_ERROR_MEMORY


class Tensor(ctypes.Structure):
    """cephalo_tensor: a view of an array, which it keeps alive."""
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 4), ("strides", ctypes.c_int64 * 4)]

    def __init__(self, array):
        strides = [bytes_ // array.itemsize for bytes_ in array.strides]
        super().__init__(array.ctypes.data, DTYPES[array.dtype.name], array.ndim,
                         (ctypes.c_int64 * 4)(*array.shape), (ctypes.c_int64 * 4)(*strides))
        self.array = array


class AttendOptions(ctypes.Structure):
    _fields_ = [("scale", ctypes.c_double), ("softcap", ctypes.c_double),
                ("dropout", ctypes.c_double), ("seed", ctypes.c_uint64),
                ("engine", ctypes.c_int32), ("threads", ctypes.c_int32),
                ("device", ctypes.c_int32), ("any_order", ctypes.c_int32),
                ("stream", ctypes.c_void_p), ("arithmetic", ctypes.c_int32),
                ("device_seed", ctypes.c_void_p)]


class AttendGradients(ctypes.Structure):
    _fields_ = [(name, ctypes.POINTER(Tensor)) for name in
                ("context", "lse", "dcontext", "dlse", "dq_out", "dk_out", "dv_out")]


class LayerOptions(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in
                ("d_in", "d_out", "num_heads", "num_kv_heads", "v_dim", "context_length")]
    _fields_ += [("dropout", ctypes.c_double), ("seed", ctypes.c_uint64)]
    _fields_ += [(name, ctypes.c_int32) for name in
                 ("dtype", "causal", "qkv_bias", "out_proj", "out_bias")]


class Cephalo:
    def __init__(self, path=LIBRARY):
        self.lib = ctypes.CDLL(str(path))
        self.lib.cephalo_version.restype = ctypes.c_char_p
        self.lib.cephalo_last_error.restype = ctypes.c_char_p
        self.lib.cephalo_attend_options_default.restype = AttendOptions
        self.lib.cephalo_layer_options_default.restype = LayerOptions

    def version(self):
        return self.lib.cephalo_version().decode()

    def check(self, status):
        if status != 0:
            kind = MemoryError if status == MEMORY else RuntimeError
            raise kind(self.lib.cephalo_last_error().decode())

    def attend(self, q, k, v, mask, threads):
        """A function without arguments that attends and returns the context, always the same
        memory. What it passes is made here, once: its time is the library's."""
        context = np.full(q.shape[:-1] + v.shape[-1:], np.nan, q.dtype)
        tensors = [Tensor(array) for array in (q, k, v, context)]
        options = self.lib.cephalo_attend_options_default()
        options.threads = threads
        arguments = ([ctypes.byref(t) for t in tensors[:3]] + [mask and mask.handle] +
                     [ctypes.byref(options), ctypes.byref(tensors[3]), None])

        def call():
            self.check(self.lib.cephalo_attend(*arguments))
            return context

        call.keeps_alive = (tensors, mask, options)
        return call

    def attend_backward(self, q, k, v, dcontext, mask, threads):
        """Attends once; a function without arguments that returns dq, dk and dv of that pass."""
        context, lse = np.empty_like(dcontext), np.empty(q.shape[:-1], q.dtype)
        gradients = [np.full_like(array, np.nan) for array in (q, k, v)]
        options = self.lib.cephalo_attend_options_default()
        options.threads = threads
        inputs = [Tensor(array) for array in (q, k, v)]
        shared = ([ctypes.byref(t) for t in inputs] + [mask and mask.handle] +
                  [ctypes.byref(options)])
        tensors = [Tensor(array) for array in (context, lse, dcontext, *gradients)]
        self.check(self.lib.cephalo_attend(*shared, ctypes.byref(tensors[0]),
                                           ctypes.byref(tensors[1])))
        pointers = [ctypes.pointer(t) for t in tensors]
        backward = AttendGradients(*pointers[:3], None, *pointers[3:])

        def call():
            self.check(self.lib.cephalo_attend_backward(*shared, ctypes.byref(backward)))
            return gradients

        call.keeps_alive = (inputs, tensors, mask, options)
        return call


class Mask:
    """Mask(library, [("causal", 0), ("keep", array)]): the parts joined."""

    def __init__(self, library, parts):
        self.library = library
        self.handle = ctypes.c_void_p()
        self.arrays = []  # read where they lie
        library.check(library.lib.cephalo_mask_create(ctypes.byref(self.handle)))
        for name, *arguments in parts:
            add = getattr(library.lib, f"cephalo_mask_{name}")
            library.check(add(self.handle, *self.converted(name, arguments)))

    def converted(self, name, arguments):
        if name in ("causal", "window"):
            return [ctypes.c_int64(number) for number in arguments]
        if isinstance(arguments[0], Tensor):  # of a GPU
            self.arrays.append(arguments[0])
            return [ctypes.byref(arguments[0])]
        array = np.ascontiguousarray(arguments[0])
        self.arrays.append(array)
        pointer, count = ctypes.c_void_p(array.ctypes.data), ctypes.c_int64(array.size)
        if name == "lengths":
            return [pointer, None, count]
        if name == "alibi":
            return [pointer, count]
        tensor = ctypes.byref(Tensor(array))
        return [tensor, None] if name == "documents" else [tensor]

    def __del__(self):
        self.library.lib.cephalo_mask_destroy(self.handle)


class Layer:
    """The causal multi-head layer with these parameters (name -> array), in eval mode."""

    def __init__(self, library, width, num_heads, parameters):
        self.library = library
        self.parameters = parameters
        self.handle = ctypes.c_void_p()
        options = library.lib.cephalo_layer_options_default()
        options.d_in = options.d_out = width
        options.num_heads = num_heads
        lib, check = library.lib, library.check
        check(lib.cephalo_layer_create(ctypes.byref(options), ctypes.byref(self.handle)))
        check(lib.cephalo_layer_eval(self.handle))
        for name, array in parameters.items():
            check(lib.cephalo_layer_set_parameter(self.handle, name.encode(),
                                                  ctypes.byref(Tensor(array))))
        check(lib.cephalo_layer_prepare(self.handle))

    def forward(self, x, threads):
        """As Cephalo.attend: a function that runs the layer on x."""
        y = np.full_like(x, np.nan)
        tensors = (Tensor(x), Tensor(y))
        arguments = [self.handle, ctypes.byref(tensors[0]), ctypes.byref(tensors[1]),
                     ctypes.c_int32(threads)]

        def call():
            self.library.check(self.library.lib.cephalo_layer_forward(*arguments))
            return y

        call.keeps_alive = (self, tensors)
        return call

    def forward_backward(self, x, dy, threads):
        """A function that runs the layer on x and back, and returns dx and the gradients of the
        parameters, in their order."""
        lib, check = self.library.lib, self.library.check
        y, dx = np.full_like(x, np.nan), np.full_like(x, np.nan)
        found = [np.full_like(array, np.nan) for array in self.parameters.values()]
        c_x, c_y, c_dy, c_dx = tensors = [Tensor(array) for array in (x, y, dy, dx)]
        gradients = Gradients(self)

        def call():
            saved = ctypes.c_void_p()
            check(lib.cephalo_layer_forward_train(
                self.handle, ctypes.byref(c_x), ctypes.byref(c_y), ctypes.c_int32(threads),
                ctypes.byref(saved)))
            check(lib.cephalo_gradients_zero(gradients.handle))
            status = lib.cephalo_layer_backward(self.handle, saved, ctypes.byref(c_dy),
                                                ctypes.byref(c_dx), gradients.handle)
            lib.cephalo_pass_destroy(saved)
            check(status)

        def results():
            call()
            for name, array in zip(self.parameters, found):
                gradients.read(name, array)
            return [dx, *found]

        call.results = results  # reading them out is no part of the time
        call.keeps_alive = (self, tensors)
        return call

    def __del__(self):
        self.library.lib.cephalo_layer_destroy(self.handle)


class Gradients:
    """One gradient for each parameter of a layer."""

    def __init__(self, layer):
        self.library = layer.library
        self.handle = ctypes.c_void_p()
        self.library.check(self.library.lib.cephalo_gradients_create(
            layer.handle, ctypes.byref(self.handle)))

    def read(self, name, array):
        self.library.check(self.library.lib.cephalo_gradients_get(
            self.handle, name.encode(), ctypes.byref(Tensor(array))))

    def __del__(self):
        self.library.lib.cephalo_gradients_destroy(self.handle)
