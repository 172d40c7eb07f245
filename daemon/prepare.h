/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The preparer: a thread that reads bodies, renders chat templates and
 * tokenises, so that a long prompt delays neither the connections nor the
 * engine. First come, first served.
 */
#ifndef TARN_DAEMON_PREPARE_H
#define TARN_DAEMON_PREPARE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "daemon/api.h"
#include "daemon/driver.h"
#include "daemon/queue.h"

struct preparer {
	const struct api_context *context; /* constant from the first submit on */
	struct driver *driver;
	struct queue *replies;
	struct queue inbox;
	pthread_t thread;
	bool is_started;
	atomic_bool is_draining;
};

/* Return: 0 or -errno. */
int preparer_init(struct preparer *preparer, const struct api_context *context,
		  struct driver *driver, struct queue *replies);
/* The reference to @request passes to the preparer. Event thread. */
void preparer_submit(struct preparer *preparer, struct request *request);
/* What is not read yet gets a 503. Event thread. */
void preparer_drain(struct preparer *preparer);
void preparer_deinit(struct preparer *preparer);

#endif /* TARN_DAEMON_PREPARE_H */
