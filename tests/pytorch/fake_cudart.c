// A fake CUDA runtime for a machine without a GPU: device memory is host memory, and kernels do nothing. That is enough for
// PyTorch's own allocator to work and count; results of kernels are undefined.
//
// FAKE_CUDA_DEVICES (1; none if CUDA_VISIBLE_DEVICES is empty) and FAKE_CUDA_TOTAL_MB (8192) describe the machine.
// FAKE_CUDA_LOG names a file that has the memory in use of each device, in bytes, as a driver would report it.
// FAKE_CUDA_BUSY: see below.
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver_types.h"

// From CUDA 12 on, the name of this function has a version.
#ifndef PROPERTIES
#define PROPERTIES cudaGetDeviceProperties
#endif

enum { DEVICES = 8, PIECES = 65536, CONTEXT = 300 << 20, PAGE = 2 << 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct { char *at; size_t size; int device; } pieces[PIECES];
static int count, devices = -1, last_error;
static __thread int current;
static size_t total, used[DEVICES];

static void start(void) {
    const char *variable = getenv("FAKE_CUDA_DEVICES");
    if (devices >= 0) return;
    devices = variable ? atoi(variable) : 1;
    variable = getenv("CUDA_VISIBLE_DEVICES");
    if (variable && !*variable) devices = 0;
    variable = getenv("FAKE_CUDA_TOTAL_MB");
    total = (size_t)(variable ? atol(variable) : 8192) << 20;
}

// Allocates memory of a device, or frees it. The first use creates the context.
static int take(int device, long amount) {
    const char *log = getenv("FAKE_CUDA_LOG");
    start();
    if (!used[device]) used[device] = CONTEXT;
    if (amount > 0 && used[device] + amount > total) return 0;
    used[device] += amount;
    if (log) {
        FILE *file = fopen(log, "w");
        for (int at = 0; file && at < devices; at++) fprintf(file, "%zu\n", used[at]);
        if (file) fclose(file);
    }
    return 1;
}

int cudaGetDeviceCount(int *number) { start(); *number = devices; return devices ? 0 : 100; }
int cudaGetDevice(int *device) { *device = current; return 0; }
int cudaSetDevice(int device) { current = device; return 0; }
int cudaDriverGetVersion(int *version) { *version = 13020; return 0; }
int cudaRuntimeGetVersion(int *version) { *version = 13020; return 0; }

int PROPERTIES(struct cudaDeviceProp *it, int device) {
    start();
    memset(it, 0, sizeof *it);
    snprintf(it->name, sizeof it->name, "Fake GPU %d", device);
    it->totalGlobalMem = total;
    it->major = 9;
    it->multiProcessorCount = 132;
    it->warpSize = 32;
    it->maxThreadsPerBlock = 1024;
    it->maxThreadsPerMultiProcessor = 2048;
    it->sharedMemPerBlock = 49152;
    it->sharedMemPerMultiprocessor = 233472;
    it->sharedMemPerBlockOptin = 232448;
    it->regsPerBlock = it->regsPerMultiprocessor = 65536;
    it->maxGridSize[0] = 2147483647;
    it->maxGridSize[1] = it->maxGridSize[2] = 65535;
    it->maxThreadsDim[0] = it->maxThreadsDim[1] = 1024;
    it->maxThreadsDim[2] = 64;
    it->l2CacheSize = 50 << 20;
    it->pciBusID = device + 1;
    it->textureAlignment = 512;
    return 0;
}

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case 1: *value = 1024; break;
        case 5: *value = 2147483647; break;
        case 8: *value = 49152; break;
        case 10: *value = 32; break;
        case 16: *value = 132; break;
        case 39: *value = 2048; break;
        case 75: *value = 9; break;
        case 97: *value = 232448; break;
        default: *value = 0;
    }
    return 0;
}

int cudaMalloc(void **at, size_t size) {
    size_t whole = (size + PAGE - 1) & ~(size_t)(PAGE - 1);
    pthread_mutex_lock(&mutex);
    int is_there = count < PIECES && take(current, whole);
    if (is_there) {
        *at = mmap(0, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        pieces[count].at = *at, pieces[count].size = whole, pieces[count].device = current, count++;
    }
    pthread_mutex_unlock(&mutex);
    return is_there ? 0 : (last_error = 2);
}

int cudaMallocManaged(void **at, size_t size, unsigned flags) { return cudaMalloc(at, size); }

int cudaFree(void *at) {
    pthread_mutex_lock(&mutex);
    if (!at) take(current, 0);
    for (int piece = 0; at && piece < count; piece++) {
        if (pieces[piece].at != at) continue;
        munmap(at, pieces[piece].size);
        take(pieces[piece].device, -(long)pieces[piece].size);
        pieces[piece] = pieces[--count];
        break;
    }
    pthread_mutex_unlock(&mutex);
    return 0;
}

int cudaMemGetInfo(size_t *unused, size_t *all) { take(current, 0); *all = total; *unused = total - used[current]; return 0; }

int cudaPointerGetAttributes(struct cudaPointerAttributes *it, const void *at) {
    memset(it, 0, sizeof *it);
    it->type = cudaMemoryTypeUnregistered;
    for (int piece = 0; piece < count; piece++) {
        if ((char *)at < pieces[piece].at || (char *)at >= pieces[piece].at + pieces[piece].size) continue;
        it->type = cudaMemoryTypeDevice, it->device = pieces[piece].device, it->devicePointer = (void *)at;
    }
    return 0;
}

int cudaHostAlloc(void **at, size_t size, unsigned flags) { *at = aligned_alloc(4096, (size + 4095) & ~4095ul); return 0; }
int cudaMallocHost(void **at, size_t size) { return cudaHostAlloc(at, size, 0); }
int cudaFreeHost(void *at) { free(at); return 0; }
int cudaMemcpy(void *to, const void *from, size_t size, int kind) { memcpy(to, from, size); return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) { memcpy(to, from, size); return 0; }
int cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t size, void *stream) { memcpy(to, from, size); return 0; }
int cudaMemset(void *at, int value, size_t size) { memset(at, value, size); return 0; }
int cudaMemsetAsync(void *at, int value, size_t size, void *stream) { memset(at, value, size); return 0; }
const char *cudaGetErrorString(int error) { return error == 2 ? "out of memory" : error ? "fake error" : "no error"; }
const char *cudaGetErrorName(int error) { return error == 2 ? "cudaErrorMemoryAllocation" : "cudaSuccess"; }
int cudaGetLastError(void) { int error = last_error; last_error = 0; return error; }
int cudaPeekAtLastError(void) { return last_error; }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return 0; }

// Streams and events are numbers. While the file exists that FAKE_CUDA_BUSY names, no event completes, so a block that
// another stream uses stays pending.
static long handle = 0x1000;
static int make(void **it) { *it = (void *)(handle += 16); return 0; }
int cudaStreamCreate(void **it) { return make(it); }
int cudaStreamCreateWithFlags(void **it, unsigned flags) { return make(it); }
int cudaStreamCreateWithPriority(void **it, unsigned flags, int priority) { return make(it); }
int cudaEventCreate(void **it) { return make(it); }
int cudaEventCreateWithFlags(void **it, unsigned flags) { return make(it); }
int cudaEventQuery(void *it) {
    const char *file = getenv("FAKE_CUDA_BUSY");
    FILE *busy = file ? fopen(file, "r") : NULL;
    if (busy) fclose(busy);
    return busy ? 600 : 0;
}
int cudaStreamIsCapturing(void *it, int *is) { *is = 0; return 0; }
int cudaStreamGetCaptureInfo(void *it, int *is, unsigned long long *id, void *a, void *b, void *c, size_t *number) {
    *is = 0;
    if (id) *id = 0;
    if (number) *number = 0;
    return 0;
}
int cudaStreamGetPriority(void *it, int *priority) { *priority = 0; return 0; }
int cudaEventElapsedTime(float *ms, void *from, void *to) { *ms = 0.1f; return 0; }
int cudaThreadExchangeStreamCaptureMode(int *mode) { return 0; }
int cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = 0; return 0; }
int cudaDeviceGetPCIBusId(char *name, int size, int device) { snprintf(name, size, "0000:%02x:00.0", device + 1); return 0; }
int cudaGetDriverEntryPointByVersion(const char *name, void **at, unsigned version, unsigned long long flags, int *status) {
    *at = 0;
    if (status) *status = 1;
    return 500;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *number, const void *kernel, int size, size_t shared) { *number = 2; return 0; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *number, const void *kernel, int size, size_t shared, unsigned flags) { *number = 2; return 0; }
int cudaFuncGetAttributes(struct cudaFuncAttributes *it, const void *kernel) {
    memset(it, 0, sizeof *it);
    it->maxThreadsPerBlock = 1024;
    it->numRegs = 32;
    it->binaryVersion = it->ptxVersion = 90;
    return 0;
}

// Functions that nvcc's code calls around each kernel.
static void *binary[4];
typedef struct { unsigned x, y, z; } Grid;
void **__cudaRegisterFatBinary(void *it) { return binary; }
unsigned __cudaPushCallConfiguration(Grid grid, Grid block, size_t shared, void *stream) { return 0; }
int __cudaPopCallConfiguration(void *grid, void *block, size_t *shared, void *stream) {
    memset(grid, 0, sizeof(Grid));
    memset(block, 0, sizeof(Grid));
    if (shared) *shared = 0;
    *(void **)stream = 0;
    return 0;
}
