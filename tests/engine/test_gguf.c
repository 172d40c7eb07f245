/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GGUF reader on files that are right: what it hands out is what was
 * written. Wrong files are the subject of test_gguf_bad.c.
 */
#include <float.h>
#include <math.h>
#include <sys/mman.h>

#include "engine/model/gguf.h"
#include "tests/engine/gguf_writer.h"
#include "tests/harness.h"

FIXTURE(gguf)
{
	struct gguf_writer w;
	uint8_t *file;
	size_t size;
	struct gguf *gguf;
	char err[200];
};

FIXTURE_SETUP(gguf)
{
	self->w = (struct gguf_writer)GGUF_WRITER_INIT;
	memset(self->err, 'x', sizeof(self->err));
	self->err[199] = 0;
}

FIXTURE_TEARDOWN(gguf)
{
	gguf_close(self->gguf);
	gw_deinit(&self->w);
	free(self->file);
}

/* Finishes self->w and opens it. */
#define OPEN_OK(self, flags)                                                  \
	do {                                                                  \
		(self)->file = gw_finish(&(self)->w, &(self)->size);          \
		ASSERT_EQ(0,                                                  \
			  gguf_open_memory((self)->file, (self)->size, flags, \
					   &(self)->gguf, (self)->err,        \
					   sizeof((self)->err)))              \
		{                                                             \
			TH_LOG("%s", (self)->err);                            \
		}                                                             \
	} while (0)

#define EXPECT_SPAN(text, span)                                    \
	do {                                                       \
		struct gguf_str span_ = (span);                    \
                                                                   \
		EXPECT_EQ(strlen(text), span_.len);                \
		EXPECT_TRUE(span_.len == strlen(text) &&           \
			    !memcmp(span_.data, text, span_.len)); \
	} while (0)

TEST_F(gguf, smallest_file_opens)
{
	OPEN_OK(self, 0);
	EXPECT_EQ(24, self->size);
	EXPECT_EQ(0, gguf_nr_keys(self->gguf));
	EXPECT_EQ(0, gguf_nr_tensors(self->gguf));
	EXPECT_EQ(24, gguf_file_size(self->gguf));
	EXPECT_FALSE(gguf_has(self->gguf, "general.architecture"));
	EXPECT_TRUE(gguf_tensor(self->gguf, "token_embd.weight") == NULL);
	EXPECT_TRUE(gguf_tensor_at(self->gguf, 0) == NULL);
}

TEST_F(gguf, version_2_opens)
{
	self->w.version = 2;
	gw_u32(&self->w, "a", 7);
	OPEN_OK(self, 0);
	EXPECT_TRUE(gguf_has(self->gguf, "a"));
}

TEST_F(gguf, integers_of_every_width_are_read_as_u32)
{
	uint32_t value;

	gw_u8(&self->w, "u8", 255);
	gw_i8(&self->w, "i8", 127);
	gw_u16(&self->w, "u16", 65535);
	gw_i16(&self->w, "i16", 32767);
	gw_u32(&self->w, "u32", UINT32_MAX);
	gw_i32(&self->w, "i32", INT32_MAX);
	gw_u64(&self->w, "u64", UINT32_MAX);
	gw_i64(&self->w, "i64", 0);
	OPEN_OK(self, 0);

	static const struct {
		const char *key;
		uint32_t value;
	} wanted[] = { { "u8", 255 },	      { "i8", 127 },
		       { "u16", 65535 },      { "i16", 32767 },
		       { "u32", UINT32_MAX }, { "i32", INT32_MAX },
		       { "u64", UINT32_MAX }, { "i64", 0 } };

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		value = 0xdeadbeef;
		EXPECT_EQ(0, gguf_get_u32(self->gguf, wanted[i].key, &value,
					  self->err, 200));
		EXPECT_EQ(wanted[i].value, value);
	}
}

TEST_F(gguf, integers_that_do_not_fit_are_named)
{
	uint32_t value = 0xdeadbeef;

	gw_i8(&self->w, "minus", -1);
	gw_u64(&self->w, "big", 1ull << 32);
	gw_u64(&self->w, "huge", UINT64_MAX);
	gw_i64(&self->w, "low", INT64_MIN);
	OPEN_OK(self, 0);
	EXPECT_EQ(-EINVAL,
		  gguf_get_u32(self->gguf, "minus", &value, self->err, 200));
	EXPECT_STREQ("metadata key minus: -1 does not fit a u32", self->err);
	EXPECT_EQ(-EINVAL,
		  gguf_get_u32(self->gguf, "big", &value, self->err, 200));
	EXPECT_STREQ("metadata key big: 4294967296 does not fit a u32",
		     self->err);
	EXPECT_EQ(-EINVAL,
		  gguf_get_u32(self->gguf, "huge", &value, self->err, 200));
	EXPECT_STREQ(
		"metadata key huge: 18446744073709551615 does not fit a u32",
		self->err);
	EXPECT_EQ(-EINVAL,
		  gguf_get_u32(self->gguf, "low", &value, self->err, 200));
	EXPECT_STREQ(
		"metadata key low: -9223372036854775808 does not fit a u32",
		self->err);
	EXPECT_EQ(0xdeadbeef, value);
}

TEST_F(gguf, numbers_are_read_as_f32)
{
	float value;

	gw_f32(&self->w, "f32", 1e-5f);
	gw_f64(&self->w, "f64", 0.5);
	gw_u32(&self->w, "int", 10000);
	gw_i64(&self->w, "neg", -3);
	gw_u64(&self->w, "top", UINT64_MAX);
	gw_f64(&self->w, "inf", -INFINITY);
	gw_f64(&self->w, "wide", 1e300);
	OPEN_OK(self, 0);
	EXPECT_EQ(0, gguf_get_f32(self->gguf, "f32", &value, self->err, 200));
	EXPECT_EQ(1e-5f, value);
	EXPECT_EQ(0, gguf_get_f32(self->gguf, "f64", &value, self->err, 200));
	EXPECT_EQ(0.5f, value);
	EXPECT_EQ(0, gguf_get_f32(self->gguf, "int", &value, self->err, 200));
	EXPECT_EQ(10000.0f, value);
	EXPECT_EQ(0, gguf_get_f32(self->gguf, "neg", &value, self->err, 200));
	EXPECT_EQ(-3.0f, value);
	EXPECT_EQ(0, gguf_get_f32(self->gguf, "top", &value, self->err, 200));
	EXPECT_EQ(0x1p64f, value);
	EXPECT_EQ(0, gguf_get_f32(self->gguf, "inf", &value, self->err, 200));
	EXPECT_TRUE(isinf(value) && value < 0);
	EXPECT_EQ(-EINVAL,
		  gguf_get_f32(self->gguf, "wide", &value, self->err, 200));
	EXPECT_STREQ("metadata key wide: the f64 value does not fit an f32",
		     self->err);
}

TEST_F(gguf, missing_keys_and_wrong_types_are_named)
{
	struct gguf_array array;
	struct gguf_str str;
	uint32_t u32;
	float f32;
	bool flag;

	gw_str(&self->w, "s", "text");
	gw_bool(&self->w, "b", true);
	gw_u32(&self->w, "u", 1);
	gw_array(&self->w, "a", GGUF_U32, NULL, 0, 4);
	OPEN_OK(self, 0);
	EXPECT_EQ(-ENOENT,
		  gguf_get_u32(self->gguf, "none", &u32, self->err, 200));
	EXPECT_STREQ("metadata key none is missing", self->err);
	EXPECT_EQ(-ENOENT,
		  gguf_get_f32(self->gguf, "none", &f32, self->err, 200));
	EXPECT_EQ(-ENOENT,
		  gguf_get_bool(self->gguf, "none", &flag, self->err, 200));
	EXPECT_EQ(-ENOENT,
		  gguf_get_str(self->gguf, "none", &str, self->err, 200));
	EXPECT_EQ(-ENOENT,
		  gguf_get_array(self->gguf, "none", &array, self->err, 200));
	EXPECT_EQ(-EINVAL, gguf_get_u32(self->gguf, "s", &u32, self->err, 200));
	EXPECT_STREQ("metadata key s is of type string, wanted is an integer",
		     self->err);
	EXPECT_EQ(-EINVAL, gguf_get_u32(self->gguf, "b", &u32, self->err, 200));
	EXPECT_EQ(-EINVAL, gguf_get_f32(self->gguf, "a", &f32, self->err, 200));
	EXPECT_STREQ("metadata key a is of type array, wanted is a number",
		     self->err);
	EXPECT_EQ(-EINVAL,
		  gguf_get_bool(self->gguf, "u", &flag, self->err, 200));
	EXPECT_STREQ("metadata key u is of type u32, wanted is bool",
		     self->err);
	EXPECT_EQ(-EINVAL, gguf_get_str(self->gguf, "a", &str, self->err, 200));
	EXPECT_STREQ("metadata key a is of type array, wanted is string",
		     self->err);
	EXPECT_EQ(-EINVAL,
		  gguf_get_array(self->gguf, "s", &array, self->err, 200));
	EXPECT_STREQ("metadata key s is of type string, wanted is array",
		     self->err);
	/* The message is optional. */
	EXPECT_EQ(-ENOENT, gguf_get_u32(self->gguf, "none", &u32, NULL, 0));
}

TEST_F(gguf, strings_and_bools_are_read)
{
	struct gguf_str str;
	bool flag = false;

	gw_str(&self->w, "general.architecture", "gemma3");
	gw_str(&self->w, "empty", "");
	gw_strn(&self->w, "nul", "a\0b", 3);
	gw_bool(&self->w, "yes", true);
	gw_bool(&self->w, "no", false);
	OPEN_OK(self, 0);
	ASSERT_EQ(0, gguf_get_str(self->gguf, "general.architecture", &str,
				  self->err, 200));
	EXPECT_SPAN("gemma3", str);
	ASSERT_EQ(0, gguf_get_str(self->gguf, "empty", &str, self->err, 200));
	EXPECT_EQ(0, str.len);
	ASSERT_EQ(0, gguf_get_str(self->gguf, "nul", &str, self->err, 200));
	EXPECT_EQ(3, str.len);
	EXPECT_MEMEQ("a\0b", str.data, 3);
	EXPECT_EQ(0, gguf_get_bool(self->gguf, "yes", &flag, self->err, 200));
	EXPECT_TRUE(flag);
	EXPECT_EQ(0, gguf_get_bool(self->gguf, "no", &flag, self->err, 200));
	EXPECT_FALSE(flag);
}

TEST_F(gguf, string_arrays_are_handed_out_as_spans)
{
	static const char *const tokens[] = { "<s>", "", "hello",
					      "\xe2\x96\x81world" };
	struct gguf_str spans[4];
	struct gguf_array array;
	int64_t integer;

	gw_strings(&self->w, "tokens", tokens, 4);
	gw_strings(&self->w, "none", NULL, 0);
	OPEN_OK(self, 0);
	ASSERT_EQ(0,
		  gguf_get_array(self->gguf, "tokens", &array, self->err, 200));
	EXPECT_EQ(GGUF_STRING, array.type);
	ASSERT_EQ(4, array.nr);
	ASSERT_EQ(0, gguf_array_strings(&array, spans));
	for (int i = 0; i < 4; i++)
		EXPECT_SPAN(tokens[i], spans[i]);
	EXPECT_EQ(-EINVAL, gguf_array_i64(&array, 0, &integer));
	ASSERT_EQ(0,
		  gguf_get_array(self->gguf, "none", &array, self->err, 200));
	EXPECT_EQ(0, array.nr);
	EXPECT_EQ(0, gguf_array_strings(&array, NULL));
}

TEST_F(gguf, scalar_arrays_are_read_by_element)
{
	struct gguf_array array;
	struct gguf_str span;
	int64_t integer = 0;
	float number = 0;

	gw_array(&self->w, "i8", GGUF_I8, (int8_t[]){ -128, 3 }, 2, 1);
	gw_array(&self->w, "u64", GGUF_U64, (uint64_t[]){ 5, UINT64_MAX }, 2,
		 8);
	gw_array(&self->w, "f32", GGUF_F32, (float[]){ -1.5f, 2 }, 2, 4);
	gw_array(&self->w, "f64", GGUF_F64, (double[]){ 0.25, 1e300 }, 2, 8);
	gw_array(&self->w, "bool", GGUF_BOOL, (bool[]){ false, true }, 2, 1);
	OPEN_OK(self, 0);
	ASSERT_EQ(0, gguf_get_array(self->gguf, "i8", &array, self->err, 200));
	EXPECT_EQ(0, gguf_array_i64(&array, 0, &integer));
	EXPECT_EQ(-128, integer);
	EXPECT_EQ(0, gguf_array_f32(&array, 1, &number));
	EXPECT_EQ(3.0f, number);
	EXPECT_EQ(-ERANGE, gguf_array_i64(&array, 2, &integer));
	EXPECT_EQ(-ERANGE, gguf_array_f32(&array, UINT64_MAX, &number));
	EXPECT_EQ(-EINVAL, gguf_array_strings(&array, &span));
	ASSERT_EQ(0, gguf_get_array(self->gguf, "u64", &array, self->err, 200));
	EXPECT_EQ(0, gguf_array_i64(&array, 0, &integer));
	EXPECT_EQ(5, integer);
	EXPECT_EQ(-EOVERFLOW, gguf_array_i64(&array, 1, &integer));
	ASSERT_EQ(0, gguf_get_array(self->gguf, "f32", &array, self->err, 200));
	EXPECT_EQ(0, gguf_array_f32(&array, 0, &number));
	EXPECT_EQ(-1.5f, number);
	EXPECT_EQ(-EINVAL, gguf_array_i64(&array, 0, &integer));
	ASSERT_EQ(0, gguf_get_array(self->gguf, "f64", &array, self->err, 200));
	EXPECT_EQ(0, gguf_array_f32(&array, 0, &number));
	EXPECT_EQ(0.25f, number);
	EXPECT_EQ(-EOVERFLOW, gguf_array_f32(&array, 1, &number));
	ASSERT_EQ(0,
		  gguf_get_array(self->gguf, "bool", &array, self->err, 200));
	EXPECT_EQ(0, gguf_array_i64(&array, 1, &integer));
	EXPECT_EQ(1, integer);
}

TEST_F(gguf, keys_are_listed_in_file_order)
{
	enum gguf_value_type type = GGUF_F64;

	gw_u32(&self->w, "z", 1);
	gw_str(&self->w, "a", "b");
	OPEN_OK(self, 0);
	ASSERT_EQ(2, gguf_nr_keys(self->gguf));
	EXPECT_SPAN("z", gguf_key(self->gguf, 0, &type));
	EXPECT_EQ(GGUF_U32, type);
	EXPECT_SPAN("a", gguf_key(self->gguf, 1, &type));
	EXPECT_EQ(GGUF_STRING, type);
	EXPECT_EQ(0, gguf_key(self->gguf, 2, NULL).len);
}

TEST_F(gguf, tensors_have_shape_size_and_data)
{
	uint8_t q8[272];
	const float norm[5] = { 1, 2, 3, 4, 5 };

	memset(q8, 0x5a, sizeof(q8));
	gw_u32(&self->w, "general.alignment", 64);
	self->w.alignment = 64;
	gw_tensor(&self->w, "q8", GGUF_TYPE_Q8_0, 2, (uint64_t[]){ 64, 4 }, q8,
		  sizeof(q8));
	gw_tensor(&self->w, "norm", GGUF_TYPE_F32, 1, (uint64_t[]){ 5 }, norm,
		  sizeof(norm));
	gw_tensor(&self->w, "scalar", GGUF_TYPE_F16, 0, NULL, NULL, 2);
	OPEN_OK(self, 0);
	ASSERT_EQ(3, gguf_nr_tensors(self->gguf));

	const struct gguf_tensor *tensor = gguf_tensor(self->gguf, "q8");

	ASSERT_TRUE(tensor != NULL && tensor == gguf_tensor_at(self->gguf, 0));
	EXPECT_SPAN("q8", tensor->name);
	EXPECT_EQ(GGUF_TYPE_Q8_0, tensor->type);
	EXPECT_EQ(2, tensor->nr_dims);
	EXPECT_EQ(64, tensor->dims[0]);
	EXPECT_EQ(4, tensor->dims[1]);
	EXPECT_EQ(1, tensor->dims[2]);
	EXPECT_EQ(1, tensor->dims[3]);
	EXPECT_EQ(272, tensor->size_bytes);
	EXPECT_MEMEQ(q8, tensor->data, sizeof(q8));

	const uint8_t *data_start = tensor->data;
	size_t header_bytes;

	EXPECT_TRUE(gguf_header(self->gguf, &header_bytes) == self->file);
	EXPECT_EQ((header_bytes + 63) / 64 * 64,
		  (size_t)(data_start - self->file));
	tensor = gguf_tensor(self->gguf, "norm");
	ASSERT_TRUE(tensor != NULL);
	EXPECT_EQ(320, tensor->offset);
	EXPECT_TRUE(tensor->data == data_start + 320);
	EXPECT_MEMEQ(norm, tensor->data, sizeof(norm));
	tensor = gguf_tensor(self->gguf, "scalar");
	ASSERT_TRUE(tensor != NULL);
	EXPECT_EQ(0, tensor->nr_dims);
	EXPECT_EQ(2, tensor->size_bytes);
	EXPECT_TRUE(gguf_tensor(self->gguf, "nor") == NULL);
}

TEST_F(gguf, metadata_only_needs_no_data)
{
	gw_tensor(&self->w, "q8", GGUF_TYPE_Q8_0, 2, (uint64_t[]){ 64, 4 },
		  NULL, 272);
	self->w.data.len = 0;
	OPEN_OK(self, GGUF_METADATA_ONLY);

	const struct gguf_tensor *tensor = gguf_tensor(self->gguf, "q8");

	ASSERT_TRUE(tensor != NULL);
	EXPECT_EQ(272, tensor->size_bytes);
	EXPECT_TRUE(tensor->data == NULL);
}

TEST_F(gguf, tensors_may_lie_in_any_order)
{
	gw_tensor_at(&self->w, "second", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 },
		     32);
	gw_tensor_at(&self->w, "first", GGUF_TYPE_F32, 1, (uint64_t[]){ 8 }, 0);
	gw_put(&self->w.data, NULL, 64);
	OPEN_OK(self, 0);
	EXPECT_EQ(32, (const uint8_t *)gguf_tensor(self->gguf, "second")->data -
			      (const uint8_t *)gguf_tensor(self->gguf, "first")
				      ->data);
}

TEST_F(gguf, a_part_1_of_1_is_no_split_file)
{
	gw_u16(&self->w, "split.count", 1);
	gw_u16(&self->w, "split.no", 0);
	OPEN_OK(self, 0);
}

TEST_F(gguf, many_names_are_found)
{
	enum { NR = 5000 };
	char name[32];

	for (int i = 0; i < NR; i++) {
		snprintf(name, sizeof(name), "key.%d", i);
		gw_u32(&self->w, name, i * 3);
		snprintf(name, sizeof(name), "blk.%d.weight", i);
		gw_tensor(&self->w, name, GGUF_TYPE_F32, 1,
			  (uint64_t[]){ 1 + i % 3 }, NULL, 4 * (1 + i % 3));
	}
	OPEN_OK(self, 0);
	for (int i = 0; i < NR; i++) {
		uint32_t value = 0;

		snprintf(name, sizeof(name), "key.%d", i);
		ASSERT_EQ(0, gguf_get_u32(self->gguf, name, &value, self->err,
					  200));
		ASSERT_EQ(i * 3, value);
		snprintf(name, sizeof(name), "blk.%d.weight", i);
		ASSERT_TRUE(gguf_tensor(self->gguf, name) ==
			    gguf_tensor_at(self->gguf, i));
	}
	EXPECT_FALSE(gguf_has(self->gguf, "key.5000"));
}

TEST_F(gguf, absent_names_are_not_found_however_many_there_are)
{
	char name[32];

	for (int nr = 1; nr <= 66; nr++) {
		for (int i = 0; i < nr; i++) {
			snprintf(name, sizeof(name), "key.%d", i);
			gw_u32(&self->w, name, i);
		}
		OPEN_OK(self, 0);
		EXPECT_TRUE(gguf_has(self->gguf, "key.0"));
		EXPECT_FALSE(gguf_has(self->gguf, "key."));
		EXPECT_FALSE(gguf_has(self->gguf, "key.100"));
		gguf_close(self->gguf);
		self->gguf = NULL;
		free(self->file);
		self->file = NULL;
	}
}

TEST(tensor_types_have_names_and_blocks)
{
	uint32_t elems, bytes, nr_supported = 0;
	char buf[16];

	EXPECT_STREQ("Q4_K", gguf_type_name(GGUF_TYPE_Q4_K, buf, sizeof(buf)));
	EXPECT_STREQ("BF16", gguf_type_name(GGUF_TYPE_BF16, buf, sizeof(buf)));
	EXPECT_STREQ("IQ3_S", gguf_type_name(21, buf, sizeof(buf)));
	EXPECT_STREQ("type 99", gguf_type_name(99, buf, sizeof(buf)));
	EXPECT_STREQ("type 4294967295",
		     gguf_type_name(UINT32_MAX, buf, sizeof(buf)));

	static const uint32_t wanted[][3] = {
		{ GGUF_TYPE_F32, 1, 4 },	{ GGUF_TYPE_F16, 1, 2 },
		{ GGUF_TYPE_BF16, 1, 2 },	{ GGUF_TYPE_Q4_0, 32, 18 },
		{ GGUF_TYPE_Q4_1, 32, 20 },	{ GGUF_TYPE_Q5_0, 32, 22 },
		{ GGUF_TYPE_Q5_1, 32, 24 },	{ GGUF_TYPE_Q8_0, 32, 34 },
		{ GGUF_TYPE_Q4_K, 256, 144 },	{ GGUF_TYPE_Q5_K, 256, 176 },
		{ GGUF_TYPE_Q6_K, 256, 210 },	{ GGUF_TYPE_Q2_K, 256, 84 },
		{ GGUF_TYPE_Q3_K, 256, 110 },	{ GGUF_TYPE_IQ4_NL, 32, 18 },
		{ GGUF_TYPE_IQ4_XS, 256, 136 }, { GGUF_TYPE_MXFP4, 32, 17 },
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		EXPECT_EQ(0, gguf_type_block(wanted[i][0], &elems, &bytes));
		EXPECT_EQ(wanted[i][1], elems);
		EXPECT_EQ(wanted[i][2], bytes);
		EXPECT_TRUE(gguf_type_supported(wanted[i][0]));
	}
	for (uint32_t type = 0; type < 100; type++)
		nr_supported += gguf_type_supported(type);
	EXPECT_EQ(16, nr_supported);
	EXPECT_EQ(0, gguf_type_block(21, &elems, &bytes));
	EXPECT_EQ(-ENOTSUP, gguf_type_block(4, &elems, &bytes));
	EXPECT_EQ(-ENOTSUP, gguf_type_block(43, &elems, &bytes));
}

/* Bytes of file pages mapped into this process. */
static size_t file_pages_bytes(void)
{
	unsigned long total, resident, shared = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (!f || fscanf(f, "%lu %lu %lu", &total, &resident, &shared) != 3)
		shared = 0;
	if (f)
		fclose(f);
	return shared * sysconf(_SC_PAGESIZE);
}

TEST(dropped_pages_leave_memory_and_can_be_read_again)
{
	enum { BYTES = 16 << 20 };
	char path[] = "/tmp/test_gguf.XXXXXX", err[200];
	struct gguf_writer w = GGUF_WRITER_INIT;
	struct gguf *gguf;
	uint8_t *data = malloc(BYTES);

	ASSERT_TRUE(data != NULL);
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (i >> 12) * 7 + i;
	gw_tensor(&w, "big", GGUF_TYPE_F32, 1, (uint64_t[]){ BYTES / 4 }, data,
		  BYTES);
	close(mkstemp(path));
	ASSERT_EQ(0, gw_save(&w, path));
	ASSERT_EQ(0, gguf_open(path, 0, &gguf, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	unlink(path);

	const struct gguf_tensor *tensor = gguf_tensor(gguf, "big");

	EXPECT_MEMEQ(data, tensor->data, BYTES);

	size_t before = file_pages_bytes();

	gguf_drop_pages(gguf);
	EXPECT_LT(file_pages_bytes() + BYTES / 8 * 7, before);
	EXPECT_MEMEQ(data, tensor->data, BYTES);
	gguf_close(gguf);
	free(data);
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Opens the real file named by @env; *out_ms is the best time of three. */
static struct gguf *open_real(const char *env, double *out_ms)
{
	struct gguf *gguf = NULL;
	char err[200];

	*out_ms = INFINITY;
	for (int i = 0; i < 3; i++) {
		double start = now_ms();

		gguf_close(gguf);
		gguf = NULL;
		EXPECT_EQ(0, gguf_open(getenv(env), 0, &gguf, err, sizeof(err)))
		{
			TH_LOG("%s", err);
			return NULL;
		}
		*out_ms = fmin(*out_ms, now_ms() - start);
	}
	TH_LOG("opened in %.2f ms", *out_ms);
	return gguf;
}

static void check_real(const struct gguf *gguf, const char *arch,
		       uint64_t n_vocab, const char *first_token)
{
	struct gguf_array array;
	struct gguf_str str;
	char err[200];

	ASSERT_EQ(0, gguf_get_str(gguf, "general.architecture", &str, err,
				  sizeof(err)));
	EXPECT_SPAN(arch, str);
	ASSERT_EQ(0, gguf_get_array(gguf, "tokenizer.ggml.tokens", &array, err,
				    sizeof(err)));
	ASSERT_EQ(n_vocab, array.nr);

	struct gguf_str *tokens = calloc(n_vocab, sizeof(*tokens));

	ASSERT_TRUE(tokens != NULL);
	EXPECT_EQ(0, gguf_array_strings(&array, tokens));
	EXPECT_SPAN(first_token, tokens[0]);
	free(tokens);
}

TEST(smollm2_opens_in_a_few_milliseconds)
{
	double ms;

	if (!getenv("TARN_TEST_MODEL"))
		SKIP(return, "TARN_TEST_MODEL is not set");

	struct gguf *gguf = open_real("TARN_TEST_MODEL", &ms);

	ASSERT_TRUE(gguf != NULL);
	check_real(gguf, "llama", 49152, "<|endoftext|>");
	EXPECT_EQ(272, gguf_nr_tensors(gguf));
	EXPECT_EQ(GGUF_TYPE_Q4_1,
		  gguf_tensor(gguf, "blk.29.ffn_down.weight")->type);
	/* Measured: 0.6 ms on two Xeon cores at work; this is for a busy machine. */
	EXPECT_LT(ms, 25 * HARNESS_TIME_SCALE);
	gguf_close(gguf);
}

TEST(gemma3_opens_in_a_few_milliseconds)
{
	double ms;

	if (!getenv("TARN_TEST_MODEL_GEMMA"))
		SKIP(return, "TARN_TEST_MODEL_GEMMA is not set");

	struct gguf *gguf = open_real("TARN_TEST_MODEL_GEMMA", &ms);

	ASSERT_TRUE(gguf != NULL);
	check_real(gguf, "gemma3", 262144, "<pad>");
	EXPECT_EQ(236, gguf_nr_tensors(gguf));
	EXPECT_EQ(GGUF_TYPE_Q6_K,
		  gguf_tensor(gguf, "blk.0.ffn_down.weight")->type);
	/* Measured: 1.7 ms. */
	EXPECT_LT(ms, 25 * HARNESS_TIME_SCALE);
	gguf_close(gguf);
}

TEST_HARNESS_MAIN
