/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The version that tarnd and tarn tell.
 */
#ifndef TARN_DAEMON_VERSION_H
#define TARN_DAEMON_VERSION_H

#define TARN_VERSION "0.1.0"

#endif /* TARN_DAEMON_VERSION_H */
