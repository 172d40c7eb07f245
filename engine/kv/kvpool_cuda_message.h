/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message with descriptors that lies in a descriptor of its own: the end of a
 * socket pair whose other end is closed. Opening it looks at the message and
 * leaves it there, so that it can be done more than once, by anybody who has the
 * descriptor. What nobody opened goes with the last copy of it. Any thread.
 */
#ifndef TARN_ENGINE_KV_KVPOOL_CUDA_MESSAGE_H
#define TARN_ENGINE_KV_KVPOOL_CUDA_MESSAGE_H

#include "engine/kv/kvpool_cuda_driver.h"

enum {
	KVPOOL_SHARE_MAX_FDS = 253, /* of one message, the system's limit */
	KVPOOL_SHARE_MAGIC = 0x31766b63, /* "ckv1" */
};

/* What the descriptors of a message are. */
enum kvpool_share_kind {
	KVPOOL_SHARE_HANDLES = 0,
	/* Messages of the other kind. Builds that know none of this kind refuse it. */
	KVPOOL_SHARE_PARTS = 1,
};

/* Pages that a descriptor stands for. */
struct kvpool_share_piece {
	uint32_t first, nr_pages;
};

/* Between processes of one machine that may be of different builds: layout is fixed. */
struct kvpool_share_message {
	uint32_t magic;
	uint32_t nr_pieces;
	struct cuda_uuid uuid; /* of the GPU */
	uint64_t page_bytes;
	uint64_t nr_pages; /* that are sealed; the last piece may end behind them */
	uint32_t owner;
	uint32_t kind;
	struct kvpool_share_piece pieces[KVPOOL_SHARE_MAX_FDS]; /* ascending */
};

_Static_assert(sizeof(struct kvpool_share_piece) == 8, "share_piece");
_Static_assert(offsetof(struct kvpool_share_message, pieces) == 48,
	       "share_message");

struct kvpool_share {
	struct kvpool_share_message message;
	int fds[KVPOOL_SHARE_MAX_FDS]; /* one a piece */
	uint32_t nr_fds;
};

void kvpool_share_close(struct kvpool_share *share); /* its descriptors */
/*
 * @share: with at least one piece; its descriptors are closed here, on errors too. Return: the
 * descriptor; -EMFILE (more on their way than there may be), and what the system answers.
 */
int kvpool_share_pack(struct kvpool_share *share);
/*
 * @out: [out] a message with a descriptor a piece; kvpool_share_close() is for the caller, on
 * errors too. What it says is for the caller to check, but for its length. Never waits.
 * Return: 0; -EINVAL (nothing of this kind lies there); -EPERM (somebody else's); -EMFILE (no
 * room for all of the descriptors here).
 */
int kvpool_share_open(int fd, struct kvpool_share *out);
/*
 * Room in this process's table of descriptors for what messages bring. Where the table grows, and
 * the process has threads, the system waits until none of them uses the old one: seen on a GPU's
 * host, 9 to 20 ms within one call that needed a descriptor more, in place of 20 us.
 */
void kvpool_share_reserve_fds(void);

#endif /* TARN_ENGINE_KV_KVPOOL_CUDA_MESSAGE_H */
