/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the test module kvpool_pin and its user, tests/kmod/test_pin.c, have in
 * common. For root and for tests: no ABI.
 */
#ifndef TARN_TESTS_KMOD_KVPOOL_PIN_H
#define TARN_TESTS_KMOD_KVPOOL_PIN_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KVPOOL_PIN_DEVICE "/dev/kvpool_pin"
#define KVPOOL_PIN_MOST_PAGES 4096

struct kvpool_pin_range {
	__aligned_u64 address; /* page-aligned */
	__u32 nr_pages;
	__u32 pad;
};

/* Pins a range for writing and for long; EBUSY where one is pinned already. */
#define KVPOOL_PIN_TAKE _IOW(0xBD, 0, struct kvpool_pin_range)
/* Writes a byte, the argument itself, all over the pinned pages. */
#define KVPOOL_PIN_FILL _IO(0xBD, 1)
#define KVPOOL_PIN_DROP _IO(0xBD, 2)
/*
 * Locks the folio of the first pinned page, until KVPOOL_PIN_UNLOCK: a fault
 * that wants to map it waits meanwhile, as it does for a page being migrated.
 */
#define KVPOOL_PIN_LOCK _IO(0xBD, 3)
#define KVPOOL_PIN_UNLOCK _IO(0xBD, 4)

#endif /* TARN_TESTS_KMOD_KVPOOL_PIN_H */
