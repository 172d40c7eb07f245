/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of tarnd.
 */
#include "daemon/options.h"
#include "tests/harness.h"

static struct options options;
static char err[300];

#define PARSE(...) parse((char *[]){ "tarnd", __VA_ARGS__, NULL })

static enum options_result parse(char **argv)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	err[0] = '\0';
	memset(&options, 0xee, sizeof(options));
	return options_parse(argc, argv, &options, err, sizeof(err));
}

TEST(defaults_are_those_of_the_manual)
{
	ASSERT_EQ(OPTIONS_RUN,
		  PARSE("--model", "m.gguf", "--socket", "/tmp/x"));
	EXPECT_STREQ("m.gguf", options.model_path);
	EXPECT_STREQ("/tmp/x", options.socket_path);
	EXPECT_EQ(0660, options.socket_mode);
	EXPECT_EQ(512, options.max_queue);
	EXPECT_EQ(4 << 20, options.max_body_bytes);
	EXPECT_EQ(1 << 20, options.max_unsent_bytes);
	EXPECT_EQ(TARN_DEVICE_AUTO, options.device);
	EXPECT_EQ(0, options.kv_bytes);
	EXPECT_TRUE(options.pool_name == NULL);
	EXPECT_EQ(0, options.pool_quota_bytes);
	EXPECT_EQ(TARN_PREFIX_OF_USER, options.prefix_scope);
	EXPECT_FALSE(options.no_prefix_sharing);
	EXPECT_FALSE(options.is_strict);
	EXPECT_FALSE(options.allow_unknown_pre);
}

TEST(every_option_is_read)
{
	ASSERT_EQ(OPTIONS_RUN,
		  PARSE("--model=m", "--socket=/s", "--socket-mode=0600",
			"--socket-owner=0:0", "--threads=3", "--ctx=4096",
			"--device=cpu", "--kv-backend=memfd", "--kv-bytes=1.5G",
			"--pool=shared-1.a", "--pool-quota=64M",
			"--prefix-scope=all", "--no-prefix-sharing",
			"--precise", "--no-prefix-cache", "--allow-unknown-pre",
			"--strict", "--queue=7", "--max-body=64K",
			"--max-unsent=32K", "--max-batch-tokens=128",
			"--timeout=9", "--drain-timeout=0",
			"--log-level=debug"));
	EXPECT_EQ(0600, options.socket_mode);
	EXPECT_EQ(0, options.socket_uid);
	EXPECT_EQ(0, options.socket_gid);
	EXPECT_EQ(3, options.nr_threads);
	EXPECT_EQ(4096, options.ctx_tokens);
	EXPECT_EQ(TARN_DEVICE_CPU, options.device);
	EXPECT_EQ(TARN_KV_MEMFD, options.kv_backend);
	EXPECT_EQ(3ull << 29, options.kv_bytes);
	EXPECT_STREQ("shared-1.a", options.pool_name);
	EXPECT_EQ(64 << 20, options.pool_quota_bytes);
	EXPECT_EQ(TARN_PREFIX_OF_ALL, options.prefix_scope);
	EXPECT_TRUE(options.no_prefix_sharing);
	EXPECT_TRUE(options.is_precise);
	EXPECT_TRUE(options.no_prefix_cache);
	EXPECT_TRUE(options.allow_unknown_pre);
	EXPECT_TRUE(options.is_strict);
	EXPECT_EQ(7, options.max_queue);
	EXPECT_EQ(64 << 10, options.max_body_bytes);
	EXPECT_EQ(32 << 10, options.max_unsent_bytes);
	EXPECT_EQ(128, options.max_batch_tokens);
	EXPECT_EQ(9, options.timeout_s);
	EXPECT_EQ(0, options.drain_timeout_s);
	EXPECT_EQ(LOG_LEVEL_DEBUG, options.log_level);
}

TEST(an_error_names_the_option_and_the_value)
{
	ASSERT_EQ(OPTIONS_WRONG, PARSE("--model", "m", "--threads", "many"));
	EXPECT_STREQ("--threads: \"many\" is not a number from 1 to 256", err);
	ASSERT_EQ(OPTIONS_WRONG, PARSE("--model", "m", "--device", "tpu"));
	EXPECT_STREQ("--device: \"tpu\" is not one of auto cpu cuda", err);
	ASSERT_EQ(OPTIONS_WRONG, PARSE("--model", "m", "--pool", "a/b"));
	EXPECT_STREQ(
		"--pool: \"a/b\" is not a name of up to 63 letters, digits and ._-",
		err);
	ASSERT_EQ(OPTIONS_WRONG, PARSE("--model", "m", "--prefix-scope", "us"));
	EXPECT_STREQ("--prefix-scope: \"us\" is not one of user all", err);
	ASSERT_EQ(OPTIONS_WRONG, PARSE("--model", "m", "--frobnicate"));
	EXPECT_STREQ("unknown option \"--frobnicate\"", err);
	ASSERT_EQ(OPTIONS_WRONG, PARSE("--model"));
	EXPECT_STREQ("--model needs a value", err);
	ASSERT_EQ(OPTIONS_WRONG,
		  PARSE("--model", "m", "--socket", "/s", "stray"));
	EXPECT_STREQ("unexpected argument \"stray\"", err);
	ASSERT_EQ(OPTIONS_WRONG, PARSE("--socket", "/s"));
	EXPECT_STREQ("--model FILE is missing", err);
}

TEST(wrong_values_are_refused)
{
	static const char *const wrong[] = {
		"--threads=0",
		"--threads=-1",
		"--threads=257",
		"--threads=1x",
		"--ctx=0",
		"--ctx=99999999999",
		"--kv-bytes=0",
		"--kv-bytes=-1G",
		"--kv-bytes=1Q",
		"--kv-bytes=101%",
		"--kv-bytes=nan",
		"--kv-bytes=0x10",
		"--kv-bytes=1e400",
		"--socket-mode=8",
		"--socket-mode=01000",
		"--socket-owner=",
		"--socket-owner=:",
		"--socket-owner=no.such.user",
		"--queue=0",
		"--max-body=10%",
		"--timeout=0",
		"--log-level=loud",
		"--socket=",
		"--device=",
		"--kv-backend=disk",
		"--pool=",
		"--pool=.hidden",
		"--pool=a name",
		"--pool=0123456789012345678901234567890123456789012345678901234567890123",
		"--pool-quota=0",
		"--prefix-scope=",
		"--model=another", /* one daemon, one model */
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		EXPECT_EQ(OPTIONS_WRONG, PARSE("--model=m", (char *)wrong[i]))
		{
			TH_LOG("%s", wrong[i]);
		}
		EXPECT_TRUE(strlen(err) > 0);
	}
}

TEST(a_long_socket_path_is_refused)
{
	char path[200];

	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	EXPECT_EQ(OPTIONS_WRONG, PARSE("--model=m", "--socket", path));
}

TEST(help_and_version_need_no_model)
{
	EXPECT_EQ(OPTIONS_HELP, PARSE("--help"));
	EXPECT_EQ(OPTIONS_VERSION, PARSE("-V"));
	EXPECT_TRUE(strstr(options_help(), "curl") != NULL);
}

TEST(the_environment_names_the_socket)
{
	setenv("TARN_SOCKET", "/tmp/named.sock", 1);
	ASSERT_EQ(OPTIONS_RUN, PARSE("--model=m"));
	EXPECT_STREQ("/tmp/named.sock", options.socket_path);
	ASSERT_EQ(OPTIONS_RUN, PARSE("--model=m", "--socket=/tmp/flag.sock"));
	EXPECT_STREQ("/tmp/flag.sock", options.socket_path);
}

TEST(sizes_are_powers_of_1024)
{
	uint64_t bytes;

	ASSERT_EQ(0, options_parse_size("512M", 0, &bytes));
	EXPECT_EQ(512ull << 20, bytes);
	ASSERT_EQ(0, options_parse_size("2GiB", 0, &bytes));
	EXPECT_EQ(2ull << 30, bytes);
	ASSERT_EQ(0, options_parse_size("64kB", 0, &bytes));
	EXPECT_EQ(64ull << 10, bytes);
	ASSERT_EQ(0, options_parse_size("25%", 1000, &bytes));
	EXPECT_EQ(250, bytes);
	EXPECT_EQ(-EINVAL, options_parse_size("", 0, &bytes));
	EXPECT_EQ(-EINVAL, options_parse_size("1GG", 0, &bytes));
}

TEST_HARNESS_MAIN
