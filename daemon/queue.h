/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue between threads: many may push, one takes. Items are embedded in
 * what they carry and owned by the queue while they are in it. The taker
 * either sleeps on it, or watches its event descriptor in an event loop.
 */
#ifndef TARN_DAEMON_QUEUE_H
#define TARN_DAEMON_QUEUE_H

#include <pthread.h>
#include <stdbool.h>

struct queue_item {
	struct queue_item *next;
};

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct queue_item *head, **tail; /* protected by lock */
	bool is_closed; /* protected by lock */
	int event_fd; /* readable while items wait; -1: the taker sleeps instead */
};

/* Return: 0, or -errno of eventfd(). */
int queue_init(struct queue *queue, bool want_event_fd);
void queue_deinit(struct queue *queue);

/* One item, or a chain linked by next, in order. Never blocks for long. */
void queue_push(struct queue *queue, struct queue_item *chain);
/* Everything that waits, as a chain, or NULL. Clears the event descriptor. */
struct queue_item *queue_take(struct queue *queue);
/* As queue_take(), but sleeps until there is something or the queue is closed (NULL). */
struct queue_item *queue_take_wait(struct queue *queue);
/* Later pushes still arrive; the taker does not sleep any more. */
void queue_close(struct queue *queue);

#endif /* TARN_DAEMON_QUEUE_H */
