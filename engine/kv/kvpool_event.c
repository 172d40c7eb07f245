/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of a pool: a bounded ring and an eventfd that is readable while
 * something waits in it. Under pool->lock.
 */
#include <errno.h>
#include <sys/eventfd.h>

#include "engine/kv/kvpool_local.h"

static struct kvpool_event *find_waiting(struct kvpool_local *pool,
					 enum kvpool_event_type type,
					 uint64_t buf_id)
{
	for (uint32_t i = 0; i < pool->nr_events; i++) {
		struct kvpool_event *event =
			&pool->events[(pool->first_event + i) %
				      KVPOOL_MAX_EVENTS];

		if (event->type == type && event->buf_id == buf_id)
			return event;
	}
	return NULL;
}

void kvpool_event_locked(struct kvpool_local *pool, enum kvpool_event_type type,
			 uint64_t buf_id, uint64_t bytes)
{
	/* One refused commit says as much as a thousand: only purges name their buffer. */
	struct kvpool_event *event = type == KVPOOL_EVENT_PURGED ?
					     find_waiting(pool, type, buf_id) :
					     find_waiting(pool, type, 0);

	if (event) {
		event->bytes = bytes;
		return;
	}
	if (pool->nr_events == KVPOOL_MAX_EVENTS) {
		pool->nr_lost_events++;
		return;
	}
	pool->events[(pool->first_event + pool->nr_events++) %
		     KVPOOL_MAX_EVENTS] = (struct kvpool_event){
		.type = type,
		.buf_id = type == KVPOOL_EVENT_PURGED ? buf_id : 0,
		.bytes = bytes,
	};
	if (pool->nr_events == 1)
		eventfd_write(pool->event_fd, 1);
}

int kvpool_local_event_fd(struct kvpool *pool)
{
	return kvpool_local(pool)->event_fd;
}

int kvpool_local_events(struct kvpool *base, struct kvpool_event *out_events,
			size_t nr, uint64_t *out_lost)
{
	struct kvpool_local *pool = kvpool_local(base);
	size_t taken = 0;
	eventfd_t value;

	pthread_mutex_lock(&pool->lock);
	bool had_some = pool->nr_events > 0;

	while (taken < nr && pool->nr_events) {
		out_events[taken++] = pool->events[pool->first_event];
		pool->first_event = (pool->first_event + 1) % KVPOOL_MAX_EVENTS;
		pool->nr_events--;
	}
	if (had_some && !pool->nr_events)
		eventfd_read(pool->event_fd, &value);
	if (out_lost) {
		*out_lost = pool->nr_lost_events;
		pool->nr_lost_events = 0;
	}
	pthread_mutex_unlock(&pool->lock);
	return (int)taken;
}
