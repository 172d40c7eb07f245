/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzing of the GGUF reader. With clang's libFuzzer:
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -DTARN_LIBFUZZER -D_GNU_SOURCE -I. \
 *		tests/fuzz/fuzz_gguf.c engine/model/gguf*.c -lm -o fuzz_gguf
 *
 * Without it, `make SAN=address,undefined build/san-address-undefined/tests/fuzz/fuzz_gguf`
 * builds a driver of its own, which replays files and mutates seeds.
 */
#include <getopt.h>

#include "tests/fuzz/gguf_exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	gguf_exercise(data, size, 0);
	gguf_exercise(data, size, GGUF_METADATA_ONLY);
	return 0;
}

#ifndef TARN_LIBFUZZER

static uint8_t *read_file(const char *path, size_t *out_size)
{
	FILE *f = fopen(path, "rb");
	struct gw_buf buf = { 0 };
	uint8_t chunk[65536];
	size_t nr;

	if (!f)
		return NULL;
	while ((nr = fread(chunk, 1, sizeof(chunk), f)) > 0)
		gw_put(&buf, chunk, nr);
	fclose(f);
	*out_size = buf.len;
	return buf.data;
}

static void run_one(const char *name, const uint8_t *data, size_t size,
		    uint64_t nr_rounds, uint64_t seed)
{
	LLVMFuzzerTestOneInput(data, size);

	uint64_t nr_opened = gguf_fuzz_mutations(data, size, nr_rounds, seed);

	printf("%s: %llu mutations, %llu opened\n", name,
	       (unsigned long long)nr_rounds, (unsigned long long)nr_opened);
}

int main(int argc, char **argv)
{
	uint64_t nr_rounds = 0, seed = 1;
	int option;

	while ((option = getopt(argc, argv, "n:s:h")) != -1) {
		if (option == 'n') {
			nr_rounds = strtoull(optarg, NULL, 0);
		} else if (option == 's') {
			seed = strtoull(optarg, NULL, 0) | 1;
		} else {
			fprintf(stderr,
				"usage: fuzz_gguf [-n MUTATIONS] [-s SEED] [FILE...]\n"
				"Opens each FILE (or a seed of its own), then mutations of it.\n");
			return option == 'h' ? 0 : 1;
		}
	}

	size_t size;

	if (optind == argc) {
		uint8_t *data = gguf_fuzz_seed(&size);

		run_one("seed", data, size, nr_rounds, seed);
		free(data);
	}
	for (int i = optind; i < argc; i++) {
		uint8_t *data = read_file(argv[i], &size);

		if (!data) {
			fprintf(stderr, "%s: cannot read it, or it is empty\n",
				argv[i]);
			return 1;
		}
		run_one(argv[i], data, size, nr_rounds, seed);
		free(data);
	}
	return 0;
}

#endif /* TARN_LIBFUZZER */
