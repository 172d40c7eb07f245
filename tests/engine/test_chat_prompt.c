/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn_chat_prompt() by the public header, on a tiny model with a template of
 * its own: what the template sees of the model's tokens, and what it refuses.
 */
#include <errno.h>
#include <fcntl.h>

#include "engine/engine.h"
#include "tests/engine/tiny_model.h"
#include "tests/harness.h"

static const char request[] =
	"{\"messages\": [{\"role\": \"user\", \"content\": \"abcd\"}]}";

static void create_with_template(struct tiny_model *m, const char *source)
{
	struct tiny_change change = {
		.key = "tokenizer.chat_template",
		.value = { .kind = TINY_STR, .s = source },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	spec.change = &change;
	tiny_create(m, &spec);
}

/* The text of BOS, "<s>", becomes three bytes @to in the file. */
static void patch_bos(struct tiny_model *m, const char *to)
{
	int fd = open(m->path, O_RDWR | O_CLOEXEC);
	char head[4096];
	ssize_t nr = pread(fd, head, sizeof(head), 0);
	char *at = nr > 0 ? memmem(head, (size_t)nr, "<s>", 3) : NULL;

	ASSERT_TRUE(at != NULL);
	ASSERT_EQ(3, pwrite(fd, to, 3, at - head));
	close(fd);
}

static struct tarn_engine *engine_open(const struct tiny_model *m)
{
	struct tarn_engine_options options = {
		.model_path = m->path,
		.nr_threads = 1,
		.kv_bytes = 1 << 20,
	};
	struct tarn_engine *engine = NULL;
	char err[256] = "";

	ASSERT_EQ(0, tarn_engine_create(&options, &engine, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return engine;
}

static void expect_text(const struct tarn_engine *e, const char *want)
{
	int32_t *ids = NULL;
	char *text = NULL, err[256] = "";
	size_t nr;

	ASSERT_EQ(0, tarn_chat_prompt(e, request, strlen(request), &text, &ids,
				      &nr, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	EXPECT_STREQ(want, text);
	free(text);
	free(ids);
}

TEST(the_template_sees_bos_and_eos)
{
	struct tiny_model m;

	create_with_template(
		&m, "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");

	struct tarn_engine *e = engine_open(&m);

	expect_text(e, "<s>abcd</s>");
	tarn_engine_destroy(e);
	tiny_destroy(&m);
}

/* Texts of a template are characters: such a token is empty there, and the request is served. */
TEST(a_bos_that_is_no_utf8_is_empty_to_the_template)
{
	struct tiny_model m;

	create_with_template(&m, "[{{ bos_token }}]{{ messages[0].content }}");
	patch_bos(&m, "\xff\xfe>");

	struct tarn_engine *e = engine_open(&m);

	expect_text(e, "[]abcd");
	tarn_engine_destroy(e);
	tiny_destroy(&m);
}

/* The model is served; requests with messages are told what is wrong with its template. */
TEST(a_broken_template_is_the_reason)
{
	struct tiny_model m;
	int32_t *ids = NULL;
	char err[256] = "";
	size_t nr;

	create_with_template(&m, "a\n{% frobnicate %}");

	struct tarn_engine *e = engine_open(&m);

	EXPECT_EQ(-EINVAL, tarn_chat_prompt(e, request, strlen(request), NULL,
					    &ids, &nr, err, sizeof(err)));
	EXPECT_TRUE(strstr(err, "line 2: unknown tag 'frobnicate'") != NULL)
	{
		TH_LOG("%s", err);
	}
	tarn_engine_destroy(e);
	tiny_destroy(&m);
}

TEST(what_the_template_raises_is_the_reason)
{
	struct tiny_model m;
	int32_t *ids = NULL;
	char err[256] = "";
	size_t nr;

	create_with_template(&m, "{{ raise_exception('no abcd here') }}");

	struct tarn_engine *e = engine_open(&m);

	EXPECT_EQ(-EINVAL, tarn_chat_prompt(e, request, strlen(request), NULL,
					    &ids, &nr, err, sizeof(err)));
	EXPECT_TRUE(strstr(err, "no abcd here") != NULL)
	{
		TH_LOG("%s", err);
	}
	tarn_engine_destroy(e);
	tiny_destroy(&m);
}

TEST_HARNESS_MAIN
