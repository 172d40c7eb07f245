/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of bodies share: a body into a request by api_prepare(), with the
 * engine's double behind it. All static; include once.
 */
#ifndef TARN_TESTS_DAEMON_API_KIT_H
#define TARN_TESTS_DAEMON_API_KIT_H

#include "daemon/api.h"
#include "tests/daemon/engine_double.h"
#include "tests/harness.h"

FIXTURE(api)
{
	struct tarn_engine *engine;
	struct api_context context;
	struct request *request;
	struct api_error error;
	char *json;
};

FIXTURE_SETUP(api)
{
	struct tarn_engine_options options = { .model_path =
						       "/m/byte-model.gguf" };
	char err[8];

	ASSERT_EQ(0, tarn_engine_create(&options, &self->engine, err,
					sizeof(err)));
	self->context.engine = self->engine;
	self->context.info = tarn_engine_info(self->engine);
}

FIXTURE_TEARDOWN(api)
{
	request_put(self->request);
	free(self->json);
	tarn_engine_destroy(self->engine);
}

static inline bool prepare_bytes(struct fixture_api *self,
				 enum request_kind kind, const char *body,
				 size_t len)
{
	request_put(self->request);
	free(self->json);
	self->json = NULL;
	memset(&self->error, 0, sizeof(self->error));
	self->request = request_create(kind);
	self->request->body = malloc(len + 1);
	memcpy(self->request->body, body, len);
	self->request->body[len] = '\0';
	self->request->body_len = len;
	return api_prepare(&self->context, self->request, &self->json,
			   &self->error);
}

static inline void completion_ok(struct fixture_api *self, const char *body)
{
	ASSERT_TRUE(prepare_bytes(self, REQUEST_COMPLETION, body, strlen(body)))
	{
		TH_LOG("%s: %s", body, self->error.message);
	}
}

static inline void chat_ok(struct fixture_api *self, const char *body)
{
	ASSERT_TRUE(prepare_bytes(self, REQUEST_CHAT, body, strlen(body)))
	{
		TH_LOG("%s: %s", body, self->error.message);
	}
}

/* Refused with @status, naming @param, and with @part in the message. */
static inline void expect_refused(struct fixture_api *self,
				  enum request_kind kind, const char *body,
				  int status, const char *param,
				  const char *part)
{
	EXPECT_FALSE(prepare_bytes(self, kind, body, strlen(body)))
	{
		TH_LOG("%s", body);
	}
	EXPECT_EQ(status, self->error.status);
	EXPECT_STREQ(param, self->error.param)
	{
		TH_LOG("%s", body);
	}
	EXPECT_TRUE(strstr(self->error.message, part) != NULL)
	{
		TH_LOG("%s: \"%s\" has no \"%s\"", body, self->error.message,
		       part);
	}
}

#define completion_err(...) \
	expect_refused(self, REQUEST_COMPLETION, __VA_ARGS__)
#define chat_err(...) expect_refused(self, REQUEST_CHAT, __VA_ARGS__)

#endif /* TARN_TESTS_DAEMON_API_KIT_H */
