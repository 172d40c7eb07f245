/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published buffers of the cuda backend between processes of one uid. A buffer
 * is several handles, but travels as one descriptor: of a message that carries a
 * descriptor per handle (kvpool_cuda_message.h), or, where they are more than one
 * takes, of one that carries such messages. Whatever is not imported goes with
 * the last copy of the descriptor: nobody has to clean up after a process that
 * died.
 *
 * An importer could map a handle writable: this is for one uid, no boundary.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kv/kvpool_cuda.h"
#include "engine/kv/kvpool_cuda_message.h"

/* ---- export -------------------------------------------------------------- */

static void begin(struct kvpool_mem *mem, enum kvpool_share_kind kind,
		  struct kvpool_share *out)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);

	out->nr_fds = 0;
	out->message = (struct kvpool_share_message){
		.magic = KVPOOL_SHARE_MAGIC,
		.uuid = cuda->uuid,
		.page_bytes = cuda->page_bytes,
		.nr_pages = kvpool_to_pages(mem, mem->sealed_n),
		.owner = mem->owner,
		.kind = kind,
	};
}

static void add(struct kvpool_share *share, uint64_t first, uint64_t nr_pages,
		int fd)
{
	share->message.pieces[share->message.nr_pieces++] =
		(struct kvpool_share_piece){ (uint32_t)first,
					     (uint32_t)nr_pages };
	share->fds[share->nr_fds++] = fd;
}

/* As many handles from *page on as a message takes; *page moves to where they end. */
static int gather(struct kvpool_mem *mem, struct kvpool_share *share,
		  uint64_t *page)
{
	const struct cuda_driver *driver = kvpool_cuda(mem->pool)->driver;
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	uint64_t end = kvpool_to_pages(mem, mem->sealed_n);
	int fd;

	begin(mem, KVPOOL_SHARE_HANDLES, share);
	for (; *page < end; ++*page) {
		struct kvpool_cuda_handle *h = cm->handles[*page];

		if (!h || h->first != *page)
			continue;
		if (share->nr_fds == KVPOOL_SHARE_MAX_FDS)
			break;
		int err = cuda_errno(driver->MemExportToShareableHandle(
			&fd, h->handle, CUDA_POSIX_FD, 0));

		if (err)
			return err;
		add(share, *page, h->nr_pages, fd);
	}
	return 0;
}

/* What @part has gathered as one descriptor of @all. */
static int add_part(struct kvpool_share *all, struct kvpool_share *part)
{
	const struct kvpool_share_message *message = &part->message;
	const struct kvpool_share_piece *first = message->pieces;
	const struct kvpool_share_piece *last = first + message->nr_pieces - 1;
	int fd;

	if (all->nr_fds == KVPOOL_SHARE_MAX_FDS)
		return -E2BIG;
	fd = kvpool_share_pack(part);
	if (fd < 0)
		return fd;
	add(all, first->first,
	    (uint64_t)last->first + last->nr_pages - first->first, fd);
	return 0;
}

/* All handles that hold sealed bytes, in order. Return: the descriptor. */
static int pack_all(struct kvpool_mem *mem, struct kvpool_share *all,
		    struct kvpool_share *part)
{
	uint64_t end = kvpool_to_pages(mem, mem->sealed_n), page = 0;
	int err = end > UINT32_MAX ? -E2BIG : gather(mem, part, &page);

	if (!err && !part->nr_fds)
		err = -ERANGE;
	if (err || page == end)
		return err ? err : kvpool_share_pack(part);
	begin(mem, KVPOOL_SHARE_PARTS, all);
	while (!err && part->nr_fds) {
		err = add_part(all, part);
		if (!err)
			err = gather(mem, part, &page);
	}
	return err ? err : kvpool_share_pack(all);
}

int kvpool_cuda_export(struct kvpool_mem *mem)
{
	/* One for the whole, one for the part that is being made. */
	struct kvpool_share *shares = kvpool_sys.calloc(2, sizeof(*shares));

	if (!shares)
		return -ENOMEM;
	int fd = pack_all(mem, &shares[0], &shares[1]);

	kvpool_share_close(&shares[0]);
	kvpool_share_close(&shares[1]);
	free(shares);
	return fd;
}

/* ---- import -------------------------------------------------------------- */

/* Pages up to the end of the last piece; 0 where the message makes no sense here. */
static uint64_t checked_pages(const struct kvpool_cuda *cuda,
			      const struct kvpool_share_message *message)
{
	uint64_t end = 0;

	if (message->magic != KVPOOL_SHARE_MAGIC ||
	    memcmp(&message->uuid, &cuda->uuid, sizeof(cuda->uuid)) ||
	    message->page_bytes != cuda->page_bytes)
		return 0;
	for (uint32_t i = 0; i < message->nr_pieces; i++) {
		const struct kvpool_share_piece *piece = &message->pieces[i];

		if (!piece->nr_pages || piece->first < end ||
		    piece->first >= message->nr_pages)
			return 0;
		end = (uint64_t)piece->first + piece->nr_pages;
	}
	return end <= cuda->base_bytes / cuda->page_bytes ? end : 0;
}

static int map_piece(struct kvpool_mem *mem,
		     const struct kvpool_share_piece *piece, int fd)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	struct kvpool_cuda_handle *h = kvpool_sys.calloc(1, sizeof(*h));
	cuda_status status;

	if (!h)
		return -ENOMEM;
	h->first = piece->first;
	h->nr_pages = piece->nr_pages;
	status = cuda->driver->MemImportFromShareableHandle(
		&h->handle, (void *)(intptr_t)fd, CUDA_POSIX_FD);
	if (status) {
		free(h);
		return cuda_errno(status);
	}
	status = cuda->driver->MemMap(
		(cuda_addr)mem->addr + h->first * cuda->page_bytes,
		h->nr_pages * cuda->page_bytes, 0, h->handle, 0);
	if (status) {
		h->next = cm->freed;
		cm->freed = h;
		return cuda_errno(status);
	}
	for (uint64_t i = 0; i < h->nr_pages; i++)
		cm->handles[h->first + i] = h;
	return 0;
}

static int map_handles(struct kvpool_mem *mem, const struct kvpool_share *share)
{
	int err = 0;

	for (uint32_t i = 0; i < share->nr_fds && !err; i++)
		err = map_piece(mem, &share->message.pieces[i], share->fds[i]);
	return err;
}

/* Whether @part is what @all says of its piece @i. */
static bool is_part(const struct kvpool_cuda *cuda,
		    const struct kvpool_share_message *all, uint32_t i,
		    const struct kvpool_share_message *part)
{
	const struct kvpool_share_piece *piece = &all->pieces[i];

	return part->kind == KVPOOL_SHARE_HANDLES &&
	       part->nr_pages == all->nr_pages && part->owner == all->owner &&
	       part->pieces[0].first == piece->first &&
	       checked_pages(cuda, part) ==
		       (uint64_t)piece->first + piece->nr_pages;
}

/* One message at a time: so many descriptors are open at once, and no more. */
static int map_parts(struct kvpool_mem *mem, const struct kvpool_share *all)
{
	struct kvpool_share *part = kvpool_sys.calloc(1, sizeof(*part));
	int err = part ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < all->nr_fds && !err; i++) {
		err = kvpool_share_open(all->fds[i], part);
		if (!err && !is_part(kvpool_cuda(mem->pool), &all->message, i,
				     &part->message))
			err = -EINVAL;
		if (!err)
			err = map_handles(mem, part);
		kvpool_share_close(part);
	}
	free(part);
	return err;
}

static int map_share(struct kvpool_local *pool,
		     const struct kvpool_share *share, uint64_t stride_bytes,
		     struct kvpool_mem **out_mem)
{
	const struct kvpool_share_message *message = &share->message;
	uint64_t end = checked_pages(kvpool_cuda(pool), message);
	struct kvpool_mem *mem;

	if (!end || message->nr_pages > end ||
	    message->kind > KVPOOL_SHARE_PARTS)
		return -EINVAL;
	mem = kvpool_mem_alloc(pool, end * message->page_bytes);
	if (!mem)
		return -ENOMEM;
	/* Exactly what was sent: nothing is mapped behind it. */
	mem->class_bytes = end * message->page_bytes;
	mem->size_bytes = message->nr_pages * message->page_bytes;
	mem->owner = message->owner;
	mem->stride_bytes = stride_bytes;
	int err = kvpool_cuda_create(mem, stride_bytes);

	if (!err && message->kind == KVPOOL_SHARE_PARTS)
		err = map_parts(mem, share);
	else if (!err)
		err = map_handles(mem, share);
	/* Once for all of them. */
	if (!err)
		err = kvpool_cuda_set_access(mem, 0, end, CUDA_PROT_READ);
	if (err)
		kvpool_mem_free(mem);
	else
		*out_mem = mem;
	return err;
}

bool kvpool_cuda_covers(const struct kvpool_mem *mem, uint64_t first,
			uint64_t end)
{
	const struct kvpool_cuda_mem *cm = mem->backend;

	while (first < end && cm->handles[first])
		first++;
	return first >= end;
}

int kvpool_cuda_import(struct kvpool_local *pool, int fd, uint64_t stride_bytes,
		       struct kvpool_mem **out_mem)
{
	struct kvpool_share *share = kvpool_sys.calloc(1, sizeof(*share));

	if (!share)
		return -ENOMEM;
	int err = kvpool_share_open(fd, share);

	if (!err)
		err = map_share(pool, share, stride_bytes, out_mem);
	kvpool_share_close(share);
	free(share);
	return err;
}
