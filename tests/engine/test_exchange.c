/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange between processes of one uid: what is offered is found, and by
 * whom; the directory they meet in; memory that is given back for others. Over
 * pools of memfd. Peers that die, hang, lie or flood are in
 * test_exchange_hostile.c, caches on both kinds of pools in
 * test_prefix_exchange.c.
 */
#include "tests/harness.h"

#include <sys/resource.h>

#include "tests/engine/exchange_pair.h"

/* ---- finding ---- */

TEST_F(exchange, a_key_leads_to_the_bytes_until_it_is_withdrawn)
{
	struct kvpool_buf *buf = offer_ok(self->a, 1, 0x11, 3);
	struct kv_exchange_found found;

	EXPECT_EQ(0x11, byte_of(self->b, 1));
	ASSERT_EQ(0, search(self->b, 1000001, &found));
	EXPECT_EQ(3 * PAGE, found.n_bytes);
	close(found.fd);
	EXPECT_EQ(-1, byte_of(self->b, 2));
	/* Nobody asks himself. */
	EXPECT_EQ(-1, byte_of(self->a, 1));
	EXPECT_EQ(1, kit_exchange_stat(self->a).nr_offers);
	EXPECT_EQ(3, kit_exchange_stat(self->a).answered);
	EXPECT_EQ(2, kit_exchange_stat(self->a).given);
	EXPECT_EQ(2, kit_exchange_stat(self->b).found);
	EXPECT_EQ(1, kit_exchange_stat(self->b).nr_peers);
	kv_exchange_withdraw(self->a, buf);
	EXPECT_EQ(-1, byte_of(self->b, 1));
	EXPECT_EQ(0, kit_exchange_stat(self->a).nr_offers);
	kv_exchange_withdraw(self->a, buf);
	end_offer(self->a, buf);
}

TEST_F(exchange, each_finds_what_the_others_have)
{
	struct kvpool_buf *bufs[3];

	self->c = kit_exchange(self->pools[2], &self->dir);
	bufs[0] = offer_ok(self->a, 1, 0x11, 1);
	bufs[1] = offer_ok(self->b, 2, 0x22, 1);
	bufs[2] = offer_ok(self->c, 3, 0x33, 1);
	for (int round = 0; round < 2; round++) {
		EXPECT_EQ(0x22, byte_of(self->a, 2));
		EXPECT_EQ(0x33, byte_of(self->a, 3));
		EXPECT_EQ(0x11, byte_of(self->b, 1));
		EXPECT_EQ(0x33, byte_of(self->b, 3));
		EXPECT_EQ(0x11, byte_of(self->c, 1));
		EXPECT_EQ(0x22, byte_of(self->c, 2));
	}
	/* Who had something is asked first. */
	uint64_t before = kit_exchange_stat(self->a).answered;

	EXPECT_EQ(0x22, byte_of(self->c, 2));
	EXPECT_EQ(before, kit_exchange_stat(self->a).answered);
	/* One that goes in good order leaves no trace, and one that comes is found. */
	end_offer(self->b, bufs[1]);
	kv_exchange_destroy(self->b);
	EXPECT_EQ(2, kit_nr_sockets(&self->dir));
	EXPECT_EQ(-1, byte_of(self->c, 2));
	self->b = kit_exchange(self->pools[1], &self->dir);
	bufs[1] = offer_ok(self->b, 2, 0x44, 1);
	EXPECT_EQ(0x44, byte_of(self->c, 2));
	EXPECT_EQ(0, kit_exchange_stat(self->c).failures);
	end_offer(self->a, bufs[0]);
	end_offer(self->b, bufs[1]);
	end_offer(self->c, bufs[2]);
}

TEST_F(exchange, a_key_that_is_offered_anew_leads_to_the_newest)
{
	struct kvpool_buf *old = offer_ok(self->a, 1, 0x11, 1);
	struct kvpool_mark mark = { key_of(1), PAGE };
	struct kvpool_buf *new = offer_ok(self->a, 1, 0x22, 1);

	EXPECT_EQ(-EEXIST, kv_exchange_offer(self->a, new, &mark, 1));
	EXPECT_EQ(0x22, byte_of(self->b, 1));
	/* Also when the table has grown. */
	struct kvpool_buf *more[100];

	for (uint64_t i = 0; i < 100; i++)
		more[i] = offer_ok(self->a, 10 + i, (uint8_t)i, 1);
	EXPECT_EQ(0x22, byte_of(self->b, 1));
	for (uint64_t i = 0; i < 100; i++) {
		EXPECT_EQ(i, byte_of(self->b, 10 + i));
		end_offer(self->a, more[i]);
	}
	kv_exchange_withdraw(self->a, new);
	kvpool_buf_unpublish(new);
	EXPECT_EQ(-1, byte_of(self->b, 11));
	kvpool_buf_put(new);
	end_offer(self->a, old);
}

TEST_F(exchange, what_is_not_published_cannot_be_offered)
{
	struct kvpool_mark mark = { key_of(1), PAGE };
	struct kvpool_buf *buf;

	ASSERT_EQ(0, kvpool_buf_create(self->pools[0], PAGE, 0, &buf));
	EXPECT_EQ(-EPERM, kv_exchange_offer(self->a, buf, &mark, 1));
	kvpool_buf_put(buf);
}

TEST_F(exchange, where_descriptors_end_the_oldest_offers_go)
{
	struct kvpool_buf *bufs[16];
	struct rlimit before, limit;
	int first_free;

	for (uint64_t i = 0; i < 16; i++) {
		bufs[i] = offer_ok(self->a, i, (uint8_t)i, 1);
		if (i >= 8)
			kv_exchange_withdraw(self->a, bufs[i]);
	}
	first_free = dup(0);
	close(first_free);
	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
	limit = before;
	limit.rlim_cur = (rlim_t)first_free;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	for (uint64_t i = 8; i < 12; i++) {
		struct kvpool_mark mark = { key_of(i), PAGE };

		EXPECT_EQ(0, kv_exchange_offer(self->a, bufs[i], &mark, 1));
	}
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
	/* Each took the place of an older one. */
	EXPECT_GT(12, kit_exchange_stat(self->a).nr_offers);
	EXPECT_EQ(-1, byte_of(self->b, 0));
	for (uint64_t i = 8; i < 12; i++)
		EXPECT_EQ(i, byte_of(self->b, i));
	for (uint64_t i = 0; i < 16; i++)
		end_offer(self->a, bufs[i]);
}

TEST_F_TIMEOUT(exchange, there_is_an_end_to_offers_and_the_newest_stay, 60)
{
	enum { NR = EXCHANGE_MAX_OFFERS + 8 };
	static struct kvpool_buf *bufs[NR];
	struct rlimit limit;

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_cur < 4 * NR)
		SKIP(return, "too few descriptors");
	kvpool_set_limit(self->pools[0], NR * PAGE);
	for (uint64_t i = 0; i < NR; i++)
		bufs[i] = offer_ok(self->a, i, (uint8_t)(i + 1), 1);
	EXPECT_EQ(EXCHANGE_MAX_OFFERS, kit_exchange_stat(self->a).nr_offers);
	EXPECT_EQ(-1, byte_of(self->b, 7));
	EXPECT_EQ(9, byte_of(self->b, 8));
	EXPECT_EQ((uint8_t)NR, byte_of(self->b, NR - 1));
	for (uint64_t i = 0; i < NR; i++)
		end_offer(self->a, bufs[i]);
	EXPECT_EQ(0, kit_exchange_stat(self->a).nr_offers);
}

/* ---- the directory ---- */

static int mode_of(const char *dir, const char *name)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ASSERT_EQ(0, lstat(path, &st));
	return (int)(st.st_mode & 07777);
}

TEST_F(exchange, all_have_one_secret_that_outlives_them)
{
	struct kvpool_key secret = *kv_exchange_secret(self->a), none = { 0 };

	EXPECT_EQ(0700, mode_of(self->dir.path, "."));
	EXPECT_EQ(0600, mode_of(self->dir.path, "secret"));
	EXPECT_NE(0, memcmp(&secret, &none, sizeof(secret)));
	EXPECT_EQ(0,
		  memcmp(&secret, kv_exchange_secret(self->b), sizeof(secret)));
	kv_exchange_destroy(self->a);
	kv_exchange_destroy(self->b);
	self->b = NULL;
	self->a = kit_exchange(self->pools[0], &self->dir);
	EXPECT_EQ(0,
		  memcmp(&secret, kv_exchange_secret(self->a), sizeof(secret)));
	struct kit_dir other = kit_dir_make();

	self->c = kit_exchange(self->pools[2], &other);
	EXPECT_NE(0,
		  memcmp(&secret, kv_exchange_secret(self->c), sizeof(secret)));
	kv_exchange_destroy(self->c);
	self->c = NULL;
	kit_dir_remove(&other);
}

enum { NR_AT_ONCE = 8 };

struct arrival {
	struct fixture_exchange *self;
	pthread_barrier_t *barrier;
};

static void *arrive(void *arg)
{
	struct arrival *arrival = arg;

	pthread_barrier_wait(arrival->barrier);
	return kit_exchange(arrival->self->pools[2], &arrival->self->dir);
}

TEST_F_TIMEOUT(exchange, who_comes_at_the_same_time_has_the_same_secret, 60)
{
	pthread_barrier_t barrier;
	struct arrival arrival = { self, &barrier };
	char path[128];

	pthread_barrier_init(&barrier, NULL, NR_AT_ONCE);
	snprintf(path, sizeof(path), "%s/secret", self->dir.path);
	for (int round = 0; round < 60; round++) {
		pthread_t threads[NR_AT_ONCE];
		struct kv_exchange *made[NR_AT_ONCE];

		ASSERT_EQ(0, unlink(path));
		for (int i = 0; i < NR_AT_ONCE; i++)
			ASSERT_EQ(0, pthread_create(&threads[i], NULL, arrive,
						    &arrival));
		for (int i = 0; i < NR_AT_ONCE; i++)
			pthread_join(threads[i], (void **)&made[i]);
		for (int i = 0; i < NR_AT_ONCE; i++)
			EXPECT_EQ(0, memcmp(kv_exchange_secret(made[0]),
					    kv_exchange_secret(made[i]),
					    KVPOOL_KEY_BYTES));
		for (int i = 0; i < NR_AT_ONCE; i++)
			kv_exchange_destroy(made[i]);
	}
	pthread_barrier_destroy(&barrier);
}

/* Whether the directory is refused with @error, and @says why. */
static void expect_refused(struct fixture_exchange *self, const char *path,
			   int error, const char *says)
{
	struct kv_exchange *exchange = (void *)1;
	char err[256] = "";

	EXPECT_EQ(error, kit_try_exchange(self->pools[2], path, &exchange, err,
					  sizeof(err)));
	EXPECT_TRUE(exchange == (void *)1);
	EXPECT_TRUE(strstr(err, says) != NULL)
	{
		TH_LOG("%s", err);
	}
}

TEST_F(exchange, a_directory_that_is_not_ours_alone_is_refused)
{
	struct kit_dir other = kit_dir_make();
	char path[256];

	ASSERT_EQ(0, mkdir(other.path, 0755));
	ASSERT_EQ(0, chmod(other.path, 0755));
	expect_refused(self, other.path, -EPERM, "0700");
	ASSERT_EQ(0, chmod(other.path, 0710));
	expect_refused(self, other.path, -EPERM, "0700");
	if (!geteuid()) {
		ASSERT_EQ(0, chmod(other.path, 0700));
		ASSERT_EQ(0, chown(other.path, 65534, 65534));
		expect_refused(self, other.path, -EPERM, "somebody else");
	}
	ASSERT_EQ(0, rmdir(other.path));
	/* A link to one that would do. */
	ASSERT_EQ(0, symlink(self->dir.path, other.path));
	expect_refused(self, other.path, -ENOTDIR, other.path);
	ASSERT_EQ(0, unlink(other.path));
	int fd = open(other.path, O_CREAT | O_WRONLY, 0600);

	close(fd);
	expect_refused(self, other.path, -ENOTDIR, other.path);
	snprintf(path, sizeof(path), "%s/none/share", other.base);
	expect_refused(self, path, -ENOENT, path);
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	expect_refused(self, path, -ENAMETOOLONG, "too long");
	kit_dir_remove(&other);
}

TEST_F(exchange, a_secret_that_is_none_is_refused)
{
	char path[128], target[128];

	snprintf(path, sizeof(path), "%s/secret", self->dir.path);
	snprintf(target, sizeof(target), "%s/other", self->dir.path);
	ASSERT_EQ(0, chmod(path, 0640));
	expect_refused(self, self->dir.path, -EINVAL, "secret");
	ASSERT_EQ(0, chmod(path, 0600));
	ASSERT_EQ(0, truncate(path, KVPOOL_KEY_BYTES - 1));
	expect_refused(self, self->dir.path, -EINVAL, "secret");
	ASSERT_EQ(0, truncate(path, 0));
	expect_refused(self, self->dir.path, -EINVAL, "secret");
	ASSERT_EQ(0, rename(path, target));
	ASSERT_EQ(0, truncate(target, KVPOOL_KEY_BYTES));
	ASSERT_EQ(0, symlink(target, path));
	expect_refused(self, self->dir.path, -EINVAL, "secret");
	ASSERT_EQ(0, unlink(path));
	ASSERT_EQ(0, mkfifo(path, 0600));
	expect_refused(self, self->dir.path, -EINVAL, "secret");
}

/* Nobody has a place of his own: where each of them looks. */
TEST_F(exchange, without_a_name_they_meet_below_the_users_directory)
{
	struct kit_dir made = { .base = "" };
	char err[128];

	ASSERT_EQ(0, setenv("XDG_RUNTIME_DIR", self->dir.base, 1));
	ASSERT_EQ(0, kit_try_exchange(self->pools[2], NULL, &self->c, err,
				      sizeof(err)));
	snprintf(made.path, sizeof(made.path), "%s/tarn", self->dir.base);
	EXPECT_STREQ(made.path, self->c->dir.path);
	kv_exchange_destroy(self->c);
	self->c = NULL;
	kit_dir_remove(&made);
}

TEST_F(exchange, what_the_dead_left_is_removed)
{
	pid_t pid = start_other(self);

	EXPECT_EQ(0x77, byte_of(self->b, 7));
	EXPECT_EQ(3, kit_nr_sockets(&self->dir));
	end_other(pid);
	EXPECT_EQ(3, kit_nr_sockets(&self->dir));
	/* By whoever had a connection to it, */
	EXPECT_EQ(-1, byte_of(self->b, 7));
	EXPECT_EQ(2, kit_nr_sockets(&self->dir));
	/* by whoever had none, */
	pid = start_other(self);
	end_other(pid);
	EXPECT_EQ(-1, byte_of(self->a, 7));
	EXPECT_EQ(2, kit_nr_sockets(&self->dir));
	/* and by who comes, whatever device it was of; but not what is about to listen. */
	pid = start_other(self);
	end_other(pid);
	struct sockaddr_un young = kit_address(&self->dir, "new.1.1"),
			   old = kit_address(&self->dir, "0123.1.1");
	int socks[2] = { socket(AF_UNIX, SOCK_SEQPACKET, 0),
			 socket(AF_UNIX, SOCK_SEQPACKET, 0) };

	ASSERT_EQ(0, bind(socks[0], (void *)&young, sizeof(young)));
	ASSERT_EQ(0, bind(socks[1], (void *)&old, sizeof(old)));
	EXPECT_EQ(5, kit_nr_sockets(&self->dir));
	self->c = kit_exchange(self->pools[2], &self->dir);
	EXPECT_EQ(4, kit_nr_sockets(&self->dir));
	EXPECT_EQ(0, access(young.sun_path, F_OK));
	close(socks[0]);
	close(socks[1]);
}

/* ---- who is there ---- */

static int nobody(int sock, uid_t *out_uid)
{
	(void)sock;
	*out_uid = geteuid() + 1;
	return 0;
}

static int unknown(int sock, uid_t *out_uid)
{
	(void)sock;
	(void)out_uid;
	return -ENOPROTOOPT;
}

TEST_F(exchange, another_user_is_neither_answered_nor_asked)
{
	for (int i = 0; i < 2; i++) {
		struct kv_exchange_options options = {
			.pool = self->pools[2],
			.dir = self->dir.path,
			.peer_uid = i ? unknown : nobody,
		};
		struct kvpool_buf *theirs, *ours;
		char err[64];

		ASSERT_EQ(0, kv_exchange_create(&options, &self->c, err,
						sizeof(err)));
		theirs = offer_ok(self->a, 1, 0x11, 1);
		ours = offer_ok(self->c, 2, 0x22, 1);
		/* It thinks that the others are somebody else. */
		EXPECT_EQ(-1, byte_of(self->c, 1));
		EXPECT_EQ(0, kit_exchange_stat(self->a).answered);
		EXPECT_EQ(0, kv_exchange_ask_room(self->c, PAGE));
		EXPECT_EQ(-1, byte_of(self->a, 2));
		EXPECT_EQ(0, kit_exchange_stat(self->c).answered);
		end_offer(self->a, theirs);
		end_offer(self->c, ours);
		kv_exchange_destroy(self->c);
		self->c = NULL;
	}
}

/* ---- memory for others ---- */

static uint64_t charged(struct kvpool *pool)
{
	struct kvpool_stat stat;

	EXPECT_EQ(0, kvpool_stat(pool, &stat));
	return stat.charged_bytes;
}

TEST_F(exchange, what_nobody_needs_is_given_back_when_asked)
{
	struct kvpool_buf *used = offer_ok(self->a, 1, 0x11, 10);
	struct kvpool_buf *idle = offer_ok(self->a, 2, 0x22, 20), *plain;

	ASSERT_EQ(0, kvpool_buf_create(self->pools[0], 30 * PAGE, 0, &plain));
	ASSERT_EQ(0, kvpool_buf_commit(plain, 0, 30 * PAGE));
	kvpool_buf_put(plain);
	ASSERT_EQ(0, kvpool_buf_create(self->pools[0], 40 * PAGE, 0, &plain));
	ASSERT_EQ(0, kvpool_buf_commit(plain, 0, 40 * PAGE));
	ASSERT_EQ(0, kvpool_buf_advise(plain, KVPOOL_VOLATILE, NULL));
	ASSERT_EQ(0, kvpool_buf_advise(idle, KVPOOL_VOLATILE, NULL));
	/* 30 spare pages first, */
	ASSERT_EQ(100 * PAGE, charged(self->pools[0]));
	EXPECT_EQ(30 * PAGE, kv_exchange_ask_room(self->b, 30 * PAGE));
	EXPECT_EQ(70 * PAGE, charged(self->pools[0]));
	EXPECT_EQ(0x22, byte_of(self->b, 2));
	/* then what is volatile, the oldest first, */
	EXPECT_LE(PAGE, kv_exchange_ask_room(self->b, PAGE));
	EXPECT_EQ(30 * PAGE, charged(self->pools[0]));
	EXPECT_EQ(0x22, byte_of(self->b, 2));
	EXPECT_EQ(20 * PAGE, kv_exchange_ask_room(self->b, 500 * PAGE));
	/* with what is offered of it; what is in use stays. */
	EXPECT_EQ(10 * PAGE, charged(self->pools[0]));
	EXPECT_EQ(-1, byte_of(self->b, 2));
	EXPECT_EQ(0x11, byte_of(self->b, 1));
	EXPECT_EQ(1, kit_exchange_stat(self->a).nr_offers);
	EXPECT_EQ(90 * PAGE, kit_exchange_stat(self->a).room_bytes);
	bool has_survived;

	ASSERT_EQ(0, kvpool_buf_advise(idle, KVPOOL_WILLNEED, &has_survived));
	EXPECT_FALSE(has_survived);
	end_offer(self->a, used);
	end_offer(self->a, idle);
	kvpool_buf_put(plain);
}

TEST_F(exchange, who_got_nothing_does_not_ask_again_at_once)
{
	struct kvpool_buf *buf;

	EXPECT_EQ(0, kv_exchange_ask_room(self->b, PAGE));
	ASSERT_EQ(0, kvpool_buf_create(self->pools[0], PAGE, 0, &buf));
	ASSERT_EQ(0, kvpool_buf_commit(buf, 0, PAGE));
	kvpool_buf_put(buf);
	EXPECT_EQ(0, kv_exchange_ask_room(self->b, PAGE));
	usleep(150000);
	EXPECT_EQ(PAGE, kv_exchange_ask_room(self->b, PAGE));
}

TEST_F(exchange, what_is_mapped_by_another_can_be_given_up)
{
	struct kvpool_buf *buf = offer_ok(self->a, 1, 0x11, 10), *mapped;
	struct kv_exchange_found found;

	ASSERT_EQ(0, search(self->b, 1, &found));
	ASSERT_EQ(0, kvpool_buf_import(self->pools[1], found.fd, &mapped));
	close(found.fd);
	ASSERT_EQ(0, kvpool_buf_advise(buf, KVPOOL_VOLATILE, NULL));
	EXPECT_EQ(10 * PAGE, kv_exchange_ask_room(self->b, 10 * PAGE));
	EXPECT_EQ(0, charged(self->pools[0]));
	EXPECT_EQ(0x11, *(uint8_t *)kvpool_buf_addr(mapped));
	kvpool_buf_put(mapped);
	end_offer(self->a, buf);
}

/* ---- all at once ---- */

struct busy {
	struct kv_exchange *exchange;
	uint64_t seed;
	uint32_t nr_found;
};

/* Offers and withdraws its own keys, looks for those of all; what is found says whose it is. */
static void *be_busy(void *arg)
{
	struct busy *busy = arg;
	struct kvpool_buf *own[16] = { NULL };
	uint64_t random = busy->seed;

	for (int i = 0; i < 400; i++) {
		uint64_t at = below(&random, 16), whose;
		struct kvpool_buf **slot = &own[at];

		switch (below(&random, 4)) {
		case 0:
			if (*slot)
				end_offer(busy->exchange, *slot);
			*slot = offer_ok(busy->exchange, busy->seed * 100 + at,
					 (uint8_t)(busy->seed * 16 + at), 2);
			break;
		case 1:
			if (*slot)
				kvpool_buf_advise(*slot, KVPOOL_VOLATILE, NULL);
			if (!below(&random, 4))
				kv_exchange_ask_room(busy->exchange, 4 * PAGE);
			break;
		default:
			whose = 1 + below(&random, 3);
			int byte = byte_of(busy->exchange, whose * 100 + at);

			if (byte >= 0)
				EXPECT_EQ(whose * 16 + at, byte);
			busy->nr_found += byte >= 0;
		}
	}
	for (int i = 0; i < 16; i++) {
		if (own[i])
			end_offer(busy->exchange, own[i]);
	}
	return NULL;
}

TEST_F_TIMEOUT(exchange, three_at_work_find_what_they_look_for, 60)
{
	self->c = kit_exchange(self->pools[2], &self->dir);
	struct busy busy[] = { { self->a, 1, 0 },
			       { self->b, 2, 0 },
			       { self->c, 3, 0 } };
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0,
			  pthread_create(&threads[i], NULL, be_busy, &busy[i]));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	EXPECT_GT(busy[0].nr_found + busy[1].nr_found + busy[2].nr_found, 20);
	EXPECT_EQ(0, kit_exchange_stat(self->a).nr_offers);
}

TEST_HARNESS_MAIN
