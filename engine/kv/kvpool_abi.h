/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's ABI beside libkvpool.h. The two use some names for different
 * things: here those of the ABI begin with kvpool_abi_ or KVPOOL_ABI_. Included
 * by kvpool_kernel*.c only, instead of uapi/kvpool.h.
 */
#ifndef TARN_ENGINE_KV_KVPOOL_ABI_H
#define TARN_ENGINE_KV_KVPOOL_ABI_H

#define kvpool_mark kvpool_abi_mark
#define kvpool_buf_stat kvpool_abi_buf_stat
#define KVPOOL_EVENT_PRESSURE KVPOOL_ABI_EVENT_PRESSURE
#define KVPOOL_EVENT_LIMIT KVPOOL_ABI_EVENT_LIMIT
#define KVPOOL_EVENT_PURGED KVPOOL_ABI_EVENT_PURGED

#include "uapi/kvpool.h"

/* Macros of the ABI that are expanded later name none of these: numbers hold no struct. */
#undef kvpool_mark
#undef kvpool_buf_stat
#undef KVPOOL_EVENT_PRESSURE
#undef KVPOOL_EVENT_LIMIT
#undef KVPOOL_EVENT_PURGED

#endif /* TARN_ENGINE_KV_KVPOOL_ABI_H */
