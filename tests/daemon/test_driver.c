/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver thread with a double of the engine: admission, batching, choices,
 * cancelling, failures, draining, with steps one by one and begun ahead. Replies are read from
 * its queue.
 */
#include <math.h>

#include "daemon/driver.h"

#include <poll.h>

#include "tests/daemon/engine_double.h"
#include "tests/harness.h"

enum { MAX_REQUESTS = 64, WAIT_MS = 20000 };

FIXTURE(driver)
{
	struct queue replies;
	struct driver driver;
	struct queue_item *pending; /* taken, not looked at */
	atomic_uint backlog;
};

/* The next reply, or the test ends. The caller's. */
static struct reply *next_reply(struct fixture_driver *self)
{
	struct pollfd poll_fd = { .fd = self->replies.event_fd,
				  .events = POLLIN };
	struct reply *reply;

	while (!self->pending) {
		ASSERT_EQ(1, poll(&poll_fd, 1, WAIT_MS));
		self->pending = queue_take(&self->replies);
	}
	reply = (struct reply *)self->pending;
	self->pending = self->pending->next;
	return reply;
}

FIXTURE_VARIANT(driver)
{
	bool runs_ahead;
};

FIXTURE_VARIANT_ADD(driver, one_by_one){ .runs_ahead = false };
FIXTURE_VARIANT_ADD(driver, ahead){ .runs_ahead = true };

FIXTURE_SETUP(driver)
{
	const struct tarn_engine_options options = { .model_path = "m.gguf" };
	struct reply *reply;

	double_answer = "The quick brown fox.";
	ASSERT_EQ(0, queue_init(&self->replies, true));
	double_step_us = 200;
	double_kv_tokens = 1000;
	double_poison = 'P';
	double_runs_ahead = variant->runs_ahead;
	ASSERT_EQ(0,
		  driver_init(&self->driver, &options, &self->replies, NULL));
	reply = next_reply(self);
	ASSERT_EQ(REPLY_LOADED, reply->kind);
	reply_destroy(reply);
}

FIXTURE_TEARDOWN(driver)
{
	(void)variant;
	driver_drain(&self->driver, true);
	driver_deinit(&self->driver);
	for (struct queue_item *item = self->pending; item;) {
		struct reply *reply = (struct reply *)item;

		item = item->next;
		reply_destroy(reply);
	}
	for (struct queue_item *item = queue_take(&self->replies); item;) {
		struct reply *reply = (struct reply *)item;

		item = item->next;
		reply_destroy(reply);
	}
	queue_deinit(&self->replies);
	EXPECT_EQ(0, atomic_load(&double_nr_seqs));
	EXPECT_EQ(0, atomic_load(&double_used_tokens));
	EXPECT_EQ(0, atomic_load(&self->backlog));
}

/* A request as the preparer hands it on; our own reference is answered. */
static struct request *make(struct fixture_driver *self, const char *prompt,
			    uint32_t max_tokens)
{
	struct request *request = request_create(REQUEST_COMPLETION);
	size_t len = strlen(prompt);

	request->prompt = malloc(len * sizeof(*request->prompt));
	for (size_t i = 0; i < len; i++)
		request->prompt[i] = (unsigned char)prompt[i];
	request->nr_prompt = (uint32_t)len;
	request->params.nr_choices = 1;
	request->params.max_tokens = max_tokens;
	request->params.sampling.top_p = 1;
	request_enter_backlog(request, &self->backlog);
	return request;
}

static void submit(struct fixture_driver *self, struct request *request)
{
	driver_submit(&self->driver, request_get(request));
}

struct outcome {
	struct text text[TARN_MAX_CHOICES];
	enum finish_reason finish[TARN_MAX_CHOICES];
	uint32_t nr_tokens, nr_echoed;
	float first_logprobs[3]; /* of the last choice that came */
	int status; /* of the error, or 200 */
	bool is_over;
};

static void take(struct outcome *outcome, struct reply *reply)
{
	switch (reply->kind) {
	case REPLY_DELTA:
		text_append(&outcome->text[reply->choice], reply->text.bytes,
			    reply->text.len);
		outcome->nr_tokens += reply->nr_tokens;
		outcome->nr_echoed += reply->nr_echoed;
		for (uint32_t i = 0; i < 3 && i < reply->nr_echoed; i++)
			outcome->first_logprobs[i] = reply->tokens[i].logprob;
		if (reply->finish != FINISH_NONE)
			outcome->finish[reply->choice] = reply->finish;
		break;
	case REPLY_ERROR:
		outcome->status = reply->error->status;
		outcome->is_over = true;
		break;
	case REPLY_END:
		outcome->status = 200;
		outcome->is_over = true;
		break;
	default:
		break;
	}
	reply_destroy(reply);
}

/* Reads on until all of @requests are over. */
static void collect(struct fixture_driver *self, struct request **requests,
		    uint32_t nr, struct outcome *outcomes)
{
	uint32_t nr_open = nr;

	while (nr_open) {
		struct reply *reply = next_reply(self);

		for (uint32_t i = 0; i < nr; i++) {
			if (requests[i] != reply->request)
				continue;
			bool was_over = outcomes[i].is_over;

			EXPECT_FALSE(was_over);
			take(&outcomes[i], reply);
			nr_open -= outcomes[i].is_over;
			reply = NULL;
			break;
		}
		reply_destroy(reply);
	}
}

static void expect_text(const struct text *text, const char *wanted)
{
	EXPECT_EQ(strlen(wanted), text->len);
	EXPECT_TRUE(text->len == strlen(wanted) &&
		    memcmp(text->bytes, wanted, text->len) == 0)
	{
		TH_LOG("\"%.*s\" is not \"%s\"", (int)text->len, text->bytes,
		       wanted);
	}
}

static void forget(struct request *request, struct outcome *outcome)
{
	for (uint32_t i = 0; i < TARN_MAX_CHOICES; i++)
		text_deinit(&outcome->text[i]);
	request_put(request);
}

static bool wait_for_seqs(uint32_t nr)
{
	for (int i = 0; i < 2000 && atomic_load(&double_nr_seqs) != nr; i++)
		usleep(1000);
	return atomic_load(&double_nr_seqs) == nr;
}

TEST_F(driver, an_answer_ends_with_the_end_token)
{
	struct request *request = make(self, "hello", 100);
	static struct outcome outcome;

	submit(self, request);
	collect(self, &request, 1, &outcome);
	EXPECT_EQ(200, outcome.status);
	expect_text(&outcome.text[0], "The quick brown fox.");
	EXPECT_EQ(FINISH_STOP, outcome.finish[0]);
	EXPECT_EQ(21, outcome.nr_tokens);
	forget(request, &outcome);
}

TEST_F(driver, max_tokens_ends_with_length)
{
	struct request *request = make(self, "hello", 7);
	static struct outcome outcome;

	submit(self, request);
	collect(self, &request, 1, &outcome);
	expect_text(&outcome.text[0], "The qui");
	EXPECT_EQ(FINISH_LENGTH, outcome.finish[0]);
	EXPECT_EQ(7, outcome.nr_tokens);
	forget(request, &outcome);
}

TEST_F(driver, steps_are_begun_ahead_where_the_engine_runs_beside_the_host)
{
	struct request *requests[2] = { make(self, "hello", 7),
					make(self, "hello", 100) };
	static struct outcome outcomes[2];

	/* The length is known ahead: no row too many. */
	submit(self, requests[0]);
	collect(self, requests, 1, outcomes);
	ASSERT_TRUE(wait_for_seqs(0));
	EXPECT_EQ(7, atomic_load(&double_nr_steps));
	EXPECT_EQ(0, atomic_load(&double_nr_wasted));
	/* Behind each step but the prompt's, which another might have joined. */
	EXPECT_EQ(variant->runs_ahead ? 5 : 0, atomic_load(&double_nr_ahead));
	/* An end token is not: one row is computed for nothing. */
	submit(self, requests[1]);
	collect(self, requests + 1, 1, outcomes + 1);
	expect_text(&outcomes[1].text[0], "The quick brown fox.");
	ASSERT_TRUE(wait_for_seqs(0));
	EXPECT_EQ(variant->runs_ahead, atomic_load(&double_nr_wasted));
	for (uint32_t i = 0; i < 2; i++)
		forget(requests[i], &outcomes[i]);
}

TEST_F(driver, a_grammar_holds_up_the_next_step)
{
	struct request *request = make(self, "hello", 12);
	static struct outcome outcome;
	char err[64];

	ASSERT_EQ(0, tarn_grammar_create(self->driver.engine, TARN_GRAMMAR_GBNF,
					 "fine", 4, &request->params.grammar,
					 err, sizeof(err)));
	request->params.sampling.grammar = request->params.grammar;
	submit(self, request);
	collect(self, &request, 1, &outcome);
	EXPECT_EQ(12, outcome.nr_tokens);
	EXPECT_EQ(0, atomic_load(&double_nr_ahead));
	forget(request, &outcome);
}

/* What waits for memory that a step which is begun still holds is let in when that ends. */
TEST_F(driver, memory_of_an_answer_comes_back_with_the_step_behind_it)
{
	struct request *requests[2] = { make(self, "hello", 900),
					make(self, "hello", 900) };
	static struct outcome outcomes[2];

	for (uint32_t i = 0; i < 2; i++)
		submit(self, requests[i]);
	collect(self, requests, 2, outcomes);
	for (uint32_t i = 0; i < 2; i++) {
		EXPECT_EQ(200, outcomes[i].status);
		expect_text(&outcomes[i].text[0], "The quick brown fox.");
		forget(requests[i], &outcomes[i]);
	}
}

TEST_F(driver, a_stop_string_ends_at_once)
{
	struct request *request = make(self, "hello", 100);
	static struct outcome outcome;

	request->params.nr_stops = 1;
	request->params.stops[0] = (struct stop_string){ strdup("brown"), 5 };
	submit(self, request);
	collect(self, &request, 1, &outcome);
	expect_text(&outcome.text[0], "The quick ");
	EXPECT_EQ(FINISH_STOP, outcome.finish[0]);
	EXPECT_EQ(15, outcome.nr_tokens);
	forget(request, &outcome);
}

TEST_F(driver, choices_fork_after_a_prompt_in_chunks)
{
	char prompt[301];
	struct request *request;
	static struct outcome outcome;

	memset(prompt, 'x', 300);
	prompt[300] = '\0';
	request = make(self, prompt, 40);
	request->params.nr_choices = 5;
	submit(self, request);
	collect(self, &request, 1, &outcome);
	EXPECT_EQ(200, outcome.status);
	for (uint32_t i = 0; i < 5; i++)
		expect_text(&outcome.text[i], "The quick brown fox." + i);
	EXPECT_LE(atomic_load(&double_max_batch), double_batch_tokens);
	EXPECT_EQ(5, atomic_load(&double_max_seqs));
	forget(request, &outcome);
}

static struct request *make_echo(struct fixture_driver *self, uint32_t nr)
{
	char prompt[301];
	struct request *request;

	memset(prompt, 'x', nr);
	prompt[nr] = '\0';
	request = make(self, prompt, 4);
	request->params.echo = true;
	text_append(&request->echo_text, prompt, nr);
	return request;
}

TEST_F(driver, an_echo_brings_the_prompt_before_each_choice)
{
	struct request *request = make_echo(self, 200);
	static struct outcome outcome;

	request->params.logprobs = true;
	request->params.nr_choices = 3;
	submit(self, request);
	collect(self, &request, 1, &outcome);
	EXPECT_EQ(200, outcome.status);
	for (uint32_t i = 0; i < 3; i++) {
		ASSERT_EQ(204, outcome.text[i].len);
		EXPECT_MEMEQ("xx", outcome.text[i].bytes + 198, 2);
		EXPECT_MEMEQ("The quick" + i, outcome.text[i].bytes + 200, 4);
	}
	EXPECT_EQ(3 * 200, outcome.nr_echoed);
	EXPECT_EQ(3 * 204, outcome.nr_tokens);
	EXPECT_TRUE(isnan(outcome.first_logprobs[0]));
	EXPECT_EQ(-0.25f, outcome.first_logprobs[1]);
	EXPECT_EQ(-0.5f, outcome.first_logprobs[2]);
	forget(request, &outcome);
}

TEST_F(driver, an_echo_alone_has_no_answer)
{
	struct request *request = make_echo(self, 20);
	static struct outcome outcome;

	request->params.is_echo_alone = true;
	request->params.max_tokens = 1;
	submit(self, request);
	collect(self, &request, 1, &outcome);
	EXPECT_EQ(200, outcome.status);
	expect_text(&outcome.text[0], "xxxxxxxxxxxxxxxxxxxx");
	EXPECT_EQ(FINISH_LENGTH, outcome.finish[0]);
	EXPECT_EQ(0, outcome.nr_tokens); /* not scored: not asked for */
	forget(request, &outcome);
}

TEST_F(driver, a_request_wider_than_a_step_runs_alone)
{
	struct request *requests[2] = { make(self, "wide", 4),
					make(self, "narrow", 4) };
	static struct outcome outcomes[2];

	requests[0]->params.nr_choices = TARN_MAX_CHOICES;
	submit(self, requests[0]);
	submit(self, requests[1]);
	collect(self, requests, 2, outcomes);
	EXPECT_EQ(200, outcomes[0].status);
	EXPECT_EQ(200, outcomes[1].status);
	expect_text(&outcomes[0].text[0], "The ");
	expect_text(&outcomes[0].text[1], "he q");
	EXPECT_EQ(TARN_MAX_CHOICES, atomic_load(&double_max_seqs));
	forget(requests[0], &outcomes[0]);
	forget(requests[1], &outcomes[1]);
}

TEST_F(driver, requests_wait_for_memory_and_run_together_where_they_fit)
{
	struct request *requests[MAX_REQUESTS];
	static struct outcome outcomes[MAX_REQUESTS];

	/* 1000 tokens of memory, 45 each: 22 at a time. */
	for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
		requests[i] = make(self, "hello", 40);
		submit(self, requests[i]);
	}
	collect(self, requests, MAX_REQUESTS, outcomes);
	for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
		EXPECT_EQ(200, outcomes[i].status);
		expect_text(&outcomes[i].text[0], "The quick brown fox.");
		forget(requests[i], &outcomes[i]);
	}
	EXPECT_GT(atomic_load(&double_max_seqs), 4);
	EXPECT_LE(atomic_load(&double_max_seqs), 22);
}

TEST_F(driver, more_than_all_memory_is_refused)
{
	struct request *request = make(self, "hello", 2000);
	static struct outcome outcome;

	submit(self, request);
	collect(self, &request, 1, &outcome);
	EXPECT_EQ(400, outcome.status);
	forget(request, &outcome);
}

TEST_F(driver, a_grammar_without_a_way_on_ends_its_choice_and_nobody_else)
{
	struct request *requests[2] = { make(self, "stuck", 100),
					make(self, "free", 100) };
	static struct outcome outcomes[2];
	char err[64];

	ASSERT_EQ(0, tarn_grammar_create(
			     self->driver.engine, TARN_GRAMMAR_GBNF, "stuck", 5,
			     &requests[0]->params.grammar, err, sizeof(err)));
	requests[0]->params.sampling.grammar = requests[0]->params.grammar;
	requests[0]->params.nr_choices = 2;
	for (uint32_t i = 0; i < 2; i++)
		submit(self, requests[i]);
	collect(self, requests, 2, outcomes);
	EXPECT_EQ(200, outcomes[0].status);
	/* What came until then is the answer. */
	expect_text(&outcomes[0].text[0], "The ");
	expect_text(&outcomes[0].text[1], "he ");
	EXPECT_EQ(FINISH_ERROR, outcomes[0].finish[0]);
	EXPECT_EQ(FINISH_ERROR, outcomes[0].finish[1]);
	expect_text(&outcomes[1].text[0], "The quick brown fox.");
	EXPECT_EQ(FINISH_STOP, outcomes[1].finish[0]);
	for (uint32_t i = 0; i < 2; i++)
		forget(requests[i], &outcomes[i]);
}

TEST_F(driver, a_failing_sequence_harms_nobody_else)
{
	struct request *requests[3] = { make(self, "good", 30),
					make(self, "P", 30),
					make(self, "good", 30) };
	static struct outcome outcomes[3];

	requests[1]->params.nr_choices = 3;
	for (uint32_t i = 0; i < 3; i++)
		submit(self, requests[i]);
	collect(self, requests, 3, outcomes);
	EXPECT_EQ(200, outcomes[0].status);
	EXPECT_EQ(500, outcomes[1].status);
	EXPECT_EQ(200, outcomes[2].status);
	expect_text(&outcomes[0].text[0], "The quick brown fox.");
	expect_text(&outcomes[2].text[0], "The quick brown fox.");
	for (uint32_t i = 0; i < 3; i++)
		forget(requests[i], &outcomes[i]);
}

/* The end of what runs, and with it a step that was begun behind. */
TEST_F(driver, a_cancelled_request_leaves_within_a_step_or_two)
{
	struct request *request = make(self, "hello", 900);
	uint32_t nr_steps;

	request->params.sampling.ignore_eos = true;
	submit(self, request);
	ASSERT_TRUE(wait_for_seqs(1));
	usleep(5000);
	atomic_store(&request->is_cancelled, true);
	nr_steps = atomic_load(&double_nr_steps);
	ASSERT_TRUE(wait_for_seqs(0));
	EXPECT_LE(atomic_load(&double_nr_steps),
		  nr_steps + 1 + variant->runs_ahead);
	EXPECT_LT(atomic_load(&request->nr_generated_seen), 900);
	request_put(request);
}

TEST_F(driver, a_cancelled_request_leaves_the_queue)
{
	struct request *requests[2] = { make(self, "hello", 900),
					make(self, "second", 900) };

	requests[0]->params.sampling.ignore_eos = true;
	submit(self, requests[0]);
	submit(self, requests[1]);
	ASSERT_TRUE(wait_for_seqs(1));
	atomic_store(&requests[1]->is_cancelled, true);
	for (int i = 0; i < 2000 && atomic_load(&self->backlog); i++)
		usleep(1000);
	EXPECT_EQ(0, atomic_load(&self->backlog));
	EXPECT_EQ(1, atomic_load(&double_nr_seqs));
	atomic_store(&requests[0]->is_cancelled, true);
	ASSERT_TRUE(wait_for_seqs(0));
	request_put(requests[0]);
	request_put(requests[1]);
}

TEST_F(driver, a_lost_device_is_said_to_all_and_nothing_is_left)
{
	struct request *requests[3];
	static struct outcome outcomes[3];
	struct reply *reply;

	for (uint32_t i = 0; i < 3; i++) {
		requests[i] = make(self, "hello", 300);
		requests[i]->params.sampling.ignore_eos = true;
		submit(self, requests[i]);
	}
	for (int i = 0; i < 2000 && atomic_load(&double_nr_steps) < 20; i++)
		usleep(1000);
	atomic_store(&double_is_lost, true);
	collect(self, requests, 3, outcomes);
	reply = next_reply(self);
	EXPECT_EQ(REPLY_FATAL, reply->kind);
	reply_destroy(reply);
	/* Before the engine goes: no sequence waits for a step that nobody ends. */
	EXPECT_EQ(0, atomic_load(&double_nr_seqs));
	for (uint32_t i = 0; i < 3; i++) {
		EXPECT_EQ(500, outcomes[i].status);
		forget(requests[i], &outcomes[i]);
	}
}

TEST_F(driver, draining_finishes_what_runs_and_refuses_what_waits)
{
	struct request *requests[2] = { make(self, "hello", 600),
					make(self, "second", 600) };
	static struct outcome outcomes[2];
	struct reply *reply;

	submit(self, requests[0]);
	submit(self, requests[1]);
	ASSERT_TRUE(wait_for_seqs(1));
	driver_drain(&self->driver, false);
	collect(self, requests, 2, outcomes);
	EXPECT_EQ(200, outcomes[0].status);
	expect_text(&outcomes[0].text[0], "The quick brown fox.");
	EXPECT_EQ(503, outcomes[1].status);
	reply = next_reply(self);
	EXPECT_EQ(REPLY_DRAINED, reply->kind);
	reply_destroy(reply);
	forget(requests[0], &outcomes[0]);
	forget(requests[1], &outcomes[1]);
}

TEST_F(driver, aborting_gives_up_what_runs)
{
	struct request *request = make(self, "hello", 900);
	static struct outcome outcome;

	request->params.sampling.ignore_eos = true;
	submit(self, request);
	ASSERT_TRUE(wait_for_seqs(1));
	driver_drain(&self->driver, true);
	collect(self, &request, 1, &outcome);
	EXPECT_EQ(503, outcome.status);
	forget(request, &outcome);
}

TEST_F(driver, streamed_tokens_come_one_by_one_with_their_alternatives)
{
	struct request *request = make(self, "hello", 3);
	uint32_t nr_deltas = 0;

	request->params.is_stream = true;
	request->params.sampling.logprobs = true;
	request->params.sampling.nr_logprobs = 2;
	submit(self, request);
	for (;;) {
		struct reply *reply = next_reply(self);
		enum reply_kind kind = reply->kind;

		if (kind == REPLY_DELTA) {
			ASSERT_EQ(1, reply->nr_tokens);
			EXPECT_EQ("The"[nr_deltas], reply -> tokens[0].id);
			ASSERT_EQ(2, reply->tokens[0].nr_top);
			EXPECT_EQ("The"[nr_deltas] + 2,
				  reply->tokens[0].top[1].id);
			nr_deltas++;
		}
		reply_destroy(reply);
		if (kind == REPLY_END)
			break;
	}
	EXPECT_EQ(3, nr_deltas);
	request_put(request);
}

TEST_F(driver, whole_answers_keep_each_tokens_alternatives)
{
	struct request *request = make(self, "hello", 9);
	uint32_t nr_tokens = 0;

	request->params.sampling.logprobs = true;
	request->params.sampling.nr_logprobs = 3;
	submit(self, request);
	for (;;) {
		struct reply *reply = next_reply(self);
		enum reply_kind kind = reply->kind;

		for (uint32_t i = 0; i < reply->nr_tokens; i++) {
			const struct reply_token *token = &reply->tokens[i];

			ASSERT_EQ(3, token->nr_top);
			EXPECT_EQ(token->id + 1, token->top[0].id);
			EXPECT_EQ(token->id + 3, token->top[2].id);
			nr_tokens++;
		}
		reply_destroy(reply);
		if (kind == REPLY_END)
			break;
	}
	EXPECT_EQ(9, nr_tokens);
	request_put(request);
}

TEST_HARNESS_MAIN
