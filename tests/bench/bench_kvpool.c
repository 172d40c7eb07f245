/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel module against what the kernel has without it, in one boot: see
 * --help. Run by hand, as root, in the machine of scripts/vm-run, because it
 * changes settings of the system. Each bar's line says measured and bar; the
 * lines before it are the raw figures.
 */
#include <getopt.h>
#include <sys/klog.h>
#include <sys/utsname.h>

#include "tests/bench/kvpool_kit.h"

static const struct bench {
	const char *name, *about;
	void (*run)(const struct bench_sizes *sizes);
} benches[] = {
	{ "commit", "COMMIT and first touch against hugetlb and THP",
	  bench_commit },
	{ "clone", "CLONE and the owner's refaults against a copy",
	  bench_clone },
	{ "share", "8 processes on one prefix, and attaching", bench_share },
	{ "volatile", "drop_caches, and a neighbour who needs the memory",
	  bench_volatile },
	{ "kill", "SIGKILL of an owner against a memfd's", bench_kill },
};

enum { NR_BENCHES = sizeof(benches) / sizeof(benches[0]) };

static const char usage[] =
	"usage: bench_kvpool [option...] [NAME...]\n"
	"  --folios N    2 MiB folios of the cloned buffer (256)\n"
	"  --share M     MiB of the shared prefix (512)\n"
	"  --volatile M  MiB of volatile memory (512)\n"
	"  --kill M      MiB of the owner who is killed (512)\n"
	"  --repeats N   measurements of each kind (31)\n"
	"Needs memory for twice the largest of them. Without /dev/kvpool nothing is\n"
	"measured. Example, in the checkout:\n"
	"  scripts/vm-run --icount --mem 3G -- \\\n"
	"    sh -c 'insmod build/kvpool.ko && build/tests/bench/bench_kvpool'\n";

static unsigned int number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!*text || *end || !value || value > 1u << 20) {
		fprintf(stderr, "bench_kvpool: %s is not a number\n", text);
		exit(2);
	}
	return (unsigned int)value;
}

/* Whether pages are zeroed at every allocation decides what a fault costs. */
static void say_init_on_alloc(void)
{
	static char log[1 << 20];
	int len = klogctl(3, log, sizeof(log) - 1);
	char *at = len > 0 ? strstr(log, "mem auto-init:") : NULL;

	if (at)
		printf("%.*s\n", (int)strcspn(at, "\n"), at);
}

static void say_system(void)
{
	struct utsname name;

	uname(&name);
	printf("kernel %s, %ld processors, %llu MiB\n", name.release,
	       sysconf(_SC_NPROCESSORS_ONLN),
	       (unsigned long long)(meminfo("MemTotal") / MIB));
	say_init_on_alloc();
}

static void run(const char *name, const struct bench_sizes *sizes)
{
	for (int i = 0; i < NR_BENCHES; i++) {
		if (name && strcmp(name, benches[i].name) != 0)
			continue;
		printf("%s: %s\n", benches[i].name, benches[i].about);
		benches[i].run(sizes);
		if (name)
			return;
	}
	if (name) {
		fprintf(stderr, "bench_kvpool: no benchmark %s\n%s", name,
			usage);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "folios", required_argument, NULL, 'f' },
		{ "share", required_argument, NULL, 's' },
		{ "volatile", required_argument, NULL, 'v' },
		{ "kill", required_argument, NULL, 'k' },
		{ "repeats", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct bench_sizes sizes = { 256, 512 * MIB, 512 * MIB, 512 * MIB, 31 };
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 'f':
			sizes.nr_folios = number(optarg);
			break;
		case 's':
			sizes.share_bytes = number(optarg) * MIB;
			break;
		case 'v':
			sizes.volatile_bytes = number(optarg) * MIB;
			break;
		case 'k':
			sizes.kill_bytes = number(optarg) * MIB;
			break;
		case 'r':
			sizes.nr_repeats = number(optarg);
			break;
		default:
			fputs(usage, option == 'h' ? stdout : stderr);
			return option == 'h' ? 0 : 2;
		}
	}
	if (access(KVPOOL_DEVICE, R_OK | W_OK) != 0) {
		printf("%s: %s: nothing is measured\n", KVPOOL_DEVICE,
		       strerror(errno));
		return 0;
	}
	say_system();
	if (optind == argc)
		run(NULL, &sizes);
	for (int i = optind; i < argc; i++)
		run(argv[i], &sizes);
	return 0;
}
