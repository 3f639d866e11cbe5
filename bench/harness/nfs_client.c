/* Makes one kind of call to an NFS server, by libnfs: `nfs_client URL ROW COUNT`.
 *
 * Prints `ready` when it is mounted and everything is prepared, waits for a line, prints the seconds of the calls, and
 * waits for another line before it disconnects: so the time of the server's threads can be read in between. */

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <nfsc/libnfs.h>

enum { BLOCK = 1 << 20, LISTED = 10000 };

static struct nfs_context *nfs;
static char *data;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, nfs_get_error(nfs)); \
            exit(1); \
        } \
    } while (0)

static void create(const char *path)
{
    struct nfsfh *file;
    CHECK(nfs_creat(nfs, path, 0600, &file) == 0 && nfs_close(nfs, file) == 0);
}

static const char *name(const char *dir, const char *kind, int number)
{
    static char names[2][200];
    static int turn;
    turn = !turn;
    snprintf(names[turn], sizeof names[turn], "%s/%s-%d", dir, kind, number);
    return names[turn];
}

static void call(const char *row, const char *dir, int number, struct nfsfh *file)
{
    struct nfs_stat_64 stat;

    if (strcmp(row, "create") == 0)
        create(name(dir, "c", number));
    else if (strcmp(row, "stat") == 0)
        CHECK(nfs_stat64(nfs, name(dir, "f", number % 1000), &stat) == 0);
    else if (strcmp(row, "rename") == 0)
        CHECK(nfs_rename(nfs, name(dir, number % 2 ? "b" : "a", number / 2), name(dir, number % 2 ? "a" : "b", number / 2)) == 0);
    else if (strcmp(row, "symlink") == 0)
        CHECK(nfs_symlink(nfs, "target", name(dir, "s", number)) == 0);
    else if (strcmp(row, "unlink") == 0)
        CHECK(nfs_unlink(nfs, name(dir, "u", number)) == 0);
    else if (strcmp(row, "write") == 0)
        CHECK(nfs_pwrite(nfs, file, (uint64_t)number * BLOCK, BLOCK, data) == BLOCK);
    else if (strcmp(row, "read") == 0)
        CHECK(nfs_pread(nfs, file, (uint64_t)number * BLOCK, BLOCK, data) == BLOCK);
    else if (strcmp(row, "readdir") == 0) {
        struct nfsdir *listing;
        int entries = 0;
        CHECK(nfs_opendir(nfs, dir, &listing) == 0);
        while (nfs_readdir(nfs, listing))
            entries++;
        nfs_closedir(nfs, listing);
        CHECK(entries >= LISTED);
    } else
        CHECK(!"known row");
}

static struct nfsfh *prepare(const char *row, const char *dir, int count)
{
    struct nfsfh *file = NULL;
    const char *big = name(dir, "big", 0);

    CHECK(nfs_mkdir(nfs, dir) == 0);
    for (int number = 0; strcmp(row, "stat") == 0 && number < 1000; number++)
        create(name(dir, "f", number));
    for (int number = 0; strcmp(row, "rename") == 0 && number < (count + 1) / 2; number++)
        create(name(dir, "a", number));
    for (int number = 0; strcmp(row, "unlink") == 0 && number < count; number++)
        create(name(dir, "u", number));
    for (int number = 0; strcmp(row, "readdir") == 0 && number < LISTED; number++)
        create(name(dir, "l", number));
    if (strcmp(row, "write") == 0 || strcmp(row, "read") == 0) {
        data = malloc(BLOCK);
        memset(data, 7, BLOCK);
        create(big);
        CHECK(nfs_open(nfs, big, O_RDWR, &file) == 0);
    }
    for (int number = 0; strcmp(row, "read") == 0 && number < count; number++)
        CHECK(nfs_pwrite(nfs, file, (uint64_t)number * BLOCK, BLOCK, data) == BLOCK);
    return file;
}

int main(int argc, char **argv)
{
    struct timespec begin, end;
    struct nfs_url *url;
    struct nfsfh *file;
    char dir[100], line[10];
    int count;

    nfs = nfs_init_context();
    if (argc != 4 || !nfs)
        return 2;
    /* Otherwise only the first listing of a directory reaches the server. */
    nfs_set_dircache(nfs, 0);
    count = atoi(argv[3]);
    url = nfs_parse_url_dir(nfs, argv[1]);
    CHECK(url && nfs_mount(nfs, url->server, url->path) == 0);
    snprintf(dir, sizeof dir, "/bench-%s-%d", argv[2], getpid());
    file = prepare(argv[2], dir, count);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int number = 0; number < count; number++)
        call(argv[2], dir, number, file);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.6f\n", end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9);
    fflush(stdout);
    return fgets(line, sizeof line, stdin) ? 0 : 1;
}
