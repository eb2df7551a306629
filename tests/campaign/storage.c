/* Simulates slow or failing storage: calls of the C library on files of one folder wait, or fail
 * from a given call on. Python, Orbax and TensorStore make these calls. Calls of stdio inside the C
 * library are not intercepted. faults.py preloads this library and configures it by environment
 * variables:
 *
 *   STORAGE_FOLDER  the folder, as an absolute path
 *   STORAGE_WAIT    largest delay of a call, in microseconds
 *   STORAGE_ERROR   errno of failing calls
 *   STORAGE_FIRST   number of the first failing call in a process
 *   STORAGE_TIMES   number of failing calls
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *folder;
static long first, times, error, most;
static atomic_long calls;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

__attribute__((constructor)) static void begin(void) {
    first = number("STORAGE_FIRST");
    times = number("STORAGE_TIMES");
    error = number("STORAGE_ERROR");
    most = number("STORAGE_WAIT");
    folder = getenv("STORAGE_FOLDER");
}

/* Returns whether a call on this path fails. */
static int fails(const char *path) {
    if (!folder || !path || strncmp(path, folder, strlen(folder))) return 0;
    long call = ++calls;
    if (most) usleep(call * 7919 % most);
    if (!error || call < first || call - first >= times) return 0;
    errno = error;
    return 1;
}

static int fails_of(int file) {
    char link[64], path[PATH_MAX + 1];
    if (!folder) return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, PATH_MAX);
    errno = before;
    path[size < 0 ? 0 : size] = 0;
    return fails(path);
}

/* Defines result name(parameters), which evaluates `call` unless `failing`. */
#define HURT(result, name, parameters, failing, call)                                              \
    result name parameters {                                                                       \
        static result(*real) parameters;                                                           \
        if (!real) real = dlsym(RTLD_NEXT, #name);                                                 \
        return (failing) ? -1 : real call;                                                         \
    }

HURT(ssize_t, read, (int file, void *to, size_t size), fails_of(file), (file, to, size))
HURT(ssize_t, write, (int file, const void *of, size_t size), fails_of(file), (file, of, size))
HURT(ssize_t, pread, (int file, void *to, size_t size, off_t at), fails_of(file),
     (file, to, size, at))
HURT(ssize_t, pread64, (int file, void *to, size_t size, off64_t at), fails_of(file),
     (file, to, size, at))
HURT(ssize_t, pwrite, (int file, const void *of, size_t size, off_t at), fails_of(file),
     (file, of, size, at))
HURT(ssize_t, pwrite64, (int file, const void *of, size_t size, off64_t at), fails_of(file),
     (file, of, size, at))
HURT(int, fsync, (int file), fails_of(file), (file))
HURT(int, fdatasync, (int file), fails_of(file), (file))
HURT(int, ftruncate, (int file, off_t size), fails_of(file), (file, size))
HURT(int, ftruncate64, (int file, off64_t size), fails_of(file), (file, size))
HURT(int, rename, (const char *path, const char *to), fails(to), (path, to))
HURT(int, mkdir, (const char *path, mode_t mode), fails(path), (path, mode))
HURT(int, stat, (const char *path, struct stat *found), fails(path), (path, found))
HURT(int, stat64, (const char *path, struct stat64 *found), fails(path), (path, found))

#define HURT_OPEN(name)                                                                            \
    int name(const char *path, int flags, ...) {                                                   \
        static int (*real)(const char *, int, ...);                                                \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = va_arg(more, mode_t);                                                        \
        va_end(more);                                                                              \
        if (!real) real = dlsym(RTLD_NEXT, #name);                                                 \
        return fails(path) ? -1 : real(path, flags, mode);                                         \
    }

#define HURT_OPENAT(name)                                                                          \
    int name(int at, const char *path, int flags, ...) {                                           \
        static int (*real)(int, const char *, int, ...);                                           \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = va_arg(more, mode_t);                                                        \
        va_end(more);                                                                              \
        if (!real) real = dlsym(RTLD_NEXT, #name);                                                 \
        return fails(path) ? -1 : real(at, path, flags, mode);                                     \
    }

HURT_OPEN(open)
HURT_OPEN(open64)
HURT_OPENAT(openat)
HURT_OPENAT(openat64)
