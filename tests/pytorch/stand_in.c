// A stand-in for a process with PyTorch's allocator, with all that gputop reads from outside: the exported symbol, the
// object with its vector of devices, and the stats of each device. This file is built twice: with PROGRAM, as a program that
// loads the library and keeps files open; without it, as the library, which reads commands from its standard input.
//
//   LAYOUT 21: torch 2.1.  25: 2.5 to 2.11.  215: 2.15.  0: an older library, which does not export the symbol.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef PROGRAM
#include <dlfcn.h>

// LIBRARY DEVICES FILE...
int main(int count, char **words) {
    char line[8];
    for (int at = 3; at < count; at++) if (open(words[at], O_RDONLY) < 0) return perror(words[at]), 2;
    if (getenv("LOAD_LATER")) {
        // Waits for a line, and grows as a process that loads all of PyTorch's libraries.
        if (!fgets(line, sizeof line, stdin)) return 2;
        if (mmap(NULL, 1 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return perror("mmap"), 2;
    }
    if (getenv("LAUNCHER")) {
        // Forks the process that goes on, and adopts its children.
        if (prctl(PR_SET_CHILD_SUBREAPER, 1)) return perror("prctl"), 2;
        if (fork()) for (;;) pause();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    void *library = count > 3 ? dlopen(words[1], RTLD_NOW) : NULL;
    int (*serve)(int) = library ? (int (*)(int))dlsym(library, "serve") : NULL;
    if (!serve) return fprintf(stderr, "%s\n", dlerror()), 2;
    return serve(atoi(words[2]));
}

#else
enum { ALLOCATIONS, SEGMENTS, ACTIVE_BLOCKS, SPLIT_BLOCKS, ALLOCATED, RESERVED, ACTIVE, SPLIT, REQUESTED, STATS };

enum { ROOM = 16384 };

typedef struct { int64_t current, peak, allocated, freed; } Stat;
typedef struct { Stat pools[3]; } Array;
typedef struct {
    pthread_mutex_t mutex;
    Array first[ACTIVE];
#if LAYOUT == 215
    void *map[4];
#endif
    Array second[STATS - ACTIVE];
    int64_t retries, ooms;
    // Makes the device as large as PyTorch's.
    char rest[LAYOUT == 215 ? 3224 : 1024];
} Device;
typedef struct {
    void *methods;
    char before[(LAYOUT == 21 ? 80 : 22584) - sizeof(void *)];
    Device **begin, **end, **capacity;
    char after[256];
} Allocator;

static Allocator native;
#if LAYOUT != 0
Allocator *allocator __asm__("_ZN3c104cuda20CUDACachingAllocator9allocatorE") = &native;
#endif

static Array *array(Device *device, int stat) { return stat < ACTIVE ? &device->first[stat] : &device->second[stat - ACTIVE]; }

static void change(Device *device, int stat, int pool, int64_t amount) {
    Stat *changed = &array(device, stat)->pools[pool];
    changed->current += amount;
    if (changed->current > changed->peak) changed->peak = changed->current;
    if (amount > 0) changed->allocated += amount; else changed->freed -= amount;
}

// Changes several stats like PyTorch: with the mutex held and in the same order, the total before the pool. PART 1: a block
// that another stream still uses was freed; 2: that stream is done.
static void work(Device *device, int pool, int64_t segment, int64_t block, int64_t asked, int64_t split, int part) {
    int one = asked > 0 ? 1 : -1, pools[2] = {0, pool};
    pthread_mutex_lock(&device->mutex);
    for (int at = 0; at < 2 && segment; at++) {
        change(device, SEGMENTS, pools[at], segment > 0 ? 1 : -1);
        change(device, RESERVED, pools[at], segment);
    }
    for (int at = 0; at < 2 && split; at++) change(device, SPLIT, pools[at], split);
    for (int at = 0; at < 2 && asked; at++) {
        if (part != 2) change(device, ALLOCATIONS, pools[at], one), change(device, ALLOCATED, pools[at], block);
        if (part == 1) continue;
        change(device, ACTIVE_BLOCKS, pools[at], one);
        change(device, ACTIVE, pools[at], block);
        change(device, REQUESTED, pools[at], asked);
    }
    pthread_mutex_unlock(&device->mutex);
}

// Allocates a block (sign 1) or frees it (sign -1).
static void allocate(Device *device, int sign) { work(device, 2, 0, sign * 1024, sign * 1000, sign * -1024, 0); }

// Allocates in bursts, as a trainer that queues work on the GPU: many blocks in a row, then a pause. Between the bursts, one
// block is allocated, or none.
static void *spin(void *device) {
    struct timespec pause = {0, 50000};
    for (int sign = 1;; sign = -sign, nanosleep(&pause, NULL)) {
        for (int at = 0; at < 100; at++) allocate(device, sign), allocate(device, -sign);
        allocate(device, sign);
    }
    return NULL;
}

// Changes the stats of each device in use every 30 ms. A reader that reads every 100 ms finds them changed each time, and
// hardly ever in the middle of a change.
static void *stir(void *end) {
    struct timespec pause = {0, 30000000};
    for (;; nanosleep(&pause, NULL)) {
        for (Device **device = native.begin; device < (Device **)end; device++) {
            if (array(*device, RESERVED)->pools->peak) allocate(*device, 1), allocate(*device, -1);
        }
    }
    return NULL;
}

// Rests in a thread of this name.
static void *rest(void *name) {
    for (prctl(PR_SET_NAME, name);;) pause();
    return NULL;
}

static long nanoseconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

// The host's part of a training step: allocates and frees blocks, and maps and unmaps memory.
static void step(Device *device) {
    enum { SIZE = 1 << 20 };
    for (int at = 0; at < 5000; at++) allocate(device, 1), allocate(device, -1);
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    memset(memory, 1, SIZE);
    munmap(memory, SIZE);
}

// Memory for a device. As in PyTorch, devices lie far apart, and few cross a page boundary.
static Device *place(int at) {
    char *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) abort();
    return (Device *)(room + at * 520 % 4096);
}

// Makes reads of a device's memory hang without end, by userfaultfd(2). Returns -1 when that is not permitted.
static int hang(Device *device) {
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register room = {.range = {(uintptr_t)device & ~4095UL, ROOM}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    int handle = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (handle < 0 || ioctl(handle, UFFDIO_API, &api) || ioctl(handle, UFFDIO_REGISTER, &room)) return -1;
    return madvise((void *)(uintptr_t)room.range.start, ROOM, MADV_DONTNEED);
}

// Forges the pointers to the stats, or the stats; 0 restores them.
static void forge(int forgery, int devices, Device **pointers, Device *first) {
    native.begin = pointers, native.end = native.capacity = pointers + devices;
    pointers[0] = first;
#if LAYOUT != 0
    allocator = &native;
    if (forgery == 1) allocator = (Allocator *)8;
    // A circle: the object is its own vector, which is its own device.
    if (forgery == 2) native.begin = (Device **)&native.begin, native.end = native.capacity = native.begin + 1;
#endif
    // A vector of a billion devices, a device at an unmapped address, and one that reaches beyond its mapping.
    if (forgery == 3) native.end = native.capacity = native.begin + (1 << 30);
    if (forgery == 4) pointers[0] = (Device *)0x7000;
    if (forgery == 5) {
        char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED || munmap(page + 4096, 4096)) abort();
        pointers[0] = (Device *)(page + 4096 - 64);
    }
    // Stats that cannot be true: less than zero is allocated, and more is reserved than any GPU has.
    if (forgery == 6) array(first, ALLOCATED)->pools[0].current = -1;
    if (forgery == 7) array(first, RESERVED)->pools[0].current = 1L << 62;
}

// Reads a command per line from the standard input, and answers each with a line.
int serve(int devices) {
    static Device *pointers[128], *first;
    char line[256];
    native.methods = malloc(64);
    memset(native.methods, 0, 64);
    native.methods = (char *)native.methods + 16;
    for (int at = 0; at < devices; at++) {
        pointers[at] = place(at);
        pthread_mutex_init(&pointers[at]->mutex, NULL);
#if LAYOUT == 215
        pointers[at]->map[0] = pointers, pointers[at]->map[1] = (void *)3, pointers[at]->map[2] = (void *)0x3f00000004;
#endif
    }
    native.begin = pointers, native.end = native.capacity = pointers + devices;
    while (fgets(line, sizeof line, stdin)) {
        int device = 0, pool = 0, part = 0;
        long segment = 0, block = 0, asked = 0, split = 0;
        char path[200];
        pthread_t thread;
        pid_t child;
        if (sscanf(line, "work %d %d %ld %ld %ld %ld %d", &device, &pool, &segment, &block, &asked, &split, &part) == 7) {
            work(pointers[device], pool, segment, block, asked, split, part);
            puts("done");
        } else if (sscanf(line, "steps %d %ld", &device, &block) == 2) {
            // The nanoseconds that the steps took: CPU time, and elapsed time.
            long cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID), elapsed = nanoseconds(CLOCK_MONOTONIC);
            for (long at = 0; at < block; at++) step(pointers[device]);
            printf("%ld %ld\n", nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu, nanoseconds(CLOCK_MONOTONIC) - elapsed);
        } else if (sscanf(line, "forge %d", &part) == 1) {
            static Device original;
            if (!first) first = pointers[0], original = *first;
            *first = original;
            forge(part, devices, pointers, first);
            puts("done");
        } else if (sscanf(line, "spin %d", &device) == 1) {
            printf("%d\n", pthread_create(&thread, NULL, spin, pointers[device]));
        } else if (!strcmp(line, "stir\n")) {
            printf("%d\n", pthread_create(&thread, NULL, stir, native.end));
        } else if (sscanf(line, "hang %d", &device) == 1) {
            printf("%d\n", hang(pointers[device]));
        } else if (!strcmp(line, "fork\n")) {
            if (!(child = fork())) for (prctl(PR_SET_PDEATHSIG, SIGKILL);;) pause();
            printf("%d\n", child);
        } else if (!strcmp(line, "orphan\n")) {
            // The child goes on reading commands. Its parent ends.
            if ((child = fork())) return printf("%d\n", child), 0;
            continue;
        } else if (sscanf(line, "thread %15s", path) == 1) {
            printf("%d\n", pthread_create(&thread, NULL, rest, strdup(path)));
        } else if (sscanf(line, "serve %199s", path) == 1) {
            // A forked child of a server, which closes the inherited file and opens it again, as a child does that initialises CUDA.
            int ready[2];
            if (pipe(ready)) abort();
            if (!(child = fork())) {
                struct stat is, file;
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (stat(path, &file)) abort();
                for (int at = 3; at < 64; at++) if (!fstat(at, &is) && is.st_ino == file.st_ino) close(at);
                if (open(path, O_RDONLY) < 0 || write(ready[1], "", 1) != 1) abort();
                for (;;) pause();
            }
            printf("%d\n", read(ready[0], line, 1) == 1 ? child : -1);
        } else if (sscanf(line, "exec %199s", path) == 1) {
            execl(path, path, "1000", NULL);
        } else if (sscanf(line, "stats %d", &device) == 1) {
            for (int stat = 0; stat < STATS; stat++) {
                Stat *all = array(pointers[device], stat)->pools;
                printf("%ld %ld ", (long)all->current, (long)all->peak);
            }
            puts("");
        }
        fflush(stdout);
    }
    return 0;
}
#endif
