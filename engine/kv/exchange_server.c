/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that answers the other processes: see exchange.h. It owns its
 * connections, waits for all of them at once and for none alone: whoever sends
 * nonsense, or does not take his answers, is cut off. Of the rest of the process
 * it touches the table and the pool, from any thread as these allow.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/kv/exchange_private.h"

/* Polled in this order: the end, the listener, connections. */
enum { WAKE, LISTENER, FIRST_CONNECTION };

/* Without descriptors nobody can be accepted: look again after so long. */
enum { PAUSE_MS = 100 };

/* Of memory that is given back at once. */
static const uint64_t step_bytes = 128 << 20;

struct server {
	struct kv_exchange *exchange;
	struct pollfd polled[FIRST_CONNECTION + EXCHANGE_MAX_CONNECTIONS];
	nfds_t nr;
	bool is_paused; /* the listener is not polled */
};

static void accept_one(struct server *server)
{
	struct kv_exchange *exchange = server->exchange;
	uid_t uid;
	int sock = accept4(exchange->listener, NULL, NULL,
			   SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (sock < 0) {
		/* EMFILE: it stays readable, and polling it would be a loop. */
		server->is_paused = errno == EMFILE || errno == ENFILE;
		return;
	}
	if (server->nr == FIRST_CONNECTION + EXCHANGE_MAX_CONNECTIONS ||
	    exchange->peer_uid(sock, &uid) || uid != geteuid()) {
		close(sock);
		return;
	}
	server->polled[server->nr++] =
		(struct pollfd){ .fd = sock, .events = POLLIN };
}

/* Spare pages first; then what nobody needs of the rest, and descriptors of it with it. */
static uint64_t give_room(struct kv_exchange *exchange, uint64_t bytes)
{
	bool has_purged = false;
	uint64_t freed = 0, step, got;

	/* In steps, between which others get the pool's lock. */
	do {
		step = bytes - freed < step_bytes ? bytes - freed : step_bytes;
		got = kvpool_trim(exchange->pool, step);
		if (!got) {
			got = kvpool_purge(exchange->pool, step);
			has_purged = has_purged || got;
		}
		freed += got;
	} while (got && freed < bytes);
	if (has_purged)
		exchange_table_sweep(&exchange->table);
	exchange->room_bytes += freed;
	return freed;
}

static int answer(struct kv_exchange *exchange, int sock,
		  const struct exchange_request *request)
{
	struct exchange_reply reply = {
		.magic = EXCHANGE_MAGIC,
		.id = request->id,
	};
	int fd = -1;

	switch (request->op) {
	case EXCHANGE_FIND:
		exchange->answered++;
		reply.error = (uint32_t)-exchange_table_find(
			&exchange->table, &request->key, &fd, &reply.bytes);
		exchange->given += !reply.error;
		break;
	case EXCHANGE_ROOM:
		reply.bytes = give_room(exchange, request->bytes);
		break;
	default:
		reply.error = EOPNOTSUPP;
	}
	int err = exchange_send(sock, &reply, sizeof(reply), fd);

	if (fd >= 0)
		close(fd);
	return err;
}

/* Return: whether the connection goes on. */
static bool serve_one(struct kv_exchange *exchange, int sock)
{
	struct exchange_request request;
	int fd, err = exchange_receive(sock, &request, sizeof(request), &fd);

	if (err == -EAGAIN)
		return true;
	/* No request has a descriptor. */
	if (!err && fd >= 0) {
		close(fd);
		return false;
	}
	return !err && request.magic == EXCHANGE_MAGIC &&
	       !answer(exchange, sock, &request);
}

static void serve(struct server *server)
{
	for (nfds_t i = server->nr; i-- > FIRST_CONNECTION;) {
		struct pollfd *polled = &server->polled[i];

		if (!polled->revents || serve_one(server->exchange, polled->fd))
			continue;
		close(polled->fd);
		*polled = server->polled[--server->nr];
	}
}

void *exchange_server_main(void *arg)
{
	struct kv_exchange *exchange = arg;
	struct server server = {
		.exchange = exchange,
		.polled = { [WAKE] = { .fd = exchange->wake, .events = POLLIN },
			    [LISTENER] = { .fd = exchange->listener,
					   .events = POLLIN } },
		.nr = FIRST_CONNECTION,
	};

	for (;;) {
		server.polled[LISTENER].events = server.is_paused ? 0 : POLLIN;
		int nr = poll(server.polled, server.nr,
			      server.is_paused ? PAUSE_MS : -1);

		server.is_paused = false;
		/* Interrupted: signals are for other threads, but a tracer may. */
		if (nr < 0)
			continue;
		if (server.polled[WAKE].revents)
			break;
		serve(&server);
		if (server.polled[LISTENER].revents)
			accept_one(&server);
	}
	while (server.nr > FIRST_CONNECTION)
		close(server.polled[--server.nr].fd);
	return NULL;
}
