/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models in several files: all parts are one model, and each thing that may be
 * wrong with a part is refused with its name.
 */
#include <errno.h>
#include <sys/stat.h>

#include "engine/engine.h"
#include "tests/engine/tiny_model.h"
#include "tests/harness.h"

enum { NR_PARTS = 3 };

FIXTURE(split)
{
	char dir[32];
	char paths[NR_PARTS][80];
	struct gguf *gguf;
	char err[256];
};

FIXTURE_SETUP(split)
{
	char dir[] = "/tmp/test_split.XXXXXX";

	(void)variant;
	ASSERT_TRUE(mkdtemp(dir) != NULL);
	strcpy(self->dir, dir);
	for (int i = 0; i < NR_PARTS; i++)
		snprintf(self->paths[i], sizeof(self->paths[i]),
			 "%s/m-%05d-of-%05d.gguf", dir, i + 1, NR_PARTS);
}
FIXTURE_TEARDOWN(split)
{
	(void)variant;
	gguf_close(self->gguf);
	for (int i = 0; i < NR_PARTS; i++)
		remove(self->paths[i]);
	rmdir(self->dir);
}

/* A part that says what it should: one tensor of 8 floats, all of them @no. */
static struct gguf_writer part_begin(uint16_t no, int32_t nr_tensors)
{
	struct gguf_writer w = GGUF_WRITER_INIT;
	float values[8];
	char name[16];

	for (int i = 0; i < 8; i++)
		values[i] = no;
	snprintf(name, sizeof(name), "t%u", no);
	if (no == 0)
		gw_str(&w, "general.architecture", "llama");
	gw_u16(&w, "split.no", no);
	gw_u16(&w, "split.count", NR_PARTS);
	gw_i32(&w, "split.tensors.count", nr_tensors);
	gw_tensor(&w, name, GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, values, 32);
	return w;
}

static void save(struct gguf_writer *w, const char *path)
{
	ASSERT_EQ(0, gw_save(w, path));
}

static void save_good(struct fixture_split *self)
{
	for (uint16_t i = 0; i < NR_PARTS; i++) {
		struct gguf_writer w = part_begin(i, NR_PARTS);

		save(&w, self->paths[i]);
	}
}

/* ---- whole models --------------------------------------------------------------- */

TEST_F(split, parts_are_one_model)
{
	size_t header_bytes = 0, sum = 0;
	struct stat st;

	save_good(self);
	ASSERT_EQ(0, gguf_open(self->paths[0], 0, &self->gguf, self->err, 256))
	{
		TH_LOG("%s", self->err);
	}
	EXPECT_EQ(NR_PARTS, gguf_nr_tensors(self->gguf));
	for (int i = 0; i < NR_PARTS; i++) {
		const struct gguf_tensor *t = gguf_tensor_at(self->gguf, i);
		char name[16];
		float last;

		snprintf(name, sizeof(name), "t%d", i);
		ASSERT_TRUE(t != NULL);
		EXPECT_TRUE(gguf_tensor(self->gguf, name) == t);
		memcpy(&last, (const char *)t->data + 28, sizeof(last));
		EXPECT_EQ((float)i, last);
		ASSERT_EQ(0, stat(self->paths[i], &st));
		sum += st.st_size;
	}
	EXPECT_TRUE(gguf_tensor(self->gguf, "t3") == NULL);
	EXPECT_TRUE(gguf_has(self->gguf, "general.architecture"));
	EXPECT_EQ(sum, gguf_file_size(self->gguf));
	gguf_drop_pages(self->gguf);
	EXPECT_EQ(0, memcmp("GGUF", gguf_header(self->gguf, &header_bytes), 4));
	/* The directory of the last part, which says what its bytes mean, is in it. */
	EXPECT_TRUE(memmem(gguf_header(self->gguf, &header_bytes), header_bytes,
			   "t2", 2) != NULL);
}

TEST_F(split, metadata_alone_needs_no_data)
{
	save_good(self);
	for (int i = 0; i < NR_PARTS; i++) {
		struct stat st;

		ASSERT_EQ(0, stat(self->paths[i], &st));
		ASSERT_EQ(0, truncate(self->paths[i], st.st_size - 32));
	}
	ASSERT_EQ(0, gguf_open(self->paths[0], GGUF_METADATA_ONLY, &self->gguf,
			       self->err, 256))
	{
		TH_LOG("%s", self->err);
	}
	EXPECT_EQ(NR_PARTS, gguf_nr_tensors(self->gguf));
	EXPECT_TRUE(gguf_tensor(self->gguf, "t2")->data == NULL);
}

/* Tools put the metadata alone into the first part. */
TEST_F(split, a_part_may_have_no_tensor)
{
	struct gguf_writer w = GGUF_WRITER_INIT;

	for (uint16_t i = 1; i < NR_PARTS; i++) {
		w = part_begin(i, NR_PARTS - 1);
		save(&w, self->paths[i]);
	}
	gw_u16(&w, "split.no", 0);
	gw_u16(&w, "split.count", NR_PARTS);
	gw_i32(&w, "split.tensors.count", NR_PARTS - 1);
	save(&w, self->paths[0]);
	ASSERT_EQ(0, gguf_open(self->paths[0], 0, &self->gguf, self->err, 256))
	{
		TH_LOG("%s", self->err);
	}
	EXPECT_EQ(NR_PARTS - 1, gguf_nr_tensors(self->gguf));
	EXPECT_TRUE(gguf_tensor(self->gguf, "t2")->data != NULL);
}

/* ---- faults ----------------------------------------------------------------------- */

static void expect_bad(struct fixture_split *self, const char *path, int rc,
		       const char *message)
{
	static const unsigned int flags[] = { 0, GGUF_METADATA_ONLY };

	for (int i = 0; i < 2; i++) {
		memset(self->err, 0, sizeof(self->err));
		EXPECT_EQ(rc, gguf_open(path, flags[i], &self->gguf, self->err,
					sizeof(self->err)));
		EXPECT_STREQ(message, self->err);
		EXPECT_TRUE(self->gguf == NULL);
	}
}

TEST_F(split, a_missing_part_is_named)
{
	save_good(self);
	remove(self->paths[2]);
	expect_bad(self, self->paths[0], -ENOENT,
		   "part 3 of 3 (m-00003-of-00003.gguf): cannot open: "
		   "No such file or directory");
	ASSERT_EQ(0, mkdir(self->paths[2], 0700));
	expect_bad(self, self->paths[0], -EINVAL,
		   "part 3 of 3 (m-00003-of-00003.gguf): not a regular file");
}

TEST_F(split, another_part_in_its_place_is_named)
{
	struct gguf_writer w = part_begin(2, NR_PARTS);

	save_good(self);
	save(&w, self->paths[1]);
	expect_bad(
		self, self->paths[0], -EINVAL,
		"part 2 of 3 (m-00002-of-00003.gguf): it says that it is part 3");
	/* The first one once more. */
	w = part_begin(0, NR_PARTS);
	save(&w, self->paths[1]);
	expect_bad(
		self, self->paths[0], -EINVAL,
		"part 2 of 3 (m-00002-of-00003.gguf): it says that it is part 1");
}

TEST_F(split, a_tensor_of_two_parts_is_named)
{
	struct gguf_writer w = part_begin(1, NR_PARTS);

	save_good(self);
	w.infos.data[9] = '0'; /* t1 becomes t0 */
	save(&w, self->paths[1]);
	expect_bad(
		self, self->paths[0], -EINVAL,
		"part 2 of 3 (m-00002-of-00003.gguf): tensor t0 is in an earlier part too");
	save_good(self);
	w = part_begin(2, NR_PARTS);
	w.infos.data[9] = '1';
	save(&w, self->paths[2]);
	expect_bad(
		self, self->paths[0], -EINVAL,
		"part 3 of 3 (m-00003-of-00003.gguf): tensor t1 is in an earlier part too");
}

TEST_F(split, a_truncated_part_is_named)
{
	struct stat st;

	save_good(self);
	ASSERT_EQ(0, stat(self->paths[1], &st));
	ASSERT_EQ(0, truncate(self->paths[1], st.st_size - 1));
	EXPECT_EQ(-EINVAL, gguf_open(self->paths[0], 0, &self->gguf, self->err,
				     sizeof(self->err)));
	EXPECT_EQ(0, strncmp("part 2 of 3 (m-00002-of-00003.gguf): tensor t1: "
			     "ends at byte ",
			     self->err, 60));
	ASSERT_EQ(0, truncate(self->paths[1], 30));
	expect_bad(
		self, self->paths[0], -EINVAL,
		"part 2 of 3 (m-00002-of-00003.gguf): 3 metadata keys do not fit the 6 bytes"
		" left in the file");
	ASSERT_EQ(0, truncate(self->paths[1], 0));
	expect_bad(self, self->paths[0], -EINVAL,
		   "part 2 of 3 (m-00002-of-00003.gguf): the file is empty");
}

/* A second part with one key written otherwise, or left out (@key NULL: all of them). */
static struct gguf_writer odd_part(const char *key, uint32_t value, bool has)
{
	static const char *const keys[] = { "split.no", "split.count",
					    "split.tensors.count" };
	static const uint32_t values[] = { 1, NR_PARTS, NR_PARTS };
	struct gguf_writer w = GGUF_WRITER_INIT;

	for (int i = 0; i < 3; i++) {
		bool is_odd = !key || !strcmp(keys[i], key);

		if (has || !is_odd)
			gw_u32(&w, keys[i], is_odd ? value : values[i]);
	}
	gw_tensor(&w, "t1", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, NULL, 32);
	return w;
}

TEST_F(split, parts_of_other_models_are_named)
{
	static const struct {
		const char *key;
		uint32_t value;
		bool has;
		const char *message;
	} cases[] = {
		{ NULL, 0, false,
		  "it is no part of a model (split.no, split.count)" },
		{ "split.no", 0, false,
		  "it is no part of a model (split.no, split.count)" },
		{ "split.count", 1, true,
		  "it is no part of a model (split.no, split.count)" },
		{ "split.count", 4, true,
		  "split.count is 4, in the first part 3" },
		{ "split.no", 7, true, "it says that it is part 8" },
		{ "split.no", UINT32_MAX, true,
		  "it says that it is part 4294967296" },
		{ "split.tensors.count", 4, true,
		  "split.tensors.count is 4, in the first part 3" },
		{ "split.tensors.count", 0, false,
		  "split.tensors.count is 0, in the first part 3" },
		{ "split.count", 1025, true,
		  "split.count: 1025 parts are more than the 1024 supported" },
	};

	save_good(self);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gguf_writer w =
			odd_part(cases[i].key, cases[i].value, cases[i].has);
		char message[256];

		save(&w, self->paths[1]);
		snprintf(message, sizeof(message),
			 "part 2 of 3 (m-00002-of-00003.gguf): %s",
			 cases[i].message);
		expect_bad(self, self->paths[0], i == 8 ? -ENOTSUP : -EINVAL,
			   message);
	}
}

TEST_F(split, tensors_are_as_many_as_said)
{
	save_good(self);
	for (uint16_t i = 0; i < NR_PARTS; i++) {
		struct gguf_writer w = part_begin(i, 4);

		save(&w, self->paths[i]);
	}
	expect_bad(self, self->paths[0], -EINVAL,
		   "the 3 parts have 3 tensors, split.tensors.count says 4");
}

TEST_F(split, only_the_first_part_under_its_name_opens)
{
	char other[64];
	struct gguf_writer w;

	save_good(self);
	expect_bad(
		self, self->paths[1], -EINVAL,
		"this is part 2 of 3 (split.no): open the first, ...-00001-of-00003.gguf");
	snprintf(other, sizeof(other), "%s/model.gguf", self->dir);
	ASSERT_EQ(0, rename(self->paths[0], other));
	expect_bad(self, other, -EINVAL,
		   "part 1 of 3 (split.count): the file's name does not end in"
		   " -00001-of-00003.gguf, so the other parts cannot be found");
	remove(other);
	w = part_begin(3, NR_PARTS);
	save(&w, self->paths[0]);
	expect_bad(self, self->paths[0], -EINVAL,
		   "split.no is 3, there are 3 parts (split.count)");
	w = (struct gguf_writer)GGUF_WRITER_INIT;
	gw_u16(&w, "split.no", 0);
	gw_u16(&w, "split.count", NR_PARTS);
	save(&w, self->paths[0]);
	expect_bad(self, self->paths[0], -EINVAL,
		   "part 1 of 3: metadata key split.tensors.count is missing");
}

/* ---- through the engine ------------------------------------------------------------- */

/* The tensors of @whole dealt out to three files; the last one's data begins with @first. */
static void save_model(struct fixture_split *self, const struct tiny_spec *spec,
		       const struct gguf *whole, int first)
{
	size_t nr = gguf_nr_tensors(whole);

	for (uint16_t i = 0; i < NR_PARTS; i++) {
		struct tiny_model part = { .spec = *spec };

		part.writer = (struct gguf_writer)GGUF_WRITER_INIT;
		if (i == 0)
			tiny_put_keys(&part);
		gw_u16(&part.writer, "split.no", i);
		gw_u16(&part.writer, "split.count", NR_PARTS);
		gw_i32(&part.writer, "split.tensors.count", (int32_t)nr);
		for (size_t t = nr * i / NR_PARTS; t < nr * (i + 1) / NR_PARTS;
		     t++) {
			const struct gguf_tensor *tensor =
				gguf_tensor_at(whole, t);
			char name[65];

			snprintf(name, sizeof(name), "%.*s",
				 (int)tensor->name.len, tensor->name.data);
			gw_tensor(&part.writer, name, tensor->type,
				  tensor->nr_dims, tensor->dims, tensor->data,
				  tensor->size_bytes);
		}
		if (i == NR_PARTS - 1 && first >= 0)
			part.writer.data.data[0] = (uint8_t)first;
		save(&part.writer, self->paths[i]);
	}
}

/* Token drawn greedily behind a short prompt; *out_id: what the model is known by. */
static int32_t ask(const char *path, char out_id[32])
{
	static const int32_t prompt[] = { 1, 100, 7, 200, 33 };
	struct tarn_engine_options options = { .model_path = path,
					       .nr_threads = 1,
					       .kv_bytes = 4 << 20 };
	struct tarn_seq_params p = {
		.prompt = prompt,
		.nr_prompt = 5,
		.max_new_tokens = 1,
		.nr_choices = 1,
		.sampling = { .top_p = 1 },
	};
	struct tarn_result result = { 0 };
	struct tarn_engine *e;
	struct tarn_seq *seq;
	char err[256] = "";

	ASSERT_EQ(0, tarn_engine_create(&options, &e, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	snprintf(out_id, 32, "%s", tarn_engine_info(e)->fingerprint);
	ASSERT_EQ(0, tarn_seq_create(e, &p, &seq, err, sizeof(err)));
	ASSERT_EQ(0, tarn_step(e, &(struct tarn_work){ seq, 5 }, 1, &result));
	ASSERT_TRUE(result.has_token);
	tarn_seq_destroy(seq);
	tarn_engine_destroy(e);
	return result.token;
}

TEST_F(split, a_model_is_the_same_in_parts_and_known_by_all_of_them)
{
	struct tiny_spec spec = tiny_qwen3(GGUF_TYPE_Q4_0);
	char id[4][32];
	struct tiny_model m;
	int32_t token;

	tiny_create(&m, &spec);
	ASSERT_EQ(0, gguf_open(m.path, 0, &self->gguf, self->err, 256));
	token = ask(m.path, id[0]);
	save_model(self, &spec, self->gguf, -1);
	EXPECT_EQ(token, ask(self->paths[0], id[0]));
	EXPECT_EQ(token, ask(self->paths[0], id[1]));
	EXPECT_STREQ(id[0], id[1]);
	/* One byte of the last part's data. */
	save_model(self, &spec, self->gguf, 0x5a);
	ask(self->paths[0], id[2]);
	EXPECT_STRNE(id[0], id[2]);
	tiny_destroy(&m);
}

/* The same bytes in every tensor; what they mean is another thing in the last part alone. */
TEST_F(split, what_the_last_part_says_of_its_tensors_counts)
{
	struct tiny_spec spec = tiny_qwen3(GGUF_TYPE_Q4_0);
	char id[2][32];
	struct tiny_model m;
	uint8_t *bytes;
	size_t size;

	tiny_create(&m, &spec);
	ASSERT_EQ(0, gguf_open(m.path, 0, &self->gguf, self->err, 256));
	save_model(self, &spec, self->gguf, -1);
	ask(self->paths[0], id[0]);
	/* Q4_0 and IQ4_NL have blocks of 18 bytes both. */
	for (int i = 0; i < 2; i++) {
		FILE *f = fopen(self->paths[2], "r+b");
		uint8_t *at;

		ASSERT_TRUE(f != NULL);
		size = 1 << 20;
		bytes = calloc(size, 1);
		size = fread(bytes, 1, size, f);
		at = memmem(bytes, size, "ffn_down.weight", 15);
		ASSERT_TRUE(at != NULL);
		at += 15 + 4 + 2 * 8; /* dimensions */
		ASSERT_EQ(i ? GGUF_TYPE_IQ4_NL : GGUF_TYPE_Q4_0, *at);
		*at = i ? GGUF_TYPE_Q4_0 : GGUF_TYPE_IQ4_NL;
		rewind(f);
		ASSERT_EQ(size, fwrite(bytes, 1, size, f));
		fclose(f);
		free(bytes);
		ask(self->paths[0], id[1]);
		EXPECT_EQ(i, strcmp(id[0], id[1]) == 0);
	}
	tiny_destroy(&m);
}

TEST_HARNESS_MAIN
