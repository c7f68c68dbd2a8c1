// SPDX-License-Identifier: Apache-2.0
// Counts the calls of one process group that change files below SCOPE, over all of its processes,
// and spoils them from a point on.  Loaded by ld.so.preload; STATE and SCOPE are given by cc -D.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { COUNT, EIO_ONCE, FULL, KILL };
static struct state { int group, count, point, mode, fired; } *state;

__attribute__((constructor)) static void begin(void) {
    int fd = syscall(SYS_openat, AT_FDCWD, STATE, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return;
    state = mmap(0, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (state == MAP_FAILED) state = 0;
    syscall(SYS_close, fd);
}

// Whether this is about SCOPE: an absolute path, or one below an open folder, or an open file.
static int ours(int fd, const char *path) {
    char name[64], real[4096];
    if (path && *path == '/') return !strncmp(path, SCOPE, strlen(SCOPE));
    if (fd == AT_FDCWD) snprintf(name, sizeof name, "/proc/self/cwd");
    else snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlink, name, real, sizeof real - 1);
    if (length < 0) return 0;
    real[length] = 0;
    return !strncmp(real, SCOPE, strlen(SCOPE));
}

// Whether the call fails now; `needs` is whether it takes space on the disk.
static int spoiled(int fd, const char *path, int needs) {
    int before = errno;
    if (!state || state->group != getpgrp() || !ours(fd, path)) return errno = before, 0;
    errno = before;
    int number = __sync_add_and_fetch(&state->count, 1);
    if (state->mode == COUNT || number < state->point) return 0;
    if (state->mode == FULL && needs) return state->fired = 1, errno = ENOSPC, 1;
    if (state->mode == FULL || number != state->point) return 0;
    state->fired = 1;
    if (state->mode == EIO_ONCE) return errno = EIO, 1;
    kill(0, SIGKILL);
    for (;;) pause();
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define WRAP(type, name, params, words, fd, path, needs) \
    type name params { REAL(name); return spoiled(fd, path, needs) ? -1 : real words; }
#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list)
#define OPEN(name) int name(const char *path, int flags, ...) { REAL(name); MODE; \
    return WRITES(flags) && spoiled(AT_FDCWD, path, flags & O_CREAT) ? -1 : real(path, flags, mode); }
#define OPENAT(name) int name(int at, const char *path, int flags, ...) { REAL(name); MODE; \
    return WRITES(flags) && spoiled(at, path, flags & O_CREAT) ? -1 : real(at, path, flags, mode); }
#define FOPEN(name) FILE *name(const char *path, const char *how) { REAL(name); \
    return *how != 'r' && spoiled(AT_FDCWD, path, 1) ? 0 : real(path, how); }

OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64) FOPEN(fopen) FOPEN(fopen64)
WRAP(ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n), fd, 0, 1)
WRAP(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o), fd, 0, 1)
WRAP(ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o), fd, 0, 1)
WRAP(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), fd, 0, 1)
WRAP(ssize_t, copy_file_range, (int a, off64_t *x, int b, off64_t *y, size_t n, unsigned f), (a, x, b, y, n, f), b, 0, 1)
WRAP(ssize_t, sendfile, (int b, int a, off_t *x, size_t n), (b, a, x, n), b, 0, 1)
WRAP(ssize_t, sendfile64, (int b, int a, off64_t *x, size_t n), (b, a, x, n), b, 0, 1)
WRAP(int, fallocate, (int fd, int m, off_t o, off_t n), (fd, m, o, n), fd, 0, 1)
WRAP(int, ftruncate, (int fd, off_t n), (fd, n), fd, 0, 0)
WRAP(int, ftruncate64, (int fd, off64_t n), (fd, n), fd, 0, 0)
WRAP(int, truncate, (const char *a, off_t n), (a, n), AT_FDCWD, a, 0)
WRAP(int, truncate64, (const char *a, off64_t n), (a, n), AT_FDCWD, a, 0)
WRAP(int, fsync, (int fd), (fd), fd, 0, 0)
WRAP(int, fdatasync, (int fd), (fd), fd, 0, 0)
WRAP(int, syncfs, (int fd), (fd), fd, 0, 0)
WRAP(int, rename, (const char *a, const char *b), (a, b), AT_FDCWD, b, 0)
WRAP(int, renameat, (int x, const char *a, int y, const char *b), (x, a, y, b), y, b, 0)
WRAP(int, renameat2, (int x, const char *a, int y, const char *b, unsigned f), (x, a, y, b, f), y, b, 0)
WRAP(int, link, (const char *a, const char *b), (a, b), AT_FDCWD, b, 1)
WRAP(int, linkat, (int x, const char *a, int y, const char *b, int f), (x, a, y, b, f), y, b, 1)
WRAP(int, symlink, (const char *a, const char *b), (a, b), AT_FDCWD, b, 1)
WRAP(int, symlinkat, (const char *a, int y, const char *b), (a, y, b), y, b, 1)
WRAP(int, unlink, (const char *a), (a), AT_FDCWD, a, 0)
WRAP(int, unlinkat, (int x, const char *a, int f), (x, a, f), x, a, 0)
WRAP(int, mkdir, (const char *a, mode_t m), (a, m), AT_FDCWD, a, 1)
WRAP(int, mkdirat, (int x, const char *a, mode_t m), (x, a, m), x, a, 1)
WRAP(int, mknod, (const char *a, mode_t m, dev_t d), (a, m, d), AT_FDCWD, a, 1)
WRAP(int, mknodat, (int x, const char *a, mode_t m, dev_t d), (x, a, m, d), x, a, 1)
WRAP(int, rmdir, (const char *a), (a), AT_FDCWD, a, 0)
WRAP(int, chmod, (const char *a, mode_t m), (a, m), AT_FDCWD, a, 0)
WRAP(int, fchmod, (int fd, mode_t m), (fd, m), fd, 0, 0)
WRAP(int, fchmodat, (int x, const char *a, mode_t m, int f), (x, a, m, f), x, a, 0)
WRAP(int, chown, (const char *a, uid_t u, gid_t g), (a, u, g), AT_FDCWD, a, 0)
WRAP(int, lchown, (const char *a, uid_t u, gid_t g), (a, u, g), AT_FDCWD, a, 0)
WRAP(int, fchown, (int fd, uid_t u, gid_t g), (fd, u, g), fd, 0, 0)
WRAP(int, fchownat, (int x, const char *a, uid_t u, gid_t g, int f), (x, a, u, g, f), x, a, 0)
WRAP(int, futimens, (int fd, const struct timespec *t), (fd, t), fd, 0, 0)
WRAP(int, utimensat, (int x, const char *a, const struct timespec *t, int f), (x, a, t, f), x, a, 0)
int setxattr(const char *, const char *, const void *, size_t, int);
int lsetxattr(const char *, const char *, const void *, size_t, int);
int fsetxattr(int, const char *, const void *, size_t, int);
WRAP(int, setxattr, (const char *a, const char *k, const void *v, size_t n, int f), (a, k, v, n, f), AT_FDCWD, a, 1)
WRAP(int, lsetxattr, (const char *a, const char *k, const void *v, size_t n, int f), (a, k, v, n, f), AT_FDCWD, a, 1)
WRAP(int, fsetxattr, (int fd, const char *k, const void *v, size_t n, int f), (fd, k, v, n, f), fd, 0, 1)
