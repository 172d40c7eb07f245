/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange as a whole: its beginning and end, and what this process offers.
 * Asking is exchange_client.c's, answering exchange_server.c's. Driver thread.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/kv/exchange_private.h"

enum {
	ANSWER_MS = 20,
	ROOM_MS = 200, /* unmapping takes its time: it is not done for a key */
	RETRY_MS = 1000,
	NS_PER_MS = 1000000,
};

static uint64_t or_default(uint32_t ms, uint32_t otherwise)
{
	return (uint64_t)(ms ? ms : otherwise) * NS_PER_MS;
}

/* Signals are for the program's own threads. */
static int start_thread(struct kv_exchange *exchange)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&exchange->thread, NULL, exchange_server_main,
			     exchange);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}

static int start(struct kv_exchange *exchange, char *err, size_t errlen)
{
	int rc;

	exchange->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (exchange->wake < 0)
		return -errno;
	exchange_dir_sweep(&exchange->dir);
	exchange->listener = exchange_dir_listen(&exchange->dir);
	if (exchange->listener < 0) {
		rc = exchange->listener;
		snprintf(err, errlen, "a socket in %s: %s", exchange->dir.path,
			 strerror(-rc));
		goto err_close_wake;
	}
	rc = start_thread(exchange);
	if (!rc)
		return 0;
	close(exchange->listener);

err_close_wake:
	close(exchange->wake);
	return rc;
}

int kv_exchange_create(const struct kv_exchange_options *options,
		       struct kv_exchange **out_exchange, char *err,
		       size_t errlen)
{
	struct kv_exchange *exchange;
	int rc;

	if (errlen)
		err[0] = '\0';
	if (!options || !options->pool || !out_exchange)
		return -EINVAL;
	if (!(kvpool_features(options->pool) & KVPOOL_F_EXPORT))
		return -EOPNOTSUPP;
	exchange = calloc(1, sizeof(*exchange));
	if (!exchange)
		return -ENOMEM;
	exchange->answer_ns = or_default(options->answer_ms, ANSWER_MS);
	exchange->room_ns = or_default(options->room_ms, ROOM_MS);
	exchange->retry_ns = or_default(options->retry_ms, RETRY_MS);
	exchange->peer_uid = options->peer_uid ? options->peer_uid :
						 exchange_peer_uid;
	exchange->pool = kvpool_get(options->pool);
	rc = exchange_dir_open(&exchange->dir, options->dir, options->pool, err,
			       errlen);
	if (rc)
		goto err_put;
	rc = exchange_table_init(&exchange->table);
	if (rc)
		goto err_close_dir;
	rc = start(exchange, err, errlen);
	if (rc)
		goto err_deinit_table;
	*out_exchange = exchange;
	return 0;

err_deinit_table:
	exchange_table_deinit(&exchange->table);
err_close_dir:
	exchange_dir_close(&exchange->dir);
err_put:
	kvpool_put(exchange->pool);
	free(exchange);
	if (errlen && !err[0])
		snprintf(err, errlen, "%s", strerror(-rc));
	return rc;
}

void kv_exchange_destroy(struct kv_exchange *exchange)
{
	if (!exchange)
		return;
	eventfd_write(exchange->wake, 1);
	pthread_join(exchange->thread, NULL);
	close(exchange->listener);
	close(exchange->wake);
	exchange_peers_close(exchange);
	exchange_table_deinit(&exchange->table);
	exchange_dir_close(&exchange->dir);
	kvpool_put(exchange->pool);
	free(exchange);
}

const struct kvpool_key *kv_exchange_secret(const struct kv_exchange *exchange)
{
	return &exchange->dir.secret;
}

int kv_exchange_offer(struct kv_exchange *exchange, struct kvpool_buf *buf,
		      const struct kvpool_mark *marks, size_t nr)
{
	struct exchange_table *table = &exchange->table;
	int fd, err;

	/* Descriptors on their way count too: what is old goes for what is new. */
	do {
		fd = kvpool_buf_export(buf);
	} while ((fd == -EMFILE || fd == -ENFILE) &&
		 exchange_table_remove_oldest(table));
	if (fd < 0)
		return fd;
	do {
		err = exchange_table_add(table, buf, fd, marks, nr);
	} while (err == -EMFILE && exchange_table_remove_oldest(table));
	if (err)
		close(fd);
	return err;
}

void kv_exchange_withdraw(struct kv_exchange *exchange, struct kvpool_buf *buf)
{
	exchange_table_remove(&exchange->table, buf);
}

void kv_exchange_stat(struct kv_exchange *exchange,
		      struct kv_exchange_stat *out_stat)
{
	*out_stat = (struct kv_exchange_stat){
		.nr_offers = exchange_table_nr(&exchange->table),
		.nr_peers = exchange->nr_peers_seen,
		.asked = exchange->asked,
		.found = exchange->found,
		.answered = exchange->answered,
		.given = exchange->given,
		.failures = exchange->failures,
		.room_bytes = exchange->room_bytes,
	};
}
