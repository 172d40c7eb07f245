/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields that say how tokens are chosen: their defaults, other servers' names for them, and
 * what is refused, naming the field.
 */
#include "tests/daemon/api_kit.h"

TEST_F(api, everything_is_off_unless_asked_for)
{
	completion_ok(self, "{\"prompt\": \"hi\"}");
	const struct request_params *params = &self->request->params;
	const struct tarn_sampling *s = &params->sampling;

	EXPECT_EQ(1, s->temperature);
	EXPECT_EQ(1, s->top_p);
	EXPECT_EQ(0, s->typical_p);
	EXPECT_EQ(0, s->top_n_sigma);
	EXPECT_EQ(0, s->xtc_probability);
	EXPECT_EQ(0, s->mirostat_tau);
	EXPECT_EQ(0, s->nr_order);
	EXPECT_EQ(1, s->repetition_penalty);
	EXPECT_EQ(0, s->presence_penalty);
	EXPECT_EQ(0, s->frequency_penalty);
	EXPECT_EQ(0, s->dry_multiplier);
	EXPECT_EQ(NULL, s->dry_breakers);
	EXPECT_EQ(0, s->nr_biases);
	EXPECT_EQ(1, params->nr_answers);
	EXPECT_FALSE(s->logprobs);
}

TEST_F(api, every_field_arrives)
{
	self->context.is_strict = true;
	completion_ok(
		self,
		"{\"prompt\": \"hi\", \"typical_p\": 0.5, \"top_n_sigma\": 2.5, "
		"\"xtc_probability\": 0.25, \"xtc_threshold\": 0.125, \"mirostat\": 2, "
		"\"mirostat_tau\": 4, \"mirostat_eta\": 0.5, \"repetition_penalty\": 1.25, "
		"\"repeat_last_n\": 64, \"presence_penalty\": -2, \"frequency_penalty\": 1.5, "
		"\"dry_multiplier\": 0.75, \"dry_base\": 2, \"dry_allowed_length\": 3, "
		"\"dry_penalty_last_n\": 99}");
	const struct tarn_sampling *s = &self->request->params.sampling;

	EXPECT_EQ(0.5f, s->typical_p);
	EXPECT_EQ(2.5f, s->top_n_sigma);
	EXPECT_EQ(0.25f, s->xtc_probability);
	EXPECT_EQ(0.125f, s->xtc_threshold);
	EXPECT_EQ(4, s->mirostat_tau);
	EXPECT_EQ(0.5f, s->mirostat_eta);
	EXPECT_EQ(1.25f, s->repetition_penalty);
	EXPECT_EQ(64, s->repetition_window);
	EXPECT_EQ(-2, s->presence_penalty);
	EXPECT_EQ(1.5f, s->frequency_penalty);
	EXPECT_EQ(0.75f, s->dry_multiplier);
	EXPECT_EQ(2, s->dry_base);
	EXPECT_EQ(3, s->dry_allowed_length);
	EXPECT_EQ(99, s->dry_window);
	/* The usual breakers: newline, colon, quote, star. */
	ASSERT_TRUE(s->dry_breakers != NULL);
	EXPECT_EQ(1ull << '\n' | 1ull << ':' | 1ull << '"' | 1ull << '*',
		  s->dry_breakers[0]);
}

TEST_F(api, other_names_and_ways_to_say_off)
{
	const struct tarn_sampling *s;

	completion_ok(self, "{\"prompt\": \"hi\", \"repeat_penalty\": 1.5, "
			    "\"typ_p\": 0.25, \"top_n_sigma\": -1}");
	s = &self->request->params.sampling;
	EXPECT_EQ(1.5f, s->repetition_penalty);
	EXPECT_EQ(0, s->repetition_window); /* all */
	EXPECT_EQ(0.25f, s->typical_p);
	EXPECT_EQ(0, s->top_n_sigma);
	completion_ok(self, "{\"prompt\": \"hi\", \"repeat_penalty\": 1.5, "
			    "\"repeat_last_n\": 0, \"dry_multiplier\": 1, "
			    "\"dry_penalty_last_n\": 0, \"mirostat_tau\": 0}");
	s = &self->request->params.sampling;
	EXPECT_EQ(1, s->repetition_penalty);
	EXPECT_EQ(0, s->dry_multiplier);
	EXPECT_EQ(0, s->mirostat_tau);
	completion_err("{\"prompt\": \"a\", \"repeat_penalty\": 1, "
		       "\"repetition_penalty\": 1}",
		       400, "repeat_penalty", "the same thing");
}

TEST_F(api, breakers_are_strings)
{
	completion_ok(self, "{\"prompt\": \"hi\", \"dry_multiplier\": 1, "
			    "\"dry_sequence_breakers\": [\"!\", \"xy\"]}");
	EXPECT_EQ(1ull << '!', self->request->params.dry_breakers[0]);
	completion_ok(self, "{\"prompt\": \"hi\", \"dry_multiplier\": 1, "
			    "\"dry_sequence_breakers\": []}");
	EXPECT_EQ(0, self->request->params.dry_breakers[0]);
	completion_err("{\"prompt\": \"a\", \"dry_sequence_breakers\": \"x\"}",
		       400, "dry_sequence_breakers", "array of strings");
	completion_err("{\"prompt\": \"a\", \"dry_sequence_breakers\": "
		       "[\"a\", \"\"]}",
		       400, "dry_sequence_breakers",
		       "dry_sequence_breakers[1] must be a string of 1 to 64");
	completion_err("{\"prompt\": \"a\", \"dry_sequence_breakers\": [7]}",
		       400, "dry_sequence_breakers",
		       "dry_sequence_breakers[0]");
}

TEST_F(api, breakers_are_looked_for_when_all_else_is_right)
{
	double_nr_searches = 0;
	completion_err("{\"prompt\": \"a\", \"dry_multiplier\": 1, "
		       "\"max_tokens\": 99999}",
		       400, "max_tokens", "99999");
	completion_ok(self, "{\"prompt\": \"a\", \"dry_multiplier\": 1, "
			    "\"samplers\": [\"top_k\"]}");
	completion_ok(self, "{\"prompt\": \"a\", \"dry_multiplier\": 0}");
	EXPECT_EQ(0, double_nr_searches);
	completion_ok(self, "{\"prompt\": \"a\", \"dry_multiplier\": 1}");
	EXPECT_EQ(1, double_nr_searches);
}

TEST_F(api, logit_bias_has_an_end)
{
	char body[20000] = "{\"prompt\": \"a\", \"logit_bias\": {\"0\": 1";
	size_t len = strlen(body);

	for (int i = 1; i <= 1024; i++)
		len += (size_t)snprintf(body + len, sizeof(body) - len,
					", \"%d\": 1", i);
	snprintf(body + len, sizeof(body) - len, "}}");
	completion_err(body, 400, "logit_bias",
		       "1025 entries; at most 1024 are allowed");
}

TEST_F(api, logit_bias_is_by_token_id)
{
	static const char *const bad[][2] = {
		{ "5", "must be an object" },
		{ "{\"x\": 1}", "\"x\", which is no token id" },
		{ "{\"\": 1}", "\"\", which is no token id" },
		{ "{\"07\": 1}", "\"07\", which is no token id" },
		{ "{\" 7\": 1}", "\" 7\", which is no token id" },
		{ "{\"1e1\": 1}", "\"1e1\", which is no token id" },
		{ "{\"-1\": 1}", "token id -1; token ids go from 0 to 257" },
		{ "{\"258\": 1}", "token id 258; token ids go from 0 to 257" },
		{ "{\"99999999999999999999\": 1}", "which is no token id" },
		{ "{\"3\": \"a\"}", "token id 3 must be a number" },
		{ "{\"3\": 100.5}", "token id 3 must be a number from -100" },
		{ "{\"3\": null}", "token id 3 must be a number" },
		{ "{\"3\": 1, \"4\": -101}", "token id 4" },
	};
	char body[200];
	const struct tarn_sampling *s;

	completion_ok(self,
		      "{\"prompt\": \"a\", \"logit_bias\": {\"65\": -100, "
		      "\"257\": 0.5}}");
	s = &self->request->params.sampling;
	ASSERT_EQ(2, s->nr_biases);
	for (uint32_t i = 0; i < 2; i++)
		EXPECT_EQ(s->biases[i].id == 65 ? -100 : 0.5f,
			  s->biases[i].bias);
	EXPECT_EQ(65 + 257, s->biases[0].id + s->biases[1].id);
	completion_ok(self, "{\"prompt\": \"a\", \"logit_bias\": {}}");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(body, sizeof(body),
			 "{\"prompt\": \"a\", \"logit_bias\": %s}", bad[i][0]);
		completion_err(body, 400, "logit_bias", bad[i][1]);
	}
}

TEST_F(api, samplers_name_the_steps_and_their_order)
{
	static const char *const bad[][2] = {
		{ "\"top_k\"", "must be an array" },
		{ "[]", "must be an array" },
		{ "[3]", "samplers[0] must be a string" },
		{ "[\"top_q\"]", "\"top_q\"; known are" },
		{ "[\"top_k\", \"top_p\", \"top_k\"]", "top_k twice" },
		{ "[\"typ_p\", \"typical_p\"]", "typical_p twice" },
		{ "[\"dry\", \"dry\"]", "dry twice" },
		{ "[\"top_k\", \"penalties\"]", "penalties behind other" },
	};
	const struct tarn_sampling *s;
	char body[300];

	completion_ok(
		self,
		"{\"prompt\": \"a\", \"presence_penalty\": 1, \"dry_multiplier\": 1, "
		"\"repeat_penalty\": 2, \"samplers\": [\"dry\", \"penalties\", \"min_p\", \"xtc\", "
		"\"typ_p\", \"temperature\", \"top_n_sigma\", \"top_k\", \"top_p\"]}");
	s = &self->request->params.sampling;
	static const enum tarn_sampler want[] = {
		TARN_SAMPLER_MIN_P,	  TARN_SAMPLER_XTC,
		TARN_SAMPLER_TYPICAL_P,	  TARN_SAMPLER_TEMPERATURE,
		TARN_SAMPLER_TOP_N_SIGMA, TARN_SAMPLER_TOP_K,
		TARN_SAMPLER_TOP_P
	};
	ASSERT_EQ(7, s->nr_order);
	EXPECT_MEMEQ(want, s->order, sizeof(want));
	EXPECT_EQ(1, s->presence_penalty);
	EXPECT_EQ(2, s->repetition_penalty);
	EXPECT_EQ(1, s->dry_multiplier);
	/* What is not named is not done. */
	completion_ok(
		self,
		"{\"prompt\": \"a\", \"presence_penalty\": 1, \"frequency_penalty\": 1, "
		"\"dry_multiplier\": 1, \"repeat_penalty\": 2, \"samplers\": [\"top_k\"]}");
	s = &self->request->params.sampling;
	EXPECT_EQ(1, s->nr_order);
	EXPECT_EQ(0, s->presence_penalty);
	EXPECT_EQ(0, s->frequency_penalty);
	EXPECT_EQ(1, s->repetition_penalty);
	EXPECT_EQ(0, s->dry_multiplier);
	/* Penalties alone: a step, for none means the usual ones, and one that does nothing. */
	completion_ok(self, "{\"prompt\": \"a\", \"top_n_sigma\": 1, "
			    "\"samplers\": [\"penalties\"]}");
	s = &self->request->params.sampling;
	EXPECT_EQ(1, s->nr_order);
	EXPECT_EQ(TARN_SAMPLER_TOP_N_SIGMA, s->order[0]);
	EXPECT_EQ(0, s->top_n_sigma);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(body, sizeof(body),
			 "{\"prompt\": \"a\", \"samplers\": %s}", bad[i][0]);
		completion_err(body, 400, "samplers", bad[i][1]);
	}
}

TEST_F(api, values_out_of_range_and_wrong_types_name_the_field)
{
	static const struct {
		const char *name;
		const char *bad[3];
	} cases[] = {
		{ "presence_penalty", { "-2.1", "2.1", "\"x\"" } },
		{ "frequency_penalty", { "-2.1", "1e300", "[]" } },
		{ "repetition_penalty", { "0", "-1", "true" } },
		{ "repeat_penalty", { "0", "11", "{}" } },
		{ "repeat_last_n", { "-2", "1.5", "3000000000" } },
		{ "typical_p", { "-0.1", "1.1", "\"1\"" } },
		{ "top_n_sigma", { "-1.5", "101", "false" } },
		{ "xtc_probability", { "-0.1", "1.1", "\"\"" } },
		{ "xtc_threshold", { "-0.1", "1.1", "[1]" } },
		{ "mirostat", { "-1", "3", "2.0" } },
		{ "mirostat_tau", { "-1", "101", "\"5\"" } },
		{ "mirostat_eta", { "-1", "2", "\"5\"" } },
		{ "dry_multiplier", { "-1", "101", "true" } },
		{ "dry_base", { "0.99", "101", "true" } },
		{ "dry_allowed_length", { "-1", "0.5", "true" } },
		{ "dry_penalty_last_n", { "-2", "0.5", "true" } },
	};
	char body[200];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t k = 0; k < 3; k++) {
			snprintf(body, sizeof(body),
				 "{\"prompt\": \"a\", \"%s\": %s}",
				 cases[i].name, cases[i].bad[k]);
			completion_err(body, 400, cases[i].name, cases[i].name);
		}
	}
	completion_err("{\"prompt\": \"a\", \"mirostat\": 2, "
		       "\"mirostat_tau\": 0}",
		       400, "mirostat_tau", "more than 0");
}

TEST_F(api, best_of_computes_more_than_n)
{
	const struct request_params *params;

	completion_ok(self, "{\"prompt\": \"a\", \"n\": 2, \"best_of\": 5}");
	params = &self->request->params;
	EXPECT_EQ(5, params->nr_choices);
	EXPECT_EQ(2, params->nr_answers);
	EXPECT_TRUE(params->sampling.logprobs);
	EXPECT_FALSE(params->logprobs);
	completion_ok(self, "{\"prompt\": \"a\", \"n\": 3}");
	params = &self->request->params;
	EXPECT_EQ(3, params->nr_choices);
	EXPECT_EQ(3, params->nr_answers);
	EXPECT_FALSE(params->sampling.logprobs);
	completion_err("{\"prompt\": \"a\", \"n\": 3, \"best_of\": 2}", 400,
		       "best_of", "fewer than n");
	completion_err("{\"prompt\": \"a\", \"best_of\": 2, \"stream\": true}",
		       400, "best_of", "cannot be streamed");
	completion_ok(self, "{\"prompt\": \"a\", \"n\": 2, \"best_of\": 2, "
			    "\"stream\": true}");
	completion_err("{\"prompt\": \"a\", \"best_of\": 1000}", 400, "best_of",
		       "must be from 1");
	chat_ok(self,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
		"\"best_of\": 2}");
	EXPECT_TRUE(self->request->params.sampling.logprobs);
}

TEST_HARNESS_MAIN
