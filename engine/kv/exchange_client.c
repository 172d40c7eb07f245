/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking the other processes: see exchange.h. Each peer gets a few milliseconds
 * for an answer, a whole search a few times that; who fails once is left alone
 * for a while, so what one of them does costs the others next to nothing.
 * Driver thread.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/kv/exchange_private.h"

enum {
	NS_PER_MS = 1000000,
	/* Of one search, in answers' times. */
	SEARCH_ANSWERS = 4,
	/* Nobody had memory to give: it will be a while until somebody has. */
	NO_ROOM_MS = 100,
};

uint64_t exchange_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- who is there -------------------------------------------------------- */

static void disconnect(struct exchange_peer *peer)
{
	if (peer->fd >= 0)
		close(peer->fd);
	peer->fd = -1;
}

static void leave_alone(struct kv_exchange *exchange,
			struct exchange_peer *peer)
{
	disconnect(peer);
	peer->retry_ns = exchange_now_ns() + exchange->retry_ns;
	exchange->failures++;
}

static void remove_peer(struct kv_exchange *exchange, size_t i)
{
	disconnect(&exchange->peers[i]);
	exchange->nr_peers--;
	memmove(&exchange->peers[i], &exchange->peers[i + 1],
		(exchange->nr_peers - i) * sizeof(exchange->peers[0]));
}

void exchange_peers_close(struct kv_exchange *exchange)
{
	while (exchange->nr_peers)
		remove_peer(exchange, exchange->nr_peers - 1);
}

static struct exchange_peer *find_peer(struct kv_exchange *exchange,
				       const char *name)
{
	for (size_t i = 0; i < exchange->nr_peers; i++) {
		if (!strcmp(exchange->peers[i].name, name))
			return &exchange->peers[i];
	}
	return NULL;
}

/* Those that are gone from the directory go, new ones come last. */
static void refresh(struct kv_exchange *exchange)
{
	char names[EXCHANGE_MAX_PEERS][EXCHANGE_NAME_BYTES];
	size_t nr =
		exchange_dir_list(&exchange->dir, names, EXCHANGE_MAX_PEERS);

	for (size_t i = exchange->nr_peers; i--;) {
		size_t at = 0;

		while (at < nr && strcmp(exchange->peers[i].name, names[at]))
			at++;
		if (at == nr)
			remove_peer(exchange, i);
	}
	for (size_t i = 0; i < nr; i++) {
		if (exchange->nr_peers == EXCHANGE_MAX_PEERS ||
		    find_peer(exchange, names[i]))
			continue;
		struct exchange_peer *peer =
			&exchange->peers[exchange->nr_peers++];

		*peer = (struct exchange_peer){ .fd = -1 };
		memcpy(peer->name, names[i], sizeof(peer->name));
	}
	exchange->nr_peers_seen = exchange->nr_peers;
}

static int connect_peer(struct kv_exchange *exchange,
			struct exchange_peer *peer)
{
	uid_t uid;

	if (peer->fd >= 0)
		return 0;
	peer->fd = exchange_dir_connect(&exchange->dir, peer->name);
	if (peer->fd < 0)
		return -ENOTCONN;
	if (!exchange->peer_uid(peer->fd, &uid) && uid == geteuid())
		return 0;
	disconnect(peer);
	return -EPERM;
}

/* ---- one question -------------------------------------------------------- */

/* Until @end_ns. Return: 0; -ETIMEDOUT, and what exchange_receive() answers. */
static int receive_until(int sock, struct exchange_reply *reply, int *out_fd,
			 uint64_t end_ns)
{
	for (;;) {
		struct pollfd polled = { .fd = sock, .events = POLLIN };
		uint64_t now = exchange_now_ns();
		int err = exchange_receive(sock, reply, sizeof(*reply), out_fd);

		if (err != -EAGAIN)
			return err;
		if (now >= end_ns)
			return -ETIMEDOUT;
		struct timespec left = {
			.tv_sec = (time_t)((end_ns - now) / 1000000000),
			.tv_nsec = (long)((end_ns - now) % 1000000000),
		};

		ppoll(&polled, 1, &left, NULL);
	}
}

static int ask_once(struct kv_exchange *exchange, struct exchange_peer *peer,
		    const struct exchange_request *request, uint64_t end_ns,
		    struct exchange_reply *out_reply, int *out_fd)
{
	int err = connect_peer(exchange, peer);

	*out_fd = -1;
	if (!err)
		err = exchange_send(peer->fd, request, sizeof(*request), -1);
	if (!err)
		err = receive_until(peer->fd, out_reply, out_fd, end_ns);
	return err;
}

/*
 * Return: 0, with the peer's answer, whatever it is; -errno, and the peer is left alone for a
 * while. @out_fd: [out] as of exchange_receive().
 */
static int ask(struct kv_exchange *exchange, struct exchange_peer *peer,
	       struct exchange_request *request, uint64_t end_ns,
	       struct exchange_reply *out_reply, int *out_fd)
{
	bool is_known = peer->fd >= 0;
	int err;

	request->magic = EXCHANGE_MAGIC;
	request->id = ++exchange->next_id;
	err = ask_once(exchange, peer, request, end_ns, out_reply, out_fd);
	/* Closed since the last question: whether anybody is there shows when it is opened anew. */
	if (is_known && (err == -EPIPE || err == -ECONNRESET)) {
		disconnect(peer);
		err = ask_once(exchange, peer, request, end_ns, out_reply,
			       out_fd);
	}
	/* Answers are in order: one to another question is no answer. */
	if (!err && (out_reply->magic != EXCHANGE_MAGIC ||
		     out_reply->id != request->id)) {
		err = -EBADMSG;
		if (*out_fd >= 0)
			close(*out_fd);
		*out_fd = -1;
	}
	if (err)
		leave_alone(exchange, peer);
	return err;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- keys ---------------------------------------------------------------- */

void kv_exchange_begin(struct kv_exchange *exchange)
{
	refresh(exchange);
	exchange->search_end_ns =
		exchange_now_ns() + SEARCH_ANSWERS * exchange->answer_ns;
}

/* Who had something is the likeliest to have what belongs to it. */
static void ask_first_next_time(struct kv_exchange *exchange, size_t i)
{
	struct exchange_peer peer = exchange->peers[i];

	memmove(&exchange->peers[1], &exchange->peers[0],
		i * sizeof(exchange->peers[0]));
	exchange->peers[0] = peer;
}

int kv_exchange_find(struct kv_exchange *exchange, const struct kvpool_key *key,
		     struct kv_exchange_found *out)
{
	struct exchange_request request = { .op = EXCHANGE_FIND, .key = *key };
	struct exchange_reply reply;

	exchange->asked++;
	for (size_t i = 0; i < exchange->nr_peers; i++) {
		struct exchange_peer *peer = &exchange->peers[i];
		uint64_t now = exchange_now_ns();

		if (now >= exchange->search_end_ns)
			break;
		if (now < peer->retry_ns ||
		    ask(exchange, peer, &request,
			earlier(now + exchange->answer_ns,
				exchange->search_end_ns),
			&reply, &out->fd))
			continue;
		if (!reply.error && out->fd >= 0) {
			out->n_bytes = reply.bytes;
			exchange->found++;
			ask_first_next_time(exchange, i);
			return 0;
		}
		/* A descriptor with a no, or a yes without one. */
		if (out->fd >= 0)
			close(out->fd);
		if (out->fd >= 0 || !reply.error)
			leave_alone(exchange, peer);
	}
	out->fd = -1;
	return -ENOENT;
}

/* ---- memory -------------------------------------------------------------- */

uint64_t kv_exchange_ask_room(struct kv_exchange *exchange, uint64_t bytes)
{
	struct exchange_request request = { .op = EXCHANGE_ROOM };
	struct exchange_reply reply;
	uint64_t now = exchange_now_ns(), freed = 0;
	uint64_t end = now + exchange->room_ns;
	int fd;

	if (now < exchange->no_room_until_ns)
		return 0;
	refresh(exchange);
	for (size_t i = 0; i < exchange->nr_peers && freed < bytes; i++) {
		struct exchange_peer *peer = &exchange->peers[i];

		now = exchange_now_ns();
		if (now >= end)
			break;
		request.bytes = bytes - freed;
		if (now < peer->retry_ns ||
		    ask(exchange, peer, &request, end, &reply, &fd))
			continue;
		if (fd >= 0) {
			close(fd);
			leave_alone(exchange, peer);
		} else if (!reply.error) {
			/* What one says is not believed beyond what was asked for. */
			freed += earlier(reply.bytes, request.bytes);
		}
	}
	if (!freed)
		exchange->no_room_until_ns =
			exchange_now_ns() + (uint64_t)NO_ROOM_MS * NS_PER_MS;
	return freed;
}
