/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver: the one thread that makes the engine change. It loads the model,
 * then lets requests in, composes steps by schedule.h, turns sampled tokens
 * into text and sends it to the event thread's queue. Where the engine computes beside the
 * host it begins a step before the last one ended. It never waits for a
 * client: who reads slowly is cut off by the event thread.
 */
#ifndef TARN_DAEMON_DRIVER_H
#define TARN_DAEMON_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/queue.h"
#include "daemon/request.h"
#include "engine/engine.h"

struct metrics;

struct driver {
	struct tarn_engine_options
		engine_options; /* strings outlive the driver */
	struct queue *replies; /* the event thread's */
	struct metrics *metrics; /* that steps count in; NULL: none */
	struct queue inbox; /* requests that are prepared */
	pthread_t thread;
	bool is_started;
	/*
	 * Written by the driver before REPLY_LOADED is sent, read after it was received. Stays
	 * valid until driver_deinit(), for the text functions.
	 */
	struct tarn_engine *engine;
	atomic_bool is_draining; /* what runs may finish, nothing else starts */
	atomic_bool is_aborting; /* what runs is given up too */
	_Atomic uint32_t nr_running; /* sequences */
};

/*
 * Start the thread. @metrics outlives the driver, or is NULL. @options->progress may be set; it
 * is called on the driver's thread, and the driver ends the load by itself when it is told to
 * drain. Return: 0 or -errno.
 */
int driver_init(struct driver *driver,
		const struct tarn_engine_options *options,
		struct queue *replies, struct metrics *metrics);
/* Any thread. The reference to @request passes to the driver. */
void driver_submit(struct driver *driver, struct request *request);
/*
 * Refuse what waits and end when nothing runs any more (REPLY_DRAINED); @abort: give up what runs
 * as well. Event thread.
 */
void driver_drain(struct driver *driver, bool abort);
/* Wait for the thread, free the engine. After REPLY_DRAINED, REPLY_FATAL or a drain only. */
void driver_deinit(struct driver *driver);

#endif /* TARN_DAEMON_DRIVER_H */
