/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memfd backend: memory of this process, without privilege. One sparse
 * memfd and one mapping per memory. Pages come by fallocate, ahead of use and
 * with their page-table entries, so that touching them neither faults nor
 * raises a signal. Protection is F_SEAL_WRITE, for publication only.
 *
 * Called by the front under mem->lock (or with the memory unreachable).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/kv/kvpool_local.h"

enum {
	/* A signal makes fallocate start again: pieces of this size go forward all the same. */
	STEP_BYTES = 16 << 20,
	ALL_SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
};

static int memfd_open(struct kvpool_local *pool,
		      const struct kvpool_options *options)
{
	unsigned long allowed[16] = { 0 };

	pool->base.page_bytes = KVPOOL_PAGE_BYTES;
	if (options->name)
		return -EOPNOTSUPP;
	if (!options->node_mask)
		return 0;
	if (syscall(SYS_get_mempolicy, NULL, allowed, sizeof(allowed) * 8, NULL,
		    MPOL_F_MEMS_ALLOWED))
		return -errno;
	pool->node_mask = options->node_mask & allowed[0];
	return pool->node_mask ? 0 : -EINVAL;
}

/* Map the whole file; over the old range where there is one. */
static int map_file(struct kvpool_mem *mem, int fd, int prot)
{
	int flags = MAP_SHARED | MAP_NORESERVE | (mem->addr ? MAP_FIXED : 0);
	void *addr = kvpool_sys.mmap(mem->addr, mem->class_bytes, prot, flags,
				     fd, 0);

	if (addr == MAP_FAILED)
		return -errno;
	mem->addr = addr;
	return 0;
}

static int make_file(struct kvpool_mem *mem)
{
	struct rlimit limit;

	/* Growing a file beyond this raises SIGXFSZ, which would kill the process. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) &&
	    limit.rlim_cur < mem->class_bytes)
		return -ENOMEM;
	int fd = kvpool_sys.memfd_create("kvpool",
					 MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (kvpool_is_fd_beyond_share(fd)) {
		close(fd);
		return -EMFILE;
	}
	int err = ftruncate(fd, (off_t)mem->class_bytes) ? -errno : 0;

	if (!err)
		err = map_file(mem, fd, PROT_READ | PROT_WRITE);
	if (err) {
		close(fd);
		return err;
	}
	mem->fd = fd;
	if (mem->pool->node_mask) {
		unsigned long mask = mem->pool->node_mask;

		/* Of the file, so that fallocate follows it. Best effort: a node may be offline. */
		syscall(SYS_mbind, mem->addr, mem->class_bytes, MPOL_BIND,
			&mask, 64ul, 0u);
	}
	return 0;
}

/* Addresses have no base here that a stride could count from. */
static int memfd_create_mem(struct kvpool_mem *mem, uint64_t stride_bytes)
{
	return stride_bytes ? -EOPNOTSUPP : make_file(mem);
}

static void memfd_destroy(struct kvpool_mem *mem)
{
	if (mem->addr)
		munmap(mem->addr, mem->class_bytes);
	if (mem->fd >= 0)
		close(mem->fd);
	mem->addr = NULL;
	mem->fd = -1;
}

static int punch(int fd, uint64_t offset, uint64_t len)
{
	int err;

	do {
		err = kvpool_sys.fallocate(
			fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)offset, (off_t)len);
	} while (err && errno == EINTR);
	return err ? -errno : 0;
}

static int64_t memfd_punch(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	uint64_t gone = kvpool_map_count(mem->present, first, end);
	int err = mem->fd < 0 ? 0 :
				punch(mem->fd, first * KVPOOL_PAGE_BYTES,
				      (end - first) * KVPOOL_PAGE_BYTES);

	if (err)
		return err;
	kvpool_map_set(mem->present, first, end, false);
	return (int64_t)gone;
}

/* Page-table entries for pages that fallocate has made. */
static void fault_in(uint8_t *addr, uint64_t len)
{
	if (!madvise(addr, len, MADV_POPULATE_WRITE))
		return;
	/* Before Linux 5.14: touch them. Nobody else writes here yet. */
	for (uint64_t i = 0; i < len; i += KVPOOL_PAGE_BYTES) {
		volatile uint8_t *byte = addr + i;

		*byte = *byte;
	}
}

/* Pages that are all absent. */
static int fill(struct kvpool_mem *mem, uint64_t offset, uint64_t len)
{
	uint64_t done = 0;
	int err = 0;

	while (!err && done < len) {
		uint64_t step = len - done < STEP_BYTES ? len - done :
							  STEP_BYTES;

		if (!kvpool_sys.fallocate(mem->fd, 0, (off_t)(offset + done),
					  (off_t)step))
			done += step;
		else if (errno != EINTR)
			err = -errno;
	}
	if (err) {
		if (done)
			punch(mem->fd, offset, done);
		/* The pool's limit is -ENOSPC; here it is the system that has no more. */
		return err == -ENOSPC ? -ENOMEM : err;
	}
	fault_in(mem->addr + offset, len);
	return 0;
}

static int memfd_populate(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	uint64_t page = first, len;
	int err = mem->fd < 0 ? make_file(mem) : 0;

	if (err)
		return err;
	for (; (len = kvpool_map_run(NULL, mem->present, &page, end));
	     page += len) {
		err = fill(mem, page * KVPOOL_PAGE_BYTES,
			   len * KVPOOL_PAGE_BYTES);
		if (!err)
			continue;
		/* All or nothing: the runs before this one go again. */
		uint64_t undo = first;

		for (; (len = kvpool_map_run(NULL, mem->present, &undo, page));
		     undo += len)
			punch(mem->fd, undo * KVPOOL_PAGE_BYTES,
			      len * KVPOOL_PAGE_BYTES);
		return err;
	}
	kvpool_map_set(mem->present, first, end, true);
	return 0;
}

/*
 * Reopened read-only and mapped over the old range: then no writable mapping is left and the
 * write seal is granted. Readers see the same bytes at the same addresses all along.
 */
static int memfd_protect(struct kvpool_mem *mem)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", mem->fd);
	int fd = kvpool_sys.open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	int err = map_file(mem, fd, PROT_READ);

	if (!err && kvpool_sys.add_seals(mem->fd, ALL_SEALS)) {
		err = -errno;
		/* As before; if even that fails, the range stays readable. */
		map_file(mem, mem->fd, PROT_READ | PROT_WRITE);
	}
	if (err) {
		close(fd);
		return err;
	}
	close(mem->fd);
	mem->fd = fd;
	/* The new page table is empty: fill it here rather than on the readers' path. */
	madvise(mem->addr,
		kvpool_to_pages(mem, mem->sealed_n) * KVPOOL_PAGE_BYTES,
		MADV_POPULATE_READ);
	return 0;
}

/* Of protected memory the file goes; the range stays reserved. */
static int discard(struct kvpool_mem *mem)
{
	void *addr = kvpool_sys.mmap(
		mem->addr, mem->class_bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	if (addr == MAP_FAILED)
		return -errno;
	close(mem->fd);
	mem->fd = -1;
	return 0;
}

static int64_t memfd_purge(struct kvpool_mem *mem)
{
	uint64_t end = kvpool_nr_pages(mem);
	uint64_t gone = kvpool_map_count(mem->present, 0, end);

	if (!mem->is_protected)
		return memfd_punch(mem, 0, end);
	int err = discard(mem);

	if (err)
		return err;
	kvpool_map_set(mem->present, 0, end, false);
	return (int64_t)gone;
}

static int memfd_zero(struct kvpool_mem *mem, uint64_t offset, uint64_t len)
{
	memset(mem->addr + offset, 0, len);
	return 0;
}

static int memfd_copy(struct kvpool_mem *to, struct kvpool_mem *from,
		      uint64_t n)
{
	memcpy(to->addr, from->addr, n);
	return 0;
}

static int memfd_export(struct kvpool_mem *mem)
{
	int fd = fcntl(mem->fd, F_DUPFD_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

static int map_import(struct kvpool_mem *mem, int fd)
{
	int err;

	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	err = map_file(mem, fd, PROT_READ);
	if (err) {
		close(fd);
		return err;
	}
	mem->fd = fd;
	return 0;
}

/* Of this kind no stride is asked for: the pool has no base. */
static int memfd_import(struct kvpool_local *pool, int fd,
			uint64_t stride_bytes, struct kvpool_mem **out_mem)
{
	static const int wanted = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	struct kvpool_mem *mem;
	struct stat st;

	(void)stride_bytes;
	/* A file that could shrink would raise SIGBUS here; one that can be written would lie. */
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &st) ||
	    st.st_size <= 0 || st.st_size % KVPOOL_PAGE_BYTES)
		return -EINVAL;
	mem = kvpool_mem_alloc(pool, (uint64_t)st.st_size);
	if (!mem)
		return -ENOMEM;
	/* Exactly the file: the class of a size may be larger, and past its end is SIGBUS. */
	mem->class_bytes = mem->size_bytes;
	mem->owner = st.st_uid;
	int err = map_import(mem, fd);

	if (err)
		kvpool_mem_free(mem);
	else
		*out_mem = mem;
	return err;
}

const struct kvpool_backend_ops kvpool_memfd_ops = {
	.name = "memfd",
	.features = KVPOOL_F_EXPORT,
	.open = memfd_open,
	.create = memfd_create_mem,
	.destroy = memfd_destroy,
	.populate = memfd_populate,
	.punch = memfd_punch,
	.protect = memfd_protect,
	.purge = memfd_purge,
	.zero = memfd_zero,
	.copy = memfd_copy,
	.export_fd = memfd_export,
	.import_fd = memfd_import,
};
