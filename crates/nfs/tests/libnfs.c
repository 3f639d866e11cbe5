/* Uses an NFS export by libnfs and checks every result. The argument is the libnfs URL of an empty export. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <nfsc/libnfs.h>

static struct nfs_context *nfs;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, nfs_get_error(nfs)); \
            exit(1); \
        } \
    } while (0)

enum { FILES = 2000 };

static void content(void)
{
    static char data[3 << 20], back[3 << 20];
    struct nfs_stat_64 stat;
    struct nfsfh *file;

    for (size_t at = 0; at < sizeof data; at++)
        data[at] = at * 31 >> 3;
    CHECK(nfs_creat(nfs, "/file", 0640, &file) == 0);
    for (size_t at = 0; at < sizeof data;) {
        size_t length = sizeof data - at < 700001 ? sizeof data - at : 700001;
        int written = nfs_pwrite(nfs, file, at, length, data + at);
        CHECK(written > 0);
        at += written;
    }
    CHECK(nfs_fsync(nfs, file) == 0);
    CHECK(nfs_close(nfs, file) == 0);
    CHECK(nfs_open(nfs, "/file", O_RDWR, &file) == 0);
    for (size_t at = 0; at < sizeof back;) {
        int got = nfs_pread(nfs, file, at, sizeof back - at, back + at);
        CHECK(got > 0);
        at += got;
    }
    CHECK(memcmp(data, back, sizeof data) == 0);
    CHECK(nfs_pwrite(nfs, file, 5ULL << 30, 3, "far") == 3);
    CHECK(nfs_fstat64(nfs, file, &stat) == 0);
    CHECK(stat.nfs_size == (5ULL << 30) + 3 && stat.nfs_used < (64 << 20));
    CHECK(nfs_ftruncate(nfs, file, 10) == 0);
    CHECK(nfs_close(nfs, file) == 0);
    CHECK(nfs_stat64(nfs, "/file", &stat) == 0);
    CHECK(stat.nfs_size == 10 && (stat.nfs_mode & 07777) == 0640);
    CHECK(nfs_open(nfs, "/file", O_CREAT | O_EXCL | O_RDWR, &file) == -EEXIST);
}

static void attributes(void)
{
    struct timeval times[2] = {{1000000000, 5}, {1100000000, 7}};
    struct nfs_stat_64 stat;
    struct statvfs space;

    CHECK(nfs_chmod(nfs, "/file", 0400) == 0);
    CHECK(nfs_access(nfs, "/file", 4) == 0);
    CHECK(nfs_utimes(nfs, "/file", times) == 0);
    CHECK(nfs_stat64(nfs, "/file", &stat) == 0);
    CHECK((stat.nfs_mode & 07777) == 0400);
    CHECK(stat.nfs_atime == 1000000000 && stat.nfs_mtime == 1100000000 && stat.nfs_mtime_nsec == 7000);
    CHECK(nfs_chown(nfs, "/file", 77777, -1) == -EPERM);
    CHECK(nfs_statvfs(nfs, "/", &space) == 0 && space.f_blocks > 0);
}

static void entries(void)
{
    struct nfs_stat_64 stat;
    char target[100];

    CHECK(nfs_mkdir2(nfs, "/dir", 0711) == 0);
    CHECK(nfs_mkdir(nfs, "/dir") == -EEXIST);
    CHECK(nfs_link(nfs, "/file", "/dir/second") == 0);
    CHECK(nfs_stat64(nfs, "/dir/second", &stat) == 0 && stat.nfs_nlink == 2);
    CHECK(nfs_symlink(nfs, "second", "/dir/link") == 0);
    CHECK(nfs_readlink(nfs, "/dir/link", target, sizeof target) == 0 && strcmp(target, "second") == 0);
    CHECK(nfs_lstat64(nfs, "/dir/link", &stat) == 0 && (stat.nfs_mode & S_IFMT) == S_IFLNK);
    CHECK(nfs_mknod(nfs, "/dir/pipe", S_IFIFO | 0600, 0) == 0);
    CHECK(nfs_mknod(nfs, "/dir/null", S_IFCHR | 0600, 0x103) < 0);
    CHECK(nfs_rename(nfs, "/dir/second", "/moved") == 0);
    CHECK(nfs_stat64(nfs, "/dir/second", &stat) == -ENOENT);
    CHECK(nfs_rmdir(nfs, "/dir") == -EEXIST || strstr(nfs_get_error(nfs), "NOTEMPTY"));
    CHECK(nfs_unlink(nfs, "/dir/link") == 0 && nfs_unlink(nfs, "/dir/pipe") == 0);
    CHECK(nfs_unlink(nfs, "/moved") == 0 && nfs_unlink(nfs, "/file") == 0);
}

static void listing(void)
{
    struct nfsdirent *entry;
    struct nfsdir *dir;
    struct nfsfh *file;
    char path[100];
    int count = 0;

    for (int number = 0; number < FILES; number++) {
        snprintf(path, sizeof path, "/dir/file-%d", number);
        CHECK(nfs_creat(nfs, path, 0600, &file) == 0 && nfs_close(nfs, file) == 0);
    }
    CHECK(nfs_opendir(nfs, "/dir", &dir) == 0);
    while ((entry = nfs_readdir(nfs, dir)))
        if (strncmp(entry->name, "file-", 5) == 0) {
            CHECK(entry->inode != 0 && (entry->mode & 07777) == 0600);
            count++;
        }
    nfs_closedir(nfs, dir);
    CHECK(count == FILES);
    for (int number = 0; number < FILES; number++) {
        snprintf(path, sizeof path, "/dir/file-%d", number);
        CHECK(nfs_unlink(nfs, path) == 0);
    }
    CHECK(nfs_rmdir(nfs, "/dir") == 0);
}

int main(int argc, char **argv)
{
    struct nfs_url *url;

    nfs = nfs_init_context();
    if (argc != 2 || !nfs)
        return 2;
    url = nfs_parse_url_dir(nfs, argv[1]);
    CHECK(url != NULL);
    CHECK(nfs_mount(nfs, url->server, url->path) == 0);
    content();
    attributes();
    entries();
    listing();
    nfs_destroy_url(url);
    nfs_destroy_context(nfs);
    return 0;
}
