/* A device, or a person's share of one, that is full when it is told to be: calls that need room below one folder fail.

   cc -shared -fPIC -O1 -o full.so full.c -ldl, then LD_PRELOAD=full.so; `full_from` says at which call, and how.
   As on a disk over quota what is there can be read, renamed and removed. Over NFS the error comes with close or fsync. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char below[PATH_MAX];
static atomic_long calls;
static long from = -1;
static int with = ENOSPC, late = 0;

/* Calls since the last time; from now on the one numbered `first` and all after it fail, none where that is negative;
   where `at_sync`, writing goes well, and what fails is to sync or to close. */
long full_from(const char *folder, long first, int error, int at_sync) {
    long before = atomic_exchange(&calls, 0);
    strncpy(below, folder, sizeof below - 1);
    from = first, with = error, late = at_sync;
    return before;
}

static int refused(const char *path, int syncs) {
    size_t length = strlen(below);
    if (!length || syncs < late || (!late && syncs > 1) || strncmp(path, below, length)) return 0;
    long mine = atomic_fetch_add(&calls, 1);
    if (from < 0 || mine < from) return 0;
    errno = with;
    return 1;
}

static int refused_file(int file, int syncs) {
    char link[64], path[PATH_MAX];
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = below[0] ? readlink(link, path, sizeof path - 1) : -1;
    if (length < 0) return errno = kept, 0;
    path[length] = 0;
    return refused(path, syncs);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITES(name, declared, ...) \
    ssize_t name declared { return refused_file(file, 0) ? -1 : REAL(name)(file, __VA_ARGS__); }
#define SYNCS(name) int name(int file) { return refused_file(file, 1) ? -1 : REAL(name)(file); }
#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; va_end(more); \
        if (flags & O_CREAT && access(path, F_OK) && refused(path, 0)) return -1; \
        return REAL(name)(path, flags, mode); }

WRITES(write, (int file, const void *data, size_t size), data, size)
WRITES(pwrite, (int file, const void *data, size_t size, off_t at), data, size, at)
WRITES(pwrite64, (int file, const void *data, size_t size, off64_t at), data, size, at)
WRITES(writev, (int file, const struct iovec *data, int count), data, count)
WRITES(pwritev, (int file, const struct iovec *data, int count, off_t at), data, count, at)
WRITES(pwritev64, (int file, const struct iovec *data, int count, off64_t at), data, count, at)
int fallocate(int file, int mode, off_t at, off_t size) {
    return refused_file(file, 0) ? -1 : REAL(fallocate)(file, mode, at, size); }
SYNCS(fsync)
SYNCS(fdatasync)
SYNCS(syncfs)
OPENS(open)
OPENS(open64)

int close(int file) {
    int writable = below[0] && late && (fcntl(file, F_GETFL) & O_ACCMODE) != O_RDONLY;
    int told = writable && refused_file(file, 2), why = errno;
    int closed = REAL(close)(file);
    return told ? errno = why, -1 : closed;
}

int mkdir(const char *path, mode_t mode) {
    return access(path, F_OK) && refused(path, 0) ? -1 : REAL(mkdir)(path, mode);
}

int link(const char *old, const char *new) { return refused(new, 0) ? -1 : REAL(link)(old, new); }
