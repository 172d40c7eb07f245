/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue between threads: see queue.h. One mutex, held for a few
 * instructions.
 */
#include "daemon/queue.h"

#include <errno.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

int queue_init(struct queue *queue, bool want_event_fd)
{
	queue->event_fd = -1;
	if (want_event_fd) {
		queue->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (queue->event_fd < 0)
			return -errno;
	}
	pthread_mutex_init(&queue->lock, NULL);
	pthread_cond_init(&queue->filled, NULL);
	queue->head = NULL;
	queue->tail = &queue->head;
	queue->is_closed = false;
	return 0;
}

void queue_deinit(struct queue *queue)
{
	if (queue->event_fd >= 0)
		close(queue->event_fd);
	pthread_mutex_destroy(&queue->lock);
	pthread_cond_destroy(&queue->filled);
}

static void queue_wake(struct queue *queue)
{
	const uint64_t one = 1;

	if (queue->event_fd < 0) {
		pthread_cond_signal(&queue->filled);
		return;
	}
	/* Fails only when the counter is full: then it is readable anyway. */
	if (write(queue->event_fd, &one, sizeof(one)) < 0)
		return;
}

void queue_push(struct queue *queue, struct queue_item *chain)
{
	struct queue_item *last = chain;

	if (!chain)
		return;
	while (last->next)
		last = last->next;
	pthread_mutex_lock(&queue->lock);
	*queue->tail = chain;
	queue->tail = &last->next;
	pthread_mutex_unlock(&queue->lock);
	queue_wake(queue);
}

static struct queue_item *queue_take_locked(struct queue *queue)
{
	struct queue_item *chain = queue->head;

	queue->head = NULL;
	queue->tail = &queue->head;
	return chain;
}

struct queue_item *queue_take(struct queue *queue)
{
	struct queue_item *chain;
	uint64_t count;

	/* Cleared before looking: what is pushed after is announced anew. */
	if (queue->event_fd >= 0 &&
	    read(queue->event_fd, &count, sizeof(count)) < 0)
		count = 0;
	pthread_mutex_lock(&queue->lock);
	chain = queue_take_locked(queue);
	pthread_mutex_unlock(&queue->lock);
	return chain;
}

struct queue_item *queue_take_wait(struct queue *queue)
{
	struct queue_item *chain;

	pthread_mutex_lock(&queue->lock);
	while (!queue->head && !queue->is_closed)
		pthread_cond_wait(&queue->filled, &queue->lock);
	chain = queue_take_locked(queue);
	pthread_mutex_unlock(&queue->lock);
	return chain;
}

void queue_close(struct queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	queue->is_closed = true;
	pthread_mutex_unlock(&queue->lock);
	queue_wake(queue);
}
