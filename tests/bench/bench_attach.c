/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it takes an engine on a GPU to go on from a prefix that another process
 * has published: from a prompt's tokens to a sequence that holds them (look-up
 * and mapping), and to its first token. Each prompt is new to it; what it costs
 * once it is known is timed beside.
 *
 * Usage: bench_attach --model FILE [--context N] [--prompts N]
 * Bars: 32k tokens of an 8B-shaped model attached within 20 ms (goal 5).
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/kv/libkvpool.h"
#include "tests/bench/times.h"

enum { MAX_PROMPTS = 50 };

static uint32_t nr_context = 32768, nr_prompts = 5;
static char meeting_dir[] = "/tmp/bench-attach-XXXXXX";
static struct tarn_engine *engine;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "bench_attach: %s: %s\n", what, why);
	exit(1);
}

static void load(const char *path)
{
	struct tarn_engine_options options = { .model_path = path,
					       .device = TARN_DEVICE_CUDA,
					       .max_batch_tokens = 2048 };
	char err[256];

	if (tarn_engine_create(&options, &engine, err, sizeof(err)))
		fail("load", err);
	if (!tarn_engine_info(engine)->shares_prefixes)
		fail("load", "prefixes are not shared");
}

static struct tarn_seq *create(uint32_t prompt)
{
	int32_t *ids = malloc(nr_context * sizeof(*ids));
	struct tarn_seq_params params = {
		.prompt = ids,
		.nr_prompt = nr_context,
		.max_new_tokens = 2,
		.nr_choices = 1,
		.sampling = { .top_p = 1, .ignore_eos = true },
	};
	uint32_t nr_vocab = tarn_engine_info(engine)->nr_vocab - 300;
	struct tarn_seq *seq;
	char err[256];

	for (uint32_t i = 0; ids && i < nr_context; i++)
		ids[i] = (int32_t)((i * 7919u + (prompt + 1) * 104729u) %
				   nr_vocab);
	if (!ids || tarn_seq_create(engine, &params, &seq, err, sizeof(err)))
		fail("sequence", ids ? err : "no memory");
	free(ids);
	return seq;
}

/* All of the prompt, and its first token. */
static void compute(struct tarn_seq *seq)
{
	uint32_t left = nr_context - tarn_seq_cached(seq), most = 2048;

	while (left) {
		struct tarn_work work = { seq, left < most ? left : most };
		struct tarn_result result;
		int err = tarn_step(engine, &work, 1, &result);

		if (err || result.status)
			fail("step", strerror(-(err ? err : result.status)));
		left -= work.nr_tokens;
	}
}

/* The other process: makes the prefixes, and keeps them until nobody wants them. */
static void publish(const char *path, int ready, int end)
{
	char byte = 0;

	load(path);
	for (uint32_t i = 0; i < nr_prompts; i++) {
		struct tarn_seq *seq = create(i);

		compute(seq);
		tarn_seq_destroy(seq);
		tarn_engine_tidy(engine);
	}
	if (write(ready, &byte, 1) != 1 || read(end, &byte, 1))
		fail("pipe", strerror(errno));
	tarn_engine_destroy(engine);
	exit(0);
}

struct times {
	double attach[MAX_PROMPTS], token[MAX_PROMPTS];
};

static void look(struct times *times, bool is_known)
{
	for (uint32_t i = 0; i < nr_prompts; i++) {
		double start = clock_s(CLOCK_MONOTONIC), attached;
		struct tarn_seq *seq = create(i);

		attached = clock_s(CLOCK_MONOTONIC);
		if (tarn_seq_cached(seq) + 256 < nr_context)
			fail("prefix", "was not found");
		compute(seq);
		times->attach[i] = (attached - start) * 1e3;
		times->token[i] = (clock_s(CLOCK_MONOTONIC) - attached) * 1e3;
		tarn_seq_destroy(seq);
		tarn_engine_tidy(engine);
	}
	const double first = times->attach[0], first_token = times->token[0];

	printf("attach to %u tokens%s: first %.2f ms, median %.2f, worst %.2f; "
	       "then to a token: first %.2f, median %.2f\n",
	       nr_context, is_known ? ", known" : " of a peer", first,
	       quantile(times->attach, nr_prompts, 0.5),
	       times->attach[nr_prompts - 1], first_token,
	       quantile(times->token, nr_prompts, 0.5));
}

static void parse(int argc, char **argv, const char **path)
{
	static const struct option options[] = {
		{ "model", required_argument, NULL, 'm' },
		{ "context", required_argument, NULL, 'c' },
		{ "prompts", required_argument, NULL, 'p' },
		{ 0 },
	};
	int opt;

	*path = getenv("TARN_TEST_MODEL");
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'm')
			*path = optarg;
		else if (opt == 'c')
			nr_context = (uint32_t)atoi(optarg);
		else if (opt == 'p')
			nr_prompts = (uint32_t)atoi(optarg);
		else
			exit(2);
	}
	if (!*path) {
		printf("bench_attach: no model: give --model or set TARN_TEST_MODEL\n");
		exit(4);
	}
	if (!nr_context || !nr_prompts || nr_prompts > MAX_PROMPTS)
		fail("options", "a context, and 1 to 50 prompts");
}

static void remove_dir(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/tarn/secret", meeting_dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/tarn", meeting_dir);
	rmdir(path);
	rmdir(meeting_dir);
}

int main(int argc, char **argv)
{
	static struct times times;
	int ready[2], end[2], status = 0;
	char why[200], byte;
	const char *path;

	parse(argc, argv, &path);
	/* They meet here, and nobody else with them. */
	if (!mkdtemp(meeting_dir) ||
	    setenv("XDG_RUNTIME_DIR", meeting_dir, 1) || pipe(ready) ||
	    pipe(end))
		fail("begin", strerror(errno));
	/* No process forks with a GPU. */
	pid_t pid = fork();

	if (!pid) {
		close(end[1]);
		publish(path, ready[1], end[0]);
	}
	atexit(remove_dir);
	close(ready[1]);
	if (kvpool_cuda_check(0, why, sizeof(why))) {
		printf("bench_attach: %s\n", why);
		return 4;
	}
	load(path);
	/* What a first prompt costs an engine is not the prefix's: one that nobody else has. */
	struct tarn_seq *seq = create(nr_prompts);

	compute(seq);
	tarn_seq_destroy(seq);
	if (read(ready[0], &byte, 1) != 1)
		fail("peer", "ended early");
	look(&times, false);
	look(&times, true);
	close(end[1]);
	waitpid(pid, &status, 0);
	tarn_engine_destroy(engine);
	return status != 0;
}
