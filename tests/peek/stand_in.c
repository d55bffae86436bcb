// A process with the allocator of PyTorch, as far as one sees it from outside: the exported symbol, the
// object with its vector of devices, and each device's books. Built twice from this file: with PROGRAM, a
// program that loads the library and keeps a file open; without it, the library, which does as it is told.
//
//   LAYOUT 21: torch 2.1.  25: 2.5 to 2.11.  215: 2.15.  0: a library that is older, and exports nothing.
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
    for (int at = 3; at < count; at++) if (open(words[at], O_RDONLY) < 0) return perror(words[at]), 2;
    void *library = count > 3 ? dlopen(words[1], RTLD_NOW) : NULL;
    int (*serve)(int) = library ? (int (*)(int))dlsym(library, "serve") : NULL;
    if (!serve) return fprintf(stderr, "%s\n", dlerror()), 2;
    return serve(atoi(words[2]));
}

#else
enum { ALLOCATIONS, SEGMENTS, ACTIVE_BLOCKS, SPLIT_BLOCKS, ALLOCATED, RESERVED, ACTIVE, SPLIT, REQUESTED, BOOKS };

enum { ROOM = 16384 };

typedef struct { int64_t current, peak, added, taken; } Stat;
typedef struct { Stat pools[3]; } Array;
typedef struct {
    pthread_mutex_t mutex;
    Array first[ACTIVE];
#if LAYOUT == 215
    void *map[4];
#endif
    Array second[BOOKS - ACTIVE];
    int64_t retries, ooms;
    // As large as PyTorch's.
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

static Array *array(Device *it, int book) { return book < ACTIVE ? &it->first[book] : &it->second[book - ACTIVE]; }

static void change(Device *it, int book, int pool, int64_t amount) {
    Stat *stat = &array(it, book)->pools[pool];
    stat->current += amount;
    if (stat->current > stat->peak) stat->peak = stat->current;
    if (amount > 0) stat->added += amount; else stat->taken -= amount;
}

// Changes one or more books at once, as PyTorch does: with its mutex held, and in its order, all of a kind before those of
// the pool. PART 1: a block that another stream still uses was freed; 2: that stream is done.
static void work(Device *it, int pool, int64_t segment, int64_t block, int64_t asked, int64_t split, int part) {
    int one = asked > 0 ? 1 : -1, pools[2] = {0, pool};
    pthread_mutex_lock(&it->mutex);
    for (int at = 0; at < 2 && segment; at++) {
        change(it, SEGMENTS, pools[at], segment > 0 ? 1 : -1);
        change(it, RESERVED, pools[at], segment);
    }
    for (int at = 0; at < 2 && split; at++) change(it, SPLIT, pools[at], split);
    for (int at = 0; at < 2 && asked; at++) {
        if (part != 2) change(it, ALLOCATIONS, pools[at], one), change(it, ALLOCATED, pools[at], block);
        if (part == 1) continue;
        change(it, ACTIVE_BLOCKS, pools[at], one);
        change(it, ACTIVE, pools[at], block);
        change(it, REQUESTED, pools[at], asked);
    }
    pthread_mutex_unlock(&it->mutex);
}

// Hands out a block, or takes it back.
static void turn(Device *it, int sign) { work(it, 2, 0, sign * 1024, sign * 1000, sign * -1024, 0); }

// In bursts, as a trainer that hands its work to the GPU: many blocks in a row, and then some time without. After each
// burst there is a block more, or the one less.
static void *spin(void *it) {
    struct timespec pause = {0, 50000};
    for (int sign = 1;; sign = -sign, nanosleep(&pause, NULL)) {
        for (int at = 0; at < 100; at++) turn(it, sign), turn(it, -sign);
        turn(it, sign);
    }
    return NULL;
}

// All that are in use, at a pace at which whoever looks each tenth of a second finds each changed, and none changing.
static void *stir(void *end) {
    struct timespec pause = {0, 30000000};
    for (;; nanosleep(&pause, NULL)) {
        for (Device **it = native.begin; it < (Device **)end; it++) {
            if (array(*it, RESERVED)->pools->peak) turn(*it, 1), turn(*it, -1);
        }
    }
    return NULL;
}

static long nanoseconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

// A step of training, as far as the host has to do with it: blocks come and go, and memory is mapped and given back.
static void step(Device *it) {
    enum { SIZE = 1 << 20 };
    for (int at = 0; at < 5000; at++) turn(it, 1), turn(it, -1);
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    memset(memory, 1, SIZE);
    munmap(memory, SIZE);
}

// Room for a device: they lie apart, as in PyTorch, with much else in between. Few lie across two pages.
static Device *place(int at) {
    char *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) abort();
    return (Device *)(room + at * 520 % 4096);
}

// Makes of a device's memory one that whoever looks at it waits for, without end. Not everyone may.
static int hang(Device *it) {
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register room = {.range = {(uintptr_t)it & ~4095UL, ROOM}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    int handle = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (handle < 0 || ioctl(handle, UFFDIO_API, &api) || ioctl(handle, UFFDIO_REGISTER, &room)) return -1;
    return madvise((void *)(uintptr_t)room.range.start, ROOM, MADV_DONTNEED);
}

// Makes of the way to the books what a hostile process would, and of 0 what it was.
static void forge(int how, int devices, Device **pointers, Device *first) {
    native.begin = pointers, native.end = native.capacity = pointers + devices;
    pointers[0] = first;
#if LAYOUT != 0
    allocator = &native;
    if (how == 1) allocator = (Allocator *)8;
    // A circle: the object is its own vector, and that its own device.
    if (how == 2) native.begin = (Device **)&native.begin, native.end = native.capacity = native.begin + 1;
#endif
    // A vector of a billion, a device that is nowhere, and one of which all but the start lies beyond the memory.
    if (how == 3) native.end = native.capacity = native.begin + (1 << 30);
    if (how == 4) pointers[0] = (Device *)0x7000;
    if (how == 5) {
        char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED || munmap(page + 4096, 4096)) abort();
        pointers[0] = (Device *)(page + 4096 - 64);
    }
    // Books that break the rules: less than nothing is held, and more than there is.
    if (how == 6) array(first, ALLOCATED)->pools[0].current = -1;
    if (how == 7) array(first, RESERVED)->pools[0].current = 1L << 62;
}

// One line on the standard input is one thing to do; a line comes back when it is done.
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
            // Nanoseconds of so many steps: computed, and by the clock.
            long computed = nanoseconds(CLOCK_THREAD_CPUTIME_ID), passed = nanoseconds(CLOCK_MONOTONIC);
            for (long at = 0; at < block; at++) step(pointers[device]);
            printf("%ld %ld\n", nanoseconds(CLOCK_THREAD_CPUTIME_ID) - computed, nanoseconds(CLOCK_MONOTONIC) - passed);
        } else if (sscanf(line, "forge %d", &part) == 1) {
            static Device right;
            if (!first) first = pointers[0], right = *first;
            *first = right;
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
        } else if (sscanf(line, "serve %199s", path) == 1) {
            // A server's child, which opens that file in the place of the one that was left to it.
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
        } else if (sscanf(line, "books %d", &device) == 1) {
            for (int book = 0; book < BOOKS; book++) {
                Stat *all = array(pointers[device], book)->pools;
                printf("%ld %ld ", (long)all->current, (long)all->peak);
            }
            puts("");
        }
        fflush(stdout);
    }
    return 0;
}
#endif
