// What the two device compilers do not agree on. NVRTC knows CUDA's words; clang without headers learns them here.

#if defined(__clang__)
#define __global__ __attribute__((global))
// Host functions too: clang evaluates the constants of a source on the host's side.
#define __device__ __attribute__((host)) __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#if __has_attribute(grid_constant)
#define __grid_constant__ __attribute__((grid_constant))
#else
#define __grid_constant__
#endif
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#else
#define INFINITY (1.0f / 0.0f)  // NVRTC folds this; before 12.4 it has no builtin for it
#define NAN (INFINITY - INFINITY)
#endif
