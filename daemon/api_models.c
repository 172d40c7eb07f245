/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/models, /v1/models/{id} and /version. The model goes by its name,
 * and also answers to its file's stem.
 */
#include "daemon/api.h"

#include <string.h>

#include "daemon/version.h"

/* "dir/smollm2.gguf" and the like: the part between. */
static bool is_file_stem(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');
	const char *stem = slash ? slash + 1 : path;
	const char *dot = strrchr(stem, '.');
	size_t len = dot && dot != stem ? (size_t)(dot - stem) : strlen(stem);

	return strlen(name) == len && memcmp(stem, name, len) == 0;
}

bool api_check_model(const struct api_context *context, const char *name,
		     size_t len, struct api_error *error)
{
	/* A NUL inside would hide what stands behind it. */
	if (strlen(name) == len &&
	    (strcmp(name, context->info->model_name) == 0 ||
	     is_file_stem(context->info->model_path, name)))
		return true;
	return api_fail(
		error, 404, "model", "model_not_found",
		"the model \"%.100s\" is not here; this server has \"%.100s\"",
		name, context->info->model_name);
}

static json_t *model_object(const struct api_context *context)
{
	const struct tarn_engine_info *info = context->info;

	return json_pack(
		"{s:s, s:s, s:I, s:s, s:I, s:{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:s, "
		"s:b, s:b}}",
		"id", info->model_name, "object", "model", "created",
		(json_int_t)context->loaded_s, "owned_by", "tarn",
		"max_model_len", (json_int_t)info->ctx_tokens, "meta", "arch",
		info->arch, "quant", info->quant, "n_params",
		(json_int_t)info->nr_params, "size",
		(json_int_t)info->weight_bytes, "n_vocab",
		(json_int_t)info->nr_vocab, "n_ctx_train",
		(json_int_t)info->model_ctx_tokens, "device", info->device,
		"kv_backend", info->kv_backend, "chat_template",
		info->has_chat_template, "precise", info->precise);
}

char *api_models_json(const struct api_context *context)
{
	return api_dump(json_pack("{s:s, s:[o]}", "object", "list", "data",
				  model_object(context)));
}

char *api_model_json(const struct api_context *context, const char *id,
		     struct api_error *error)
{
	char *text;

	if (!api_check_model(context, id, strlen(id), error))
		return NULL;
	text = api_dump(model_object(context));
	if (!text)
		api_fail(error, 500, NULL, NULL, "out of memory");
	return text;
}

char *api_version_json(const struct api_context *context)
{
	return api_dump(json_pack("{s:s, s:s?}", "version", TARN_VERSION,
				  "system_fingerprint",
				  context ? context->info->fingerprint : NULL));
}

char *api_dump(json_t *root)
{
	char *text = root ? json_dumps(root, API_JSON_FLAGS) : NULL;

	json_decref(root);
	return text;
}
