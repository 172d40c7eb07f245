/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefixes between processes whose pools are private: each has its own memory of
 * one GPU, and what it has published goes to the others as descriptors, over
 * Unix sockets. Processes of one uid only; nobody is in charge of them.
 *
 * They meet in a directory of the uid (exchange_dir.c): one socket per process
 * and device, and a secret that all of them make their keys with. A thread
 * answers who asks for a key with the length behind it and a descriptor that was
 * made when the buffer was published; it never waits for the driver thread, nor
 * that one for it, but for moments under the lock of the table of keys.
 *
 * Who looks for a prefix asks the others in turn, and waits some milliseconds for
 * each. One that does not answer, or answers nonsense, is left alone for a while.
 * The memory of a descriptor is the sender's until he lets go of it, is there for
 * whoever has mapped it though the sender died, and goes with the last of them.
 *
 * The card's memory is common to all of them, so one that misses some can ask the
 * others for what they keep without need: spare pages, and what is volatile.
 *
 * Threads: driver thread, but where it says otherwise.
 */
#ifndef TARN_ENGINE_KV_EXCHANGE_H
#define TARN_ENGINE_KV_EXCHANGE_H

#include "engine/kv/libkvpool.h"

struct kv_exchange;

struct kv_exchange_options {
	struct kvpool *pool; /* the exchange takes a reference */
	/* Where to meet; made if need be, mode 0700. NULL: as kv_exchange_create() says. */
	const char *dir;
	uint32_t answer_ms; /* how long a peer may take for a key; 0: 20 */
	uint32_t room_ms; /* and to give memory back; 0: 200 */
	uint32_t retry_ms; /* how long a bad one is left alone; 0: 1000 */
	/* Who is at the other end of a socket: 0, -errno. NULL: as the system says. For tests. */
	int (*peer_uid)(int sock, uid_t *out_uid);
};

/**
 * kv_exchange_create - meet the other processes of this uid
 * @err: [out] what is wrong with the directory, in words
 *
 * Without options->dir: $XDG_RUNTIME_DIR/tarn, else /run/tarn/share where /run/tarn is this uid's,
 * else /tmp/tarn-UID. Starts the thread. Return: 0; -EPERM (somebody else's directory, or one that
 * others may look into); -EINVAL (a secret that is none); -EOPNOTSUPP (a pool whose buffers do not
 * travel); -ENOMEM, and what the system answers.
 */
int kv_exchange_create(const struct kv_exchange_options *options,
		       struct kv_exchange **out_exchange, char *err,
		       size_t errlen);
/* Ends the thread; what others have mapped stays theirs. NULL is fine. */
void kv_exchange_destroy(struct kv_exchange *exchange);
/* [any] Random bytes that all processes have which meet here, as long as the directory is there. */
const struct kvpool_key *kv_exchange_secret(const struct kv_exchange *exchange);

/**
 * kv_exchange_offer - let others find a published buffer
 * @marks: as of kvpool_buf_publish(); a key that was offered before now leads to this buffer.
 *
 * Keeps a descriptor and a reference. Return: 0; -EEXIST (is offered already); -EMFILE, -E2BIG
 * (more descriptors than there may be); -ENOMEM, -EIO.
 */
int kv_exchange_offer(struct kv_exchange *exchange, struct kvpool_buf *buf,
		      const struct kvpool_mark *marks, size_t nr);
/* Not any more; one that is not offered is fine. */
void kv_exchange_withdraw(struct kv_exchange *exchange, struct kvpool_buf *buf);

struct kv_exchange_found {
	int fd; /* for kvpool_buf_import_stride(); the caller closes it */
	uint64_t n_bytes; /* as the peer says: it is for the caller to check */
};

/* Another search begins: see who is there, and give it its time. */
void kv_exchange_begin(struct kv_exchange *exchange);
/* Ask the peers for a key. Return: 0; -ENOENT (nobody has it, or nobody said so in time). */
int kv_exchange_find(struct kv_exchange *exchange, const struct kvpool_key *key,
		     struct kv_exchange_found *out);
/*
 * Ask the peers to give @bytes of the device back, of what they keep without need. Asked again
 * right after nobody had any, it does not ask. Return: bytes that they say they gave back.
 */
uint64_t kv_exchange_ask_room(struct kv_exchange *exchange, uint64_t bytes);

struct kv_exchange_stat {
	uint64_t nr_offers; /* buffers, now */
	uint64_t nr_peers; /* now */
	uint64_t asked, found; /* keys, by us so far */
	uint64_t answered, given; /* keys, by the thread: asked for, and had */
	uint64_t failures; /* peers that were left alone */
	uint64_t room_bytes; /* given back by us for others */
};

/* [any] */
void kv_exchange_stat(struct kv_exchange *exchange,
		      struct kv_exchange_stat *out_stat);

#endif /* TARN_ENGINE_KV_EXCHANGE_H */
