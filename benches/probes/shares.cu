// Whether multiprocessors get the same share of the memory: a copy through a ring of shared memory by one CTA on each, dealt in turn and claimed.
//
//     nvcc -O3 -arch=sm_90a -o shares benches/probes/shares.cu && ./shares
//
// Tiles are 16 rows of 2 KiB, 8 KiB apart, as those of `bench memory`'s `copy`: one thread asks for them by bulk copies, 256 threads store them. Launches are
// in a CUDA graph over buffers that take turns, beside the driver's copy and a kernel without a ring. How long before the last CTA others end says how unlike the shares are.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#define CHECK(call)                                                                                 \
    do {                                                                                            \
        cudaError_t error_ = (call);                                                                \
        if (error_ != cudaSuccess) printf("%s: %s\n", #call, cudaGetErrorString(error_)), exit(1);  \
    } while (0)

constexpr int ROWS = 16, PIECE = 2048, TILE = ROWS * PIECE;
constexpr long STRIDE = 8192;

__device__ uint32_t shared(const void *at) { return uint32_t(__cvta_generic_to_shared(at)); }

__device__ void wait(uint64_t *barrier, int parity) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra L; }" ::"r"(shared(barrier)), "r"(parity) : "memory");
}

__device__ void arrive(uint64_t *barrier) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared(barrier)) : "memory"); }

struct Arguments {
    const char *x;
    char *y;
    int tiles;
    unsigned *ticket;
    long long *ended;
};

__device__ long place(int tile) { return tile / (STRIDE / PIECE) * ROWS * STRIDE + tile % (STRIDE / PIECE) * PIECE; }

template <int STAGES, bool CLAIMED>
__global__ void __launch_bounds__(384, 1) copy(Arguments a) {
    extern __shared__ __align__(1024) char ring[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    __shared__ int which[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared(&full[s])));
            asm volatile("mbarrier.init.shared.b64 [%0], 8;" ::"r"(shared(&empty[s])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("fence.proxy.async.shared::cta;");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int tile = CLAIMED ? atomicAdd(a.ticket, 1) : blockIdx.x;
        for (int n = 0;; n++) {
            int s = n % STAGES, next = CLAIMED ? atomicAdd(a.ticket, 1) : tile + gridDim.x;
            if (n >= STAGES) wait(&empty[s], (n / STAGES - 1) & 1);
            which[s] = tile < a.tiles ? tile : -1;
            if (tile >= a.tiles) {
                arrive(&full[s]);
                // The last one leaves the ticket as it was.
                if (CLAIMED && atomicInc(a.ticket + 1, gridDim.x - 1) == gridDim.x - 1) a.ticket[0] = 0;
                break;
            }
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared(&full[s])), "r"(TILE) : "memory");
            for (int r = 0; r < ROWS; r++) {
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared(ring + s * TILE + r * PIECE)),
                             "l"(a.x + place(tile) + r * STRIDE), "r"(PIECE), "r"(shared(&full[s]))
                             : "memory");
            }
            tile = next;
        }
    } else if (threadIdx.x >= 128) {
        int c = threadIdx.x - 128;
        for (int n = 0;; n++) {
            int s = n % STAGES;
            wait(&full[s], (n / STAGES) & 1);
            int tile = which[s];
            if (tile < 0) break;
#pragma unroll
            for (int i = c * 16; i < TILE; i += 256 * 16) {
                uint4 value = *(uint4 *)(ring + s * TILE + i);
                *(uint4 *)(a.y + place(tile) + i / PIECE * STRIDE + i % PIECE) = value;
            }
            __syncwarp();
            if (c % 32 == 0) arrive(&empty[s]);
        }
        if (c == 0) asm volatile("mov.u64 %0, %globaltimer;" : "=l"(a.ended[blockIdx.x]));
    }
}

__global__ void plain(const uint4 *x, uint4 *y, long count) {
    long at = long(blockIdx.x) * blockDim.x * 4 + threadIdx.x;
    uint4 values[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (at + k * blockDim.x < count) values[k] = x[at + k * blockDim.x];
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (at + k * blockDim.x < count) y[at + k * blockDim.x] = values[k];
}

struct Buffers {
    char *x, *y;
};

cudaStream_t stream;
int multiprocessors;
unsigned *ticket;
long long *ended;

// Microseconds of a launch, the median of ten times eight rounds.
template <class Launch>
double time_of(const std::vector<Buffers> &all, Launch launch) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (auto &buffers : all) launch(buffers);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    std::vector<float> times;
    for (int round = 0; round < 12; round++) {
        cudaEventRecord(begin, stream);
        for (int k = 0; k < 8; k++) cudaGraphLaunch(executable, stream);
        cudaEventRecord(end, stream);
        CHECK(cudaStreamSynchronize(stream));
        float milliseconds;
        cudaEventElapsedTime(&milliseconds, begin, end);
        if (round > 1) times.push_back(milliseconds * 1000 / 8 / all.size());
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

template <int STAGES, bool CLAIMED>
void run(const char *name, const std::vector<Buffers> &all, long bytes, double peer) {
    CHECK(cudaFuncSetAttribute(copy<STAGES, CLAIMED>, cudaFuncAttributeMaxDynamicSharedMemorySize, TILE * STAGES));
    double time = time_of(all, [&](const Buffers &buffers) {
        copy<STAGES, CLAIMED><<<multiprocessors, 384, TILE * STAGES, stream>>>({buffers.x, buffers.y, int(bytes / TILE), ticket, ended});
    });
    std::vector<long long> ends(multiprocessors);
    CHECK(cudaMemcpy(ends.data(), ended, multiprocessors * 8, cudaMemcpyDeviceToHost));
    std::sort(ends.begin(), ends.end());
    auto before = [&](int of) { return (ends.back() - ends[of]) / 1e3; };
    printf("  %-28s %8.2f us, %.3f of the copy; before the last one the first ends %5.1f us, a tenth %5.1f, half %5.1f\n", name, time, peer / time, before(0),
           before(multiprocessors / 10), before(multiprocessors / 2));
}

int main() {
    CHECK(cudaStreamCreate(&stream));
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    CHECK(cudaMalloc(&ticket, 8));
    CHECK(cudaMemset(ticket, 0, 8));
    CHECK(cudaMalloc(&ended, multiprocessors * 8));
    for (long mebibytes : {64, 256}) {
        long bytes = mebibytes << 19;
        std::vector<Buffers> all(std::max(2L, (300 + mebibytes - 1) / mebibytes));
        for (auto &buffers : all) {
            CHECK(cudaMalloc(&buffers.x, bytes));
            CHECK(cudaMalloc(&buffers.y, bytes));
            CHECK(cudaMemset(buffers.x, 1, bytes));
        }
        auto driver = [&](const Buffers &buffers) { cudaMemcpyAsync(buffers.y, buffers.x, bytes, cudaMemcpyDeviceToDevice, stream); };
        for (int warm = 0; warm < 20; warm++) time_of(all, driver);
        double peer = time_of(all, driver);
        double simple = time_of(all, [&](const Buffers &buffers) {
            plain<<<(bytes / 16 + 1023) / 1024, 256, 0, stream>>>((uint4 *)buffers.x, (uint4 *)buffers.y, bytes / 16);
        });
        printf("%ld MiB read and written: the driver's copy %.2f us, a kernel without a ring %.2f (%.3f)\n", mebibytes, peer, simple, peer / simple);
        run<6, false>("dealt, 6 tiles on their way", all, bytes, peer);
        run<2, false>("dealt, 2", all, bytes, peer);
        run<6, true>("claimed, 6", all, bytes, peer);
        run<3, true>("claimed, 3", all, bytes, peer);
        for (auto &buffers : all) cudaFree(buffers.x), cudaFree(buffers.y);
    }
}
