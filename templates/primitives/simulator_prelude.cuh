// CUDA's words mean nothing on the host: a thread is a fiber that runs the kernel as an ordinary function.

#define __global__
#define __device__ __attribute__((visibility("hidden")))
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

static const SimulatorInterface* simulator;
