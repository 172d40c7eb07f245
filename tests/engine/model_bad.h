/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of refused models share: a tiny model with one change must be
 * refused by tarn_engine_create() with its errno, a message that names the
 * offence, and nothing printed. All static.
 */
#ifndef TARN_TESTS_ENGINE_MODEL_BAD_H
#define TARN_TESTS_ENGINE_MODEL_BAD_H

#include "engine/engine.h"
#include "tests/engine/tiny_model.h"
#include "tests/harness.h"

/* Standard output and error, kept in memory while an engine is made. */
struct capture {
	int fd, out, err;
};

static inline void capture_begin(struct capture *c)
{
	fflush(NULL);
	c->fd = memfd_create("printed", MFD_CLOEXEC);
	c->out = dup(STDOUT_FILENO);
	c->err = dup(STDERR_FILENO);
	ASSERT_GE(c->fd, 0);
	ASSERT_EQ(STDOUT_FILENO, dup2(c->fd, STDOUT_FILENO));
	ASSERT_EQ(STDERR_FILENO, dup2(c->fd, STDERR_FILENO));
}

/* Return: how many bytes were printed. */
static inline long long capture_end(struct capture *c)
{
	long long nr;

	fflush(NULL);
	dup2(c->out, STDOUT_FILENO);
	dup2(c->err, STDERR_FILENO);
	nr = lseek(c->fd, 0, SEEK_END);
	close(c->fd);
	close(c->out);
	close(c->err);
	return nr;
}

static inline int create(const struct tarn_engine_options *options,
			 struct tarn_engine **out, char *err, size_t errlen)
{
	struct capture c;
	int rc;

	capture_begin(&c);
	rc = tarn_engine_create(options, out, err, errlen);
	EXPECT_EQ(0, capture_end(&c));
	return rc;
}

static inline void expect_refused(const struct tiny_spec *spec,
				  const struct tiny_change *change, int rc,
				  const char *message)
{
	struct tiny_spec changed = *spec;
	struct tarn_engine *engine = NULL;
	struct tarn_engine_options options = { .nr_threads = 1,
					       .kv_bytes = 4 << 20 };
	struct tiny_model m;
	char err[256] = "untouched";

	changed.change = change;
	tiny_create(&m, &changed);
	options.model_path = m.path;
	EXPECT_EQ(rc, create(&options, &engine, err, sizeof(err)));
	EXPECT_STREQ(message, err);
	EXPECT_TRUE(engine == NULL);
	tarn_engine_destroy(engine);
	/* A message that does not fit is cut, never written beyond. */
	memset(err, 0x55, sizeof(err));
	engine = NULL;
	EXPECT_EQ(rc, create(&options, &engine, err, 8));
	EXPECT_EQ(0, strncmp(message, err, 7));
	EXPECT_EQ(0x55, err[8]);
	tarn_engine_destroy(engine);
	tiny_destroy(&m);
}

/* ---- numbers ------------------------------------------------------------------ */

#define ABSENT                      \
	{                           \
		.kind = TINY_ABSENT \
	}
#define U32(v)                             \
	{                                  \
		.kind = TINY_U32, .u = (v) \
	}
#define I32(v)                                       \
	{                                            \
		.kind = TINY_I32, .u = (uint32_t)(v) \
	}
#define F32(v)                             \
	{                                  \
		.kind = TINY_F32, .f = (v) \
	}
#define STR(v)                             \
	{                                  \
		.kind = TINY_STR, .s = (v) \
	}
#define LAYERS(v, w)                                       \
	{                                                  \
		.kind = TINY_LAYERS, .u = (v), .last = (w) \
	}
#define FLOATS(v)                             \
	{                                     \
		.kind = TINY_FLOATS, .f = (v) \
	}

struct bad_key {
	const char *key;
	struct tiny_value value;
	int rc;
	const char *message;
};

static inline void expect_keys_refused(const struct tiny_spec *spec,
				       const struct bad_key *keys, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct tiny_change change = { .key = keys[i].key,
					      .value = keys[i].value };

		expect_refused(spec, &change, keys[i].rc, keys[i].message);
	}
}

#define EXPECT_KEYS_REFUSED(spec, keys) \
	expect_keys_refused(&(spec), keys, sizeof(keys) / sizeof(keys[0]))

/* ---- tensors -------------------------------------------------------------------- */

static inline void expect_each_missing(const struct tiny_spec *spec,
				       const char *const *names, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct tiny_change change = { .tensor = names[i],
					      .is_missing = true };
		char message[128];

		snprintf(message, sizeof(message), "tensor %s is missing",
			 names[i]);
		expect_refused(spec, &change, -EINVAL, message);
	}
}

struct bad_tensor {
	struct tiny_change change;
	int rc;
	const char *message;
};

static inline void expect_tensors_refused(const struct tiny_spec *spec,
					  const struct bad_tensor *tensors,
					  size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		expect_refused(spec, &tensors[i].change, tensors[i].rc,
			       tensors[i].message);
}

#define EXPECT_TENSORS_REFUSED(spec, tensors)    \
	expect_tensors_refused(&(spec), tensors, \
			       sizeof(tensors) / sizeof(tensors[0]))
#define SHAPE(name, nr, ...)                                              \
	{                                                                 \
		.tensor = (name), .type = GGUF_TYPE_F32, .nr_dims = (nr), \
		.dims = {                                                 \
			__VA_ARGS__                                       \
		}                                                         \
	}
#define TYPE(name, t)                         \
	{                                     \
		.tensor = (name), .type = (t) \
	}

#endif /* TARN_TESTS_ENGINE_MODEL_BAD_H */
