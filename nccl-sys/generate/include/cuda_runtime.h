/* All that NCCL's header needs of CUDA's, so that bindings can be generated without a CUDA toolkit. */
#ifndef NCCL_SYS_CUDA_RUNTIME_H
#define NCCL_SYS_CUDA_RUNTIME_H

#include <stddef.h>

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#endif
