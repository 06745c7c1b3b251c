// Marks functions that are compiled for the host and, by a CUDA compiler, for the device too. Formulas that both
// backends share are functors whose `operator()` has this mark.
#pragma once

#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif
