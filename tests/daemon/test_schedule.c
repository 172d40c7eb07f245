/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler's pure decisions.
 */
#include "daemon/schedule.h"
#include "tests/harness.h"

enum { MAX_SEQS = 64 };

static uint32_t chunks[MAX_SEQS];

static uint32_t compose(const struct sched_seq *seqs, uint32_t nr,
			uint32_t budget, uint64_t turn)
{
	memset(chunks, 0xee, sizeof(chunks));
	return sched_compose(seqs, nr, budget, turn, chunks);
}

TEST(decodes_come_before_prompts)
{
	const struct sched_seq seqs[] = {
		{ 1000, 0 }, { 1, 0 }, { 50, 0 }, { 1, 0 }
	};

	EXPECT_EQ(64, compose(seqs, 4, 64, 0));
	EXPECT_EQ(62, chunks[0]);
	EXPECT_EQ(1, chunks[1]);
	EXPECT_EQ(0, chunks[2]);
	EXPECT_EQ(1, chunks[3]);
}

TEST(prompts_are_served_in_order_and_share_what_is_left)
{
	const struct sched_seq seqs[] = {
		{ 10, 0 }, { 20, 0 }, { 500, 0 }, { 7, 0 }
	};

	EXPECT_EQ(64, compose(seqs, 4, 64, 0));
	EXPECT_EQ(10, chunks[0]);
	EXPECT_EQ(20, chunks[1]);
	EXPECT_EQ(34, chunks[2]);
	EXPECT_EQ(0, chunks[3]);
}

TEST(a_prompt_to_be_forked_keeps_its_last_token)
{
	const struct sched_seq seqs[] = { { 10, 1 }, { 1, 1 }, { 1, 0 } };

	EXPECT_EQ(10, compose(seqs, 3, 64, 0));
	EXPECT_EQ(9, chunks[0]);
	EXPECT_EQ(0, chunks[1]);
	EXPECT_EQ(1, chunks[2]);
}

TEST(nothing_to_do_is_zero)
{
	const struct sched_seq seqs[] = { { 1, 1 } };

	EXPECT_EQ(0, compose(seqs, 0, 64, 0));
	EXPECT_EQ(0, compose(seqs, 1, 64, 0));
	EXPECT_EQ(0, chunks[0]);
}

TEST(more_decodes_than_budget_take_turns)
{
	struct sched_seq seqs[10];
	uint32_t served[10] = { 0 };

	for (uint32_t i = 0; i < 10; i++)
		seqs[i] = (struct sched_seq){ 1, 0 };
	for (uint64_t turn = 0; turn < 10; turn++) {
		EXPECT_EQ(3, compose(seqs, 10, 3, turn));
		for (uint32_t i = 0; i < 10; i++)
			served[i] += chunks[i];
	}
	for (uint32_t i = 0; i < 10; i++) {
		EXPECT_EQ(3, served[i])
		{
			TH_LOG("sequence %u", i);
		}
	}
}

/* Any mix: within the budget, nothing beyond what is pending, no work left out without need. */
TEST(random_batches_are_sound)
{
	struct sched_seq seqs[MAX_SEQS];
	unsigned int seed = 1;

	for (int round = 0; round < 20000; round++) {
		uint32_t nr = (uint32_t)rand_r(&seed) % (MAX_SEQS + 1);
		uint32_t budget = 1 + (uint32_t)rand_r(&seed) % 100;
		uint32_t total = 0, wanted = 0, answer;

		for (uint32_t i = 0; i < nr; i++) {
			seqs[i].nr_pending =
				1 + (uint32_t)(rand_r(&seed) % 4 ?
						       0 :
						       rand_r(&seed) % 80);
			seqs[i].nr_keep = rand_r(&seed) % 8 == 0;
			wanted += seqs[i].nr_pending - seqs[i].nr_keep;
		}
		answer = compose(seqs, nr, budget, (uint64_t)round);
		for (uint32_t i = 0; i < nr; i++) {
			ASSERT_LE(chunks[i],
				  seqs[i].nr_pending - seqs[i].nr_keep);
			total += chunks[i];
		}
		ASSERT_EQ(total, answer);
		ASSERT_EQ(wanted < budget ? wanted : budget, answer);
	}
}

TEST(a_request_runs_beside_others_only_with_a_token_each)
{
	EXPECT_TRUE(sched_may_run(60, 4, 64));
	EXPECT_FALSE(sched_may_run(61, 4, 64));
	EXPECT_FALSE(sched_may_run(1, 128, 64));
	EXPECT_TRUE(sched_may_run(0, 128, 64));
	EXPECT_FALSE(sched_may_run(UINT32_MAX, 1, 64));
}

TEST(open_max_tokens_is_the_rest_of_the_context)
{
	const struct sched_memory roomy = { UINT64_MAX, 23040, 8192 };

	EXPECT_EQ(8092, sched_open_max_tokens(&roomy, 100, 1));
	EXPECT_EQ(1, sched_open_max_tokens(&roomy, 8191, 1));
}

TEST(open_max_tokens_fits_kv_memory_with_all_choices)
{
	const struct sched_memory tight = { 1000 * 23040, 23040, 8192 };
	uint32_t nr = sched_open_max_tokens(&tight, 100, 4);

	EXPECT_GE(nr, 1);
	EXPECT_LE(100 + 4 * (nr + 64), 1000);
	EXPECT_EQ(1, sched_open_max_tokens(&tight, 5000, 1));
}

TEST(retry_after_grows_with_the_queue_and_is_capped)
{
	EXPECT_EQ(1, sched_retry_after_s(0, 0, 0));
	EXPECT_EQ(5, sched_retry_after_s(10, 0, 1000));
	EXPECT_EQ(26, sched_retry_after_s(100, 10, 10000));
	EXPECT_EQ(60, sched_retry_after_s(100000, 1, 100000));
}

TEST_HARNESS_MAIN
