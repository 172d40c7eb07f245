/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise and reducing kernels in plain C: the definition of the bits; the bodies and
 * their contract are in elementwise.h. Pure functions, any thread.
 */
#define ELEMENTWISE(name) name##_ref
#include "kernels/cpu/elementwise.h"
