/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GGUF reader on files that are wrong: truncated, flipped and hostile.
 * Each test breaks one thing in an otherwise good file and checks the errno
 * and the message.
 */
#include <sys/stat.h>

#include "tests/fuzz/gguf_exercise.h"
#include "tests/harness.h"

/* Opens bytes that must be refused with @rc and @message. */
static void expect_refused(const uint8_t *data, size_t size, unsigned int flags,
			   int rc, const char *message)
{
	struct gguf *gguf = NULL;
	char err[200] = "";

	EXPECT_EQ(rc,
		  gguf_open_memory(data, size, flags, &gguf, err, sizeof(err)));
	EXPECT_STREQ(message, err);
	EXPECT_TRUE(gguf == NULL);
}

/* The same for what the writer holds. */
static void expect_bad(struct gguf_writer *w, int rc, const char *message)
{
	size_t size;
	uint8_t *file = gw_finish(w, &size);

	expect_refused(file, size, 0, rc, message);
	free(file);
}

#define WRITER(w) struct gguf_writer w = GGUF_WRITER_INIT

TEST(other_files_are_not_gguf)
{
	static const uint8_t elf[32] = "\177ELF\2\1\1";
	static const uint8_t old[32] = "lmgg\1";

	expect_refused(elf, sizeof(elf), 0, -EINVAL,
		       "not a GGUF file: it begins with \"?ELF\"");
	expect_refused(old, sizeof(old), 0, -EINVAL,
		       "not a GGUF file: it begins with \"lmgg\"");
}

TEST(versions_are_named)
{
	WRITER(w);

	w.version = 1;
	expect_bad(&w, -ENOTSUP,
		   "GGUF version 1 is not supported (2 and 3 are)");
	w.version = 4;
	expect_bad(&w, -ENOTSUP,
		   "GGUF version 4 is not supported (2 and 3 are)");
	w.version = 0;
	expect_bad(&w, -ENOTSUP,
		   "GGUF version 0 is not supported (2 and 3 are)");
	w.version = __builtin_bswap32(3);
	expect_bad(&w, -ENOTSUP, "big-endian GGUF files are not supported");
}

TEST(every_truncation_is_refused)
{
	size_t size;
	uint8_t *file = gguf_fuzz_seed(&size);
	char err[200];

	for (size_t cut = 0; cut < size; cut++) {
		struct gguf *gguf = NULL;
		uint8_t *part = malloc(cut + !cut);

		ASSERT_TRUE(part != NULL);
		memcpy(part, file, cut);
		err[0] = 0;
		EXPECT_EQ(-EINVAL, gguf_open_memory(part, cut, 0, &gguf, err,
						    sizeof(err)))
		{
			TH_LOG("%zu of %zu bytes: %s", cut, size, err);
		}
		EXPECT_TRUE(err[0]);
		free(part);
	}
	ASSERT_EQ(0, gguf_exercise(file, size, 0));
	free(file);
}

TEST(truncations_say_where)
{
	WRITER(w);
	size_t size;

	gw_str(&w, "name", "value"); /* bytes 24 to 54 */
	gw_tensor(&w, "t", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, NULL,
		  32); /* to 91; data 96 */

	uint8_t *file = gw_finish(&w, &size);

	ASSERT_EQ(128, size);
	expect_refused(file, 0, 0, -EINVAL,
		       "truncated: 0 bytes, a GGUF header has 24");
	expect_refused(file, 23, 0, -EINVAL,
		       "truncated: 23 bytes, a GGUF header has 24");
	expect_refused(
		file, 24, 0, -EINVAL,
		"1 metadata keys do not fit the 0 bytes left in the file");
	/* With fewer keys and tensors announced the cut shows further on. */
	memset(file + 8, 0, 8);
	expect_refused(file, 38, 0, -EINVAL,
		       "metadata key name: its value is truncated at byte 38");
	expect_refused(file, 47, 0, -EINVAL,
		       "metadata key name: its value is truncated at byte 47");
	expect_refused(file, 52, 0, -EINVAL,
		       "metadata key name: a string of 5 bytes, 4 are left");
	file[8] = 1;
	expect_refused(file, 75, 0, -EINVAL,
		       "1 tensors do not fit the 22 bytes left in the file");
	expect_refused(file, 82, 0, -EINVAL, "tensor t: truncated at byte 82");
	expect_refused(
		file, 127, 0, -EINVAL,
		"tensor t: ends at byte 128, the file has 127 (truncated?)");
	free(file);
}

TEST(every_flipped_bit_is_refused_or_harmless)
{
	size_t size, nr_refused = 0;
	uint8_t *file = gguf_fuzz_seed(&size);

	for (size_t bit = 0; bit < size * 8; bit++) {
		file[bit / 8] ^= 1u << bit % 8;
		nr_refused += gguf_exercise(file, size, 0) != 0;
		file[bit / 8] ^= 1u << bit % 8;
	}
	/* Counts, types, lengths and offsets: a good part of the file. */
	EXPECT_GT(nr_refused, 1500);
	free(file);
}

TEST(huge_counts_are_refused_before_anything_is_allocated)
{
	WRITER(w);

	w.nr_kvs = UINT64_MAX;
	expect_bad(
		&w, -EINVAL,
		"18446744073709551615 metadata keys do not fit the 0 bytes left in the file");
	w.nr_tensors = 1ull << 61;
	expect_bad(
		&w, -EINVAL,
		"2305843009213693952 tensors do not fit the 0 bytes left in the file");
	gw_u32(&w, "a", 1);
	w.nr_kvs = 2;
	expect_bad(&w, -EINVAL,
		   "2 metadata keys do not fit the 17 bytes left in the file");
	/* One more than 2^64 / 14: times 14 is 12 in 64 bits. */
	gw_u32(&w, "a", 1);
	w.nr_kvs = 1317624576693539402;
	expect_bad(
		&w, -EINVAL,
		"1317624576693539402 metadata keys do not fit the 17 bytes left in the file");
	gw_array(&w, "a", GGUF_U32, NULL, 1, 4);
	memset(w.kvs.data + w.kvs.len - 12, 0xff, 8);
	expect_bad(
		&w, -EINVAL,
		"metadata key a: 18446744073709551615 elements do not fit the 4 bytes left");
	gw_array(&w, "a", GGUF_U64, NULL, 1, 8);
	/* 2^61 + 1 elements: times 8 is 8 in 64 bits. */
	memcpy(w.kvs.data + w.kvs.len - 16, &(uint64_t){ (1ull << 61) + 1 }, 8);
	expect_bad(
		&w, -EINVAL,
		"metadata key a: 2305843009213693953 elements do not fit the 8 bytes left");
}

TEST(counts_in_a_sparse_file_cost_nothing)
{
	char path[] = "/tmp/test_gguf_bad.XXXXXX", err[200];
	WRITER(w);
	size_t size;
	struct gguf *gguf = NULL;
	int fd = mkstemp(path);

	ASSERT_GE(fd, 0);
	unlink(path);
	w.nr_kvs = 1 << 22;
	w.nr_tensors = 1 << 22;

	uint8_t *head = gw_finish(&w, &size);

	ASSERT_EQ((ssize_t)size, pwrite(fd, head, size, 0));
	if (ftruncate(fd, 1ll << 36))
		SKIP(goto out, "no sparse file of 64 GiB here");
	snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	EXPECT_EQ(-EINVAL, gguf_open(path, 0, &gguf, err, sizeof(err)));
	EXPECT_STREQ("metadata key 0: a name of 0 bytes (1 to 65535 may be)",
		     err);
	memcpy(head + 16, &(uint64_t){ (1 << 22) + 1 }, 8);
	ASSERT_EQ((ssize_t)size, pwrite(fd, head, size, 0));
	EXPECT_EQ(-ENOTSUP, gguf_open(path, 0, &gguf, err, sizeof(err)));
	EXPECT_STREQ(
		"4194305 metadata keys are more than the 4194304 supported",
		err);
out:
	free(head);
	close(fd);
}

TEST(names_have_limits)
{
	WRITER(w);
	char *name = calloc(1, 65537);

	ASSERT_TRUE(name != NULL);
	memset(name, 'n', 65535);
	gw_u32(&w, name, 1);

	size_t size;
	uint8_t *file = gw_finish(&w, &size);

	EXPECT_EQ(0, gguf_exercise(file, size, 0));
	free(file);
	name[65535] = 'n';
	gw_u32(&w, name, 1);
	expect_bad(&w, -EINVAL,
		   "metadata key 0: a name of 65536 bytes (1 to 65535 may be)");
	gw_u32(&w, "", 1);
	gw_u32(&w, "more", 1);
	expect_bad(&w, -EINVAL,
		   "metadata key 0: a name of 0 bytes (1 to 65535 may be)");
	name[64] = 0;
	gw_tensor(&w, name, GGUF_TYPE_F32, 0, NULL, NULL, 4);
	file = gw_finish(&w, &size);
	EXPECT_EQ(0, gguf_exercise(file, size, 0));
	free(file);
	name[64] = 'n';
	name[65] = 0;
	gw_tensor(&w, name, GGUF_TYPE_F32, 0, NULL, NULL, 4);
	expect_bad(&w, -EINVAL,
		   "tensor 0: a name of 65 bytes (1 to 64 may be)");
	gw_u32(&w, "key", 1);
	memcpy(w.kvs.data, &(uint64_t){ 1000 }, 8);
	expect_bad(&w, -EINVAL,
		   "metadata key 0: truncated inside its name of 1000 bytes");
	free(name);
}

TEST(messages_show_printable_names_only)
{
	WRITER(w);

	gw_key(&w, "a\033[31m\nb", 77);
	gw_put_u32(&w.kvs, 0);
	expect_bad(&w, -EINVAL,
		   "metadata key a?[31m?b: value type 77 is unknown");

	char name[80] = "";

	memset(name, 'k', 79);
	gw_key(&w, name, 77);
	gw_put_u32(&w.kvs, 0);
	expect_bad(
		&w, -EINVAL,
		"metadata key kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk...: "
		"value type 77 is unknown");
}

TEST(values_of_wrong_kinds_are_refused)
{
	WRITER(w);

	gw_key(&w, "t", 13);
	gw_put_u32(&w.kvs, 0);
	expect_bad(&w, -EINVAL, "metadata key t: value type 13 is unknown");
	gw_scalar(&w, "b", GGUF_BOOL, "\2", 1);
	expect_bad(&w, -EINVAL, "metadata key b: 2 is no bool (0 and 1 are)");
	gw_array(&w, "b", GGUF_BOOL, "\1\0\377", 3, 1);
	expect_bad(&w, -EINVAL, "metadata key b: 255 is no bool (0 and 1 are)");
	gw_array(&w, "a", GGUF_ARRAY, NULL, 0, 0);
	gw_put(&w.kvs, NULL, 12);
	expect_bad(&w, -EINVAL,
		   "metadata key a: arrays of arrays are not allowed");
	gw_array(&w, "a", 200, NULL, 0, 0);
	expect_bad(&w, -EINVAL, "metadata key a: element type 200 is unknown");
	gw_key(&w, "s", GGUF_STRING);
	gw_put_u64(&w.kvs, UINT64_MAX);
	expect_bad(
		&w, -EINVAL,
		"metadata key s: a string of 18446744073709551615 bytes, 0 are left");
	gw_strings(&w, "l", (const char *const[]){ "one", "two" }, 2);
	memcpy(w.kvs.data + w.kvs.len - 11, &(uint64_t){ 4 }, 8);
	expect_bad(&w, -EINVAL,
		   "metadata key l: string 1 has 4 bytes, 3 are left");
}

TEST(duplicates_are_refused)
{
	WRITER(w);

	gw_u32(&w, "general.a", 1);
	gw_u32(&w, "general.b", 1);
	gw_f32(&w, "general.a", 1);
	expect_bad(&w, -EINVAL, "metadata key general.a occurs twice");
	gw_tensor(&w, "x", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, NULL, 32);
	gw_tensor(&w, "x", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, NULL, 32);
	expect_bad(&w, -EINVAL, "tensor x occurs twice");
}

/* test_gguf_split.c has those that are found by name. */
TEST(parts_in_memory_are_refused)
{
	WRITER(w);

	gw_u16(&w, "split.no", 1);
	gw_u16(&w, "split.count", 3);
	expect_bad(
		&w, -ENOTSUP,
		"this is part 2 of 3 (split.count): without a file name the others cannot be"
		" found");
	gw_u32(&w, "split.count", 1025);
	expect_bad(&w, -ENOTSUP,
		   "split.count: 1025 parts are more than the 1024 supported");
	gw_u32(&w, "split.tensors.count", (1 << 22) + 1);
	expect_bad(
		&w, -ENOTSUP,
		"split.tensors.count: 4194305 tensors are more than the 4194304 supported");
	gw_str(&w, "split.count", "3");
	expect_bad(
		&w, -EINVAL,
		"metadata key split.count is of type string, wanted is an integer");
}

TEST(alignments_are_powers_of_two)
{
	static const uint32_t wrong[] = { 0, 1, 4, 24, 33, UINT32_MAX };
	WRITER(w);
	char message[100];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		gw_u32(&w, "general.alignment", wrong[i]);
		snprintf(message, sizeof(message),
			 "general.alignment %u is not a power of two from 8 on",
			 wrong[i]);
		expect_bad(&w, -EINVAL, message);
	}
	gw_i32(&w, "general.alignment", -32);
	expect_bad(&w, -EINVAL,
		   "metadata key general.alignment: -32 does not fit a u32");
	gw_str(&w, "general.alignment", "32");
	expect_bad(
		&w, -EINVAL,
		"metadata key general.alignment is of type string, wanted is an integer");
	/* The largest: the data would begin beyond the file. */
	gw_u32(&w, "general.alignment", 1u << 31);
	gw_tensor(&w, "t", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, NULL, 32);
	expect_bad(
		&w, -EINVAL,
		"tensor t: ends at byte 2147483680, the file has 128 (truncated?)");
}

TEST(shapes_are_checked)
{
	WRITER(w);

	gw_tensor_at(&w, "t", GGUF_TYPE_F32, 5, (uint64_t[]){ 1, 1, 1, 1, 1 },
		     0);
	expect_bad(&w, -EINVAL, "tensor t: 5 dimensions (at most 4 may be)");
	gw_tensor_at(&w, "t", GGUF_TYPE_F32, 2, (uint64_t[]){ 8, 0 }, 0);
	expect_bad(&w, -EINVAL, "tensor t: dimension 1 is 0");
	gw_tensor_at(&w, "t", GGUF_TYPE_F32, 2,
		     (uint64_t[]){ 1ull << 32, 1ull << 32 }, 0);
	expect_bad(&w, -EINVAL, "tensor t: its dimensions overflow");
	gw_tensor_at(&w, "t", GGUF_TYPE_F32, 1, (uint64_t[]){ 1ull << 63 }, 0);
	expect_bad(&w, -EINVAL, "tensor t: its dimensions overflow");
	gw_tensor_at(&w, "t", GGUF_TYPE_F32, 2,
		     (uint64_t[]){ 1ull << 31, 1ull << 31 }, 0);
	expect_bad(&w, -EINVAL, "tensor t: its size in bytes overflows");
	gw_tensor_at(&w, "t", GGUF_TYPE_Q4_K, 2, (uint64_t[]){ 128, 2 }, 0);
	expect_bad(
		&w, -EINVAL,
		"tensor t: row of 128 elements is not whole Q4_K blocks of 256");
}

TEST(tensor_types_are_named)
{
	WRITER(w);

	gw_tensor_at(&w, "blk.3.attn_q.weight", 4, 1, (uint64_t[]){ 32 }, 0);
	expect_bad(
		&w, -ENOTSUP,
		"tensor blk.3.attn_q.weight: type 4 (Q4_2) is not supported");
	gw_tensor_at(&w, "blk.3.attn_q.weight", 99, 1, (uint64_t[]){ 32 }, 0);
	expect_bad(
		&w, -ENOTSUP,
		"tensor blk.3.attn_q.weight: type 99 (unknown) is not supported");
}

TEST(tensors_lie_inside_the_file)
{
	WRITER(w);

	gw_tensor_at(&w, "t", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, 16);
	expect_bad(&w, -EINVAL,
		   "tensor t: offset 16 is not a multiple of 32 (alignment)");
	gw_tensor_at(&w, "t", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 },
		     UINT64_MAX - 31);
	expect_bad(
		&w, -EINVAL,
		"tensor t: offset 18446744073709551584 and size 32 overflow");
	gw_tensor_at(&w, "t", GGUF_TYPE_F32, 1, (uint64_t[]){ 1ull << 60 },
		     1ull << 63);
	gw_put(&w.data, NULL, 32);
	expect_bad(
		&w, -EINVAL,
		"tensor t: ends at byte 13835058055282163776, the file has 96 (truncated?)");
	gw_tensor_at(&w, "t", GGUF_TYPE_F32, 1, (uint64_t[]){ 9 }, 32);
	gw_put(&w.data, NULL, 64);
	expect_bad(&w, -EINVAL,
		   "tensor t: ends at byte 132, the file has 128 (truncated?)");
}

TEST(blocks_that_are_cut_short_are_refused)
{
	static const struct {
		const char *name;
		uint32_t type, block, bytes;
	} types[] = {
		{ "Q2_K", GGUF_TYPE_Q2_K, 256, 84 },
		{ "Q3_K", GGUF_TYPE_Q3_K, 256, 110 },
		{ "IQ4_NL", GGUF_TYPE_IQ4_NL, 32, 18 },
		{ "IQ4_XS", GGUF_TYPE_IQ4_XS, 256, 136 },
		{ "MXFP4", GGUF_TYPE_MXFP4, 32, 17 },
	};
	char message[128];
	WRITER(w);

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		uint64_t dims[] = { 2 * types[i].block, 3 };
		uint32_t bytes = 6 * types[i].bytes;

		gw_tensor(&w, "w", types[i].type, 2, dims, NULL, bytes - 1);
		snprintf(
			message, sizeof(message),
			"tensor w: ends at byte %u, the file has %u (truncated?)",
			96 + bytes, 95 + bytes);
		expect_bad(&w, -EINVAL, message);
		dims[0] -= types[i].block / 2;
		gw_tensor(&w, "w", types[i].type, 2, dims, NULL, bytes);
		snprintf(
			message, sizeof(message),
			"tensor w: row of %u elements is not whole %s blocks of %u",
			3 * types[i].block / 2, types[i].name, types[i].block);
		expect_bad(&w, -EINVAL, message);
	}
}

TEST(overlapping_tensors_are_refused)
{
	WRITER(w);
	size_t size;

	gw_tensor_at(&w, "late", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, 64);
	gw_tensor_at(&w, "wide", GGUF_TYPE_F32, 1, (uint64_t[]){ 17 }, 0);
	gw_put(&w.data, NULL, 96);

	uint8_t *file = gw_finish(&w, &size);

	expect_refused(file, size, 0, -EINVAL,
		       "tensors wide and late overlap at offset 64");
	expect_refused(file, size, GGUF_METADATA_ONLY, -EINVAL,
		       "tensors wide and late overlap at offset 64");
	free(file);
	gw_tensor_at(&w, "a", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, 32);
	gw_tensor_at(&w, "b", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, 32);
	gw_put(&w.data, NULL, 96);
	file = gw_finish(&w, &size);

	struct gguf *gguf = NULL;

	/* Which of two equal offsets comes first is not said. */
	EXPECT_EQ(-EINVAL, gguf_open_memory(file, size, 0, &gguf, NULL, 0));
	free(file);
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Quadratic search for duplicates would take 10^12 steps. */
TEST(a_million_keys_and_tensors_take_linear_time)
{
	enum { NR = 1000000 };
	WRITER(w);
	struct gguf *gguf = NULL;
	char name[32], err[200];
	size_t size;

	for (int i = 0; i < NR; i++) {
		snprintf(name, sizeof(name), "k%d", i);
		gw_u8(&w, name, 1);
		gw_tensor_at(&w, name, GGUF_TYPE_F32, 0, NULL, 32ull * i);
	}
	gw_put(&w.data, NULL, 32ull * NR);

	uint8_t *file = gw_finish(&w, &size);
	double start = cpu_seconds();

	EXPECT_EQ(0, gguf_open_memory(file, size, 0, &gguf, err, sizeof(err)));
	TH_LOG("%.2f s", cpu_seconds() - start);
	EXPECT_LT(cpu_seconds() - start, 5.0 * HARNESS_TIME_SCALE);
	EXPECT_EQ(NR, gguf_nr_keys(gguf));
	EXPECT_TRUE(gguf_tensor(gguf, "k999999") ==
		    gguf_tensor_at(gguf, NR - 1));
	gguf_close(gguf);
	free(file);
}

TEST(only_regular_files_are_opened)
{
	char dir[] = "/tmp/test_gguf_bad.XXXXXX", path[64], err[200];
	struct gguf *gguf = NULL;

	ASSERT_TRUE(mkdtemp(dir) != NULL);
	EXPECT_EQ(-EINVAL, gguf_open(dir, 0, &gguf, err, sizeof(err)));
	EXPECT_STREQ("not a regular file", err);
	snprintf(path, sizeof(path), "%s/file", dir);
	EXPECT_EQ(-ENOENT, gguf_open(path, 0, &gguf, err, sizeof(err)));
	EXPECT_STREQ("cannot open: No such file or directory", err);
	ASSERT_EQ(0, mkfifo(path, 0600));
	EXPECT_EQ(-EINVAL, gguf_open(path, 0, &gguf, err, sizeof(err)));
	EXPECT_STREQ("not a regular file", err);
	unlink(path);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	EXPECT_EQ(-EINVAL, gguf_open(path, 0, &gguf, err, sizeof(err)));
	EXPECT_STREQ("the file is empty", err);
	EXPECT_EQ(-EINVAL, gguf_open(path, 8, &gguf, err, sizeof(err)));
	EXPECT_STREQ("unknown flags 0x8", err);
	unlink(path);
	rmdir(dir);
}

TEST(messages_are_cut_to_the_room_given)
{
	struct gguf *gguf = NULL;
	char err[12] = "xxxxxxxxxxx";

	EXPECT_EQ(-EINVAL, gguf_open_memory("", 0, 0, &gguf, err, 6));
	EXPECT_STREQ("trunc", err);
	EXPECT_EQ('x', err[6]);
	EXPECT_EQ(-EINVAL, gguf_open_memory("", 0, 0, &gguf, NULL, 0));
}

/* Longer runs: tests/fuzz/fuzz_gguf.c. */
TEST_TIMEOUT(random_mutations_are_refused_or_harmless, 120)
{
	size_t size;
	uint8_t *seed = gguf_fuzz_seed(&size);
	uint64_t nr_opened = gguf_fuzz_mutations(seed, size, 100000, 20260101);

	TH_LOG("%llu of 100000 opened", (unsigned long long)nr_opened);
	/* Both outcomes must be usual, or the mutations are too weak or too strong. */
	EXPECT_GT(nr_opened, 10000);
	EXPECT_LT(nr_opened, 90000);
	free(seed);
}

TEST_HARNESS_MAIN
