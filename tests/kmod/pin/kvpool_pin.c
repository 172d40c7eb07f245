// SPDX-License-Identifier: GPL-2.0
/*
 * A test module: pins pages of the caller's memory for long, as a driver does
 * that lets a device write there, writes through the pin, and holds the lock of
 * its first folio. /dev/kvpool_pin, for root; one pin per open file, which ends
 * with it.
 */
#include <linux/highmem.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "kvpool_pin.h"

struct pin {
	struct mutex mutex; /* orders pinning and letting go */
	struct page **pages; /* mutex; NULL: nothing is pinned */
	int nr_pages; /* mutex */
	bool is_locked; /* mutex; the first page's folio, by us */
};

static void pin_unlock(struct pin *pin)
{
	if (pin->is_locked)
		folio_unlock(page_folio(pin->pages[0]));
	pin->is_locked = false;
}

static void pin_drop(struct pin *pin)
{
	if (!pin->pages)
		return;
	pin_unlock(pin);
	unpin_user_pages(pin->pages, pin->nr_pages);
	kvfree(pin->pages);
	pin->pages = NULL;
}

static int pin_take(struct pin *pin, const struct kvpool_pin_range *range)
{
	int nr;

	if (!range->nr_pages || range->nr_pages > KVPOOL_PIN_MOST_PAGES ||
	    range->address % PAGE_SIZE)
		return -EINVAL;
	if (pin->pages)
		return -EBUSY;
	pin->pages = kvcalloc(range->nr_pages, sizeof(*pin->pages), GFP_KERNEL);
	if (!pin->pages)
		return -ENOMEM;
	nr = pin_user_pages_fast(range->address, range->nr_pages,
				 FOLL_LONGTERM | FOLL_WRITE, pin->pages);
	pin->nr_pages = max(nr, 0);
	if (nr != range->nr_pages) {
		pin_drop(pin);
		return nr < 0 ? nr : -EFAULT;
	}
	return 0;
}

static int pin_fill(struct pin *pin, u8 byte)
{
	int i;

	if (!pin->pages)
		return -ENOENT;
	for (i = 0; i < pin->nr_pages; i++) {
		void *at = kmap_local_page(pin->pages[i]);

		memset(at, byte, PAGE_SIZE);
		kunmap_local(at);
	}
	return 0;
}

static int pin_lock(struct pin *pin)
{
	if (!pin->pages)
		return -ENOENT;
	if (pin->is_locked)
		return -EBUSY;
	folio_lock(page_folio(pin->pages[0]));
	pin->is_locked = true;
	return 0;
}

static long pin_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct pin *pin = file->private_data;
	struct kvpool_pin_range range;
	long rc = -ENOTTY;

	if (cmd == KVPOOL_PIN_TAKE &&
	    copy_from_user(&range, (void __user *)arg, sizeof(range)))
		return -EFAULT;
	mutex_lock(&pin->mutex);
	if (cmd == KVPOOL_PIN_TAKE) {
		rc = pin_take(pin, &range);
	} else if (cmd == KVPOOL_PIN_FILL) {
		rc = pin_fill(pin, arg);
	} else if (cmd == KVPOOL_PIN_DROP) {
		pin_drop(pin);
		rc = 0;
	} else if (cmd == KVPOOL_PIN_LOCK) {
		rc = pin_lock(pin);
	} else if (cmd == KVPOOL_PIN_UNLOCK) {
		pin_unlock(pin);
		rc = 0;
	}
	mutex_unlock(&pin->mutex);
	return rc;
}

static int pin_open(struct inode *inode, struct file *file)
{
	struct pin *pin = kzalloc(sizeof(*pin), GFP_KERNEL);

	if (!pin)
		return -ENOMEM;
	mutex_init(&pin->mutex);
	file->private_data = pin;
	return 0;
}

static int pin_release(struct inode *inode, struct file *file)
{
	struct pin *pin = file->private_data;

	pin_drop(pin);
	kfree(pin);
	return 0;
}

static const struct file_operations pin_fops = {
	.owner = THIS_MODULE,
	.open = pin_open,
	.release = pin_release,
	.unlocked_ioctl = pin_ioctl,
};

static struct miscdevice pin_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kvpool_pin",
	.fops = &pin_fops,
	.mode = 0600,
};

module_misc_device(pin_device);
MODULE_DESCRIPTION("Pins pages for the tests of kvpool");
MODULE_LICENSE("GPL");
