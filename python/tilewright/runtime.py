"""Runtime and Kernel: the C interface's two handles."""

import ctypes
import json
import math
import os
import pathlib
import sys
import threading
import weakref

from .errors import UsageError
from .library import Backward, check, Dropout, Forward, library, NamedTensor, Options, Scalar, TENSOR
from .tensors import kind_of, pack, pack_lse, pack_rank

DEVICES = {"automatic": 0, "cuda": 1, "simulator": 2}
SIMULATOR_COMPILERS = {"automatic": 0, "llvm": 1, "system": 2}


def chosen(table, word, what):
    if word not in table:
        raise UsageError(f"{what} '{word}': expected one of {', '.join(table)}")
    return table[word]


class Runtime:
    """Compiles, caches and loads kernels for one device.

    device: "automatic" (CUDA if there is a device, else the simulator), "cuda" or "simulator"; ordinal: which GPU.
    cache_directory: where compiled kernels are kept (default: TILEWRIGHT_CACHE_DIR, else below XDG_CACHE_HOME or
    HOME); disk_cache=False keeps them in memory alone. bundles: files of `tilewright precompile`, asked before the cache;
    compiling=False: a kernel for a GPU that is in no bundle and no cache is a SetupError. The rest is the simulator's: its compiler ("automatic", "llvm",
    "system"), the seed of its timing, whether it looks for races, and the GPU generation that it stands for.
    """

    def __init__(self, device="automatic", ordinal=0, *, cache_directory=None, disk_cache=True, bundles=(), compiling=True,
                 simulator_compiler="automatic", simulator_seed=0, check_races=True, simulated_target=None):
        options = Options()
        library().tw_options_init(ctypes.byref(options))
        options.device = chosen(DEVICES, device, "device")
        options.ordinal = ordinal
        options.cache_directory = None if cache_directory is None else os.fsencode(cache_directory)
        options.disk_cache = bool(disk_cache)
        options.bundles = b":".join(os.fsencode(bundle) for bundle in bundles)
        options.compiling = bool(compiling)
        options.simulator_compiler = chosen(SIMULATOR_COMPILERS, simulator_compiler, "simulator_compiler")
        options.simulator_seed = simulator_seed
        options.simulator_check_races = bool(check_races)
        if simulated_target is not None:
            options.simulated_target = simulated_target.encode()
        handle = ctypes.c_void_p()
        check(library().tw_runtime_create(ctypes.byref(options), ctypes.byref(handle)))
        self.handle = handle.value
        weakref.finalize(self, library().tw_runtime_destroy, self.handle)
        self.info = json.loads(library().tw_runtime_info(self.handle))
        self.kernels = {}

    def kernel(self, spec):
        """The kernel for a spec (see Kernel), from memory if the same spec was asked for before. While torch captures
        a CUDA graph nothing can be compiled or loaded: UsageError ("not prepared") for a kernel that is not there."""
        text, file = spec_text(spec)
        kernel = self.kernels.get((text, file))
        if kernel is None:
            prepared_only = not self.info["simulator"] and capturing()
            kernel = self.kernels[text, file] = Kernel(spec, self, prepared_only)
        return kernel

    def prepare(self, specs):
        """Makes the kernels of several specs ready. All are tried: the error names each that has no kernel."""
        texts = [spec_text(spec) for spec in specs]
        array = ctypes.c_char_p * len(texts)
        files = array(*(None if file is None else os.fsencode(file) for _, file in texts))
        check(library().tw_runtime_prepare(self.handle, array(*(text.encode() for text, _ in texts)), files, len(texts)))

    def __repr__(self):
        return f"<tilewright.Runtime on {self.info['device']}, {self.info['target']}>"


class Kernel:
    """A compiled, loaded, launchable function for one spec.

    spec: the path of a YAML file (a pathlib.Path, or a str that ends in .yaml), YAML text, or a dict.
    prepared_only: UsageError for a kernel that the runtime has not made before.
    info: what it was made from and what the compiler said ("target", "schedule", "registers", "from", ...).
    """

    def __init__(self, spec, runtime=None, prepared_only=False):
        text, file = spec_text(spec)
        runtime = runtime or default_runtime("automatic", 0)
        handle = ctypes.c_void_p()
        name = None if file is None else os.fsencode(file)
        make = library().tw_kernel_find if prepared_only else library().tw_kernel_create
        check(make(runtime.handle, text.encode(), name, ctypes.byref(handle)))
        self.handle = handle.value
        weakref.finalize(self, library().tw_kernel_destroy, self.handle)
        self.runtime = runtime
        self.info = json.loads(library().tw_kernel_info(self.handle))
        self.on_cuda = not runtime.info["simulator"]
        self.heads_first = self.info["layout"] == "bhsd"
        self.packed = self.info["layout"] == "packed"
        self.start = library().tw_launch

    @property
    def source(self):
        """The generated CUDA source."""
        return library().tw_kernel_source(self.handle).decode()

    def launch(self, q, k, v, out, lse=None, scale=None, stream=None, *, scalars=None, tensors=None, dropout=None,
               programmatic_dependent_launch=False, sm_margin=0, workspace=None, tensors_unchanged=False, **further):
        """Starts the kernel on `stream` (a handle; default: torch's current stream). Tensors are torch or NumPy, in the
        dimension order of the spec's layout, any strides with a contiguous last dimension; lse is [batch, heads,
        sequence] of fp32. On the simulator the result is there on return.

        further: what the spec asks for beside these: cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv (layout
        "packed", int32; q, k, v, out are [rows, heads, head_dim], lse is [heads, rows]), sinks (one number for each
        query head), block_rows and block_columns (mask.blocks, int32).
        scalars, tensors: dicts of what the spec's expressions take, by name; `bias` for `bias: true`. A dimension of a
        tensor has its full extent or 1; any strides.

        dropout: (rate, seed, offset) for `dropout: true`; the same three drop the same places.

        workspace: a contiguous tensor of at least workspace_size() bytes, for masks that look up by kv (default: made for
        this launch). tensors_unchanged=True: it is as the last launch of this kernel with the same shapes left it, and
        the mask's tensors and scalars are the same; what was found of them is used once more.

        programmatic_dependent_launch: the kernel may start before the launch before it on the stream has finished, and
        waits for its end before it touches the tensors; sm_margin: multiprocessors left to others (see
        docs/embedding.md)."""
        kind = self.one_place(q, k=k, v=v, out=out, **given(lse=lse, **further))
        self.one_place(q, **(tensors or {}), **given(workspace=workspace))
        kind.check_writable(out, "out")
        if lse is not None:
            kind.check_writable(lse, "lse")
        if tensors_unchanged and workspace is None:
            raise UsageError("tensors_unchanged=True without a workspace: give the one of the launch before")
        if tensors and workspace is None and not self.packed:
            workspace = kind.workspace(q, self.workspace_size(q, k), stream)
        stream = kind.stream(q) if stream is None else stream
        options = (programmatic_dependent_launch, sm_margin)
        if further or self.packed or scalars or tensors or dropout or any(options):
            usual = dict(q=q, k=k, v=v, out=out, lse=lse)
            return self.launch_further(kind, stream, usual, scale, scalars or {}, tensors or {}, further, options,
                                       dropout, workspace, tensors_unchanged)
        lse = None if lse is None else pack_lse(kind, lse)
        heads_first = self.heads_first
        status = self.start(
            self.handle,
            stream,
            pack(kind, q, "q", heads_first),
            pack(kind, k, "k", heads_first),
            pack(kind, v, "v", heads_first),
            pack(kind, out, "out", heads_first),
            lse,
            None if scale is None else ctypes.byref(ctypes.c_double(scale)),
        )
        if status:
            check(status)

    def launch_further(self, kind, stream, usual, scale, scalars, tensors, further, options, dropout, workspace,
                       tensors_unchanged):
        unknown = [name for name in further if name not in Forward.FURTHER]
        if unknown:
            raise UsageError(f"unknown argument {unknown[0]}; expected one of {', '.join(Forward.FURTHER)}")
        arguments = Forward(size=ctypes.sizeof(Forward))
        arguments.programmatic_dependent_launch, arguments.sm_margin = options
        for name, tensor in usual.items():
            if tensor is not None:
                if self.packed or name == "lse":
                    packed = pack_rank(kind, tensor, name, 3 - (name == "lse") + (not self.packed))
                else:
                    packed = pack(kind, tensor, name, self.heads_first)
                setattr(arguments, name, packed)
        for name, tensor in further.items():
            if tensor is not None:
                setattr(arguments, name, pack_rank(kind, tensor, name, 3 if name == "block_rows" else 1))
        if scale is not None:
            arguments.softmax_scale = ctypes.pointer(ctypes.c_double(scale))
        put_expressions(arguments, kind, scalars, tensors)
        arguments.dropout = dropout_of(dropout)
        if workspace is not None:
            arguments.workspace, arguments.workspace_bytes = kind.address(workspace), workspace.nbytes
            arguments.tensors_unchanged = bool(tensors_unchanged)
        check(library().tw_launch_forward(self.handle, stream, ctypes.byref(arguments)))

    def one_place(self, q, /, **tensors):
        """The kind of tensors that q and all others are, all on the kernel's own device."""
        kind = kind_of(q, "q")
        device = kind.device(q)
        for name, tensor in tensors.items():
            if kind_of(tensor, name) is not kind or kind.device(tensor) != device:
                raise UsageError(f"q is {place(q)}, but {name} is {place(tensor)}; expected all in one place")
        if (device is not None and device.type == "cuda") != self.on_cuda:
            raise UsageError(f"q is {place(q)}, but this kernel runs on {self.runtime.info['device']}")
        return kind

    def workspace_size(self, q, k, sequences=None):
        """Bytes of workspace that a launch needs for tensors of these shapes: of the backward pass, and of the forward
        pass with a mask that looks up by kv; of so many `sequences`, with layout "packed"."""
        if self.packed and sequences is None:
            raise UsageError('sequences is missing: with layout "packed" the workspace depends on their number')
        rows, heads = (0, 1) if self.packed else (2, 1) if self.heads_first else (1, 2)
        size = ctypes.c_size_t()
        check(library().tw_workspace_size(self.handle, sequences if self.packed else q.shape[0], q.shape[heads],
                                          q.shape[rows], k.shape[rows], ctypes.byref(size)))
        return size.value

    def launch_backward(self, q, k, v, out, lse, d_out, dq, dk, dv, workspace, d_lse=None, scale=None, stream=None,
                        *, sinks=None, d_sinks=None, scalars=None, tensors=None, dropout=None, d_bias=None, **further):
        """Starts the kernels of a spec with `pass: backward`: dq, dk, dv are written. out and lse are what the forward
        pass gave, d_out and d_lse (optional, for `lse: true`) their gradients; workspace is a contiguous tensor of at
        least workspace_size() bytes, whatever it holds. Tensors as for launch. sinks, scalars, tensors and dropout as
        the forward pass had them; d_sinks, fp32, is written if it is given. For `bias_gradient: true` the bias's
        gradient is added to d_bias, fp32, contiguous, of the bias's shape. further, layout "packed": cu_seqlens_q,
        cu_seqlens_kv, seqused_q, seqused_kv, as for launch."""
        kind = self.one_place(q, k=k, v=v, out=out, lse=lse, d_out=d_out, dq=dq, dk=dk, dv=dv, workspace=workspace,
                              **given(d_lse=d_lse, sinks=sinks, d_sinks=d_sinks, d_bias=d_bias, **further))
        for name, tensor in given(dq=dq, dk=dk, dv=dv, workspace=workspace, d_sinks=d_sinks, d_bias=d_bias).items():
            kind.check_writable(tensor, name)
        usual = dict(q=q, k=k, v=v, out=out, d_out=d_out, dq=dq, dk=dk, dv=dv)
        packed = {name: pack_rank(kind, tensor, name, 3) if self.packed else pack(kind, tensor, name, self.heads_first)
                  for name, tensor in usual.items()}
        arguments = Backward(
            ctypes.sizeof(Backward),
            **packed,
            lse=pack_rank(kind, lse, "lse", 2) if self.packed else pack_lse(kind, lse),
            d_lse=None if d_lse is None else pack_rank(kind, d_lse, "d_lse", 2) if self.packed else pack_lse(kind, d_lse),
            softmax_scale=None if scale is None else ctypes.pointer(ctypes.c_double(scale)),
            workspace=kind.address(workspace),
            workspace_bytes=workspace.nbytes,
            **{name: pack_rank(kind, tensor, name, 1)
               for name, tensor in given(sinks=sinks, d_sinks=d_sinks, **further).items()},
            dropout=dropout_of(dropout),
            d_bias=None if d_bias is None else pack_rank(kind, d_bias, "d_bias", 4),
        )
        self.one_place(q, **(tensors or {}))
        put_expressions(arguments, kind, scalars or {}, tensors or {})
        check(library().tw_launch_backward(self.handle, kind.stream(q) if stream is None else stream,
                                           ctypes.byref(arguments)))

    def __repr__(self):
        return f"<tilewright.Kernel {self.info['schedule']} for {self.info['target']}>"


def dropout_of(dropout):
    """struct tw_dropout of (rate, seed, offset), or of None."""
    if dropout is None:
        return None
    if not isinstance(dropout, (tuple, list)) or len(dropout) != 3:
        raise UsageError(f"dropout {dropout!r}: expected (rate, seed, offset)")
    rate, seed, offset = dropout
    for name, number in (("seed", seed), ("offset", offset)):
        if not isinstance(number, int) or not 0 <= number < 2**64:
            raise UsageError(f"dropout: {name} is {number!r}; expected an integer from 0 to 2^64 - 1")
    return ctypes.pointer(Dropout(rate, seed, offset))


def dropout_mask(dropout, count, first=(0, 0, 0)):
    """Which probabilities kernels keep, 1, and drop, 0, with dropout (rate, seed, offset): bytes of [heads, queries, keys],
    `count` of them from `first` on. Heads count through all batches: batch * heads + head. On the CPU, for tests."""
    if dropout is None:
        raise UsageError("dropout None: expected (rate, seed, offset)")
    if len(count) != 3 or len(first) != 3 or min(count) < 0:
        raise UsageError(f"dropout_mask of {count} from {first}: expected (heads, queries, keys)")
    keep = (ctypes.c_uint8 * math.prod(count))()
    numbers = ctypes.c_int64 * 3
    check(library().tw_dropout_mask(dropout_of(dropout), numbers(*first), numbers(*count), keep))
    return bytes(keep)


def put_expressions(arguments, kind, scalars, tensors):
    """Dicts of what expressions take, into the structure of either pass."""
    arguments.scalars = (Scalar * len(scalars))(*((name.encode(), value) for name, value in scalars.items()))
    arguments.scalar_count = len(scalars)
    arguments.tensors = (NamedTensor * len(tensors))(
        *((name.encode(), (ctypes.c_ubyte * TENSOR.size)(*pack_rank(kind, tensor, name, len(tensor.shape))))
          for name, tensor in tensors.items()))
    arguments.tensor_count = len(tensors)


def capturing():
    """Whether torch's current stream is being captured into a CUDA graph."""
    torch = sys.modules.get("torch")
    return bool(torch) and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def given(**arguments):
    """Those that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}


def place(tensor):
    """Where a tensor is, in words."""
    device = kind_of(tensor, "a tensor").device(tensor)
    return "a NumPy array" if device is None else f"a torch tensor on {device}"


def spec_text(spec):
    """The YAML text of a spec, and the name of its file for messages (None if it has none)."""
    if isinstance(spec, dict):
        return "".join(f"{key}: {yaml_value(value)}\n" for key, value in spec.items()), None
    if isinstance(spec, os.PathLike) or (isinstance(spec, str) and spec.endswith((".yaml", ".yml"))):
        try:
            return pathlib.Path(spec).read_text(encoding="utf-8"), os.fspath(spec)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the spec {os.fspath(spec)}: {error}") from None
    if isinstance(spec, str):
        return spec, None
    raise UsageError(f"spec is a {type(spec).__name__}; expected a path, YAML text or a dict")


def yaml_value(value):
    """One value in YAML's flow style."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(yaml_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return str(value)


default_runtimes = {}
default_runtimes_lock = threading.Lock()


def default_runtime(device, ordinal):
    """The runtime shared by everyone who does not bring one."""
    with default_runtimes_lock:
        runtime = default_runtimes.get((device, ordinal))
        if runtime is None:
            runtime = default_runtimes[device, ordinal] = Runtime(device, ordinal)
        return runtime
