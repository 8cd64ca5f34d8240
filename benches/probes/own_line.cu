// What a load costs behind a store of the same word by the same multiprocessor: a chain in one CTA of 256 threads, as `bench dispatch`'s `worker chain` without MACO.
//
//     nvcc -arch=sm_90a -o own_line benches/probes/own_line.cu && ./own_line
//
// Cycles for each link: every thread loads the word, a barrier, one thread stores the word plus one, a barrier.
#include <cstdio>
#include <cuda_runtime.h>

enum Load { WEAK, CG, VOLATILE, RELAXED };
enum Fence { NONE, ACQUIRE };

template <Load LOAD>
__device__ unsigned load(const unsigned *at) {
    unsigned value;
    if constexpr (LOAD == WEAK) asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    if constexpr (LOAD == CG) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    if constexpr (LOAD == VOLATILE) asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    if constexpr (LOAD == RELAXED) asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

template <Load LOAD, Fence FENCE, bool STORE>
__global__ void chain(unsigned *x, unsigned links, long long *cycles) {
    long long begin = clock64();
    unsigned sum = 0;
    for (unsigned n = 0; n < links; n++) {
        unsigned value = load<LOAD>(x);
        sum += value;
        __syncthreads();
        if (STORE && threadIdx.x == 0) asm volatile("st.global.u32 [%0], %1;" ::"l"(x), "r"(value + 1) : "memory");
        if (!STORE && value == 0xffffffff) *x = sum;
        __syncthreads();
        if (FENCE == ACQUIRE) asm volatile("fence.acquire.gpu;" ::: "memory");
    }
    if (threadIdx.x == 0) *cycles = clock64() - begin, x[1] = sum;
}

template <Load LOAD, Fence FENCE, bool STORE>
void run(const char *name, unsigned *x, long long *cycles) {
    const unsigned links = 4096;
    double best = 1e30;
    for (int n = 0; n < 5; n++) {
        cudaMemset(x, 0, 64);
        chain<LOAD, FENCE, STORE><<<1, 256>>>(x, links, cycles);
        long long found = 0;
        cudaMemcpy(&found, cycles, sizeof found, cudaMemcpyDeviceToHost);
        unsigned last = 0;
        cudaMemcpy(&last, x, sizeof last, cudaMemcpyDeviceToHost);
        if (STORE && last != links) printf("wrong: %u\n", last);
        best = found < best ? found : best;
    }
    printf("%-44s %7.1f cycles a link\n", name, best / links);
}

int main() {
    unsigned *x;
    long long *cycles;
    cudaMalloc(&x, 64);
    cudaMalloc(&cycles, 8);
    run<WEAK, NONE, true>("ld, st by another thread", x, cycles);
    run<WEAK, ACQUIRE, true>("ld, st, fence.acquire.gpu", x, cycles);
    run<CG, NONE, true>("ld.cg, st", x, cycles);
    run<VOLATILE, NONE, true>("ld.volatile, st", x, cycles);
    run<RELAXED, NONE, true>("ld.relaxed.gpu, st", x, cycles);
    run<WEAK, NONE, false>("ld, no st", x, cycles);
    run<CG, NONE, false>("ld.cg, no st", x, cycles);
    return cudaDeviceSynchronize() != cudaSuccess;
}
