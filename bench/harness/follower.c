/*
 * Reads a project again and again, as a program in a sandbox that follows it, and notes what it sees.
 *
 *   follower MILLISECONDS FILE
 *
 * Appends lines to FILE: `seen N TIME` when /workspace/turn.txt has another number (TIME in nanoseconds since 1970),
 * `missing PATH ERRNO` when something cannot be opened, `mixed A B` when two files below one open directory, which always
 * change together, differ.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static FILE *out;

static long number_of(int directory, const char *path)
{
    char text[32];
    int file = openat(directory, path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);

    if (length < 0) {
        fprintf(out, "missing %s %d\n", path, errno);
        if (file >= 0)
            close(file);
        return -1;
    }
    close(file);
    text[length] = 0;
    return atol(text);
}

static void compare_pair(void)
{
    int directory = open("/workspace/pair", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long a, b;

    if (directory < 0) {
        fprintf(out, "missing pair %d\n", errno);
        return;
    }
    a = number_of(directory, "a");
    b = number_of(directory, "b");
    if (a != b)
        fprintf(out, "mixed %ld %ld\n", a, b);
    close(directory);
}

int main(int count, char **words)
{
    long interval = count == 3 ? atol(words[1]) : -1, last = -1;
    unsigned long turn = 0;
    struct timespec pause = {interval / 1000, interval % 1000 * 1000000}, now;

    if (interval < 0 || (out = fopen(words[2], "a")) == NULL)
        return 2;
    setvbuf(out, NULL, _IOLBF, 0);
    for (;; turn++) {
        long number = number_of(AT_FDCWD, "/workspace/turn.txt");

        if (number >= 0 && number != last) {
            clock_gettime(CLOCK_REALTIME, &now);
            fprintf(out, "seen %ld %lld%09ld\n", number, (long long)now.tv_sec, now.tv_nsec);
            last = number;
            compare_pair();
        } else if (turn % 4 == 0) {
            compare_pair();
        }
        nanosleep(&pause, NULL);
    }
}
