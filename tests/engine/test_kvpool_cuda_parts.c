/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published buffers of more pieces of memory than one message has descriptors
 * for, what they cost, and the table of descriptors that they lie in. On a driver
 * without a GPU.
 */
#include "tests/engine/forge_kit.h"

#include <stdio.h>
#include <sys/resource.h>

/* Slots of this process's table of descriptors. */
static int table_size(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[200];
	int nr = 0;

	while (status && !nr && fgets(line, sizeof(line), status))
		sscanf(line, "FDSize: %d", &nr);
	if (status)
		fclose(status);
	return nr;
}

/* Pages [0, @nr), but page @hole, a handle each: its number in its first and last byte. */
static struct kvpool_buf *publish_pages(struct kvpool *pool, uint64_t nr,
					uint64_t hole)
{
	struct kvpool_buf *buf = create_ok(pool, 600);
	struct kvpool_mark mark = { key_of(1), 1 };

	ASSERT_EQ(0, commit(buf, 0, hole));
	if (hole + 1 < nr)
		ASSERT_EQ(0, commit(buf, hole + 1, nr - hole - 1));
	for (uint64_t i = 0; i < nr; i++) {
		uint8_t *page = bytes_of(buf) + i * PAGE;

		if (i == hole)
			continue;
		page[0] = (uint8_t)(i % 251);
		page[PAGE - 1] = (uint8_t)(i % 241);
	}
	ASSERT_EQ(0, kvpool_buf_seal(buf, nr * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
	return buf;
}

static void expect_pages(struct kvpool_buf *buf, uint64_t nr, uint64_t hole)
{
	for (uint64_t i = 0; i < nr; i++) {
		const uint8_t *page = bytes_of(buf) + i * PAGE;

		if (i == hole)
			continue;
		ASSERT_EQ(i % 251, page[0]);
		ASSERT_EQ(i % 241, page[PAGE - 1]);
	}
	EXPECT_EQ(0, kvpool_buf_covers(buf, 0, hole * PAGE));
	EXPECT_EQ(-ERANGE, kvpool_buf_covers(buf, 0, nr * PAGE));
}

/* Handles of the stand-in are descriptors, and so is each piece on its way. */
static bool has_room_for_files(void)
{
	const struct rlimit files = { 4096, 4096 };

	return !setrlimit(RLIMIT_NOFILE, &files);
}

static struct kvpool *open_exact(void)
{
	use_standin(STANDIN_GRANULE, 1 << 30);
	return open_ok(600, 0);
}

/* At, below and above what one and two messages take. */
TEST_TIMEOUT(any_number_of_pieces_is_shared, 60)
{
	static const uint64_t nrs[] = { 3, 253, 254, 255, 300, 507, 508, 560 };
	struct kvpool *pool = open_exact();

	if (!has_room_for_files())
		SKIP(goto out, "no room for so many descriptors");
	for (size_t i = 0; i < sizeof(nrs) / sizeof(nrs[0]); i++) {
		struct kvpool_buf *buf = publish_pages(pool, nrs[i], 1);
		struct kvpool_buf *found[2];
		int nr_fds = nr_open_fds();
		int fd = kvpool_buf_export(buf);

		ASSERT_GE(fd, 0);
		EXPECT_EQ(nr_fds + 1, nr_open_fds());
		for (int j = 0; j < 2; j++) {
			ASSERT_EQ(0, kvpool_buf_import(pool, fd, &found[j]));
			expect_pages(found[j], nrs[i], 1);
			EXPECT_EQ(nrs[i] - 1, mapped_pages(found[j]));
		}
		kvpool_buf_put(found[0]);
		kvpool_buf_put(found[1]);
		close(fd);
		EXPECT_EQ(nr_fds, nr_open_fds());
		kvpool_buf_unpublish(buf);
		kvpool_buf_put(buf);
	}
out:
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

/* A buffer that one message takes goes as builds before this kind of message know it. */
TEST(few_pieces_go_in_one_message)
{
	struct kvpool *pool = open_exact();
	struct kvpool_buf *buf = publish_pages(pool, 8, 3);
	struct forged message = take_apart(kvpool_buf_export(buf));

	EXPECT_EQ(7, message.nr_fds);
	EXPECT_EQ(0, message.words[11]);
	for (int i = 0; i < message.nr_fds; i++)
		close(message.fds[i]);
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

/* ---- what a broken peer could send ---- */

/* A buffer in two parts. The caller closes both. */
static struct forged two_parts(struct kvpool_buf *buf)
{
	struct forged all = take_apart(kvpool_buf_export(buf));

	ASSERT_EQ(2, all.nr_fds);
	ASSERT_EQ(1, all.words[11]);
	return all;
}

static void expect_refused(struct kvpool *pool, const struct forged *bad,
			   const char *why)
{
	int nr_fds = nr_open_fds();

	EXPECT_EQ(-EINVAL, import_forged(pool, bad))
	{
		TH_LOG("%s", why);
	}
	EXPECT_EQ(nr_fds, nr_open_fds());
}

TEST(parts_that_are_not_as_the_whole_says_are_refused)
{
	/* Words: as of a message of handles; of parts: where each begins, and its pages. */
	static const struct {
		int word;
		uint32_t value;
	} changes[] = {
		{ 1, 1 },    { 1, 3 },	  { 8, 254 },  { 8, 257 }, { 10, 7 },
		{ 11, 0 },   { 11, 2 },	  { 12, 1 },   { 13, 1 },  { 13, 252 },
		{ 13, 255 }, { 14, 252 }, { 14, 255 }, { 15, 1 },  { 15, 3 },
	};
	if (!has_room_for_files())
		SKIP(return, "no room for so many descriptors");
	struct kvpool *pool = open_exact();
	struct kvpool_buf *buf = publish_pages(pool, 256, 1), *other;
	struct forged good = two_parts(buf), bad;

	ASSERT_EQ(0, import_forged(pool, &good));
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		char why[60];

		bad = good;
		bad.words[changes[i].word] = changes[i].value;
		snprintf(why, sizeof(why), "word %d = %u", changes[i].word,
			 changes[i].value);
		expect_refused(pool, &bad, why);
	}
	bad = good;
	bad.words[12] = 1;
	bad.words[13]--;
	expect_refused(pool, &bad, "a part that begins before its place");
	bad = good;
	bad.fds[0] = good.fds[1];
	expect_refused(pool, &bad, "a part in another's place");
	bad.fds[0] = STDIN_FILENO;
	expect_refused(pool, &bad, "no message");
	/* Of another buffer of the same shape but for what is sealed, and a whole as a part. */
	other = publish_pages(pool, 257, 1);
	struct forged others = two_parts(other);

	bad.fds[0] = others.fds[0];
	expect_refused(pool, &bad, "a part of something longer");
	bad = good;
	bad.fds[1] = kvpool_buf_export(other);
	expect_refused(pool, &bad, "a message of parts as a part");
	close(bad.fds[1]);
	for (int i = 0; i < 2; i++) {
		close(good.fds[i]);
		close(others.fds[i]);
	}
	kvpool_buf_put(other);
	kvpool_buf_put(buf);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

/* ---- calls that fail ---- */

static const char *failing; /* the call */

static cuda_status fail_nth_of_kind(const char *name)
{
	return strcmp(name, failing) ? CUDA_OK : fail_nth(name);
}

TEST_TIMEOUT(sharing_parts_fails_cleanly, 60)
{
	static const char *const calls[] = { "cuMemExportToShareableHandle",
					     "cuMemImportFromShareableHandle",
					     "cuMemMap" };
	static const int nths[] = { 0, 1, 252, 253, 254, 259 };

	if (!has_room_for_files())
		SKIP(return, "no room for so many descriptors");
	struct kvpool *pool = open_exact();
	struct kvpool_buf *buf = publish_pages(pool, 261, 1), *found;

	for (size_t i = 0; i < 18; i++) {
		int nr_fds = nr_open_fds();

		failing = calls[i / 6];
		calls_left = nths[i % 6];
		has_failed = false;
		standin.fail = fail_nth_of_kind;
		int fd = kvpool_buf_export(buf), err = fd;

		if (fd >= 0) {
			found = (void *)1;
			err = kvpool_buf_import(pool, fd, &found);
			EXPECT_TRUE(found == (void *)1);
			close(fd);
		}
		standin.fail = NULL;
		calls_left = -1;
		EXPECT_TRUE(has_failed);
		EXPECT_EQ(-EIO, err);
		EXPECT_EQ(i / 6 == 0, fd < 0);
		EXPECT_EQ(nr_fds, nr_open_fds());
	}
	kvpool_buf_put(buf);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

/* ---- what it costs ---- */

/* 32k tokens of an 8B-shaped model, as a prompt fills them: chunk by chunk, steps between. */
TEST_TIMEOUT(a_long_prefix_is_few_pieces, 60)
{
	enum { CHUNK = 128, NR = 2048, MOST = 64 };

	use_standin(STANDIN_GRANULE, 1 << 30);
	struct kvpool *pool = open_growing(2 * NR, NR / 8);
	struct kvpool_buf *buf = create_ok(pool, 2 * NR), *found;
	struct kvpool_mark mark = { key_of(1), NR * PAGE };

	for (uint64_t at = 0; at < NR; at += CHUNK) {
		ASSERT_EQ(0, commit(buf, at, CHUNK));
		settle(pool);
		ASSERT_LE(mapped_pages(buf), (at + CHUNK) * 9 / 8);
	}
	ASSERT_EQ(0, kvpool_buf_seal(buf, NR * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
	int fd = kvpool_buf_export(buf);
	struct standin_count before = standin_counts(), after;

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, kvpool_buf_import(pool, fd, &found));
	after = standin_counts();
	TH_LOG("%d mappings", (int)(after.maps - before.maps));
	EXPECT_LE(after.maps - before.maps, MOST);
	/* Access is given once, to all of it: see map_share(). */
	EXPECT_EQ(1, after.set_accesses - before.set_accesses);
	close(fd);
	kvpool_buf_put(found);
	kvpool_buf_put(buf);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

static int nr_left_of(const struct rlimit *limit)
{
	return limit->rlim_cur < 4096 ? (int)limit->rlim_cur : 4096;
}

/* The table of descriptors is grown where nobody waits for it. */
TEST(importing_does_not_grow_the_table_of_descriptors)
{
	struct rlimit limit;

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_cur < 1024)
		SKIP(return, "at most %d descriptors here",
			   (int)limit.rlim_cur);
	EXPECT_LT(table_size(), 1024);
	struct kvpool *pool = open_exact();
	int size = table_size();

	EXPECT_GE(size, nr_left_of(&limit));
	struct kvpool_buf *buf = publish_pages(pool, 254, 1), *found;
	int fd = kvpool_buf_export(buf);

	ASSERT_EQ(0, kvpool_buf_import(pool, fd, &found));
	EXPECT_EQ(size, table_size());
	close(fd);
	kvpool_buf_put(found);
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

TEST(a_pool_opens_where_descriptors_are_few)
{
	struct rlimit few = { 600, 600 };

	use_standin(STANDIN_GRANULE, 1 << 30);
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
	int nr_fds = nr_open_fds();
	struct kvpool *pool = open_ok(16, 0);

	EXPECT_GE(table_size(), 600);
	few = (struct rlimit){ 40, 600 };
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
	struct kvpool *other = open_ok(16, 0);

	kvpool_put(other);
	struct kvpool_buf *buf = publish_pages(pool, 4, 1), *found;
	int fd = kvpool_buf_export(buf);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, kvpool_buf_import(pool, fd, &found));
	close(fd);
	kvpool_buf_put(found);
	kvpool_buf_put(buf);
	kvpool_put(pool);
	EXPECT_EQ(nr_fds, nr_open_fds());
}

TEST_HARNESS_MAIN
