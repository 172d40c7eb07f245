/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How tokens are chosen: the fields of OpenAI, vLLM and llama-server by the names that they have
 * there. Defaults: temperature 1, top_p 1, everything else off; a random seed.
 */
#include "daemon/api.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/api_fields.h"

enum {
	MAX_BREAKERS = 64,
	MAX_BREAKER_BYTES = 64,
	/* Every choice has a table of them. */
	MAX_BIASES = 1024,
};

/* A float field; @alias: another server's name for it, or NULL. */
static bool read_float(const json_t *body, const char *name, const char *alias,
		       double min, double max, float *value,
		       struct api_error *error)
{
	double number = (double)*value;

	if (alias && api_get(body, name) && api_get(body, alias))
		return api_fail(error, 400, alias, "invalid_value",
				"%s and %s are the same thing: give one", name,
				alias);
	if (!api_read_real(body, name, min, max, &number, error) ||
	    (alias && !api_read_real(body, alias, min, max, &number, error)))
		return false;
	*value = (float)number;
	return true;
}

/* A number of last tokens: -1 is all, which the engine knows as 0. *out_is_off: it was 0. */
static bool read_window(const json_t *body, const char *name, uint32_t *window,
			bool *out_is_off, struct api_error *error)
{
	int64_t number = -1;

	if (!api_read_int(body, name, -1, INT_MAX, &number, error))
		return false;
	*out_is_off = number == 0;
	*window = number < 0 ? 0 : (uint32_t)number;
	return true;
}

static bool read_seed(const json_t *body, struct tarn_sampling *sampling,
		      struct api_error *error)
{
	int64_t seed;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return api_fail(error, 500, NULL, NULL, "no random seed: %s",
				strerror(errno));
	if (!api_read_int(body, "seed", INT64_MIN, INT64_MAX, &seed, error))
		return false;
	sampling->seed = (uint64_t)seed;
	return true;
}

static bool read_filters(const json_t *body, struct tarn_sampling *s,
			 struct api_error *error)
{
	int64_t top_k = 0;

	s->temperature = 1;
	s->top_p = 1;
	s->xtc_threshold = 0.1f;
	if (!read_float(body, "temperature", NULL, 0, 2, &s->temperature,
			error) ||
	    !read_float(body, "top_p", NULL, 0, 1, &s->top_p, error) ||
	    !read_float(body, "min_p", NULL, 0, 1, &s->min_p, error) ||
	    !read_float(body, "typical_p", "typ_p", 0, 1, &s->typical_p,
			error) ||
	    !read_float(body, "top_n_sigma", NULL, -1, 100, &s->top_n_sigma,
			error) ||
	    !read_float(body, "xtc_probability", NULL, 0, 1,
			&s->xtc_probability, error) ||
	    !read_float(body, "xtc_threshold", NULL, 0, 1, &s->xtc_threshold,
			error) ||
	    !api_read_int(body, "top_k", -1, INT_MAX, &top_k, error))
		return false;
	s->top_k = top_k < 0 ? 0 : (uint32_t)top_k;
	if (s->top_n_sigma < 0) /* llama-server's way to say off */
		s->top_n_sigma = 0;
	return true;
}

static bool read_mirostat(const json_t *body, struct tarn_sampling *s,
			  struct api_error *error)
{
	int64_t version = 0;
	float tau = 5, eta = 0.1f;

	if (!api_read_int(body, "mirostat", 0, 2, &version, error) ||
	    !read_float(body, "mirostat_tau", NULL, 0, 100, &tau, error) ||
	    !read_float(body, "mirostat_eta", NULL, 0, 1, &eta, error))
		return false;
	if (version == 1)
		return api_fail(error, 400, "mirostat", "unsupported",
				"mirostat 1 is not supported; 2 is");
	if (version == 0)
		return true;
	if (tau <= 0)
		return api_fail(
			error, 400, "mirostat_tau", "invalid_value",
			"mirostat_tau must be more than 0 with mirostat 2");
	s->mirostat_tau = tau;
	s->mirostat_eta = eta;
	return true;
}

static bool read_penalties(const json_t *body, struct tarn_sampling *s,
			   struct api_error *error)
{
	bool is_off;

	s->repetition_penalty = 1;
	if (!read_float(body, "presence_penalty", NULL, -2, 2,
			&s->presence_penalty, error) ||
	    !read_float(body, "frequency_penalty", NULL, -2, 2,
			&s->frequency_penalty, error) ||
	    !read_float(body, "repetition_penalty", "repeat_penalty", 0.01, 10,
			&s->repetition_penalty, error) ||
	    !read_window(body, "repeat_last_n", &s->repetition_window, &is_off,
			 error))
		return false;
	if (is_off)
		s->repetition_penalty = 1;
	return true;
}

static bool read_breakers(const json_t *body, struct tarn_bytes *texts,
			  uint32_t *out_nr, struct api_error *error)
{
	static const struct tarn_bytes usual[] = {
		{ "\n", 1 }, { ":", 1 }, { "\"", 1 }, { "*", 1 }
	};
	const char *const name = "dry_sequence_breakers";
	const json_t *field = api_get(body, name);
	const size_t nr = json_array_size(field);

	if (field && !json_is_array(field))
		return api_fail(error, 400, name, "invalid_type",
				"%s must be an array of strings", name);
	if (nr > MAX_BREAKERS)
		return api_fail(error, 400, name, "invalid_value",
				"%s has %zu strings; at most %d are allowed",
				name, nr, MAX_BREAKERS);
	for (size_t i = 0; i < nr; i++) {
		const json_t *text = json_array_get(field, i);
		const size_t len = json_string_length(text);

		if (len == 0 || len > MAX_BREAKER_BYTES)
			return api_fail(
				error, 400, name, "invalid_value",
				"%s[%zu] must be a string of 1 to %d bytes",
				name, i, MAX_BREAKER_BYTES);
		texts[i] = (struct tarn_bytes){ json_string_value(text), len };
	}
	if (!field)
		memcpy(texts, usual, sizeof(usual));
	*out_nr = field ? (uint32_t)nr : sizeof(usual) / sizeof(usual[0]);
	return true;
}

bool api_find_breakers(const struct api_context *context, const json_t *body,
		       struct request_params *params, struct api_error *error)
{
	struct tarn_bytes texts[MAX_BREAKERS];
	uint32_t nr;

	if (params->sampling.dry_multiplier <= 0)
		return true;
	if (!read_breakers(body, texts, &nr, error))
		return false;
	if (tarn_dry_breakers(context->engine, texts, nr,
			      &params->dry_breakers) != 0)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	params->sampling.dry_breakers = params->dry_breakers;
	return true;
}

static bool read_dry(const json_t *body, struct tarn_sampling *s,
		     struct api_error *error)
{
	struct tarn_bytes texts[MAX_BREAKERS];
	int64_t allowed = 2;
	uint32_t nr;
	bool is_off;

	s->dry_base = 1.75f;
	if (!read_float(body, "dry_multiplier", NULL, 0, 100,
			&s->dry_multiplier, error) ||
	    !read_float(body, "dry_base", NULL, 1, 100, &s->dry_base, error) ||
	    !api_read_int(body, "dry_allowed_length", 0, INT_MAX, &allowed,
			  error) ||
	    !read_window(body, "dry_penalty_last_n", &s->dry_window, &is_off,
			 error))
		return false;
	s->dry_allowed_length = (uint32_t)allowed;
	if (is_off)
		s->dry_multiplier = 0;
	return read_breakers(body, texts, &nr, error); /* checked alone */
}

/* ---- logit_bias ------------------------------------------------------------- */

static bool add_bias(struct request_params *params, uint32_t nr_vocab,
		     json_int_t id, const json_t *value,
		     struct api_error *error)
{
	const double bias = json_number_value(value);

	if (id < 0 || id >= nr_vocab)
		return api_fail(
			error, 400, "logit_bias", "invalid_value",
			"logit_bias names token id %lld; token ids go from 0 to %u",
			(long long)id, nr_vocab - 1);
	if (!json_is_number(value) || !(bias >= -100 && bias <= 100))
		return api_fail(
			error, 400, "logit_bias", "invalid_value",
			"the logit_bias of token id %lld must be a number from -100 to 100",
			(long long)id);
	params->biases[params->sampling.nr_biases++] =
		(struct tarn_logit_bias){ (int32_t)id, (float)bias };
	return true;
}

/* A key is a token id as it is printed: no sign, no zeros or spaces before it. */
static bool parse_id(const char *key, json_int_t *out)
{
	char *end, text[24];

	errno = 0;
	*out = strtoll(key, &end, 10);
	snprintf(text, sizeof(text), "%lld", (long long)*out);
	return errno == 0 && *end == '\0' && strcmp(text, key) == 0;
}

static bool read_biases(const json_t *body, uint32_t nr_vocab,
			struct request_params *params, struct api_error *error)
{
	json_t *field = api_get(body, "logit_bias"), *value;
	const char *key;

	if (field && !json_is_object(field))
		return api_fail(
			error, 400, "logit_bias", "invalid_type",
			"logit_bias must be an object of token ids and biases");
	if (json_object_size(field) == 0)
		return true;
	if (json_object_size(field) > MAX_BIASES)
		return api_fail(
			error, 400, "logit_bias", "invalid_value",
			"logit_bias has %zu entries; at most %d are allowed",
			json_object_size(field), MAX_BIASES);
	params->biases =
		malloc(json_object_size(field) * sizeof(*params->biases));
	if (!params->biases)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	json_object_foreach(field, key, value)
	{
		json_int_t id;

		if (!parse_id(key, &id))
			return api_fail(
				error, 400, "logit_bias", "invalid_value",
				"logit_bias has the key \"%.40s\", which is no token id",
				key);
		if (!add_bias(params, nr_vocab, id, value, error))
			return false;
	}
	params->sampling.biases = params->biases;
	return true;
}

/* ---- samplers ----------------------------------------------------------------- */

static const struct {
	const char *name;
	enum tarn_sampler step;
} steps[] = {
	{ "top_n_sigma", TARN_SAMPLER_TOP_N_SIGMA },
	{ "temperature", TARN_SAMPLER_TEMPERATURE },
	{ "top_k", TARN_SAMPLER_TOP_K },
	{ "typical_p", TARN_SAMPLER_TYPICAL_P },
	{ "typ_p", TARN_SAMPLER_TYPICAL_P },
	{ "top_p", TARN_SAMPLER_TOP_P },
	{ "min_p", TARN_SAMPLER_MIN_P },
	{ "xtc", TARN_SAMPLER_XTC },
};

static bool add_step(struct tarn_sampling *s, const char *name,
		     struct api_error *error)
{
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (strcmp(steps[i].name, name) != 0)
			continue;
		for (uint32_t k = 0; k < s->nr_order; k++)
			if (s->order[k] == steps[i].step)
				return api_fail(error, 400, "samplers",
						"invalid_value",
						"samplers names %s twice",
						name);
		s->order[s->nr_order++] = steps[i].step;
		return true;
	}
	return api_fail(
		error, 400, "samplers", "invalid_value",
		"samplers names \"%.40s\"; known are penalties, dry, top_n_sigma, "
		"temperature, top_k, typical_p, top_p, min_p and xtc",
		name);
}

/* llama-server's list: what it does not name is not done. Penalties come first in any case. */
static bool read_order(const json_t *body, struct tarn_sampling *s,
		       struct api_error *error)
{
	const json_t *field = api_get(body, "samplers");
	bool has_penalties = false, has_dry = false;

	if (!field)
		return true;
	if (!json_is_array(field) || json_array_size(field) == 0)
		return api_fail(error, 400, "samplers", "invalid_type",
				"samplers must be an array of names");
	for (size_t i = 0; i < json_array_size(field); i++) {
		const char *name = api_name(json_array_get(field, i));
		bool *has = !name			   ? NULL :
			    strcmp(name, "penalties") == 0 ? &has_penalties :
			    strcmp(name, "dry") == 0	   ? &has_dry :
							     NULL;

		if (!name)
			return api_fail(error, 400, "samplers", "invalid_type",
					"samplers[%zu] must be a string", i);
		if (!has && !add_step(s, name, error))
			return false;
		if (has && (s->nr_order || *has))
			return api_fail(
				error, 400, "samplers", "invalid_value",
				"samplers names %s %s", name,
				*has ? "twice" :
				       "behind other steps; it changes the logits and comes first");
		if (has)
			*has = true;
	}
	if (!has_penalties) {
		s->repetition_penalty = 1;
		s->presence_penalty = s->frequency_penalty = 0;
	}
	if (!has_dry)
		s->dry_multiplier = 0;
	if (!s->nr_order) { /* nothing but penalties: one step, and it is off */
		s->top_n_sigma = 0;
		s->order[s->nr_order++] = TARN_SAMPLER_TOP_N_SIGMA;
	}
	return true;
}

bool api_read_sampling(const struct api_context *context, const json_t *body,
		       struct request_params *params, struct api_error *error)
{
	struct tarn_sampling *s = &params->sampling;

	return read_filters(body, s, error) && read_mirostat(body, s, error) &&
	       read_penalties(body, s, error) && read_dry(body, s, error) &&
	       read_order(body, s, error) &&
	       read_biases(body, context->info->nr_vocab, params, error) &&
	       api_read_bool(body, "ignore_eos", &s->ignore_eos, error) &&
	       read_seed(body, s, error);
}
