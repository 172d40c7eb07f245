/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver without a GPU, as the GPU backend calls it: modules and their
 * kernels, launches, graphs of them, plain memory, memory of the host, tensor maps. See
 * cuda_standin.h.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include "kernels/cuda/images.h"
#include "kernels/cuda/layer_params.h"
#include "kernels/cuda/sample_params.h"
#include "tests/engine/cuda_standin_gpu.h"
#include "tests/engine/cuda_standin_private.h"

enum {
	DEFAULT_SMEM =
		48 * 1024, /* dynamic shared memory that needs no asking */
	MAX_SMEM = 227 * 1024, /* that may be asked for */
	MAX_THREADS = 1024,
	MAX_GRID_YZ = 65535,
	MAX_CLUSTER = 8, /* that every GPU takes */
	MAX_BOX = 256,
	MAP_ALIGN = 64,
	HOST_FILL = 0xa5, /* of the host's memory that nobody wrote yet */
};

/* ---- images -------------------------------------------------------------- */

extern const struct gpu_image gpu_image_table[];
extern const size_t nr_gpu_images;

/* An image that has every kernel, under the name of every source. */
static const char wild[] = "every kernel";

#define WILD(name)                       \
	{                                \
		name, wild, sizeof(wild) \
	}
static const struct gpu_image wild_table[] = {
	WILD("attn_any"),     WILD("attn_decode"),  WILD("attn_prefill"),
	WILD("embed"),	      WILD("gate"),	    WILD("linear_bf16"),
	WILD("linear_large"), WILD("linear_quant"), WILD("linear_sums"),
	WILD("rms_norm"),     WILD("rope_append"),  WILD("sample"),
};

const struct gpu_image *standin_images(size_t *out_nr)
{
	*out_nr = standin.has_no_images ?
			  0 :
		  standin.has_build_images ?
			  nr_gpu_images :
			  sizeof(wild_table) / sizeof(wild_table[0]);
	return standin.has_build_images ? gpu_image_table : wild_table;
}

struct gpu_function_opaque {
	char name[STANDIN_NAME_BYTES];
	uint32_t smem_bytes; /* allowed */
	LIST_ENTRY(gpu_function_opaque) link;
};

struct gpu_module_opaque {
	const void *image;
	LIST_HEAD(, gpu_function_opaque) functions;
	LIST_ENTRY(gpu_module_opaque) link;
};

static LIST_HEAD(, gpu_module_opaque) modules;

/* Whether a kernel stands in the table of symbols of a file of machine code. */
static bool is_in_elf(const uint8_t *image, const char *name)
{
	const Elf64_Ehdr *header = (const void *)image;
	const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);

	for (int i = 0; i < header->e_shnum; i++) {
		const Elf64_Shdr *s = &sections[i];
		const Elf64_Sym *symbols = (const void *)(image + s->sh_offset);
		const char *names;

		if (s->sh_type != SHT_SYMTAB)
			continue;
		names = (const char *)image + sections[s->sh_link].sh_offset;
		for (uint64_t k = 0; k < s->sh_size / sizeof(*symbols); k++)
			if (ELF64_ST_TYPE(symbols[k].st_info) == STT_FUNC &&
			    symbols[k].st_shndx != SHN_UNDEF &&
			    !strcmp(names + symbols[k].st_name, name))
				return true;
	}
	return false;
}

static bool has_kernel(const struct gpu_module_opaque *m, const char *name)
{
	if (standin.missing_kernel && !strcmp(standin.missing_kernel, name))
		return false;
	return m->image == wild || is_in_elf(m->image, name);
}

static cuda_status DeviceGetName(char *out, int len, int device)
{
	ENTER("cuDeviceGetName");
	snprintf(out, (size_t)len, "Stand-in %d", device);
	return standin_leave(CUDA_OK);
}

static cuda_status ModuleLoadData(gpu_module *out, const void *image)
{
	ENTER("cuModuleLoadData");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	if (image != wild && memcmp(image, ELFMAG, SELFMAG))
		return standin_leave(CUDA_INVALID_VALUE);
	*out = calloc(1, sizeof(**out));
	(*out)->image = image;
	LIST_INSERT_HEAD(&modules, *out, link);
	standin_now.modules++;
	return standin_leave(CUDA_OK);
}

static bool is_module(gpu_module module)
{
	gpu_module m;

	LIST_FOREACH(m, &modules, link)
	{
		if (m == module)
			return true;
	}
	return false;
}

static cuda_status ModuleUnload(gpu_module module)
{
	gpu_function f;

	ENTER("cuModuleUnload");
	if (!standin_has_context() || !is_module(module))
		return standin_leave(CUDA_INVALID_HANDLE);
	while ((f = LIST_FIRST(&module->functions))) {
		LIST_REMOVE(f, link);
		free(f);
	}
	LIST_REMOVE(module, link);
	free(module);
	standin_now.modules--;
	return standin_leave(CUDA_OK);
}

static cuda_status ModuleGetFunction(gpu_function *out, gpu_module module,
				     const char *name)
{
	gpu_function f;

	ENTER("cuModuleGetFunction");
	if (!standin_has_context() || !is_module(module))
		return standin_leave(CUDA_INVALID_HANDLE);
	if (strlen(name) >= STANDIN_NAME_BYTES || !has_kernel(module, name))
		return standin_leave(CUDA_NOT_FOUND);
	f = calloc(1, sizeof(*f));
	strcpy(f->name, name);
	f->smem_bytes = DEFAULT_SMEM;
	LIST_INSERT_HEAD(&module->functions, f, link);
	*out = f;
	return standin_leave(CUDA_OK);
}

static bool is_function(gpu_function function)
{
	gpu_module m;
	gpu_function f;

	LIST_FOREACH(m, &modules, link)
	{
		LIST_FOREACH(f, &m->functions, link)
		{
			if (f == function)
				return true;
		}
	}
	return false;
}

static cuda_status FuncSetAttribute(gpu_function function, int attribute,
				    int value)
{
	ENTER("cuFuncSetAttribute");
	if (!standin_has_context() || !is_function(function))
		return standin_leave(CUDA_INVALID_HANDLE);
	if (attribute != GPU_FUNC_DYNAMIC_SMEM || value < 0 || value > MAX_SMEM)
		return standin_leave(CUDA_INVALID_VALUE);
	function->smem_bytes = (uint32_t)value;
	return standin_leave(CUDA_OK);
}

/* ---- launches ------------------------------------------------------------ */

struct record_list {
	struct standin_record *data;
	size_t nr, capacity;
};

static struct record_list launched;

/* A graph, one that can be launched, or what is on its way to be one. */
struct gpu_graph_opaque {
	struct record_list list;
	bool is_exec;
	LIST_ENTRY(gpu_graph_opaque) link;
};

static LIST_HEAD(, gpu_graph_opaque) graphs;
static gpu_graph capture;
cuda_stream standin_captured;

/* The first prefix that fits says what a kernel takes. */
static const struct {
	const char *prefix;
	size_t bytes;
} kernels[] = {
	{ "embed", sizeof(struct gpu_embed_params) },
	{ "rms_norm", sizeof(struct gpu_norm_params) },
	{ "rope_append", sizeof(struct gpu_rope_params) },
	{ "gate", sizeof(struct gpu_gate_params) },
	{ "softcap", sizeof(struct gpu_softcap_params) },
	{ "attn_any", sizeof(struct gpu_attn_any_params) },
	{ "attn_decode", sizeof(struct gpu_attn_decode_params) },
	{ "attn_prefill", sizeof(struct gpu_attn_prefill_params) },
	{ "linear_sums", sizeof(struct gpu_linear_sums_params) },
	{ "linear_large", sizeof(struct gpu_linear_large_params) },
	{ "linear", sizeof(struct gpu_linear_params) },
	{ "sample", sizeof(struct gpu_sample_params) },
};

_Static_assert(sizeof(struct gpu_attn_prefill_params) <= STANDIN_PARAM_BYTES,
	       "the largest parameters");

static struct standin_record *add_record(struct record_list *to)
{
	struct standin_record *grown;

	if (to->nr == to->capacity) {
		to->capacity = to->capacity * 2 + 64;
		grown = aligned_alloc(64, to->capacity * sizeof(*grown));
		if (to->nr)
			memcpy(grown, to->data, to->nr * sizeof(*grown));
		free(to->data);
		to->data = grown;
	}
	return &to->data[to->nr++];
}

static void record(struct record_list *to,
		   const struct gpu_launch_config *config, gpu_function f,
		   uint32_t cluster, void **params)
{
	struct standin_record *r = add_record(to);

	memset(r, 0, sizeof(*r));
	strcpy(r->name, f->name);
	memcpy(r->grid, config->grid, sizeof(r->grid));
	r->nr_threads = config->block[0];
	r->smem_bytes = config->smem_bytes;
	r->cluster = cluster;
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		if (strncmp(f->name, kernels[i].prefix,
			    strlen(kernels[i].prefix)))
			continue;
		memcpy(r->params, params[0], kernels[i].bytes);
		break;
	}
}

static void append_records(struct record_list *to,
			   const struct record_list *from)
{
	for (size_t i = 0; i < from->nr; i++)
		*add_record(to) = from->data[i];
}

static bool is_grid_good(const struct gpu_launch_config *c)
{
	uint64_t nr_threads = (uint64_t)c->block[0] * c->block[1] * c->block[2];

	return c->grid[0] && c->grid[0] <= INT32_MAX && c->grid[1] &&
	       c->grid[1] <= MAX_GRID_YZ && c->grid[2] &&
	       c->grid[2] <= MAX_GRID_YZ && nr_threads &&
	       nr_threads <= MAX_THREADS;
}

/* The cluster asked for, 1 without; 0: what is asked for does not go. */
static uint32_t cluster_of(const struct gpu_launch_config *c)
{
	uint32_t cluster = 1;

	for (unsigned int i = 0; i < c->nr_attributes; i++) {
		const struct gpu_launch_attribute *a = &c->attributes[i];

		if (a->id == GPU_LAUNCH_OVERLAP)
			continue;
		if (a->id != GPU_LAUNCH_CLUSTER || a->value.cluster[1] != 1 ||
		    a->value.cluster[2] != 1)
			return 0;
		cluster = a->value.cluster[0];
	}
	if (!cluster || cluster > MAX_CLUSTER || c->grid[0] % cluster)
		return 0;
	return cluster;
}

static cuda_status LaunchKernelEx(const struct gpu_launch_config *config,
				  gpu_function function, void **params,
				  void **extra)
{
	uint32_t cluster = cluster_of(config);

	ENTER("cuLaunchKernelEx");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	if (!is_function(function))
		return standin_leave(CUDA_INVALID_HANDLE);
	if (!is_grid_good(config) || !cluster || !params || extra ||
	    config->smem_bytes > function->smem_bytes)
		return standin_leave(CUDA_INVALID_VALUE);
	record(config->stream == standin_captured && capture ? &capture->list :
							       &launched,
	       config, function, cluster, params);
	if (standin.has_model && config->stream != standin_captured)
		standin_add_kernel(config->stream,
				   &launched.data[launched.nr - 1]);
	return standin_leave(CUDA_OK);
}

/* ---- graphs --------------------------------------------------------------- */

static gpu_graph new_graph(bool is_exec)
{
	gpu_graph graph = calloc(1, sizeof(*graph));

	graph->is_exec = is_exec;
	LIST_INSERT_HEAD(&graphs, graph, link);
	standin_now.graphs++;
	return graph;
}

static bool is_graph(const void *graph, bool is_exec)
{
	gpu_graph g;

	LIST_FOREACH(g, &graphs, link)
	{
		if (g == graph)
			return g->is_exec == is_exec;
	}
	return false;
}

static cuda_status free_graph(void *graph, bool is_exec)
{
	gpu_graph g = graph;

	if (!standin_has_context() || !is_graph(graph, is_exec))
		return CUDA_INVALID_HANDLE;
	LIST_REMOVE(g, link);
	free(g->list.data);
	free(g);
	standin_now.graphs--;
	return CUDA_OK;
}

static cuda_status StreamBeginCapture(cuda_stream stream, int mode)
{
	ENTER("cuStreamBeginCapture");
	if (!standin_has_context() || capture || mode != GPU_CAPTURE_THREAD)
		return standin_leave(CUDA_INVALID_VALUE);
	capture = new_graph(false);
	standin_captured = stream;
	return standin_leave(CUDA_OK);
}

static cuda_status StreamEndCapture(cuda_stream stream, gpu_graph *out)
{
	pthread_mutex_lock(&standin_lock);
	cuda_status status = standin.fail ? standin.fail("cuStreamEndCapture") :
					    CUDA_OK;

	if (!status && (!standin_has_context() || stream != standin_captured))
		status = CUDA_INVALID_VALUE;
	*out = NULL;
	/* It is over, whatever comes of it. */
	if (capture && stream == standin_captured) {
		if (status)
			free_graph(capture, false);
		else
			*out = capture;
		capture = NULL;
		standin_captured = NULL;
	}
	return standin_leave(status);
}

static cuda_status GraphInstantiate(gpu_graph_exec *out, gpu_graph graph,
				    unsigned long long flags)
{
	gpu_graph exec;

	ENTER("cuGraphInstantiate");
	if (!standin_has_context() || !is_graph(graph, false) || flags)
		return standin_leave(CUDA_INVALID_VALUE);
	exec = new_graph(true);
	append_records(&exec->list, &graph->list);
	*out = (gpu_graph_exec)exec;
	return standin_leave(CUDA_OK);
}

static cuda_status GraphLaunch(gpu_graph_exec exec, cuda_stream stream)
{
	ENTER("cuGraphLaunch");
	if (!standin_has_context() || !is_graph(exec, true) || !stream ||
	    stream == standin_captured)
		return standin_leave(CUDA_INVALID_VALUE);
	append_records(&launched, &((gpu_graph)exec)->list);
	for (size_t i = 0; standin.has_model && i < ((gpu_graph)exec)->list.nr;
	     i++)
		standin_add_kernel(stream, &((gpu_graph)exec)->list.data[i]);
	return standin_leave(CUDA_OK);
}

static cuda_status GraphDestroy(gpu_graph graph)
{
	ENTER("cuGraphDestroy");
	return standin_leave(free_graph(graph, false));
}

static cuda_status GraphExecDestroy(gpu_graph_exec exec)
{
	ENTER("cuGraphExecDestroy");
	return standin_leave(free_graph(exec, true));
}

/* ---- memory -------------------------------------------------------------- */

/* Device memory is where the CPU cannot look; host memory is what @cpu is. */
struct allocation {
	uint64_t start, bytes;
	uint8_t *cpu;
	LIST_ENTRY(allocation) link;
};

static LIST_HEAD(, allocation) plain, of_host;

uint8_t *standin_plain(uint64_t addr, uint64_t bytes)
{
	struct allocation *a;

	LIST_FOREACH(a, &plain, link)
	{
		if (addr >= a->start && addr - a->start < a->bytes)
			return bytes <= a->bytes - (addr - a->start) ?
				       a->cpu + (addr - a->start) :
				       NULL;
	}
	return NULL;
}

static cuda_status MemAlloc(cuda_addr *out, size_t bytes)
{
	struct allocation *a;
	void *addr;

	ENTER("cuMemAlloc");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	if (!bytes)
		return standin_leave(CUDA_INVALID_VALUE);
	if (bytes + standin_now.used_bytes + standin_now.stolen_bytes >
	    standin.total_bytes)
		return standin_leave(CUDA_OUT_OF_MEMORY);
	addr = mmap(NULL, bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	a = calloc(1, sizeof(*a));
	*a = (struct allocation){ .start = (uint64_t)addr,
				  .bytes = bytes,
				  .cpu = malloc(bytes) };
	if (addr == MAP_FAILED || !a->cpu)
		abort();
	memset(a->cpu, standin.fill, bytes);
	LIST_INSERT_HEAD(&plain, a, link);
	standin_now.allocations++;
	standin_now.used_bytes += bytes;
	*out = a->start;
	return standin_leave(CUDA_OK);
}

static struct allocation *starting_at(uint64_t addr)
{
	struct allocation *a;

	LIST_FOREACH(a, &plain, link)
	{
		if (a->start == addr)
			return a;
	}
	return NULL;
}

static cuda_status MemFree(cuda_addr addr)
{
	struct allocation *a;

	ENTER("cuMemFree");
	a = starting_at(addr);
	if (!standin_has_context() || !a)
		return standin_leave(CUDA_INVALID_VALUE);
	standin_check_uses(a->start, a->bytes);
	munmap((void *)addr, a->bytes);
	standin_now.allocations--;
	standin_now.used_bytes -= a->bytes;
	LIST_REMOVE(a, link);
	free(a->cpu);
	free(a);
	return standin_leave(CUDA_OK);
}

static cuda_status MemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	struct allocation *a;

	ENTER("cuMemHostAlloc");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	if (!bytes || flags)
		return standin_leave(CUDA_INVALID_VALUE);
	a = calloc(1, sizeof(*a));
	a->bytes = bytes;
	if (posix_memalign((void **)&a->cpu, 4096, bytes))
		abort();
	memset(a->cpu, HOST_FILL, bytes);
	LIST_INSERT_HEAD(&of_host, a, link);
	standin_now.host_allocations++;
	*out = a->cpu;
	return standin_leave(CUDA_OK);
}

static cuda_status MemFreeHost(void *addr)
{
	struct allocation *a;

	ENTER("cuMemFreeHost");
	LIST_FOREACH(a, &of_host, link)
	{
		if (a->cpu == addr)
			break;
	}
	if (!standin_has_context() || !a)
		return standin_leave(CUDA_INVALID_VALUE);
	LIST_REMOVE(a, link);
	free(a->cpu);
	free(a);
	standin_now.host_allocations--;
	return standin_leave(CUDA_OK);
}

/* ---- tensor maps --------------------------------------------------------- */

static bool is_map_good(const void *out, const void *addr, uint32_t rank,
			const uint64_t *dims, const uint64_t *strides,
			const uint32_t *box, const uint32_t *steps)
{
	if ((uintptr_t)out % MAP_ALIGN || !addr || (uintptr_t)addr % 16 ||
	    rank < 3 || rank > 5)
		return false;
	for (uint32_t i = 0; i < rank; i++)
		if (!dims[i] || dims[i] > 1ull << 32 || !box[i] ||
		    box[i] > MAX_BOX || !steps[i] || steps[i] > 8)
			return false;
	for (uint32_t i = 0; i + 1 < rank; i++)
		if (!strides[i] || strides[i] % 16 || strides[i] >= 1ull << 40)
			return false;
	/* A row of the box, 2 bytes a value, fits the swizzle. */
	return box[0] * 2 <= 128 && box[0] * 2 % 16 == 0;
}

static cuda_status
TensorMapEncodeTiled(struct gpu_attn_tensor_map *out, int type, uint32_t rank,
		     void *addr, const uint64_t *dims, const uint64_t *strides,
		     const uint32_t *box, const uint32_t *steps, int interleave,
		     int swizzle, int promotion, int fill)
{
	struct standin_map map = { .addr = (uint64_t)addr, .rank = rank };

	ENTER("cuTensorMapEncodeTiled");
	if (type != GPU_MAP_BF16 || interleave ||
	    swizzle != GPU_MAP_SWIZZLE_128B ||
	    promotion != GPU_MAP_PROMOTE_128B || fill ||
	    !is_map_good(out, addr, rank, dims, strides, box, steps))
		return standin_leave(CUDA_INVALID_VALUE);
	map.type = (uint32_t)type;
	memcpy(map.dims, dims, rank * sizeof(*dims));
	memcpy(map.strides, strides, (rank - 1) * sizeof(*strides));
	memcpy(map.box, box, rank * sizeof(*box));
	memset(out, 0, sizeof(*out));
	memcpy(out, &map, sizeof(map));
	return standin_leave(CUDA_OK);
}

/* ---- finding them -------------------------------------------------------- */

#define EventSynchronize standin_EventSynchronize
#define MemcpyHtoDAsync standin_MemcpyHtoDAsync
#define MemcpyDtoHAsync standin_MemcpyDtoHAsync

void *standin_find_gpu(const char *name, int version)
{
#define FIND(symbol, member, since, params)             \
	if (!strcmp(name, #symbol) && version == since) \
		return (void *)member;
	GPU_ENTRIES(FIND)
#undef FIND
	return NULL;
}

/* ---- for tests ----------------------------------------------------------- */

size_t standin_nr_records(void)
{
	return launched.nr;
}

const struct standin_record *standin_record(size_t i)
{
	return &launched.data[i];
}

const struct standin_record *standin_find_record(const char *name)
{
	for (size_t i = launched.nr; i-- > 0;)
		if (!strncmp(launched.data[i].name, name, strlen(name)))
			return &launched.data[i];
	return NULL;
}

void standin_forget(void)
{
	pthread_mutex_lock(&standin_lock);
	free(launched.data);
	launched = (struct record_list){ 0 };
	pthread_mutex_unlock(&standin_lock);
}
