/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU takes every image of the program: it loads, holds kernels, and they are
 * machine code for this GPU that keeps nothing in local memory. Tests of this
 * room need a GPU and skip where there is none; make check-gpu wants one.
 */
#include "engine/kv/kvpool_cuda_driver.h"
#include "engine/kv/libkvpool.h"
#include "kernels/cuda/images.h"
#include "tests/harness.h"

#include <dlfcn.h>

/* Numbers of the driver's attributes of a kernel. */
enum { LOCAL_BYTES = 3, NR_REGISTERS = 4, BINARY_VERSION = 6 };
enum { MAX_KERNELS = 256 };

/* Of the driver, beside what the library asks for. */
static struct {
	cuda_status (*load)(void **out_module, const void *image);
	cuda_status (*unload)(void *module);
	cuda_status (*count)(unsigned int *out, void *module);
	cuda_status (*list)(void **out, unsigned int nr, void *module);
	cuda_status (*name)(const char **out, void *kernel);
	cuda_status (*attribute)(int *out, int attribute, void *kernel);
} gpu;

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	ASSERT_TRUE(found != NULL);
	return found;
}

/* The first GPU is this thread's then. */
static void use_gpu(void)
{
	const struct cuda_driver *driver;
	cuda_context context;
	int device;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	ASSERT_TRUE(library != NULL);
	*(void **)&gpu.load = symbol(library, "cuModuleLoadData");
	*(void **)&gpu.unload = symbol(library, "cuModuleUnload");
	*(void **)&gpu.count = symbol(library, "cuModuleGetFunctionCount");
	*(void **)&gpu.list = symbol(library, "cuModuleEnumerateFunctions");
	*(void **)&gpu.name = symbol(library, "cuFuncGetName");
	*(void **)&gpu.attribute = symbol(library, "cuFuncGetAttribute");
	ASSERT_EQ(0, cuda_driver_get(&driver, NULL, 0));
	ASSERT_EQ(0, driver->DeviceGet(&device, 0));
	ASSERT_EQ(0, driver->DevicePrimaryCtxRetain(&context, device));
	ASSERT_EQ(0, driver->CtxPushCurrent(context));
}

static int attribute_of(void *kernel, int attribute)
{
	int value = -1;

	ASSERT_EQ(0, gpu.attribute(&value, attribute, kernel));
	return value;
}

static void expect_kernels(const struct gpu_image *image)
{
	void *module, *kernels[MAX_KERNELS];
	unsigned int nr = 0;

	ASSERT_EQ(0, gpu.load(&module, image->data))
	{
		TH_LOG("%s", image->name);
	}
	ASSERT_EQ(0, gpu.count(&nr, module));
	ASSERT_GT(nr, 0);
	ASSERT_LE(nr, MAX_KERNELS);
	ASSERT_EQ(0, gpu.list(kernels, nr, module));
	for (unsigned int i = 0; i < nr; i++) {
		const char *name = "?";

		ASSERT_EQ(0, gpu.name(&name, kernels[i]));
		TH_LOG("%s: %s: %d registers", image->name, name,
		       attribute_of(kernels[i], NR_REGISTERS));
		EXPECT_EQ(90, attribute_of(kernels[i], BINARY_VERSION));
		EXPECT_EQ(0, attribute_of(kernels[i], LOCAL_BYTES));
	}
	EXPECT_EQ(0, gpu.unload(module));
}

TEST(the_gpu_takes_every_image)
{
	char why_not[200];
	size_t nr;
	const struct gpu_image *images = gpu_images(&nr);

	if (kvpool_cuda_check(0, why_not, sizeof(why_not)))
		SKIP(return, "%s", why_not);
	ASSERT_GT(nr, 0);
	use_gpu();
	for (size_t i = 0; i < nr; i++)
		expect_kernels(&images[i]);
}

TEST_HARNESS_MAIN
