/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe of sampling on a GPU: the tokens and bits of sample_row() on the host,
 * by every size of cluster, and speed. Run by scripts/bench-gpu-probe:
 * gpu_sample CUBIN_DIR sample-small|sample-check|sample-time. Exits 1 if a check
 * fails.
 */
#include "tests/bench/gpu_sample_kit.cuh"
#include "tests/bench/gpu_kit.cuh"

enum {
	POISON = 0xff,
};

/* Draws in device memory. */
struct batch {
	uint32_t n_vocab, stride, nr;
	float *logits;
	uint64_t *masks;
	struct gpu_sample_row *rows;
	struct gpu_sample_result *results;
};

static CUfunction kernel;

static void batch_init(struct batch *b, const struct draws *d)
{
	std::vector<struct gpu_sample_row> rows = d->rows;

	*b = { d->n_vocab, d->stride, (uint32_t)d->rows.size() };
	RT_OK(cudaMalloc(&b->logits, d->logits.size() * 4));
	RT_OK(cudaMalloc(&b->masks, d->masks.size() * 8));
	RT_OK(cudaMalloc(&b->rows, b->nr * sizeof(*b->rows)));
	RT_OK(cudaMalloc(&b->results, b->nr * sizeof(*b->results)));
	RT_OK(cudaMemcpy(b->logits, d->logits.data(), d->logits.size() * 4,
			 cudaMemcpyHostToDevice));
	RT_OK(cudaMemcpy(b->masks, d->masks.data(), d->masks.size() * 8,
			 cudaMemcpyHostToDevice));
	for (struct gpu_sample_row &row : rows)
		if (row.allowed)
			row.allowed =
				b->masks + (row.allowed - d->masks.data());
	RT_OK(cudaMemcpy(b->rows, rows.data(), b->nr * sizeof(*b->rows),
			 cudaMemcpyHostToDevice));
}

static void batch_deinit(struct batch *b)
{
	RT_OK(cudaFree(b->logits));
	RT_OK(cudaFree(b->masks));
	RT_OK(cudaFree(b->rows));
	RT_OK(cudaFree(b->results));
}

static void run_sample(const struct batch *b, uint32_t cluster,
		       cudaStream_t stream)
{
	struct gpu_sample_params params = { b->logits, b->rows, b->results,
					    b->n_vocab, b->stride };
	void *args[] = { &params };
	CUlaunchAttribute attr = {};
	CUlaunchConfig config = {};

	attr.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	attr.value.clusterDim = { cluster, 1, 1 };
	config.gridDimX = cluster;
	config.gridDimY = b->nr;
	config.gridDimZ = 1;
	config.blockDimX = GPU_SAMPLE_THREADS;
	config.blockDimY = 1;
	config.blockDimZ = 1;
	config.sharedMemBytes = GPU_SAMPLE_SMEM_BYTES;
	config.hStream = stream;
	config.attrs = &attr;
	config.numAttrs = 1;
	CU_OK(cuLaunchKernelEx(&config, kernel, args, NULL));
}

/* ---- checks ---- */

static void check_one(uint32_t n_vocab, uint32_t nr, uint64_t seed)
{
	std::vector<struct gpu_sample_result> got(nr);
	struct draws d;
	struct batch b;
	char line[200];

	draws_init(&d, n_vocab, nr, seed);
	batch_init(&b, &d);
	for (uint32_t cluster = 1; cluster <= GPU_SAMPLE_MAX_CLUSTER;
	     cluster *= 2) {
		uint32_t wrong;

		RT_OK(cudaMemset(b.results, POISON, nr * sizeof(*b.results)));
		run_sample(&b, cluster, 0);
		RT_OK(cudaMemcpy(got.data(), b.results, nr * sizeof(*b.results),
				 cudaMemcpyDeviceToHost));
		wrong = nr_wrong_draws(&d, got);
		snprintf(line, sizeof(line),
			 "sample %u rows of %u, cluster %u: %u differ", nr,
			 n_vocab, cluster, wrong);
		report(wrong == 0, line);
	}
	fflush(stdout);
	batch_deinit(&b);
}

static void run_checks(void)
{
	static const uint32_t vocabs[] = { 1,	  2,	  31,	  32000, 49152,
					   50257, 128256, 262144, 300000 };

	for (uint32_t n_vocab : vocabs) {
		check_one(n_vocab, 1, n_vocab + 1);
		check_one(n_vocab, n_vocab > 200000 ? 64 : 256, n_vocab + 2);
	}
	for (uint64_t seed = 0; seed < 20; seed++)
		check_one(1000 + (uint32_t)seed * 97, 256, seed);
}

static void run_small(void)
{
	check_one(31, NR_KINDS * 2, 1);
	check_one(6001, NR_KINDS, 2);
}

/* ---- times ---- */

struct ask {
	const char *name;
	float temperature;
	bool want_logprob;
	uint32_t nr_top;
	bool is_masked;
	uint32_t top_k;
};

static void time_one(struct draws *d, const struct ask *ask, const char *kind)
{
	uint32_t nr = (uint32_t)d->rows.size();
	uint32_t cluster = gpu_sample_cluster(nr, (uint32_t)nr_sms);
	double bytes = (double)nr * d->n_vocab * 4, us;
	struct batch b;

	for (uint32_t i = 0; i < nr; i++) {
		struct gpu_sample_row *row = &d->rows[i];

		*row = {};
		row->seed = i;
		row->logits_row = i;
		row->temperature = ask->temperature;
		row->want_logprob = ask->want_logprob;
		row->top_k = ask->top_k;
		row->top_p = ask->top_k ? 0.9f : 1;
		row->nr_top = ask->nr_top;
		if (ask->is_masked)
			row->allowed = &d->masks[(size_t)i * d->mask_words];
	}
	batch_init(&b, d);
	us = time_graph(
		     [&](cudaStream_t stream) {
			     run_sample(&b, cluster, stream);
		     },
		     NULL) *
	     1e3;
	printf("sample %-22s %s %3u x %6u cluster %u: %7.2f us, %.3f TB/s of one "
	       "reading\n",
	       ask->name, kind, nr, d->n_vocab, cluster, us, bytes / us * 1e-6);
	fflush(stdout);
	batch_deinit(&b);
}

static void run_times(void)
{
	static const struct ask asks[] = {
		{ "greedy", 0, false, 0, false },
		{ "temperature", 1, false, 0, false },
		{ "greedy, masked", 0, false, 0, true },
		{ "temperature, masked", 1, false, 0, true },
		{ "greedy, logprob", 0, true, 0, false },
		{ "temperature, top 20", 1, true, 20, false },
		{ "top_k 20, top_p 0.9", 1, false, 0, false, 20 },
	};
	static const uint32_t sizes[] = { 1, 8, 32, 128, 256 };

	for (uint32_t nr : sizes) {
		for (int peaked = 0; peaked < 2; peaked++) {
			struct draws d = { 128256, 128256, 128256 / 64 };

			d.rows.resize(nr);
			d.logits.resize((size_t)nr * d.stride);
			d.masks.assign((size_t)nr * d.mask_words,
				       0x5a5a5a5a5a5a5a5aull);
			for (size_t i = 0; i < d.logits.size(); i++)
				d.logits[i] = kit_logit(
					peaked ? KIND_PEAKED : KIND_WIDE,
					i / d.stride, (uint32_t)(i % d.stride),
					d.n_vocab);
			for (const struct ask &ask : asks)
				time_one(&d, &ask,
					 peaked ? "peaked" : "wide  ");
		}
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "";

	if (argc < 3 ||
	    !strstr("sample-small sample-check sample-time", mode)) {
		fprintf(stderr, "usage: gpu_sample CUBIN_DIR sample-small|"
				"sample-check|sample-time\n");
		return 2;
	}
	gpu_init();
	kernel = load_kernel(argv[1], "sample.cubin", "sample_rows",
			     GPU_SAMPLE_SMEM_BYTES);
	if (strcmp(mode, "sample-time") == 0)
		run_times();
	else if (strcmp(mode, "sample-check") == 0)
		run_checks();
	else
		run_small();
	printf("%d checks failed\n", nr_failed);
	return nr_failed != 0;
}
