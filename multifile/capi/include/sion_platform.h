/* Nothing depends on the platform here; programs that include this file find it. */
#ifndef SION_PLATFORM_H
#define SION_PLATFORM_H

#include "sion_const.h"
#include "sion_datatypes.h"

#endif
