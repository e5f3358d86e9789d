/* The C interface of Tilewright: for other languages, and for engines that do not want a C++ boundary.
 *
 *   tw_runtime* runtime;
 *   if (tw_runtime_create(NULL, &runtime)) fail(tw_last_error());
 *   tw_kernel* kernel;
 *   if (tw_kernel_create(runtime, "head_dim: 128\nmask: causal\n", NULL, &kernel)) fail(tw_last_error());
 *   if (tw_launch(kernel, stream, &q, &k, &v, &out, NULL, NULL)) fail(tw_last_error());
 *
 * Functions that can fail return a tw_status; the text of the last failure of a thread is tw_last_error(). No
 * C++ exception leaves the library. Every function may be called from any thread; a handle must not be
 * destroyed while another thread uses it. */
#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TW_API __attribute__((visibility("default")))
#else
#define TW_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong, by who can mend it. */
typedef enum tw_status {
  TW_OK = 0,
  TW_ERROR_USAGE = 1,       /* bad arguments */
  TW_ERROR_SPEC = 2,        /* a spec that is malformed or that no kernel serves */
  TW_ERROR_ENVIRONMENT = 3, /* no driver, no compiler, no device, a directory that cannot be used */
  TW_ERROR_COMPILE = 4,     /* the compiler refused generated source */
  TW_ERROR_DEVICE = 5,      /* a launch failed, or the simulator found a fault */
  TW_ERROR_INTERNAL = 6     /* a defect of Tilewright */
} tw_status;

typedef struct tw_runtime tw_runtime;
typedef struct tw_kernel tw_kernel;

/* "0.1.0" */
TW_API const char* tw_version(void);

/* The message of the calling thread's last failure; empty if there was none. Valid until that thread's next
 * call. */
TW_API const char* tw_last_error(void);
/* Its status; TW_OK if there was none. */
TW_API tw_status tw_last_error_status(void);

typedef enum tw_device {
  TW_DEVICE_AUTOMATIC = 0, /* CUDA if there is a device, else the simulator */
  TW_DEVICE_CUDA = 1,
  TW_DEVICE_SIMULATOR = 2
} tw_device;

typedef enum tw_simulator_compiler {
  TW_SIMULATOR_COMPILER_AUTOMATIC = 0, /* the LLVM plugin if it loads, else the system's */
  TW_SIMULATOR_COMPILER_LLVM = 1,
  TW_SIMULATOR_COMPILER_SYSTEM = 2
} tw_simulator_compiler;

/* Fill with tw_options_init, then change what is wanted. */
typedef struct tw_options {
  size_t size;                   /* sizeof(tw_options), set by tw_options_init */
  int32_t device;                /* tw_device */
  int32_t ordinal;               /* of the CUDA device */
  const char* cache_directory;   /* NULL: TILEWRIGHT_CACHE_DIR, XDG_CACHE_HOME, HOME */
  int32_t disk_cache;            /* 0: keep kernels in memory only */
  int32_t simulator_compiler;    /* tw_simulator_compiler */
  uint64_t simulator_seed;       /* 0: asynchronous work lands early, 1: as late as allowed, others: drawn */
  int32_t simulator_check_races; /* 0 or 1 */
  int32_t compiling;             /* 0: a kernel for a GPU that is in no bundle and no cache is an error */
  const char* simulated_target;  /* NULL: "sm_80" */
  const char* bundles;           /* files of `tilewright precompile` with colons between; NULL: none */
} tw_options;

TW_API void tw_options_init(tw_options* options);

/* `options` may be NULL: the defaults. */
TW_API tw_status tw_runtime_create(const tw_options* options, tw_runtime** runtime);
/* Kernels made by the runtime stay valid. NULL is allowed. */
TW_API void tw_runtime_destroy(tw_runtime* runtime);

/* JSON: {"version", "device", "simulator", "target", "generation"}. Owned by the runtime. */
TW_API const char* tw_runtime_info(const tw_runtime* runtime);

/* The kernel for a spec (YAML text): from memory, from disk, or compiled now. `file` names the text in
 * messages, NULL: "spec". */
TW_API tw_status tw_kernel_create(tw_runtime* runtime, const char* spec, const char* file,
                                  tw_kernel** kernel);
/* The same from memory alone, for use while a stream is captured: TW_ERROR_USAGE, "not prepared", if the
 * runtime has not made the kernel before. */
TW_API tw_status tw_kernel_find(const tw_runtime* runtime, const char* spec, const char* file,
                                tw_kernel** kernel);
TW_API void tw_kernel_destroy(tw_kernel* kernel);

/* JSON: {"spec" (canonical form), "target", "schedule", "from" ("memory", "bundle", "disk", "compiled"),
 * "compiler", "command", "compile_ms", "registers", "spill_bytes", "shared_memory", "threads", "notes":
 * [...], "lse" (true, false), "softmax_scale_at_launch", "head_dim_qk", "head_dim_v", "gqa_ratio", "dtype_q",
 * "dtype_kv", "dtype_out", "layout", "variants": [{"buckets", "schedule", "registers", "spill_bytes",
 * "shared_memory"}]}. The figures of the first level are those of the variant for long sequences. Owned by
 * the kernel. */
TW_API const char* tw_kernel_info(const tw_kernel* kernel);
/* The generated source. Owned by the kernel. */
TW_API const char* tw_kernel_source(const tw_kernel* kernel);

/* Makes the kernels of several specs ready. All are tried: the error names each that has no kernel. `files`
 * (or NULL) names the texts in messages. */
TW_API tw_status tw_runtime_prepare(tw_runtime* runtime, const char* const* specs, const char* const* files,
                                    size_t count);

typedef enum tw_dtype {
  TW_FP16 = 0,
  TW_BF16 = 1,
  TW_E4M3 = 2,
  TW_E5M2 = 3,
  TW_FP32 = 4,
  TW_INT32 = 5,
  TW_BOOL = 6 /* one byte; tensors of expressions alone */
} tw_dtype;

/* A tensor that the caller owns: device memory, or host memory with the simulator. Dimensions are always in
 * the order batch, sequence, heads, head_dim (LSE: batch, heads, sequence), whatever the layout in memory.
 * With layout packed: rows of all sequences, heads, head_dim (LSE: heads, rows). */
typedef struct tw_tensor {
  void* data;
  int32_t dtype; /* tw_dtype */
  int32_t rank;  /* 4; LSE: 3; with layout packed one less */
  int64_t shape[4];
  int64_t strides[4]; /* in elements */
} tw_tensor;

/* Starts the kernel on `stream` (a CUstream or cudaStream_t; NULL: the default stream; the simulator finishes
 * before it returns). `lse` is required when the spec says `lse: true`, else NULL; `softmax_scale` is
 * required when the spec says `softmax_scale: launch`, else NULL. Neither allocates on the device,
 * synchronises nor compiles; may be captured into a CUDA graph. */
TW_API tw_status tw_launch(const tw_kernel* kernel, void* stream, const tw_tensor* q, const tw_tensor* k,
                           const tw_tensor* v, const tw_tensor* out, const tw_tensor* lse,
                           const double* softmax_scale);

/* What a spec's expressions take (`scalars:` and `tensors:`, and `bias` for `bias: true`), by name. */
typedef struct tw_scalar {
  const char* name;
  double value; /* an integer of 32 bits where the spec says int */
} tw_scalar;

typedef struct tw_named_tensor {
  const char* name;
  tw_tensor tensor; /* of the rank and type that the spec says; each dimension has its full extent or 1 */
} tw_named_tensor;

/* `dropout: true`: probabilities are dropped with `rate` (0 <= rate < 1), the others scaled by 1 / (1 -
 * rate). Equal seed and offset drop the same places. */
typedef struct tw_dropout {
  double rate;
  uint64_t seed, offset;
} tw_dropout;

/* All that a forward launch may take. Zeros, then `size` and what the spec asks for. */
typedef struct tw_forward {
  size_t size; /* sizeof(tw_forward) */
  const tw_tensor *q, *k, *v, *out, *lse;
  const double* softmax_scale;
  /* Layout packed, int32, rank 1, on the device: sequence i is rows cu_seqlens[i] to cu_seqlens[i + 1] - 1,
   * so that there is one number more than sequences. seqused, optional: how many rows of each sequence count.
   * Rows of no sequence are neither read nor written. */
  const tw_tensor *cu_seqlens_q, *cu_seqlens_kv, *seqused_q, *seqused_kv;
  const tw_tensor* sinks; /* `sinks: true`: rank 1, a logit for each query head, fp32 or of q's type */
  /* mask.blocks, int32 on the device: block i of queries sees the blocks of keys block_columns[block_rows[b,
   * h, i]] to block_columns[block_rows[b, h, i + 1] - 1], each named once. block_rows: rank 3, [batch or 1,
   * heads or 1, blocks of queries + 1]; block_columns: rank 1. */
  const tw_tensor *block_rows, *block_columns;
  /* How the launch shares the device with others; see LaunchOptions in tilewright.hpp. */
  int32_t programmatic_dependent_launch; /* 0 or 1: may start before the launch before it has finished */
  int32_t sm_margin;                     /* multiprocessors left to others */
  const tw_scalar* scalars;
  size_t scalar_count;
  const tw_named_tensor* tensors;
  size_t tensor_count;
  const tw_dropout* dropout; /* required when the spec says `dropout: true`, else NULL */
  /* Where tw_workspace_size says more than 0 (masks that look up by kv): device memory for this launch alone,
   * aligned to 16 bytes, whatever it holds. */
  void* workspace;
  size_t workspace_bytes;
  /* 0 or 1: the workspace is as the last launch of this kernel with the same lengths, heads and batch left
   * it, and the mask's tensors and scalars have not changed since. Where that is not so the result is wrong.
   */
  int32_t tensors_unchanged;
} tw_forward;

/* As tw_launch, for specs that ask for more and for launch options. */
TW_API tw_status tw_launch_forward(const tw_kernel* kernel, void* stream, const tw_forward* arguments);

/* What a backward launch takes. All tensors are required but `d_lse`, the gradient of LSE, which may be given
 * when the spec says `lse: true`, and what the spec does not ask for. `softmax_scale` as for tw_launch. */
typedef struct tw_backward {
  size_t size;                            /* sizeof(tw_backward) */
  const tw_tensor *q, *k, *v, *out, *lse; /* what the forward pass took and gave */
  const tw_tensor* d_out;                 /* the gradient of out */
  const tw_tensor *dq, *dk, *dv;          /* written */
  const tw_tensor* d_lse;
  const double* softmax_scale;
  void* workspace; /* device memory for this launch alone, aligned to 16 bytes; needs no initial values */
  size_t workspace_bytes;
  const tw_tensor* sinks;   /* `sinks: true`: as the forward pass had them */
  const tw_tensor* d_sinks; /* written: rank 1, fp32, a gradient for each query head; NULL: not wanted */
  const tw_scalar* scalars; /* as the forward pass had them */
  size_t scalar_count;
  const tw_named_tensor* tensors;
  size_t tensor_count;
  const tw_dropout* dropout; /* as the forward pass had it */
  const tw_tensor *cu_seqlens_q, *cu_seqlens_kv, *seqused_q,
      *seqused_kv; /* layout packed: as for the forward pass */
  /* `bias_gradient: true`: fp32, of the bias's shape, contiguous. The bias's gradient is added to what it
   * holds, summed over dimensions of 1. Else NULL. */
  const tw_tensor* d_bias;
} tw_backward;

/* Starts a kernel whose spec says `pass: backward`: all of the pass, one kernel after the other on the
 * stream. Neither allocates, synchronises nor compiles; may be captured into a CUDA graph. */
TW_API tw_status tw_launch_backward(const tw_kernel* kernel, void* stream, const tw_backward* arguments);

/* Which probabilities dropout keeps, 1, and drops, 0: `keep` is [count[0]][count[1]][count[2]] bytes, for
 * heads (of all batches: batch * heads + head), queries and keys from first[0], first[1] and first[2] on. On
 * the CPU, for tests. */
TW_API tw_status tw_dropout_mask(const tw_dropout* dropout, const int64_t first[3], const int64_t count[3],
                                 uint8_t* keep);

/* Bytes of workspace that a launch of these lengths needs; `heads` are query heads. The forward pass needs
 * some where its mask looks up by kv. Layout packed: the number of sequences as `batch`, and the rows of all
 * sequences together as lengths. */
TW_API tw_status tw_workspace_size(const tw_kernel* kernel, int64_t batch, int64_t heads, int64_t seqlen_q,
                                   int64_t seqlen_kv, size_t* bytes);

/* Whether a kernel serves a spec on a target ("sm_90a"): *supported is 1 or 0. The reasons for a 0 are then
 * in tw_last_error(), one a line. Needs no device. */
TW_API tw_status tw_supports(const char* spec, const char* file, const char* target, int* supported);

#ifdef __cplusplus
}
#endif

#endif
