/* Part of sion_cxx.h. */
#include "sion_cxx.h"
