/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model file whose pre-tokenizer has a name that nobody knows, by the
 * public header: refused by name, or taken as "default" where allowed.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "engine/engine.h"
#include "tests/harness.h"

FIXTURE(unknown_pre)
{
	int fd;
	off_t size;
	char path[64];
};

/* SmolLM2's file, with "smollm" as "sm?l\nm" in the place of the name. */
FIXTURE_SETUP(unknown_pre)
{
	static const char key[] = "tokenizer.ggml.pre";
	/* Behind the key: the type and the length of the string. */
	const size_t gap = sizeof(uint32_t) + sizeof(uint64_t);
	const char *model = getenv("TARN_TEST_MODEL");
	char *data, *at;
	int from;

	if (!model)
		SKIP(return, "the model is not there");
	from = open(model, O_RDONLY | O_CLOEXEC);
	self->size = lseek(from, 0, SEEK_END);
	lseek(from, 0, SEEK_SET);
	self->fd = memfd_create("unknown-pre", MFD_CLOEXEC);
	ASSERT_TRUE(from >= 0 && self->fd >= 0);
	while (sendfile(self->fd, from, NULL, (size_t)self->size) > 0)
		;
	close(from);
	data = mmap(NULL, (size_t)self->size, PROT_READ | PROT_WRITE,
		    MAP_SHARED, self->fd, 0);
	ASSERT_TRUE(data != MAP_FAILED);
	at = memmem(data, (size_t)self->size, key, strlen(key));
	ASSERT_TRUE(at != NULL);
	at += strlen(key) + gap;
	ASSERT_MEMEQ("smollm", at, 6);
	memcpy(at, "sm?l\nm", 6);
	munmap(data, (size_t)self->size);
	snprintf(self->path, sizeof(self->path), "/proc/self/fd/%d", self->fd);
}

FIXTURE_TEARDOWN(unknown_pre)
{
	close(self->fd);
}

TEST_F(unknown_pre, is_refused_by_name)
{
	struct tarn_engine_options options = {
		.model_path = self->path,
		.nr_threads = 1,
		.kv_bytes = 1 << 20,
	};
	struct tarn_engine *engine = NULL;
	char err[256] = "";
	int32_t *ids;
	size_t nr;

	EXPECT_EQ(-ENOTSUP,
		  tarn_engine_create(&options, &engine, err, sizeof(err)));
	EXPECT_STREQ("pre-tokenizer \"sm?l?m\" is not supported", err);
	EXPECT_TRUE(engine == NULL);
	EXPECT_EQ(-ENOTSUP, tarn_tokenize_file(self->path, "a", 1, 0, &ids, &nr,
					       err, sizeof(err)));
	EXPECT_STREQ("pre-tokenizer \"sm?l?m\" is not supported", err);
}

TEST_F(unknown_pre, is_default_with_a_warning_where_allowed)
{
	static const char warning[] =
		"pre-tokenizer \"sm?l?m\" is not known: taken as \"default\"";
	struct tarn_engine_options options = {
		.model_path = self->path,
		.nr_threads = 1,
		.kv_bytes = 64 << 20,
		.allow_unknown_pre = true,
	};
	struct tarn_engine *engine = NULL;
	char err[256] = "";
	int32_t *ids;
	size_t nr;

	ASSERT_EQ(0, tarn_engine_create(&options, &engine, err, sizeof(err)));
	EXPECT_STREQ(warning, err);
	ASSERT_EQ(0, tarn_tokenize(engine, "11", 2, 0, &ids, &nr));
	/* Digits by themselves, as both cut them; there is no merge of two. */
	EXPECT_EQ(2, nr);
	free(ids);
	tarn_engine_destroy(engine);
	ASSERT_EQ(0, tarn_tokenize_file(self->path, "11", 2,
					TARN_TOKENIZE_ALLOW_UNKNOWN_PRE, &ids,
					&nr, err, sizeof(err)));
	EXPECT_STREQ(warning, err);
	EXPECT_EQ(2, nr);
	free(ids);
}

/* One warning does not hide the other. */
TEST_F(unknown_pre, is_told_beside_a_broken_template)
{
	static const char start[] =
		"pre-tokenizer \"sm?l?m\" is not known: taken "
		"as \"default\"; the chat template cannot be used: ";
	struct tarn_engine_options options = {
		.model_path = self->path,
		.nr_threads = 1,
		.kv_bytes = 64 << 20,
		.allow_unknown_pre = true,
	};
	char *data = mmap(NULL, (size_t)self->size, PROT_READ | PROT_WRITE,
			  MAP_SHARED, self->fd, 0);
	struct tarn_engine *engine = NULL;
	char err[256] = "", *at;

	ASSERT_TRUE(data != MAP_FAILED);
	at = memmem(data, (size_t)self->size, "{% for ", 7);
	ASSERT_TRUE(at != NULL);
	memcpy(at, "{% fox ", 7);
	munmap(data, (size_t)self->size);
	ASSERT_EQ(0, tarn_engine_create(&options, &engine, err, sizeof(err)));
	EXPECT_EQ(0, strncmp(start, err, strlen(start)))
	{
		TH_LOG("%s", err);
	}
	tarn_engine_destroy(engine);
}

TEST_HARNESS_MAIN
