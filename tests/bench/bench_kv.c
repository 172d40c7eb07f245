/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the KV room costs on and off the token path: growth a token, forks,
 * prefix matches, plans, and pages. Shape of SmolLM2-135M (f16, T = 64,
 * 1.4 MiB a tile) unless said; times are medians, one thread.
 *
 * Usage: bench_kv. Bars: growth at most 1 us a token with pages made ahead;
 * fork of 32k tokens at most 0.3 ms and one tile; a plan of 16 decodes a few us.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/plan.h"
#include "tests/bench/times.h"

enum { MAX_TOKENS = 40960, NR_DECODES = 16 };

static int32_t tokens[MAX_TOKENS];
static const struct kvpool_key salt;

static double now_us(void)
{
	return clock_s(CLOCK_MONOTONIC) * 1e6;
}

static void must(int err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "bench_kv: %s: %s\n", what, strerror(-err));
	exit(1);
}

struct room {
	struct kvpool *pool;
	struct kv_cache *cache;
};

static struct room make_room(uint64_t limit_bytes)
{
	struct room room;
	struct kvpool_options pool_options = {
		.size = sizeof(pool_options),
		.backend = KVPOOL_BACKEND_MEMFD,
		.limit_bytes = limit_bytes,
		.spare_limit_bytes = limit_bytes / 4,
	};

	must(kvpool_open(&pool_options, &room.pool), "pool");
	struct kv_cache_options options = {
		.pool = room.pool,
		.elem = ATTN_F16,
		.nr_streams = 1,
		.streams = { { .nr_layers = 30,
			       .nr_kv_heads = 3,
			       .head_dim = 64 } },
		.max_tokens = MAX_TOKENS,
		.prefix_cache = true,
	};

	must(kv_cache_create(&options, &room.cache), "cache");
	return room;
}

static void drop_room(struct room *room)
{
	kv_cache_destroy(room->cache);
	kvpool_put(room->pool);
}

static struct kv_seq *open_seq(struct kv_cache *cache, uint32_t nr,
			       uint32_t reserve)
{
	struct kv_seq *seq;
	uint32_t matched;
	enum kv_miss miss;

	must(kv_seq_open(cache, tokens, nr, reserve, &salt, 0, &seq, &matched,
			 &miss),
	     "open");
	if (matched < nr)
		must(kv_seq_append(seq, tokens + matched, nr - matched),
		     "append");
	return seq;
}

/* One token at a time, as in decoding; pages ahead or not, new or recycled. */
static void bench_growth(const char *name, bool is_ahead, bool is_recycled)
{
	enum { NR = 2048 };
	static double us[NR];
	struct room room = make_room(1ull << 30);
	double sum = 0;

	if (is_recycled) {
		/* A cached text makes room for another, and leaves it its pages. */
		kv_seq_close(open_seq(room.cache, NR, NR));
		must(kvpool_set_limit(room.pool, (NR + 128) * 23040ull),
		     "limit");
		tokens[0]++;
	}
	struct kv_seq *seq = open_seq(room.cache, 1, NR + 1);

	for (uint32_t i = 0; i < NR; i++) {
		double start = now_us();

		must(kv_seq_append(seq, tokens + i + 1, 1), "append");
		us[i] = now_us() - start;
		sum += us[i];
		if (is_ahead)
			kv_seq_prepare(seq);
	}
	double median = quantile(us, NR, 0.5);

	printf("growth, %-28s mean %6.3f us a token, median %.3f, p99 %.3f, worst %.1f\n",
	       name, sum / NR, median, us[NR * 99 / 100], us[NR - 1]);
	kv_seq_close(seq);
	drop_room(&room);
}

static void bench_fork_and_match(void)
{
	enum { NR = 32768, TIMES = 21 };
	double forks[TIMES], matches[TIMES];
	struct room room = make_room(2ull << 30);
	struct kvpool_stat before, after;
	struct kv_seq *seq = open_seq(room.cache, NR + 37, NR + 100), *child;
	uint64_t most = 0;

	must(kv_seq_seal(seq), "seal");
	for (int i = 0; i < TIMES; i++) {
		kvpool_stat(room.pool, &before);
		double start = now_us();

		must(kv_seq_fork(seq, NR + 100, &child), "fork");
		forks[i] = now_us() - start;
		kvpool_stat(room.pool, &after);
		if (after.resident_bytes - before.resident_bytes > most)
			most = after.resident_bytes - before.resident_bytes;
		kv_seq_close(child);

		start = now_us();
		child = open_seq(room.cache, NR, NR + 100);
		matches[i] = now_us() - start;
		kv_seq_close(child);
	}
	double fork_us = quantile(forks, TIMES, 0.5);
	double match_us = quantile(matches, TIMES, 0.5);

	printf("fork of %d tokens: median %.1f us, worst %.1f us, at most %.2f MiB new\n",
	       NR, fork_us, forks[TIMES - 1], (double)most / (1 << 20));
	printf("prefix match of %d tokens: median %.1f us (%.2f ns a token)\n",
	       NR, match_us, match_us * 1e3 / NR);
	kv_seq_close(seq);
	drop_room(&room);
}

static void bench_plan(const char *name, uint32_t len, bool is_shared)
{
	enum { TIMES = 501 };
	static double us[TIMES];
	struct room room = make_room(8ull << 30);
	struct plan_item items[NR_DECODES];
	struct kv_seq *seqs[NR_DECODES];
	struct plan_builder *builder;
	struct attn_plan plan;

	must(plan_builder_create(&builder), "builder");
	for (uint32_t i = 0; i < NR_DECODES; i++) {
		if (i && is_shared) {
			must(kv_seq_fork(seqs[0], len + 64, &seqs[i]), "fork");
		} else {
			tokens[0] = (int32_t)i + 1000000;
			seqs[i] = open_seq(room.cache, len, len + 64);
		}
	}
	for (uint32_t i = 0; i < NR_DECODES; i++) {
		must(kv_seq_append(seqs[i], tokens, 1), "append");
		items[i] = (struct plan_item){ seqs[i], i, 1, len };
	}
	for (int i = 0; i < TIMES; i++) {
		double start = now_us();

		must(plan_build(builder, room.cache, 0, items, NR_DECODES, 64,
				&plan),
		     "plan");
		us[i] = now_us() - start;
	}
	printf("plan of %d decodes at %5u tokens, %-7s median %6.2f us, %u units\n",
	       NR_DECODES, len, name, quantile(us, TIMES, 0.5), plan.nr_units);
	for (uint32_t i = 0; i < NR_DECODES; i++)
		kv_seq_close(seqs[i]);
	plan_builder_destroy(builder);
	drop_room(&room);
}

/* Pages themselves: new ones, recycled ones, and write-protection for publication. */
static void bench_pool(void)
{
	enum { BYTES = 64 << 20, PAGES = BYTES / 4096 };
	struct kvpool_options options = { .size = sizeof(options),
					  .backend = KVPOOL_BACKEND_MEMFD,
					  .limit_bytes = 2ull * BYTES,
					  .spare_limit_bytes = BYTES };
	struct kvpool_mark mark = { .n_bytes = BYTES };
	struct kvpool *pool;
	struct kvpool_buf *buf;
	double us[2];

	must(kvpool_open(&options, &pool), "pool");
	for (int i = 0; i < 2; i++) {
		kvpool_buf_put(i ? buf : NULL);
		must(kvpool_buf_create(pool, BYTES, 0, &buf), "buffer");
		double start = now_us();

		must(kvpool_buf_commit(buf, 0, BYTES), "commit");
		us[i] = now_us() - start;
	}
	printf("commit of 64 MiB: new pages %.2f us a page, recycled %.4f us a page\n",
	       us[0] / PAGES, us[1] / PAGES);
	must(kvpool_buf_seal(buf, BYTES), "seal");
	double start = now_us();

	must(kvpool_buf_publish(buf, &mark, 1), "publish");
	printf("publication of 64 MiB: %.2f ms\n", (now_us() - start) * 1e-3);
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

int main(void)
{
	for (uint32_t i = 0; i < MAX_TOKENS; i++)
		tokens[i] = (int32_t)(i % 49152);
	bench_growth("pages not made ahead", false, false);
	bench_growth("pages made ahead", true, false);
	bench_growth("recycled pages, not ahead", false, true);
	bench_fork_and_match();
	bench_plan("apart", 1000, false);
	bench_plan("shared", 8000, true);
	bench_pool();
	return 0;
}
