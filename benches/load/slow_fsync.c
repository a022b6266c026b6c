/* Preloaded into a process, makes each flush of the disk last longer by SLOW_FSYNC_US microseconds: what a disk without a
   protected write cache costs. The file SLOW_FSYNC_COUNT grows by one byte with each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void count(void) {
    const char *path = getenv("SLOW_FSYNC_COUNT");
    int fd = path ? open(path, O_WRONLY | O_APPEND) : -1;
    if (fd < 0) return;
    if (write(fd, ".", 1) != 1) abort();
    close(fd);
}

static void wait_a_little(void) {
    const char *us = getenv("SLOW_FSYNC_US");
    if (us) usleep((useconds_t)atoi(us));
    count();
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_a_little();
    return real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_a_little();
    return real(fd);
}
