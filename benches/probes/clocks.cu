// How far the clocks of multiprocessors go apart while all of them compute: what a profile's times can be trusted for.
//
//     nvcc -O3 -arch=sm_90a -o clocks benches/probes/clocks.cu && ./clocks
//
// One CTA on each multiprocessor reads memory, with products between or without; one of its threads takes both clocks where the global timer ticks, nine times, behind as much work each.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <mma.h>
#include <vector>

constexpr int STAMPS = 9;

struct Stamp {
    long long ticks, nanoseconds;
};

__device__ long long timer() {
    long long value;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(value));
    return value;
}

__device__ Stamp stamp() {
    long long before = timer(), now;
    while ((now = timer()) == before) {}
    return {clock64(), now};
}

template <bool COMPUTES>
__global__ void work(Stamp *stamps, unsigned long long *tick, const float4 *memory, size_t elements, float *out, int steps) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> a;
    fragment<matrix_b, 16, 16, 16, __half, col_major> b;
    fragment<accumulator, 16, 16, 16, float> c;
    fill_fragment(a, __float2half(threadIdx.x * 0.37f));
    fill_fragment(b, __float2half(threadIdx.x * 0.11f));
    fill_fragment(c, 0.f);
    float sum = 0;
    size_t at = blockIdx.x * 4096 + threadIdx.x;
    for (int n = 0; n < STAMPS; n++) {
        if (threadIdx.x == 0) {
            stamps[blockIdx.x * STAMPS + n] = stamp();
            if (n == 0) {
                long long before = timer(), now;
                for (int k = 0; k < 1000; k++) {
                    if ((now = timer()) != before) atomicMin(tick, (unsigned long long)(now - before));
                    before = now;
                }
            }
        }
        if (n == STAMPS - 1) break;
        for (int k = 0; k < steps; k++) {
            if (COMPUTES) {
                for (int i = 0; i < 8; i++) mma_sync(c, a, b, c);
            }
            float4 value = memory[at % elements];
            sum += value.x + value.y;
            at += 132 * 4096;
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum + c.x[0];
}

template <bool COMPUTES>
void run(const char *name, int multiprocessors, int steps) {
    Stamp *stamps;
    unsigned long long *tick, found = ~0ull;
    float4 *memory;
    float *out;
    const size_t elements = size_t(1) << 26;
    cudaMalloc(&stamps, multiprocessors * STAMPS * sizeof(Stamp));
    cudaMalloc(&tick, 8);
    cudaMalloc(&memory, elements * 16);
    cudaMalloc(&out, multiprocessors * 512 * 4);
    cudaMemset(memory, 0, elements * 16);
    cudaMemcpy(tick, &found, 8, cudaMemcpyHostToDevice);
    double apart = 0, lasted = 0, own = 0;
    double slowest = 1e9, fastest = 0;
    for (int round = 0; round < 200; round++) {
        work<COMPUTES><<<multiprocessors, 512>>>(stamps, tick, memory, elements, out, steps);
        std::vector<Stamp> all(multiprocessors * STAMPS);
        cudaMemcpy(all.data(), stamps, all.size() * sizeof(Stamp), cudaMemcpyDeviceToHost);
        if (round < 20) continue;
        double most = 0;
        std::vector<double> rates;
        for (int k = 0; k < multiprocessors; k++) {
            Stamp first = all[k * STAMPS], last = all[k * STAMPS + STAMPS - 1];
            rates.push_back(double(last.nanoseconds - first.nanoseconds) / (last.ticks - first.ticks));
            most = std::max(most, rates.back());
            lasted = std::max(lasted, double(last.nanoseconds - first.nanoseconds));
            slowest = std::min(slowest, 1 / rates.back());
            fastest = std::max(fastest, 1 / rates.back());
        }
        for (int k = 0; k < multiprocessors; k++) {
            Stamp first = all[k * STAMPS];
            for (int n = 1; n < STAMPS; n++) {
                Stamp now = all[k * STAMPS + n];
                double ticks = now.ticks - first.ticks, nanoseconds = now.nanoseconds - first.nanoseconds;
                apart = std::max(apart, std::fabs(ticks * most - nanoseconds));
                own = std::max(own, std::fabs(ticks * rates[k] - nanoseconds));
            }
        }
    }
    cudaMemcpy(&found, tick, 8, cudaMemcpyDeviceToHost);
    printf("%-24s %s, timer ticks every %llu ns; launches of up to %.0f us; clocks of %.4f to %.4f GHz; wrong by at most %.0f ns by one rate, %.0f ns by each one's own\n", name,
           cudaGetErrorString(cudaGetLastError()), found, lasted / 1000, slowest, fastest, apart, own);
}

int main() {
    int multiprocessors = 0;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    run<true>("products and memory", multiprocessors, 60);
    run<true>("the same, longer", multiprocessors, 600);
    run<false>("memory alone", multiprocessors, 60);
}
