/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers of the exchange that die, hang, lie, or flood: nobody else is harmed, and
 * nothing is left behind. What it does among good ones is in test_exchange.c.
 */
#include "tests/harness.h"

#include <sys/resource.h>

#include "tests/engine/exchange_pair.h"

/* ---- peers that die, hang and lie ---- */

static uint64_t ms_since(uint64_t start_ns)
{
	return (exchange_now_ns() - start_ns) / 1000000;
}

TEST_F(exchange, a_peer_that_hangs_costs_its_time_once)
{
	pid_t pid = start_other(self);
	struct kvpool_buf *buf = offer_ok(self->a, 1, 0x11, 1);
	uint64_t start;

	EXPECT_EQ(0x77, byte_of(self->b, 7));
	stop_other(pid);
	start = exchange_now_ns();
	EXPECT_EQ(-1, byte_of(self->b, 7));
	EXPECT_GE(ms_since(start), KIT_ANSWER_MS);
	EXPECT_EQ(1, kit_exchange_stat(self->b).failures);
	/* From now on as if it were not there. */
	start = exchange_now_ns();
	for (int i = 0; i < 20; i++) {
		EXPECT_EQ(-1, byte_of(self->b, 7));
		EXPECT_EQ(0x11, byte_of(self->b, 1));
	}
	EXPECT_GT(KIT_ANSWER_MS * HARNESS_TIME_SCALE, ms_since(start));
	EXPECT_EQ(1, kit_exchange_stat(self->b).failures);
	/* Killed while it is asked, by one that does not know it yet. */
	self->c = kit_exchange(self->pools[2], &self->dir);
	pid_t killer = fork();

	if (!killer) {
		usleep(KIT_ANSWER_MS * 1000 / 3);
		kill(pid, SIGKILL);
		_exit(0);
	}
	EXPECT_EQ(-1, byte_of(self->c, 7));
	ASSERT_EQ(killer, waitpid(killer, NULL, 0));
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_EQ(0x11, byte_of(self->c, 1));
	end_offer(self->a, buf);
}

TEST_F(exchange, one_that_hung_is_asked_again_later)
{
	struct kv_exchange_options options = {
		.pool = self->pools[2],
		.dir = self->dir.path,
		.answer_ms = KIT_ANSWER_MS,
		.retry_ms = 100,
	};
	pid_t pid = start_other(self);
	char err[64];

	ASSERT_EQ(0, kv_exchange_create(&options, &self->c, err, sizeof(err)));
	stop_other(pid);
	EXPECT_EQ(-1, byte_of(self->c, 7));
	ASSERT_EQ(0, kill(pid, SIGCONT));
	usleep(150000);
	EXPECT_EQ(0x77, byte_of(self->c, 7));
	end_other(pid);
}

TEST_F(exchange, mapped_memory_outlives_a_peer_that_is_killed)
{
	pid_t pid = start_other(self);
	struct kv_exchange_found found;
	struct kvpool_buf *mapped, *late;

	ASSERT_EQ(0, search(self->b, 1000007, &found));
	EXPECT_EQ(2 * PAGE, found.n_bytes);
	ASSERT_EQ(0, kvpool_buf_import(self->pools[1], found.fd, &mapped));
	end_other(pid);
	EXPECT_EQ(0x77, ((uint8_t *)kvpool_buf_addr(mapped))[2 * PAGE - 1]);
	/* A descriptor that was on its way serves too. */
	ASSERT_EQ(0, kvpool_buf_import(self->pools[1], found.fd, &late));
	EXPECT_EQ(0x77, *(uint8_t *)kvpool_buf_addr(late));
	close(found.fd);
	kvpool_buf_put(mapped);
	kvpool_buf_put(late);
}

enum lie {
	CLOSES_AT_ONCE,
	CLOSES_AFTER_QUESTION,
	ANSWERS_NOTHING,
	SHORT,
	LONG,
	EMPTY,
	OTHER_MAGIC,
	OTHER_QUESTION,
	YES_WITHOUT,
	NO_WITH,
	TWO_FDS,
	MANY_FDS,
	NR_LIES,
};

struct liar {
	int listener;
	enum lie lie;
};

static void send_fds(int sock, const void *message, size_t bytes, int nr)
{
	char control[CMSG_SPACE(sizeof(int) * 200)] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)message, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nr) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nr);
		struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int) * nr);
		for (int i = 0; i < nr; i++)
			memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &sock,
			       sizeof(sock));
	}
	sendmsg(sock, &msg, MSG_NOSIGNAL);
}

/* One question, and a bad answer to it. */
static void *be_liar(void *arg)
{
	const struct liar *liar = arg;
	struct exchange_request request;
	struct exchange_reply reply[2] = { { .magic = EXCHANGE_MAGIC,
					     .bytes = PAGE } };
	size_t bytes = sizeof(reply[0]);
	int sock = accept(liar->listener, NULL, NULL), nr_fds = 1;

	if (liar->lie == CLOSES_AT_ONCE) {
		close(sock);
		/* Asked once more, as it was never heard of. */
		return NULL;
	}
	recv(sock, &request, sizeof(request), 0);
	reply[0].id = request.id;
	switch (liar->lie) {
	case SHORT:
		bytes--;
		break;
	case LONG:
		bytes++;
		break;
	case EMPTY:
		bytes = 0;
		break;
	case OTHER_MAGIC:
		reply[0].magic++;
		break;
	case OTHER_QUESTION:
		reply[0].id--;
		break;
	case YES_WITHOUT:
		nr_fds = 0;
		break;
	case NO_WITH:
		reply[0].error = ENOENT;
		break;
	case TWO_FDS:
		nr_fds = 2;
		break;
	case MANY_FDS:
		nr_fds = 200;
		break;
	default:
		break;
	}
	if (liar->lie > ANSWERS_NOTHING)
		send_fds(sock, reply, bytes, nr_fds);
	if (liar->lie == ANSWERS_NOTHING) {
		/* Until the other one has had enough. */
		recv(sock, &request, 1, 0);
	}
	close(sock);
	return NULL;
}

/* What a question costs, of a key or of room, to one that has just come. */
static void ask_liar(struct fixture_exchange *self, enum lie lie, bool room)
{
	struct liar liar = { .lie = lie };
	pthread_t thread;

	self->c = kit_exchange(self->pools[2], &self->dir);
	liar.listener = kit_listen(&self->dir, self->c);
	ASSERT_EQ(0, pthread_create(&thread, NULL, be_liar, &liar));
	uint64_t start = exchange_now_ns();

	if (room)
		EXPECT_EQ(0, kv_exchange_ask_room(self->c, PAGE));
	else
		EXPECT_EQ(-1, byte_of(self->c, 2));
	/* It is the lie that shows, not the time. */
	if (lie != ANSWERS_NOTHING)
		EXPECT_GT(KIT_ANSWER_MS, ms_since(start));
	EXPECT_EQ(1, kit_exchange_stat(self->c).failures)
	{
		TH_LOG("lie %d, room %d", lie, room);
	}
	pthread_join(thread, NULL);
	EXPECT_EQ(0x11, byte_of(self->c, 1));
	EXPECT_EQ(1, kit_exchange_stat(self->c).failures);
	kv_exchange_destroy(self->c);
	self->c = NULL;
	close(liar.listener);
}

TEST_F_TIMEOUT(exchange, a_peer_that_lies_is_left_alone, 60)
{
	struct kvpool_buf *buf = offer_ok(self->a, 1, 0x11, 1);
	int nr_fds = kit_settled_fds();

	for (enum lie lie = 0; lie < NR_LIES; lie++) {
		ask_liar(self, lie, false);
		/* Without a descriptor it is right. */
		if (lie != YES_WITHOUT)
			ask_liar(self, lie, true);
		EXPECT_TRUE(kit_settles_at_fds(nr_fds));
	}
	end_offer(self->a, buf);
}

/* Room that nobody has is not believed. */
static void *boast(void *arg)
{
	struct exchange_request request;
	int sock = accept(*(int *)arg, NULL, NULL);

	while (recv(sock, &request, sizeof(request), 0) == sizeof(request)) {
		struct exchange_reply reply = { .magic = EXCHANGE_MAGIC,
						.id = request.id,
						.bytes = UINT64_MAX };

		send(sock, &reply, sizeof(reply), MSG_NOSIGNAL);
	}
	close(sock);
	return NULL;
}

TEST_F(exchange, nobody_gives_more_than_he_was_asked_for)
{
	int listener = kit_listen(&self->dir, self->b);
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, boast, &listener));
	EXPECT_GE(10 * PAGE, kv_exchange_ask_room(self->b, 10 * PAGE));
	kv_exchange_destroy(self->b);
	self->b = NULL;
	pthread_join(thread, NULL);
	close(listener);
}

/* ---- clients that flood and lie ---- */

/* The exchange of @self->a serves others as before. */
static void expect_served(struct fixture_exchange *self)
{
	self->c = kit_exchange(self->pools[2], &self->dir);
	EXPECT_EQ(0x11, byte_of(self->c, 1));
	kv_exchange_destroy(self->c);
	self->c = NULL;
}

/* Whether the other side has closed, after what it said. */
static bool is_cut_off(int sock)
{
	struct timeval wait = { .tv_sec = 10 };
	char bytes[256];
	ssize_t got;

	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	while ((got = recv(sock, bytes, sizeof(bytes), 0)) > 0)
		;
	return !got || errno == ECONNRESET;
}

TEST_F_TIMEOUT(exchange, requests_that_make_no_sense_cut_their_sender_off, 60)
{
	struct kvpool_buf *buf = offer_ok(self->a, 1, 0x11, 1);
	struct exchange_request good = { .magic = EXCHANGE_MAGIC,
					 .op = EXCHANGE_FIND };
	uint64_t random = 7;
	int nr_fds = kit_settled_fds();

	for (size_t bytes = 1; bytes < 2 * sizeof(good); bytes++) {
		uint8_t packet[2 * sizeof(good)] = { 0 };
		int sock = kit_connect(&self->dir, self->a);

		memcpy(packet, &good, sizeof(good));
		if (bytes == sizeof(good))
			packet[0]++; /* the magic */
		ASSERT_EQ(bytes, send(sock, packet, bytes, MSG_NOSIGNAL));
		EXPECT_TRUE(is_cut_off(sock))
		{
			TH_LOG("%zu bytes", bytes);
		}
		close(sock);
	}
	for (int nr = 1; nr <= 3; nr++) {
		int sock = kit_connect(&self->dir, self->a);

		send_fds(sock, &good, sizeof(good), nr);
		EXPECT_TRUE(is_cut_off(sock));
		close(sock);
	}
	for (int i = 0; i < 300; i++) {
		uint8_t packet[200];
		int sock = kit_connect(&self->dir, self->a);

		for (size_t at = 0; at < sizeof(packet); at++)
			packet[at] = (uint8_t)below(&random, 256);
		send(sock, packet, 1 + below(&random, sizeof(packet)),
		     MSG_NOSIGNAL);
		close(sock);
	}
	/* An operation of the future is answered, with a no. */
	struct exchange_reply reply = { 0 };
	int sock = kit_connect(&self->dir, self->a);

	good.op = 99;
	good.id = 5;
	send(sock, &good, sizeof(good), 0);
	EXPECT_EQ(sizeof(reply), recv(sock, &reply, sizeof(reply), 0));
	EXPECT_EQ(EOPNOTSUPP, reply.error);
	EXPECT_EQ(5, reply.id);
	close(sock);
	expect_served(self);
	EXPECT_TRUE(kit_settles_at_fds(nr_fds));
	end_offer(self->a, buf);
}

TEST_F_TIMEOUT(exchange, who_does_not_read_his_answers_is_cut_off, 60)
{
	struct kvpool_buf *buf = offer_ok(self->a, 1, 0x11, 1);
	struct exchange_request request = { .magic = EXCHANGE_MAGIC,
					    .op = EXCHANGE_FIND,
					    .key = key_of(1) };
	int sock = kit_connect(&self->dir, self->a), nr = 0;

	/* Each answer carries a descriptor. */
	while (nr < 100000 &&
	       send(sock, &request, sizeof(request), MSG_NOSIGNAL) > 0)
		nr++;
	EXPECT_GT(100000, nr);
	expect_served(self);
	close(sock);
	end_offer(self->a, buf);
}

TEST_F_TIMEOUT(exchange, connections_without_end_are_refused, 60)
{
	struct kvpool_buf *buf = offer_ok(self->a, 1, 0x11, 1);
	int socks[EXCHANGE_MAX_CONNECTIONS + 20];

	/* One that is served already stays so. */
	EXPECT_EQ(0x11, byte_of(self->b, 1));
	for (int i = 0; i < EXCHANGE_MAX_CONNECTIONS + 20; i++)
		socks[i] = kit_connect(&self->dir, self->a);
	EXPECT_EQ(0x11, byte_of(self->b, 1));
	EXPECT_TRUE(is_cut_off(socks[EXCHANGE_MAX_CONNECTIONS + 19]));
	for (int i = 0; i < EXCHANGE_MAX_CONNECTIONS + 20; i++)
		close(socks[i]);
	/* And room is again for others. */
	for (int i = 0; i < 100; i++) {
		self->c = kit_exchange(self->pools[2], &self->dir);
		int byte = byte_of(self->c, 1);

		kv_exchange_destroy(self->c);
		self->c = NULL;
		if (byte == 0x11)
			break;
		usleep(20000);
	}
	expect_served(self);
	end_offer(self->a, buf);
}

static uint64_t cpu_ms(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) *
		       1000 +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) /
		       1000;
}

TEST_F(exchange, without_descriptors_it_waits_for_some)
{
	struct kvpool_buf *buf = offer_ok(self->a, 1, 0x11, 1);
	struct rlimit before, limit;
	int first_free = dup(0);

	close(first_free);
	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
	limit = before;
	limit.rlim_cur = (rlim_t)first_free;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	/* It calls on all that are there, who cannot let it in. */
	start_other(self);
	uint64_t cpu = cpu_ms();

	usleep(600000);
	EXPECT_GT(50, cpu_ms() - cpu);
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
	expect_served(self);
	EXPECT_EQ(0x77, byte_of(self->b, 7));
	end_offer(self->a, buf);
}

TEST_HARNESS_MAIN
