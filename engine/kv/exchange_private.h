/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange inside: shared by engine/kv/exchange*.c, and by tests that play
 * the peer. See exchange.h.
 *
 * Threads: the table is under its lock; peers are the driver thread's; the
 * server's thread has sockets of its own. Lock order: none is held while another
 * is taken, nor while a peer or the pool is called.
 */
#ifndef TARN_ENGINE_KV_EXCHANGE_PRIVATE_H
#define TARN_ENGINE_KV_EXCHANGE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "engine/kv/exchange.h"

enum {
	EXCHANGE_MAGIC =
		0x31787674, /* "tvx1": both sides speak this, or nothing */
	EXCHANGE_MAX_PEERS = 16,
	/* Of the server. Each peer needs one. */
	EXCHANGE_MAX_CONNECTIONS = 64,
	/* Buffers that are offered: each takes descriptors, here and on their way. */
	EXCHANGE_MAX_OFFERS = 1024,
	EXCHANGE_NAME_BYTES = 64,
};

/* ---- exchange_wire.c: one message is one packet ---- */

enum exchange_op {
	EXCHANGE_FIND = 1,
	EXCHANGE_ROOM = 2,
};

/* Between processes of one machine that may be of different builds: layout is fixed. */
struct exchange_request {
	uint32_t magic;
	uint32_t op;
	uint64_t id;
	uint64_t bytes; /* EXCHANGE_ROOM: wanted */
	struct kvpool_key key; /* EXCHANGE_FIND */
};

struct exchange_reply {
	uint32_t magic;
	uint32_t error; /* 0, or an errno; with 0 to EXCHANGE_FIND comes one descriptor */
	uint64_t id; /* of the request */
	uint64_t bytes; /* in front of the border; or given back */
};

_Static_assert(sizeof(struct exchange_request) == 56, "exchange_request");
_Static_assert(sizeof(struct exchange_reply) == 24, "exchange_reply");

/* As options->peer_uid. */
int exchange_peer_uid(int sock, uid_t *out_uid);
/* @fd: goes along, unless below 0. Never waits. Return: 0, -errno. */
int exchange_send(int sock, const void *message, size_t bytes, int fd);
/*
 * A message of exactly @bytes. @out_fd: [out] the one descriptor that came along, the caller's; -1:
 * none did. Never waits. Return: 0; -EAGAIN (nothing yet); -ECONNRESET (closed); -EBADMSG (another
 * size, more descriptors: none is left open).
 */
int exchange_receive(int sock, void *out_message, size_t bytes, int *out_fd);

/* ---- exchange_dir.c: where they meet ---- */

struct exchange_dir {
	int fd; /* the directory */
	char path[128]; /* as it was opened, for messages */
	char device[2 * KVPOOL_DEVICE_ID_BYTES + 1]; /* of the pool */
	char name[EXCHANGE_NAME_BYTES]; /* our socket in it; empty: none */
	struct kvpool_key secret;
};

int exchange_dir_open(struct exchange_dir *dir, const char *path,
		      struct kvpool *pool, char *err, size_t errlen);
void exchange_dir_close(struct exchange_dir *dir); /* our socket goes too */
/* A socket that listens, under a name that is there once it does. The descriptor, or -errno. */
int exchange_dir_listen(struct exchange_dir *dir);
/* Connected to a name of the directory. The descriptor, or -errno; one of the dead is removed. */
int exchange_dir_connect(const struct exchange_dir *dir, const char *name);
/* Names of other sockets of our device, at most @nr. Return: how many. */
size_t exchange_dir_list(const struct exchange_dir *dir,
			 char (*out_names)[EXCHANGE_NAME_BYTES], size_t nr);
/* Remove what dead processes left, of any device. */
void exchange_dir_sweep(const struct exchange_dir *dir);

/* ---- exchange_table.c: what is offered ---- */

struct exchange_offer;
TAILQ_HEAD(exchange_offer_list, exchange_offer);

struct exchange_table {
	pthread_mutex_t lock; /* everything below */
	struct exchange_offer_list offers; /* oldest first */
	size_t nr_offers;
	struct exchange_entry **buckets;
	size_t nr_buckets; /* a power of two */
	size_t nr_entries;
};

int exchange_table_init(struct exchange_table *table);
void exchange_table_deinit(struct exchange_table *table);
/* As kv_exchange_offer(); takes @fd over, and its own reference, only when it succeeds. */
int exchange_table_add(struct exchange_table *table, struct kvpool_buf *buf,
		       int fd, const struct kvpool_mark *marks, size_t nr);
/* Return: whether it was there. */
bool exchange_table_remove(struct exchange_table *table,
			   struct kvpool_buf *buf);
bool exchange_table_remove_oldest(struct exchange_table *table);
/* A copy of the descriptor that a key leads to. Return: 0, -ENOENT. */
int exchange_table_find(struct exchange_table *table,
			const struct kvpool_key *key, int *out_fd,
			uint64_t *out_n);
size_t exchange_table_nr(struct exchange_table *table);
/* Drop the offers whose memory the pool took. */
void exchange_table_sweep(struct exchange_table *table);

/* ---- exchange.c, exchange_server.c, exchange_client.c ---- */

struct exchange_peer {
	char name[EXCHANGE_NAME_BYTES];
	int fd; /* -1: not connected */
	uint64_t retry_ns; /* not before */
};

struct kv_exchange {
	struct kvpool *pool;
	uint64_t answer_ns, room_ns, retry_ns;
	int (*peer_uid)(int sock, uid_t *out_uid);
	struct exchange_dir dir;
	struct exchange_table table;

	pthread_t thread;
	int listener;
	int wake; /* eventfd: the thread is to end */

	/* The driver thread's. The one that had something last comes first. */
	struct exchange_peer peers[EXCHANGE_MAX_PEERS];
	size_t nr_peers;
	uint64_t next_id;
	uint64_t search_end_ns; /* of the search that goes on */
	uint64_t no_room_until_ns; /* nobody had any: do not ask before */

	atomic_ullong nr_peers_seen, asked, found, answered, given, failures,
		room_bytes;
};

void *exchange_server_main(void *arg); /* the thread, of a struct kv_exchange */
void exchange_peers_close(struct kv_exchange *exchange);
uint64_t exchange_now_ns(void);

#endif /* TARN_ENGINE_KV_EXCHANGE_PRIVATE_H */
