/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the exchange alone: the fixture, two of them in one directory
 * over pools of memfd, and what such tests do over and over. Included by test
 * programs only, behind tests/harness.h.
 */
#ifndef TARN_TESTS_ENGINE_EXCHANGE_PAIR_H
#define TARN_TESTS_ENGINE_EXCHANGE_PAIR_H

#include "tests/engine/exchange_kit.h"
#include "tests/random.h"

enum { PAGE = 4096, LIMIT_PAGES = 1024 };

/* Another process, made before there are threads, which waits until it is to begin. */
struct other {
	pid_t pid;
	int go, ready; /* ends of pipes */
};

enum { MAX_OTHERS = 3 };

FIXTURE(exchange)
{
	struct other others[MAX_OTHERS];
	int nr_others; /* that have begun */
	struct kit_dir dir;
	struct kvpool *pools[3];
	struct kv_exchange *a, *b, *c; /* c: as needed */
	int nr_fds;
};

static inline struct kvpool *pool_ok(void)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.backend = KVPOOL_BACKEND_MEMFD,
		.limit_bytes = LIMIT_PAGES * PAGE,
		.spare_limit_bytes = LIMIT_PAGES / 2 * PAGE,
	};
	struct kvpool *pool = NULL;

	ASSERT_EQ(0, kvpool_open(&options, &pool));
	return pool;
}

static inline struct kvpool_key key_of(uint64_t i)
{
	struct kvpool_key key = { { 0 } };

	memcpy(key.bytes, &i, sizeof(i));
	return key;
}

/* Of @nr pages of @byte, published under @i in the pool and offered; held by the caller. */
static inline struct kvpool_buf *offer_ok(struct kv_exchange *exchange,
					  uint64_t i, uint8_t byte, uint64_t nr)
{
	struct kvpool_mark marks[] = { { key_of(i), PAGE },
				       { key_of(i + 1000000), nr * PAGE } };
	struct kvpool_buf *buf = NULL;

	ASSERT_EQ(0, kvpool_buf_create(exchange->pool, nr * PAGE, 0, &buf));
	ASSERT_EQ(0, kvpool_buf_commit(buf, 0, nr * PAGE));
	memset(kvpool_buf_addr(buf), byte, nr * PAGE);
	ASSERT_EQ(0, kvpool_buf_seal(buf, nr * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, marks, 2));
	ASSERT_EQ(0, kv_exchange_offer(exchange, buf, marks, 2));
	return buf;
}

static inline void be_other(const struct kit_dir *dir, int go, int ready)
{
	char byte;

	if (read(go, &byte, 1) != 1)
		_exit(0);
	offer_ok(kit_exchange(pool_ok(), dir), 7, 0x77, 2);
	if (write(ready, "", 1) == 1)
		pause();
	_exit(1);
}

static inline struct other make_other(const struct kit_dir *dir)
{
	int go[2], ready[2];

	ASSERT_EQ(0, pipe(go));
	ASSERT_EQ(0, pipe(ready));
	pid_t pid = fork();

	if (!pid) {
		close(go[1]);
		be_other(dir, go[0], ready[1]);
	}
	close(go[0]);
	close(ready[1]);
	return (struct other){ pid, go[1], ready[0] };
}

FIXTURE_SETUP(exchange)
{
	self->dir = kit_dir_make();
	for (int i = 0; i < MAX_OTHERS; i++)
		self->others[i] = make_other(&self->dir);
	for (int i = 0; i < 3; i++)
		self->pools[i] = pool_ok();
	self->nr_fds = kit_nr_fds();
	self->a = kit_exchange(self->pools[0], &self->dir);
	self->b = kit_exchange(self->pools[1], &self->dir);
}

FIXTURE_TEARDOWN(exchange)
{
	kv_exchange_destroy(self->a);
	kv_exchange_destroy(self->b);
	kv_exchange_destroy(self->c);
	EXPECT_EQ(self->nr_fds, kit_nr_fds());
	for (int i = 0; i < 3; i++)
		kvpool_put(self->pools[i]);
	for (int i = 0; i < MAX_OTHERS; i++) {
		kill(self->others[i].pid, SIGKILL);
		waitpid(self->others[i].pid, NULL, 0);
	}
	kit_dir_remove(&self->dir);
}

static inline void end_offer(struct kv_exchange *exchange,
			     struct kvpool_buf *buf)
{
	kv_exchange_withdraw(exchange, buf);
	kvpool_buf_unpublish(buf);
	kvpool_buf_put(buf);
}

static inline int search(struct kv_exchange *exchange, uint64_t i,
			 struct kv_exchange_found *out)
{
	struct kvpool_key key = key_of(i);

	memset(out, 0xcc, sizeof(*out));
	kv_exchange_begin(exchange);
	return kv_exchange_find(exchange, &key, out);
}

/* What a key leads to: -1: nowhere, else the first byte of it. */
static inline int byte_of(struct kv_exchange *exchange, uint64_t i)
{
	struct kv_exchange_found found;
	struct kvpool_buf *buf;

	if (search(exchange, i, &found)) {
		EXPECT_EQ(-1, found.fd);
		return -1;
	}
	EXPECT_EQ(PAGE, found.n_bytes);
	ASSERT_EQ(0, kvpool_buf_import(exchange->pool, found.fd, &buf));
	close(found.fd);
	int byte = *(uint8_t *)kvpool_buf_addr(buf);

	kvpool_buf_put(buf);
	return byte;
}

/* The next of the other processes begins. */
static inline pid_t start_other(struct fixture_exchange *self)
{
	struct other *other = &self->others[self->nr_others++];
	char byte;

	ASSERT_EQ(1, write(other->go, "", 1));
	ASSERT_EQ(1, read(other->ready, &byte, 1));
	return other->pid;
}

static inline void stop_other(pid_t pid)
{
	int status;

	ASSERT_EQ(0, kill(pid, SIGSTOP));
	ASSERT_EQ(pid, waitpid(pid, &status, WUNTRACED));
	ASSERT_TRUE(WIFSTOPPED(status));
}

static inline void end_other(pid_t pid)
{
	ASSERT_EQ(0, kill(pid, SIGKILL));
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
}

static inline uint32_t below(uint64_t *random, uint32_t n)
{
	return random_next(random) % n;
}

#endif /* TARN_TESTS_ENGINE_EXCHANGE_PAIR_H */
