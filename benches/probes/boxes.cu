// What a multiprocessor gets of operands: boxes of rows of 128 bytes by tensor copies, one for each operand and step, beside the same bytes packed by
// tiles. No products are made; a thread waits for a stage and gives it back. `nvcc -O3 -arch=sm_90a boxes.cu && ./boxes`; docs/internals/gemm.md
// has what it said.
#include <cstdio>
#include <cstdlib>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>
#define CHECK(x) do { cudaError_t e = (x); if (e) { printf("%s: %s\n", #x, cudaGetErrorString(e)); exit(1); } } while (0)
#define RING (192 * 1024)
__device__ inline uint32_t sa(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ inline void wait(uint32_t bar, uint32_t parity) {
  asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W;}" :: "r"(bar), "r"(parity) : "memory");
}
__device__ inline void bulk(uint32_t dst, const char* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}
__device__ inline void box(uint32_t dst, const CUtensorMap* map, int c, int r, uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" :: "r"(dst), "l"(map), "r"(c), "r"(r), "r"(bar) : "memory");
}
// MODE 0: boxes; 1: packed tiles, copies of 8 and 16 KiB.
template <int MODE>
__global__ void __launch_bounds__(256, 1) probe(const __grid_constant__ CUtensorMap am, const __grid_constant__ CUtensorMap bm, const char* data, int rowsA, int rowsB, int steps, int tilesM) {
  extern __shared__ __align__(1024) char ring[];
  __shared__ uint64_t full[16], empty[16];
  int bytes = (rowsA + rowsB) * 128, stages = RING / bytes;
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; s++) {
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(sa(&full[s])));
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(sa(&empty[s])));
    }
    asm volatile("fence.proxy.async.shared::cta;");
  }
  __syncthreads();
  int tm = blockIdx.x % tilesM, tn = blockIdx.x / tilesM;
  int ra = tm * rowsA, rb = 4096 + (tn % 110) * rowsB;
  if (threadIdx.x == 0) {
    int s = 0; uint32_t parity = 1;
    for (int k = 0; k < steps; k++) {
      wait(sa(&empty[s]), parity);
      uint32_t bar = sa(&full[s]), dst = sa(ring) + s * bytes;
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
      int c = (k & 63) * 64;
      if (MODE == 1) {
        const char* a = data + ((size_t)ra * 64 + (size_t)(k & 63) * rowsA) * 128;
        for (int at = 0; at < rowsA * 128; at += 8192) bulk(dst + at, a + at, 8192, bar);
        const char* b = data + ((size_t)rb * 64 + (size_t)(k & 63) * rowsB) * 128;
        for (int at = 0; at < rowsB * 128; at += 16384) bulk(dst + rowsA * 128 + at, b + at, 16384, bar);
      } else {
        box(dst, &am, c, ra, bar);
        box(dst + rowsA * 128, &bm, c, rb, bar);
      }
      if (++s == stages) { s = 0; parity ^= 1; }
    }
  } else if (threadIdx.x == 128) {
    int s = 0; uint32_t parity = 0;
    for (int k = 0; k < steps; k++) {
      wait(sa(&full[s]), parity);
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(sa(&empty[s])) : "memory");
      if (++s == stages) { s = 0; parity ^= 1; }
    }
  }
}
typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
Encode encode;
CUtensorMap map(void* data, int rows, CUtensorMapL2promotion promote) {
  CUtensorMap m; cuuint64_t dims[2] = {4096, 32768}, strides[1] = {8192}; cuuint32_t b[2] = {64, (cuuint32_t)rows}, e[2] = {1, 1};
  CUresult r = encode(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, dims, strides, b, e, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promote, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r) { printf("encode %d\n", r); exit(1); } return m;
}
template <int MODE> void measure(const char* name, char* data, int ra, int rb, int tilesM, CUtensorMapL2promotion promote) {
  int steps = 4096;
  CHECK(cudaFuncSetAttribute(probe<MODE>, cudaFuncAttributeMaxDynamicSharedMemorySize, RING + 1024));
  CUtensorMap a = map(data, ra, promote), b = map(data, rb, promote);
  cudaEvent_t e0, e1; cudaEventCreate(&e0); cudaEventCreate(&e1); float best = 1e9;
  for (int i = 0; i < 4; i++) {
    cudaEventRecord(e0);
    probe<MODE><<<132, 256, RING + 1024>>>(a, b, data, ra, rb, steps, tilesM);
    cudaEventRecord(e1); CHECK(cudaEventSynchronize(e1)); float ms; cudaEventElapsedTime(&ms, e0, e1); if (ms < best) best = ms;
  }
  double step = best * 1e6 / steps, bytes = (ra + rb) * 128.0;
  printf("%-28s %3d + %3d rows, %d down: %4.0f ns a step, %5.1f B/ns for each SM, %5.2f TB/s\n", name, ra, rb, tilesM, step, bytes / step, 132 * bytes / step / 1e3);
}
int main() {
  void* f; cudaDriverEntryPointQueryResult q; CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &q)); encode = (Encode)f;
  char* data; CHECK(cudaMalloc(&data, (size_t)32768 * 8192)); CHECK(cudaMemset(data, 1, (size_t)32768 * 8192));
  int cases[][2] = {{64, 128}, {64, 256}, {128, 128}, {128, 256}};
  for (int tilesM : {1, 2, 4, 16}) for (auto& c : cases) {
    measure<0>("boxes", data, c[0], c[1], tilesM, CU_TENSOR_MAP_L2_PROMOTION_NONE);
    measure<0>("boxes, promoted to 256 B", data, c[0], c[1], tilesM, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
    measure<1>("packed tiles", data, c[0], c[1], tilesM, CU_TENSOR_MAP_L2_PROMOTION_NONE);
  }
}
